<?php

declare(strict_types=1);

namespace Sluicegate;

/**
 * Who decided.
 */
enum Mode: string
{
    /** Redis decided. */
    case Store = 'store';
    /** The server decided, from permits that its store has set aside for it. What is left may be less by what others took since. */
    case Leased = 'leased';
    /** This host knows from Redis that it is refused until then. */
    case Remembered = 'remembered';
    /** Redis did not answer, and this host decided by its share of the limit. */
    case Local = 'local';
    /** Redis did not answer or cannot read the key, and the policy says `on_store_failure: allow`. */
    case Allow = 'allow';
    /** Redis did not answer and the policy says `deny`; or Redis cannot read the key, and it says `deny` or `local`. */
    case Deny = 'deny';
    /** Redis answers, but did not come to a decision on this key in time: refused. */
    case Shed = 'shed';
}

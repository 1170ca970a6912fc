<?php

declare(strict_types=1);

namespace Sluicegate;

/**
 * The way in which a request was decided.
 */
enum Mode: string
{
    /** Redis decided. */
    case Store = 'store';
    /** The server decided from its lease; fewer permits may be left than `remaining` if others took some since. */
    case Leased = 'leased';
    /** A refusal of Redis was repeated until its retry, without asking Redis again. */
    case Remembered = 'remembered';
    /** Redis did not answer, and the local share of the limit decided. */
    case Local = 'local';
    /** Redis did not answer or cannot read the key, and the policy is `on_store_failure: allow`. */
    case Allow = 'allow';
    /** Redis did not answer and the policy is `deny`; or Redis cannot read the key, and it is `deny` or `local`. */
    case Deny = 'deny';
    /** Redis answered, but did not decide on this key in time: refused. */
    case Shed = 'shed';
}

<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

/**
 * The reason why Redis did not decide a request.
 *
 * @internal
 */
enum FailureKind
{
    /** Redis does not answer: the only failure that the breaker counts. */
    case NoAnswer;
    /** Redis answers, but not on this key in time. */
    case Contended;
    /** The time is over, and Redis is only busy: others got replies meanwhile, or this process ran too late. */
    case Overloaded;
    /** Something is wrong with this key alone. */
    case ThisKey;
}

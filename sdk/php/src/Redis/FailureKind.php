<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

/**
 * What a question that Redis did not decide comes to.
 */
enum FailureKind
{
    /** Redis does not answer: the only failure that the breaker counts. */
    case NoAnswer;
    /** Redis answers, but not on this key in time. */
    case Contended;
    /** Something is wrong with this key alone. */
    case ThisKey;
}

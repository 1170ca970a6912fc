<?php

declare(strict_types=1);

namespace Sluicegate;

/**
 * What a policy makes of a request over the limit.
 */
enum OverflowKind: string
{
    case Reject = 'reject';
    case Shadow = 'shadow';
    case Queue = 'queue';
    case Degrade = 'degrade';
    case Divert = 'divert';
}

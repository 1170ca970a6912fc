<?php

declare(strict_types=1);

namespace Sluicegate;

/**
 * The action of a policy over the limit.
 */
enum OverflowKind: string
{
    case Reject = 'reject';
    case Shadow = 'shadow';
    case Queue = 'queue';
    case Degrade = 'degrade';
    case Divert = 'divert';
}

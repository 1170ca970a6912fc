<?php

declare(strict_types=1);

namespace Sluicegate\Rules;

/**
 * What becomes of usage when rules change. The value is its code in the rules.
 */
enum Carry: int
{
    case Usage = 0;
    case Proportional = 1;
    case Reset = 2;
}

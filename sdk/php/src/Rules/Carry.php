<?php

declare(strict_types=1);

namespace Sluicegate\Rules;

/**
 * The usage that a changed rule keeps. The value is its code in the rules.
 *
 * @internal
 */
enum Carry: int
{
    case Usage = 0;
    case Proportional = 1;
    case Reset = 2;
}

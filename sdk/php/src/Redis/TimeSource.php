<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

/**
 * The clock by which the script decides. The value is its code in a request.
 *
 * @internal
 */
enum TimeSource: int
{
    case Server = 0;
    case Given = 1;
    case Caller = 2;
}

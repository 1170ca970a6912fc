<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

use RuntimeException;
use Throwable;

/**
 * A command has no reply: the connection could not be made, was lost, or timed out.
 */
final class ConnectionFailure extends RuntimeException
{
    /**
     * @param bool $sent whether the command may have been executed
     */
    public function __construct(string $message, public readonly bool $sent, ?Throwable $previous = null)
    {
        parent::__construct($message, 0, $previous);
    }
}

<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

use RuntimeException;
use Throwable;

/**
 * A command has no reply: the connection could not be made, was refused or lost, or timed out.
 */
final class ConnectionFailure extends RuntimeException
{
    /** Value of `$word` if the other end does not speak as Redis does. */
    public const NOT_REDIS = 'NOT_REDIS';

    /**
     * @param bool $sent whether the command may have been executed
     * @param string $word the first word of the error with which Redis refused the connection, such as `WRONGPASS`, or
     *   `NOT_REDIS`; empty if there was no answer
     */
    public function __construct(
        string $message,
        public readonly bool $sent,
        ?Throwable $previous = null,
        public readonly string $word = '',
    ) {
        parent::__construct($message, 0, $previous);
    }
}

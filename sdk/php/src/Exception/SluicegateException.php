<?php

declare(strict_types=1);

namespace Sluicegate\Exception;

use RuntimeException;

/**
 * There is no decision, and why. A refusal is a decision, and no exception.
 */
class SluicegateException extends RuntimeException
{
    /**
     * @param string $errorName what happened, by a name that is the same in all languages, such as `unknown_policy`
     * @param string $message the text for people
     */
    public function __construct(
        public readonly string $errorName,
        string $message,
        ?\Throwable $previous = null,
    ) {
        parent::__construct($message, 0, $previous);
    }
}

<?php

declare(strict_types=1);

namespace Sluicegate\Exception;

use RuntimeException;

/**
 * There is no decision, and why. A refusal is a decision, and no exception.
 */
abstract class SluicegateException extends RuntimeException
{
    private Charged $charged = Charged::No;

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

    /** The charge of the request: that it has no decision does not mean that it took no effect. */
    public function charged(): Charged
    {
        return $this->charged;
    }

    /**
     * This exception, as the server says it.
     *
     * @internal
     */
    public function saying(Charged $charged): static
    {
        $this->charged = $charged;
        return $this;
    }
}

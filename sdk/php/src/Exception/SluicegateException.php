<?php

declare(strict_types=1);

namespace Sluicegate\Exception;

use RuntimeException;

/**
 * There is no decision, and why. A refusal is a decision, and no exception.
 */
abstract class SluicegateException extends RuntimeException
{
    /** What an error says of a text from outside, in bytes: longer ones would fill the logs of a program. */
    private const BYTES_MAX = 1024;

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

    /**
     * A text that comes from outside, such as what Redis or a server says of an error: itself, or its beginning with
     * `…`.
     *
     * @internal
     */
    public static function cut(string $text): string
    {
        if (strlen($text) <= self::BYTES_MAX) {
            return $text;
        }
        $end = self::BYTES_MAX;
        // Not in the middle of a character, which has 4 bytes at most.
        while ($end > self::BYTES_MAX - 4 && (ord($text[$end]) & 0xc0) === 0x80) {
            $end--;
        }
        return substr($text, 0, $end) . '…';
    }
}

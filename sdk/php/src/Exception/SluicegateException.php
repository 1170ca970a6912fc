<?php

declare(strict_types=1);

namespace Sluicegate\Exception;

use RuntimeException;

/**
 * The reason why there is no decision. A refusal is a decision, not an exception.
 */
abstract class SluicegateException extends RuntimeException
{
    /** The most bytes of a text from outside that an error shows: longer ones would fill the logs of a program. */
    private const BYTES_MAX = 1024;

    private Charged $charged = Charged::No;

    /**
     * @param string $errorName the error's name, which is the same in all languages, such as `unknown_policy`
     * @param string $message the text for people
     */
    public function __construct(
        public readonly string $errorName,
        string $message,
        ?\Throwable $previous = null,
    ) {
        parent::__construct($message, 0, $previous);
    }

    /** Returns whether the request took effect, which is possible even without a decision. */
    public function charged(): Charged
    {
        return $this->charged;
    }

    /**
     * Sets the effect that the server reported, and returns this exception.
     *
     * @internal
     */
    public function setCharged(Charged $charged): static
    {
        $this->charged = $charged;
        return $this;
    }

    /**
     * Returns a text from outside, such as an error of Redis or a server: whole, or its beginning with `…`, in a line.
     *
     * @internal
     */
    public static function truncate(string $text): string
    {
        $text = trim((string) preg_replace('/[\x00-\x1f\x7f]+/', ' ', $text));
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

<?php

declare(strict_types=1);

namespace Sluicegate\Exception;

/**
 * There is no decision: Redis or the server did not answer, and `on_store_failure` does not apply.
 */
class StoreUnavailable extends SluicegateException
{
    /**
     * @param string $cause what happened; cut at 1,024 bytes
     * @param bool $perhapsCharged whether the request may have been executed; it was not repeated
     * @param string|null $name the error's name; null: `perhaps_charged` or `not_charged`
     */
    public function __construct(
        string $cause,
        public readonly bool $perhapsCharged,
        ?\Throwable $previous = null,
        ?string $name = null,
    ) {
        $name ??= $perhapsCharged ? 'perhaps_charged' : 'not_charged';
        $what = $perhapsCharged ? 'perhaps charged, not repeated' : 'nothing was charged';
        parent::__construct($name, 'store: ' . self::truncate($cause) . "; $what", $previous);
        $this->setCharged($perhapsCharged ? Charged::Unknown : Charged::No);
    }

    /**
     * Returns the exception for a server whose store does not answer.
     *
     * @internal
     * @param string $detail the server's explanation, which becomes the message
     */
    public static function ofServer(string $detail, Charged $charged): self
    {
        $exception = new self($detail, $charged !== Charged::No);
        $exception->message = self::truncate($detail);
        return $exception->setCharged($charged);
    }
}

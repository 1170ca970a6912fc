<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

use RuntimeException;

/**
 * Redis did not decide.
 *
 * @internal
 */
final class StoreFailure extends RuntimeException
{
    /**
     * @param bool $perhapsCharged whether the request may have been executed
     * @param string $word the first word of the error that Redis answered, such as `OOM`; `NOT_REDIS` if the answer is
     *   not one of Redis; empty if there is none
     */
    public function __construct(
        public readonly FailureKind $kind,
        public readonly bool $perhapsCharged,
        string $cause,
        ?\Throwable $previous = null,
        public readonly string $word = '',
    ) {
        parent::__construct($cause, 0, $previous);
    }

    /** Returns what Redis does, in words for logs and errors, before the cause. */
    public function what(): string
    {
        return match ($this->word) {
            '' => 'does not answer',
            ConnectionFailure::NOT_REDIS => 'answers, but not as Redis does',
            default => 'answers with an error',
        };
    }

    /** Returns the failure for an error of Redis. */
    public static function of(ErrorReply $error): self
    {
        $neverBegan = [
            'NOSCRIPT', 'MOVED', 'ASK', 'TRYAGAIN', 'CLUSTERDOWN', 'CROSSSLOT', 'LOADING', 'MASTERDOWN', 'BUSY',
            'NOAUTH', 'READONLY', 'NOREPLICAS', 'MISCONF', 'NOPERM', 'OOM',
        ];
        $code = $error->code();
        return match (true) {
            $code === 'WRONGTYPE' => new self(FailureKind::ThisKey, false, $error->message, word: $code),
            in_array($code, $neverBegan, true) =>
                new self(FailureKind::NoAnswer, false, $error->message, word: $code),
            default => new self(FailureKind::NoAnswer, true, $error->message, word: $code),
        };
    }
}

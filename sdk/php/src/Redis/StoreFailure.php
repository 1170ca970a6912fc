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
     * @param string $word the first word of the error that Redis answered, such as `OOM`; empty if there is none
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

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
     */
    public function __construct(
        public readonly FailureKind $kind,
        public readonly bool $perhapsCharged,
        string $cause,
        ?\Throwable $previous = null,
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
            $code === 'WRONGTYPE' => new self(FailureKind::ThisKey, false, $error->message),
            in_array($code, $neverBegan, true) => new self(FailureKind::NoAnswer, false, $error->message),
            default => new self(FailureKind::NoAnswer, true, $error->message),
        };
    }
}

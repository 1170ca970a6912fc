<?php

declare(strict_types=1);

namespace Sluicegate\Exception;

/**
 * A problem of a server for which there is no other exception, such as an unknown token.
 */
final class ServerProblem extends SluicegateException
{
    /** The server's explanation, cut at 1,024 bytes. */
    public readonly string $detail;

    /** @param int $status the status of HTTP, 0 over RESP */
    public function __construct(public readonly int $status, string $detail)
    {
        $this->detail = self::truncate($detail);
        parent::__construct('server', "server: $status $this->detail");
        $this->setCharged(Charged::Unknown);
    }

    /** Returns whether the server, or a balancer before it, cannot answer now; else request or token are wrong. */
    public function isOutage(): bool
    {
        return $this->status === 429 || $this->status >= 500;
    }
}

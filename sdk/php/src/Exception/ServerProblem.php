<?php

declare(strict_types=1);

namespace Sluicegate\Exception;

/**
 * A server answers with a problem that has no name here, such as a token that it does not know.
 */
final class ServerProblem extends SluicegateException
{
    /** What the server says of it, cut at 1,024 bytes. */
    public readonly string $detail;

    /** @param int $status the status of HTTP, 0 over RESP */
    public function __construct(public readonly int $status, string $detail)
    {
        $this->detail = self::cut($detail);
        parent::__construct('server', "server: $status $this->detail");
        $this->saying(Charged::Unknown);
    }

    /** Whether the server, or a balancer before it, cannot answer now; else the request or its token is wrong. */
    public function isOutage(): bool
    {
        return $this->status === 429 || $this->status >= 500;
    }
}

<?php

declare(strict_types=1);

namespace Sluicegate\Exception;

/**
 * A server answers with a problem that has no name here, such as a token that it does not know.
 */
final class ServerProblem extends SluicegateException
{
    /** @param int $status the status of HTTP, 0 over RESP */
    public function __construct(public readonly int $status, public readonly string $detail)
    {
        parent::__construct('server', "server: $status $detail");
    }
}

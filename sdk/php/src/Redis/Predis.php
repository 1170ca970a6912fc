<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

use Predis\Client;
use Predis\Connection\NodeConnectionInterface;
use Predis\PredisException;
use Predis\Response\Status;

/**
 * Redis by Predis (^1.1 || ^2 || ^3). A prefix of the client does not matter.
 */
final class Predis implements Runner
{
    /** @param Client $client a single Redis, or a cluster */
    public function __construct(private readonly Client $client)
    {
    }

    public function run(string $key, array $command, int $leftUs): mixed
    {
        try {
            $connection = $this->client->getConnection();
            $connection = $connection instanceof NodeConnectionInterface ? $connection : null;
            if ($connection !== null && is_resource($resource = $connection->getResource())) {
                $leftUs = max($leftUs, 1000);
                stream_set_timeout($resource, intdiv($leftUs, 1_000_000), $leftUs % 1_000_000);
            }
        } catch (PredisException $e) {
            throw new ConnectionFailure($e->getMessage(), false, $e);
        }
        try {
            $error = false;
            $reply = $this->client->executeRaw(array_map(strval(...), $command), $error);
        } catch (PredisException $e) {
            $this->client->disconnect();
            throw new ConnectionFailure($e->getMessage(), true, $e);
        }
        if ($error) {
            return new ErrorReply((string) $reply);
        }
        return $reply instanceof Status ? (string) $reply : $reply;
    }

    public function endpoint(): string
    {
        $connection = $this->client->getConnection();
        if (!$connection instanceof NodeConnectionInterface) {
            return 'cluster';
        }
        $at = $connection->getParameters();
        return ($at->path ?? "$at->host:$at->port") . '/' . ($at->database ?? 0);
    }
}

<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

use InvalidArgumentException;
use Predis\Client;
use Predis\Command\RawCommand;
use Predis\Connection\NodeConnectionInterface;
use Predis\PredisException;
use Predis\Protocol\ProtocolException;
use Predis\Response\ErrorInterface;
use Predis\Response\Status;

/**
 * Redis by Predis (^1.1 || ^2 || ^3): a single one, a cluster, or a master that Sentinels name. A prefix of the client
 * has no effect.
 *
 * Predis sends a command again by itself after a lost connection to a cluster or a master, so this package chooses the
 * node, and sends to it directly.
 */
final class Predis implements Runner, Nodes
{
    /** The most redirections of one command: a slot moves once, with one ASK while it moves. */
    private const REDIRECTS_MAX = 3;

    /** @var array<int, NodeConnectionInterface> the new nodes of slots that moved; a cluster has 16,384 slots */
    private array $moved = [];

    /** The node that answered last. */
    private ?NodeConnectionInterface $last = null;

    /** The name of the node that got the last command. */
    private string $lastNode = '';

    /** The process whose connections these are. */
    private int $pid;

    /** @throws InvalidArgumentException if the client shards keys by itself, which servers do not */
    public function __construct(private readonly Client $client)
    {
        $connection = $client->getConnection();
        $isKnown = $connection instanceof NodeConnectionInterface
            || method_exists($connection, 'getConnectionBySlot') || method_exists($connection, 'getMaster');
        if (!$isKnown) {
            throw new InvalidArgumentException('the client of Redis is neither single, nor a cluster, nor replicated');
        }
        $this->pid = (int) getmypid();
    }

    public function run(string $key, array $command, int $leftUs): mixed
    {
        if (getmypid() !== $this->pid) {
            $this->leaveToParent();
        }
        $command = array_map(strval(...), $command);
        // A script goes to the node that does not have it: while a slot moves, that is not the slot's owner.
        $node = $command[0] === 'SCRIPT' && $this->last !== null ? $this->last : $this->node($key);
        $reply = $this->send($node, $command, $leftUs);
        for ($redirect = 0; $redirect < self::REDIRECTS_MAX && $reply instanceof ErrorReply; $redirect++) {
            if (!preg_match('/^(MOVED|ASK) (\d+) (\S+)/', $reply->message, $to)) {
                break;
            }
            $node = $this->nodeAt($to[3]);
            if ($to[1] === 'MOVED') {
                $this->moved[(int) $to[2]] = $node;
            } else {
                $this->send($node, ['ASKING'], $leftUs);
            }
            $reply = $this->send($node, $command, $leftUs);
        }
        if ($reply instanceof ErrorReply && $reply->code() === 'READONLY') {
            // The master has become a replica.
            $this->disconnect($node);
        }
        return $reply;
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

    /** Closes this process' ends of the connections of its parent, whose replies it must not read. */
    private function leaveToParent(): void
    {
        $this->client->getConnection()->disconnect();
        foreach ($this->moved as $node) {
            $node->disconnect();
        }
        [$this->pid, $this->moved, $this->last] = [(int) getmypid(), [], null];
    }

    /** @internal */
    public function lastNode(): string
    {
        return $this->lastNode;
    }

    private function node(string $key): NodeConnectionInterface
    {
        $connection = $this->client->getConnection();
        if ($connection instanceof NodeConnectionInterface) {
            return $connection;
        }
        try {
            if (method_exists($connection, 'getConnectionBySlot')) {
                $slot = $connection->getClusterStrategy()->getSlotByKey($key);
                return $this->moved[$slot] ?? $connection->getConnectionBySlot($slot);
            }
            return $connection->getMaster();
        } catch (PredisException $e) {
            throw new ConnectionFailure($e->getMessage(), false, $e);
        }
    }

    private function nodeAt(string $address): NodeConnectionInterface
    {
        $cluster = $this->client->getConnection();
        $colon = (int) strrpos($address, ':');
        $at = ['host' => substr($address, 0, $colon), 'port' => (int) substr($address, $colon + 1)];
        return $cluster->getConnectionById($address) ?? $cluster->getConnectionFactory()->create($at);
    }

    /** @param non-empty-list<string> $command */
    private function send(NodeConnectionInterface $node, array $command, int $leftUs): mixed
    {
        $this->lastNode = (string) $node;
        try {
            $node->connect();
            self::await($node, max($leftUs, 1000));
        } catch (PredisException $e) {
            $this->disconnect($node);
            throw self::failure($e, false);
        }
        try {
            $reply = $node->executeCommand(RawCommand::create(...$command));
        } catch (PredisException $e) {
            $this->disconnect($node);
            throw self::failure($e, true);
        }
        // The program awaits its own replies for as long as it set.
        $seconds = (float) ($node->getParameters()->read_write_timeout ?? ini_get('default_socket_timeout'));
        self::await($node, $seconds > 0 ? (int) (1_000_000 * $seconds) : -1_000_000);
        $this->last = $node;
        if ($reply instanceof ErrorInterface) {
            return new ErrorReply($reply->getMessage());
        }
        return $reply instanceof Status ? (string) $reply : $reply;
    }

    private static function failure(PredisException $e, bool $sent): ConnectionFailure
    {
        // "`AUTH` failed: WRONGPASS …": Redis answered a command that Predis sends when it connects.
        $isError = preg_match('/^`\w+` failed: -?([A-Z]{2,}) /', $e->getMessage(), $error);
        $word = $isError ? $error[1] : ($e instanceof ProtocolException ? ConnectionFailure::NOT_REDIS : '');
        return new ConnectionFailure($e->getMessage(), $sent, $e, $word);
    }

    /** Sets the longest wait for a reply; a negative number: for ever. */
    private static function await(NodeConnectionInterface $node, int $us): void
    {
        if (is_resource($resource = $node->getResource())) {
            stream_set_timeout($resource, intdiv($us, 1_000_000), $us % 1_000_000);
        }
    }

    /** Closes a connection, so that a late reply is never read as that of the next command, which may go elsewhere. */
    private function disconnect(NodeConnectionInterface $node): void
    {
        $node->disconnect();
        $this->last = null;
        $connection = $this->client->getConnection();
        if (!$connection instanceof NodeConnectionInterface) {
            $this->moved = array_filter($this->moved, static fn (object $other): bool => $other !== $node);
            $connection->remove($node);
        }
    }
}

<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

/**
 * A connection to Redis, by any client. The package needs nothing else of a client.
 */
interface Runner
{
    /**
     * Sends a command once, and reads its reply.
     *
     * A client that sends a command again by itself, after a lost connection for instance, must not do so here. On a
     * cluster the command goes to the node of `$key`, and redirections are followed, but `SCRIPT` goes to the node that
     * answered last.
     *
     * @param string $key the key by which a node is chosen; on a single Redis it does not matter
     * @param non-empty-list<string|int> $command
     * @param int $leftUs the longest wait for the reply, in µs
     * @return mixed a text, an integer, null, a list of such, or an ErrorReply
     * @throws ConnectionFailure if there is no reply
     */
    public function run(string $key, array $command, int $leftUs): mixed;

    /** Returns the name of this Redis, such as `10.0.0.5:6379`: what a host learns of one is not used for another. */
    public function endpoint(): string;
}

<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

/**
 * A connection to several servers of Redis, of which one may be silent while others reply.
 *
 * @internal
 */
interface Nodes
{
    /** Returns the name of the server that got the last command. */
    public function lastNode(): string;
}

package io.sluicegate;

import java.util.concurrent.CompletableFuture;

/** A way to Redis that holds no thread while a command is under way. */
public interface AsyncRedisPort extends RedisPort {
    /**
     * Sends a command. Where {@link RedisPort#call} throws a {@link RedisPort.Failure}, the future fails with it, at the latest when
     * the time is over. What depends on the future runs on a thread of the port, so it must not block.
     *
     * @param timeoutNanos how long the reply may take
     * @param command the command and its arguments
     * @return a future of what {@link RedisPort#call} returns
     */
    CompletableFuture<Object> send(long timeoutNanos, byte[]... command);
}

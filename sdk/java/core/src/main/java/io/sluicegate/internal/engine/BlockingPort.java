package io.sluicegate.internal.engine;

import io.sluicegate.AsyncRedisPort;
import io.sluicegate.RedisPort;
import io.sluicegate.internal.AsyncPool;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;

/**
 * Futures for a port whose calls block: each command of a caller that does not wait holds a thread of the pool. Its deadline is that of
 * the call, so a future that is given up only waits for that.
 */
record BlockingPort(RedisPort port, AsyncPool pool) implements AsyncRedisPort {
    @Override
    public Object call(long timeoutNanos, byte[]... command) throws Failure, InterruptedException {
        return port.call(timeoutNanos, command);
    }

    @Override
    public CompletableFuture<Object> send(long timeoutNanos, byte[]... command) {
        return AsyncPool.submit(pool, () -> port.call(timeoutNanos, command));
    }

    @Override
    public void subscribe(String channel, Consumer<String> listener) {
        port.subscribe(channel, listener);
    }

    @Override
    public String address() {
        return port.address();
    }

    @Override
    public void close() {
        port.close();
    }
}

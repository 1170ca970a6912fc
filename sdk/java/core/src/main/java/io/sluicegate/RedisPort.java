package io.sluicegate;

import java.util.function.Consumer;

/**
 * A way to Redis. It sends each command once: where a connection is lost, a command that was under way fails and is
 * <em>not</em> sent again. It is safe for all threads.
 */
public interface RedisPort extends AutoCloseable {
    /**
     * Sends a command and waits for its reply.
     *
     * @param timeoutNanos how long to wait
     * @param command the command and its arguments
     * @return a {@code byte[]}, a {@link Long}, a {@link java.util.List} of these, a {@link ReplyError}, or null
     * @throws Failure if there is no reply
     * @throws InterruptedException if the thread is interrupted while it waits
     */
    Object call(long timeoutNanos, byte[]... command) throws Failure, InterruptedException;

    /**
     * Listens to a channel, also after the connection was lost and made again, until the port is closed.
     *
     * @param channel its name
     * @param listener what is done with each message; it returns at once. It gets an empty text whenever the port has begun
     *     to listen, as messages may have been missed before
     */
    void subscribe(String channel, Consumer<String> listener);

    /** Ends the connections. */
    @Override
    void close();

    /**
     * An error that Redis answers instead of a reply.
     *
     * @param text the error, such as {@code WRONGTYPE Operation against a key}
     */
    record ReplyError(String text) {}

    /** There is no reply. */
    final class Failure extends Exception {
        private static final long serialVersionUID = 1;

        /** True if Redis may have executed the command. */
        private final boolean perhapsExecuted;
        /** True if the time was over. */
        private final boolean timeout;

        /**
         * Says why there is no reply.
         *
         * @param message what happened
         * @param perhapsExecuted whether Redis may have executed the command
         * @param timeout whether the time was over
         */
        public Failure(String message, boolean perhapsExecuted, boolean timeout) {
            super(message);
            this.perhapsExecuted = perhapsExecuted;
            this.timeout = timeout;
        }

        /** {@return whether Redis may have executed the command} */
        public boolean perhapsExecuted() {
            return perhapsExecuted;
        }

        /** {@return whether the time was over} */
        public boolean timeout() {
            return timeout;
        }
    }
}

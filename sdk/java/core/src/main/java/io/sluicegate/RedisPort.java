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

    /** {@return where Redis is, as {@code HOST:PORT} and without credentials, for the log and for the health of the program} */
    default String address() {
        return getClass().getSimpleName();
    }

    /** Ends the connections. */
    @Override
    void close();

    /**
     * An error that Redis answers instead of a reply.
     *
     * @param text the error, such as {@code WRONGTYPE Operation against a key}
     */
    record ReplyError(String text) {}

    /**
     * The signs of Redis on a connection when the time of a call was over.
     *
     * @param silentNanos the time since the last reply over it, also one that came too late; at most since something was sent over it while
     *     it was idle
     * @param waiting the number of calls that wait on it
     * @param slowAlone the number of calls on end that were sent while it was idle, and whose time was over before their reply
     */
    record Signs(long silentNanos, int waiting, int slowAlone) {}

    /** There is no reply. */
    final class Failure extends Exception {
        private static final long serialVersionUID = 1;

        /** True if Redis may have executed the command. */
        private final boolean perhapsExecuted;
        /** True if the time was over. */
        private final boolean timeout;
        /** The signs on the connection by then. */
        private final transient Signs signs;

        /**
         * The failure of a call without a reply.
         *
         * @param message what happened
         * @param perhapsExecuted whether Redis may have executed the command
         * @param timeout whether the time was over
         */
        public Failure(String message, boolean perhapsExecuted, boolean timeout) {
            this(message, perhapsExecuted, timeout, null);
        }

        /**
         * Says that the time was over, and what the connection has shown of Redis by then.
         *
         * @param message what happened
         * @param perhapsExecuted whether Redis may have executed the command
         * @param signs the signs that distinguish a busy Redis from a silent one
         */
        public Failure(String message, boolean perhapsExecuted, Signs signs) {
            this(message, perhapsExecuted, true, signs);
        }

        private Failure(String message, boolean perhapsExecuted, boolean timeout, Signs signs) {
            super(message);
            this.perhapsExecuted = perhapsExecuted;
            this.timeout = timeout;
            this.signs = signs;
        }

        /** {@return whether Redis may have executed the command} */
        public boolean perhapsExecuted() {
            return perhapsExecuted;
        }

        /** {@return whether the time was over} */
        public boolean timeout() {
            return timeout;
        }

        /** {@return what the connection has shown when the time was over; null if the port does not report it} */
        public Signs signs() {
            return signs;
        }
    }
}

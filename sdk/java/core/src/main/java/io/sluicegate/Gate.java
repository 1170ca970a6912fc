package io.sluicegate;

/** Where limits are asked for. A program makes one and closes it at its end. It is safe for all threads. */
public interface Gate extends AutoCloseable {
    /**
     * The limiter of a policy. That there is such a policy is found when it is asked.
     *
     * @param name the policy's name
     * @return the limiter, which may be kept
     */
    Limiter policy(String name);

    /**
     * Ends connections and threads of this gate. What is owed to Redis is paid for at most a second. Closing it again does nothing. Its
     * limiters must not be asked any more: they may decide as without Redis, or fail.
     */
    @Override
    void close();
}

package io.sluicegate;

import io.sluicegate.internal.Texts;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * The source of limiters. A program makes one and closes it at its end. It is safe for all threads. Once a gate that decides in Redis is closed, requests
 * fail with {@link ErrorCode#NOT_CHARGED}.
 */
public interface Gate extends AutoCloseable {
    /**
     * The limiter of a policy. Whether there is such a policy is found with the first request.
     *
     * @param name the policy's name
     * @return the limiter, which may be kept
     */
    Limiter policy(String name);

    /**
     * Asks for policies, so that a wrong name is found at the start and not by the first request. It charges nothing.
     *
     * @param names the names of the policies that the program uses
     * @throws SluicegateException if one cannot be decided by; the message names each of those. If nobody answers, with
     *     {@link ErrorCode#NOT_CHARGED} or {@link ErrorCode#PERHAPS_CHARGED}
     */
    default void require(Collection<String> names) {
        Map<String, SluicegateException> problems = new LinkedHashMap<>();
        for (String name : names) {
            try {
                policy(name).shared().peek("");
            } catch (SluicegateException e) {
                switch (e.code()) {
                    case UNKNOWN_POLICY, NOTHING_PUBLISHED, POLICY_NOT_AVAILABLE, APP_MISSING, UNREADABLE_POLICY ->
                        problems.putIfAbsent(e.getMessage(), e);
                    default -> throw e;
                }
            }
        }
        if (!problems.isEmpty()) {
            throw new SluicegateException(problems.values().iterator().next().code(), Texts.truncate(String.join("; ", problems.keySet())));
        }
    }

    /** {@return whether what decides for this gate does so, and if not, why not} */
    default GateHealth health() {
        return GateHealth.up("");
    }

    /**
     * Ends connections and threads of this gate. What is owed to Redis is paid for at most a second. Closing it again does nothing. Its
     * limiters must not be used any more: they may decide as without Redis, or fail.
     */
    @Override
    void close();
}

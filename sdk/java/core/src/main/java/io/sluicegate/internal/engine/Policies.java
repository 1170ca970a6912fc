package io.sluicegate.internal.engine;

import static io.sluicegate.internal.redis.Keys.ascii;

import io.sluicegate.ErrorCode;
import io.sluicegate.RedisPort;
import io.sluicegate.internal.Texts;
import io.sluicegate.internal.redis.Keys;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.ReentrantLock;

/** The published policies that the program uses. */
final class Policies {
    /** Policies that a program may use; a server holds no more. */
    private static final int POLICIES_MAX = 10_000;
    private static final long SAY_AGAIN_MS = 60_000;
    private static final List<String> ABOUT = List.of("#format", "#revision", "#clock", "#nodes");
    private static final System.Logger LOG = System.getLogger("io.sluicegate");

    private final RedisStore store;
    private final Options options;
    private final PolicyBook book;
    private final ReentrantLock looking = new ReentrantLock();
    private final Set<String> names = ConcurrentHashMap.newKeySet();
    private final Set<String> looked = ConcurrentHashMap.newKeySet();
    private final Map<String, Long> saidAt = new ConcurrentHashMap<>();

    Policies(RedisStore store, Options options) {
        this.store = store;
        this.options = options;
        this.book = new PolicyBook(this::say);
    }

    // What cannot be read is said once a minute.
    private void say(String policy, String problem) {
        long now = options.nowMs();
        Long last = saidAt.get(policy);
        if (last == null || now - last >= SAY_AGAIN_MS) {
            saidAt.put(policy, now);
            LOG.log(System.Logger.Level.WARNING, "policy `" + policy + "` cannot be read: " + Texts.cut(problem));
        }
    }

    PolicyBook book() {
        return book;
    }

    /** {@return the policy of a name; one that was never asked for is looked for at once} */
    PolicyBook.Held find(String name) throws InterruptedException {
        PolicyBook.Held held = book.get(name);
        if (held == null && !looked.contains(name) && names.size() < POLICIES_MAX) {
            names.add(name);
            try {
                lookFor(name);
            } catch (RedisPort.Failure failure) {
                throw ErrorCode.NOT_CHARGED.with(Map.of("cause", failure.getMessage()));
            }
            held = book.get(name);
        }
        if (held == null) {
            throw ErrorCode.UNKNOWN_POLICY.with(Map.of("policy", name));
        }
        if (held.policy() == null) {
            throw ErrorCode.UNREADABLE_POLICY.with(Map.of("policy", name, "cause", held.problem()));
        }
        return held;
    }

    // Of callers that ask for a new policy at a time, one looks.
    private void lookFor(String name) throws RedisPort.Failure, InterruptedException {
        looking.lockInterruptibly();
        try {
            if (!looked.contains(name)) {
                look(false);
            }
        } finally {
            looking.unlock();
        }
    }

    void look(boolean heard) throws RedisPort.Failure, InterruptedException {
        looking.lockInterruptibly();
        try {
            List<String> wanted = List.copyOf(names);
            List<String> asked = new ArrayList<>(ABOUT);
            asked.addAll(wanted);
            byte[][] command = new byte[asked.size() + 2][];
            command[0] = ascii("HMGET");
            command[1] = Keys.POLICIES;
            for (int place = 0; place < asked.size(); place++) {
                command[place + 2] = asked.get(place).getBytes(StandardCharsets.UTF_8);
            }
            Object reply = store.command(command);
            if (reply instanceof List<?> values) {
                Map<String, byte[]> fields = new HashMap<>();
                for (int place = 0; place < asked.size() && place < values.size(); place++) {
                    fields.put(asked.get(place), values.get(place) instanceof byte[] value ? value : null);
                }
                book.look(fields, wanted, heard, options.nowMs());
                looked.addAll(wanted);
            } else {
                throw new RedisPort.Failure("redis does not give the policies", false, false);
            }
        } finally {
            looking.unlock();
        }
    }
}

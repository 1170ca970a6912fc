package io.sluicegate.internal.engine;

import static io.sluicegate.internal.redis.Keys.ascii;

import io.sluicegate.ErrorCode;
import io.sluicegate.RedisPort;
import io.sluicegate.SluicegateException;
import io.sluicegate.internal.Alarm;
import io.sluicegate.internal.Checks;
import io.sluicegate.internal.Texts;
import io.sluicegate.internal.redis.Keys;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;
import java.util.stream.Stream;

/** The published policies that the program uses. */
final class Policies {
    /** Policies that a program may use; a server holds no more. */
    private static final int POLICIES_MAX = 10_000;
    private static final String UNDECIDED = "requests by it get no decision";
    private static final List<String> METADATA_FIELDS = List.of("#format", "#revision", "#clock", "#nodes");

    private final RedisStore store;
    private final Options options;
    private final StoreWatch watch;
    private final PolicyCatalog catalog;
    private final ReentrantLock applying = new ReentrantLock();
    private final AtomicLong lastLook = new AtomicLong();
    private long lastApplied;
    private final Set<String> names = ConcurrentHashMap.newKeySet();
    private final Set<String> lookedUp = ConcurrentHashMap.newKeySet();
    private final Alarm noPolicies;
    /** Names that requests had and that are not published. */
    private final Set<String> missing = ConcurrentHashMap.newKeySet();
    private final Alarm unknown;
    private final Alarm unreadable;

    Policies(RedisStore store, Options options, StoreWatch watch, Supplier<Alarm> alarms) {
        this.store = store;
        this.options = options;
        this.watch = watch;
        this.noPolicies = alarms.get();
        this.unknown = alarms.get();
        this.unreadable = alarms.get();
        this.catalog = new PolicyCatalog((policy, problem, isHeld) -> unreadable.raise(policy + ": " + problem, "policy `" + policy + "` cannot be read: "
            + Texts.truncate(problem) + ", as the Redis at " + watch.address() + " has it; " + (isHeld ? "the version before decides" : UNDECIDED)));
    }

    PolicyCatalog catalog() {
        return catalog;
    }

    /** Counts a policy as used; returns whether it was not before, so that it has to be looked for. */
    boolean use(String name) {
        return Checks.isName(name) && !names.contains(name) && names.size() < POLICIES_MAX && names.add(name);
    }

    /** {@return the policy of a name; one that was never used is looked for at once} */
    Step<PolicyCatalog.Held> find(String name) {
        if (!Checks.isName(name)) {
            // `#format` and others are fields of the same hash.
            throw notPublished(name);
        }
        // Asked before the catalog, which has the policy by the time that its name counts as looked up.
        boolean isLookedUp = lookedUp.contains(name);
        PolicyCatalog.Held held = catalog.get(name);
        if (held != null || isLookedUp || !names.contains(name) && names.size() >= POLICIES_MAX) {
            return Step.done(usable(name, held));
        }
        names.add(name);
        store.decisionBegins();
        return look(false).map(failure -> {
            if (failure != null) {
                throw ErrorCode.NOT_CHARGED.with(Map.of("cause", failure.getMessage()));
            }
            return usable(name, catalog.get(name));
        });
    }

    /** {@return whether no policy is held} */
    boolean hasNone() {
        return catalog.hasNone();
    }

    /** {@return whether the program uses policies, and none is held} */
    boolean lacksAll() {
        return !names.isEmpty() && hasNone();
    }

    /** {@return what is wrong with what is published where Redis answers, if the program uses policies; else null} */
    String problem() {
        if (names.isEmpty()) {
            return null;
        }
        Map.Entry<String, PolicyCatalog.Held> wrong = catalog.unreadable();
        return catalog.isEmpty() ? nothingPublished().getMessage()
            : catalog.unknownFormat() != null ? "the policies there have the unknown format `" + Texts.truncate(catalog.unknownFormat()) + "`"
            : wrong != null ? "policy `" + wrong.getKey() + "` cannot be read: " + Texts.truncate(wrong.getValue().problem())
            : null;
    }

    /** {@return what decides while there is a problem} */
    String meanwhile() {
        Map.Entry<String, PolicyCatalog.Held> wrong = catalog.unreadable();
        boolean isOfOne = !catalog.isEmpty() && catalog.unknownFormat() == null && wrong != null && wrong.getValue().policy() == null;
        return isOfOne ? UNDECIDED : Texts.READ_BEFORE;
    }

    private SluicegateException nothingPublished() {
        return ErrorCode.NOTHING_PUBLISHED.with(Map.of("address", watch.address()));
    }

    private PolicyCatalog.Held usable(String name, PolicyCatalog.Held held) {
        if (held == null) {
            throw catalog.isEmpty() ? nothingPublished() : unknown(name);
        }
        if (held.policy() == null) {
            throw ErrorCode.UNREADABLE_POLICY.with(Map.of("policy", name, "cause", held.problem()));
        }
        return held;
    }

    private SluicegateException unknown(String name) {
        missing.add(name);
        return notPublished(name);
    }

    private SluicegateException notPublished(String name) {
        unknown.raise(name, "policy `" + name + "` is not published in the Redis at " + watch.address() + "; requests by it get no decision");
        return ErrorCode.UNKNOWN_POLICY.with(Map.of("policy", name));
    }

    /** {@return a look at Redis; its result is null, or why there is none} */
    Step<RedisPort.Failure> look(boolean fromMessage) {
        long number = lastLook.incrementAndGet();
        List<String> wanted = List.copyOf(names);
        List<String> requestedFields = new ArrayList<>(METADATA_FIELDS);
        requestedFields.addAll(wanted);
        Stream<byte[]> fieldNames = requestedFields.stream().map(name -> name.getBytes(StandardCharsets.UTF_8));
        byte[][] command = Stream.concat(Stream.of(ascii("HMGET"), Keys.POLICIES), fieldNames).toArray(byte[][]::new);
        return store.command((reply, failure) -> {
            if (failure != null || !(reply instanceof List<?> values)) {
                String cause = failure != null ? failure.getMessage()
                    : "redis does not give the policies" + (reply instanceof RedisPort.ReplyError error ? ": " + Texts.truncate(error.text()) : "");
                if (failure == null || !store.isBusy(failure)) {
                    watch.failed(cause);
                }
                return Step.done(failure != null ? failure : new RedisPort.Failure(cause, false, false));
            }
            watch.answered();
            Map<String, byte[]> fields = new HashMap<>();
            for (int place = 0; place < requestedFields.size() && place < values.size(); place++) {
                fields.put(requestedFields.get(place), values.get(place) instanceof byte[] value ? value : null);
            }
            apply(number, fields, wanted, fromMessage);
            return Step.done(null);
        }, command);
    }

    // A look that began before one that was taken over has nothing newer: the later one looked for its names too.
    private void apply(long number, Map<String, byte[]> fields, List<String> wanted, boolean fromMessage) {
        applying.lock();
        try {
            if (number > lastApplied) {
                lastApplied = number;
                catalog.look(fields, wanted, fromMessage, options.nowMs());
                lookedUp.addAll(wanted);
            }
        } finally {
            applying.unlock();
        }
        if (wanted.isEmpty()) {
            return;
        }
        if (catalog.isEmpty()) {
            noPolicies.raise("nothing", nothingPublished().getMessage()
                + (hasNone() ? "; requests by policies get no decision" : "; " + Texts.READ_BEFORE));
        } else {
            noPolicies.clear("the Redis at " + watch.address() + " has policies");
            if (catalog.unknownFormat() == null && catalog.unreadable() == null) {
                unreadable.clear("the policies that requests name can be read again in the Redis at " + watch.address());
            }
            if (missing.removeIf(name -> catalog.get(name) != null) && missing.isEmpty()) {
                unknown.clear("the policies that requests name are published in the Redis at " + watch.address() + " again");
            }
        }
    }
}

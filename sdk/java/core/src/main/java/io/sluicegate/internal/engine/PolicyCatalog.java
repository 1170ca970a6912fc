package io.sluicegate.internal.engine;

import io.sluicegate.internal.policy.Policy;
import io.sluicegate.internal.policy.RecordException;
import io.sluicegate.internal.policy.RecordReader;
import io.sluicegate.internal.redis.Request.Clock;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;

/**
 * The policies that a program holds, and what it makes of each look at Redis. One thread looks at a time; all read.
 */
final class PolicyCatalog {
    private static final String FORMAT = "1";
    private static final long NONE = -1;

    private final Unreadable unreadable;
    private volatile Map<String, Held> policies = Map.of();
    private volatile long revision = NONE;
    private volatile Clock clock = Clock.SERVER;
    private volatile long nodes;
    /** True if the last look found nothing at all. */
    private volatile boolean isEmpty;
    /** The format of what is published, if it is not known; else null. */
    private volatile String format;
    private boolean sawEarlier;

    /**
     * A policy that is held.
     *
     * @param policy the policy; null if none could be read, or its published version is a later one
     * @param takenOverMs the instant of its version, in ms since 1970
     * @param problem why the published version cannot be read; null if it can
     */
    record Held(Policy policy, long takenOverMs, String problem) {}

    /** Receives the name of a policy, why it cannot be read, and whether the version before decides. */
    interface Unreadable {
        void found(String policy, String problem, boolean isHeld);
    }

    PolicyCatalog(Unreadable unreadable) {
        this.unreadable = unreadable;
    }

    Held get(String name) {
        return policies.get(name);
    }

    /** {@return the revision that is held, or -1} */
    long revision() {
        return revision;
    }

    /**
     * {@return whether a message of the channel is a reason to look} The revision that is held is one where the last look found none
     * that this program reads: a Redis that came back empty gets the same one again.
     */
    boolean isNews(String message) {
        return message.matches("[0-9]{1,16}") && (Long.parseLong(message) != revision || isEmpty || format != null);
    }

    Clock clock() {
        return clock;
    }

    /** {@return among how many nodes limits are shared, as published; 0 if it is not} */
    long nodes() {
        return nodes;
    }

    /** {@return whether Redis had nothing published when it was looked at last} */
    boolean isEmpty() {
        return isEmpty;
    }

    /** {@return the format of what is published, if this program does not read it; else null} */
    String unknownFormat() {
        return format;
    }

    /** {@return the first policy by name whose published version cannot be read; null if there is none} */
    Map.Entry<String, Held> unreadable() {
        Map.Entry<String, Held> first = null;
        for (Map.Entry<String, Held> each : policies.entrySet()) {
            if (each.getValue().problem != null && (first == null || each.getKey().compareTo(first.getKey()) < 0)) {
                first = each;
            }
        }
        return first;
    }

    /** {@return whether no policy is held, so that none decides} */
    boolean hasNone() {
        return policies.values().stream().allMatch(held -> held.policy == null);
    }

    /**
     * Takes over what a look found.
     *
     * @param fields the fields of the hash
     * @param wanted the names of the policies that were looked for
     * @param fromMessage whether a message was the reason to look
     */
    void look(Map<String, byte[]> fields, Collection<String> wanted, boolean fromMessage, long nowMs) {
        long publishedRevision = number(fields.get("#revision"));
        isEmpty = fields.get("#revision") == null && fields.get("#format") == null;
        if (publishedRevision < 0) {
            sawEarlier &= fromMessage;
            return;
        }
        boolean isKnown = FORMAT.equals(text(fields.get("#format")));
        format = isKnown ? null : text(fields.get("#format"));
        if (!isKnown) {
            unreadable.found("*", "unknown format " + text(fields.get("#format")), !hasNone());
            return;
        }
        clock = "client".equals(text(fields.get("#clock"))) ? Clock.CLIENT : Clock.SERVER;
        nodes = Math.max(number(fields.get("#nodes")), 0);
        if (publishedRevision < revision) {
            if (fromMessage) {
                return;
            }
            if (!sawEarlier) {
                sawEarlier = true;
                return;
            }
        }
        sawEarlier &= fromMessage && publishedRevision == revision;
        boolean same = publishedRevision == revision;
        Map<String, Held> next = new HashMap<>(policies);
        for (String name : wanted) {
            if (!(same && next.containsKey(name))) {
                update(next, name, fields.get(name), nowMs);
            }
        }
        policies = Map.copyOf(next);
        revision = publishedRevision;
    }

    private void update(Map<String, Held> next, String name, byte[] value, long nowMs) {
        Held before = policies.get(name);
        if (value == null) {
            next.remove(name);
            return;
        }
        try {
            Policy policy = RecordReader.read(name, value);
            next.put(name, new Held(policy, takenOverMs(before, policy, nowMs), null));
        } catch (RecordException e) {
            boolean stays = before != null && before.policy != null && !e.isLater();
            unreadable.found(name, e.getMessage(), stays);
            next.put(name, new Held(stays ? before.policy : null, stays ? before.takenOverMs : 0, e.getMessage()));
        }
    }

    // At the instant that the server publishes, so that no program that starts late makes an earlier version the later one. A version
    // that is held keeps its instant, also if a server publishes another one: what it wrote would become an earlier version's.
    private static long takenOverMs(Held before, Policy policy, long nowMs) {
        long ms = policy.sinceMs() == Policy.SINCE_UNKNOWN ? nowMs : policy.sinceMs();
        if (before == null || before.policy == null) {
            return ms;
        }
        return before.policy.isVersionOf(policy) ? before.takenOverMs : Math.max(ms, before.takenOverMs + 1);
    }

    private static String text(byte[] value) {
        return value == null ? "" : new String(value, StandardCharsets.UTF_8);
    }

    private static long number(byte[] value) {
        String text = text(value);
        return text.matches("[0-9]{1,16}") ? Long.parseLong(text) : NONE;
    }
}

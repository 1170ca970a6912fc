package io.sluicegate;

import io.sluicegate.internal.kernel.PermitId;
import io.sluicegate.internal.kernel.RuleSet;
import io.sluicegate.internal.kernel.Usage;
import io.sluicegate.internal.policy.Policy;
import io.sluicegate.internal.policy.RecordReader;
import io.sluicegate.internal.redis.Keys;
import java.time.Clock;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Decides in the memory of this process. It never blocks: under {@code overflow: queue} a check that could wait is
 * refused, or allowed with a wait that the caller takes on itself. An {@code acquire} with a wait is decided at once.
 */
public class InMemoryGate implements LocalLimits {
    /** Keys that are remembered; the one that was used least recently falls out. */
    private static final int KEYS_MAX = 100_000;

    private final Clock clock;
    private final Map<String, Policy> policies = new ConcurrentHashMap<>();
    private final Map<Place, Usage> usages = new LinkedHashMap<>(16, 0.75f, true) {
        private static final long serialVersionUID = 1;

        @Override
        protected boolean removeEldestEntry(Map.Entry<Place, Usage> eldest) {
            return size() > KEYS_MAX;
        }
    };

    private record Place(String policy, String key) {}

    /**
     * Makes a gate without policies; a subclass may bring its own clock.
     *
     * @param clock by which it decides
     */
    protected InMemoryGate(Clock clock) {
        this.clock = Objects.requireNonNull(clock, "clock");
    }

    /**
     * Takes over the policies of a file of records; one that is there already is replaced.
     *
     * @param records the text of the file, which {@code sluicegate policies compile} makes of documents
     * @return this gate
     * @throws SluicegateException with {@link ErrorCode#UNREADABLE_POLICY} if the record of a policy cannot be read, and with
     *     {@link ErrorCode#RULES} if the text is not such a file; then nothing is taken over
     */
    public InMemoryGate compiled(String records) {
        RecordReader.file(records).forEach(policy -> policies.put(policy.name(), policy));
        return this;
    }

    /**
     * Makes a policy of a limit; one of that name is replaced.
     *
     * @param name its name
     * @param limit its rules
     * @return the limiter of the policy
     * @throws SluicegateException with {@link ErrorCode#RULES} if the limit or its name is not valid
     */
    public Limiter policy(String name, Limit limit) {
        policies.put(name, limit.policy(name));
        return policy(name);
    }

    @Override
    public Limiter limit(String name, Limit limit) {
        Policy policy = limit.policy(name);
        return new Limiter(name, call -> decide(call, policy, Keys.LIMIT + name));
    }

    @Override
    public Limiter policy(String name) {
        return new Limiter(name, call -> decide(call, policies.get(name), name));
    }

    @Override
    public void close() {
        // Nothing is open.
    }

    private Decision decide(Call call, Policy policy, String place) {
        if (policy == null) {
            throw ErrorCode.UNKNOWN_POLICY.with(Map.of("policy", call.policy()));
        }
        String key = call.key() == null ? "" : call.key();
        long now = ChronoUnit.MICROS.between(Instant.EPOCH, clock.instant());
        RuleSet rules = policy.rulesOf(key, now / 1000);
        if (!rules.supports(call.verb())) {
            throw ErrorCode.UNSUPPORTED_VERB.with(Map.of("verb", call.verb().text(), "policy", policy.name()));
        }
        boolean queued = call.verb() == Verb.CHECK && policy.overflow().queueMaxWaitUs() > 0;
        Verb verb = queued ? Verb.RESERVE : call.verb();
        long maxWaitUs = queued ? policy.overflow().queueMaxWaitUs() : call.maxWaitUs();
        PermitId permit = PermitId.of(call.id());
        Usage.KernelRequest request = new Usage.KernelRequest(verb, call.cost(), maxWaitUs, permit, now, rules.windowsAround(now));
        synchronized (usages) {
            Usage usage = usages.computeIfAbsent(new Place(place, key), at -> new Usage());
            return policy.decision(rules, call.verb(), usage.decide(rules, request), Mode.STORE, 0);
        }
    }
}

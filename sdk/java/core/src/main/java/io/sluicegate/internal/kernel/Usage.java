package io.sluicegate.internal.kernel;

import static io.sluicegate.internal.kernel.Numbers.NEVER;

import io.sluicegate.Carry;
import io.sluicegate.Verb;
import java.util.Arrays;
import java.util.stream.IntStream;

/**
 * Usage of the budget of one key, and the decisions about it without Redis, in the steps of the script. It is not
 * for several threads at a time.
 */
public final class Usage {
    private RuleSet rules;
    /** The state of each rule; null for one that was never seen. */
    private State[] states = {};

    /** {@return a usage of its own that begins as this one} */
    public Usage copy() {
        Usage copy = new Usage();
        copy.rules = rules;
        copy.states = copy(states);
        return copy;
    }

    private static State[] copy(State[] states) {
        return Arrays.stream(states).map(state -> state == null ? null : state.copy()).toArray(State[]::new);
    }

    /**
     * The request that is decided.
     *
     * @param verb a verb that the rules support
     * @param cost 1 to 2^31
     * @param maxWaitUs of a reserve; else {@link Numbers#NO_WAIT_GIVEN}
     * @param permit of the verbs that name one; else null
     * @param now the instant, in µs since 1970
     * @param windows the calendar windows around now, as {@link RuleSet#windowsAround} gives them
     */
    public record KernelRequest(Verb verb, long cost, long maxWaitUs, PermitId permit, long now, long[][] windows) {
        static KernelRequest of(Verb verb, RuleSet rules, long now) {
            return new KernelRequest(verb, 1, Numbers.NO_WAIT_GIVEN, null, now, rules.windowsAround(now));
        }
    }

    /** Decides under rules that support the verb, and remembers what that changed; returns the decision. */
    public Answer decide(RuleSet set, KernelRequest request) {
        Decider decider = new Decider(set, request);
        Answer answer = decider.decide();
        if (request.verb != Verb.PEEK && decider.touched) {
            remember(set, decider.states);
        }
        return answer;
    }

    private void remember(RuleSet set, State[] states) {
        this.rules = set;
        this.states = states;
    }

    /** Takes this usage over into the states of other rules. */
    private State[] takeOver(RuleSet set, KernelRequest request) {
        if (states.length > 0 && set.equals(rules)) {
            return request.verb == Verb.PEEK ? copy(states) : states;
        }
        State[] taken = new State[set.rules().size()];
        for (int other = 0; other < states.length && set.carry() != Carry.RESET; other++) {
            Rule old = rules.rules().get(other);
            int place = set.placeOf(old);
            if (place >= 0 && states[other] != null) {
                long till = request.windows[place] == null ? 0 : request.windows[place][1];
                taken[place] = carried(set.rules().get(place), old, states[other], request.now, till, set.carry());
            }
        }
        return taken;
    }

    private static State carried(Rule rule, Rule old, State state, long now, long till, Carry carry) {
        Primitive primitive = rule.primitive();
        Primitive earlier = old.primitive();
        if (rule.code() == old.code() && Arrays.equals(rule.numbers(), old.numbers())) {
            return state.copy();
        }
        if (primitive instanceof Concurrency permits && state instanceof Concurrency.Holders held) {
            return permits.taken(held, now);
        }
        long used = state.used(now);
        if (primitive instanceof Level level && level.isPaidAfterwards()) {
            // Guava's two begin with nothing stored, and keep what is paid afterwards.
            long owed = earlier instanceof Level before && before.isPaidAfterwards() ? Math.max(used - before.unstored(), 0) : 0;
            return level.withUsed(now, till, level.unstored() + owed);
        }
        if (carry == Carry.PROPORTIONAL && !rule.handsOutPermits()) {
            used = Numbers.mulDivUp(Math.min(used, Numbers.UNITS_MAX), primitive.limit(), earlier.limit());
        }
        return primitive.withUsed(now, till, used);
    }

    /** {@return the permits in use of each rule, rounded up; of a key that was never seen what a new key has in use} */
    public long[] used(RuleSet set, long now) {
        Decider decider = new Decider(set, KernelRequest.of(Verb.PEEK, set, now));
        return decider.places().mapToLong(place -> decider.state(place).used(now)).toArray();
    }

    /** Puts down that so many permits of each rule are in use, as of {@code now}; below 0: what is remembered stays. */
    public void setUsed(RuleSet set, long[] used, long now) {
        KernelRequest request = KernelRequest.of(Verb.CHECK, set, now);
        Decider decider = new Decider(set, request);
        decider.places().filter(place -> used[place] >= 0).forEach(place -> {
            long till = request.windows[place] == null ? 0 : request.windows[place][1];
            decider.states[place] = set.rules().get(place).primitive().withUsed(now, till, used[place]);
        });
        remember(set, decider.states);
    }

    /** {@return the permits of each rule that are there} */
    public long[] available(RuleSet set, long now) {
        Decider decider = new Decider(set, KernelRequest.of(Verb.PEEK, set, now));
        return decider.places().mapToLong(place -> decider.state(place).available(now)).toArray();
    }

    /** Charges each rule that hands out no permits its own number of them, whether they are there or not. */
    public void charge(RuleSet set, long[] permits, long now) {
        Decider decider = new Decider(set, KernelRequest.of(Verb.CHECK, set, now));
        decider.places().filter(place -> permits[place] > 0 && !set.rules().get(place).handsOutPermits())
            .forEach(place -> decider.charge(place, permits[place]));
        remember(set, decider.states);
    }

    /** Gives each rule that hands out no permits its own number of them back, as far as they are in use. */
    public void refund(RuleSet set, long[] permits, long now) {
        Decider decider = new Decider(set, KernelRequest.of(Verb.REFUND, set, now));
        decider.places().filter(place -> permits[place] > 0 && decider.states[place] != null && !set.rules().get(place).handsOutPermits())
            .forEach(place -> decider.states[place].refund(now, permits[place]));
        remember(set, decider.states);
    }

    /** {@return whether every budget is full at {@code now} and that is the same as a new key} */
    public boolean isFull(RuleSet set, long now) {
        Decider decider = new Decider(set, KernelRequest.of(Verb.PEEK, set, now));
        return decider.isFull();
    }

    /** One decision: the states that it works on, and whether it changed them. */
    private final class Decider {
        private final RuleSet set;
        private final KernelRequest request;
        private final State[] states;
        private boolean touched;

        Decider(RuleSet set, KernelRequest request) {
            this.set = set;
            this.request = request;
            this.states = takeOver(set, request);
            this.touched = Usage.this.states.length > 0 && !set.equals(rules);
            for (State state : states) {
                touched |= state != null && state.rewind(request.now);
            }
        }

        IntStream places() {
            return IntStream.range(0, states.length);
        }

        State state(int place) {
            return states[place] != null ? states[place] : set.rules().get(place).primitive().fresh(request.now);
        }

        boolean isFull() {
            return Arrays.stream(states).allMatch(state -> state == null)
                || places().allMatch(place -> set.rules().get(place).fullIsFresh() && state(place).resetAfterUs(request.now) <= 0);
        }

        void charge(int place, long permits) {
            states[place] = state(place);
            states[place].charge(request.now, permits, request.permit);
            touched = true;
        }

        Answer decide() {
            return switch (request.verb) {
                case REFUND -> refund();
                case RESET -> reset();
                case RELEASE, RENEW -> onPermit();
                default -> request();
            };
        }

        private Answer refund() {
            long least = places().filter(place -> !set.rules().get(place).handsOutPermits()).mapToLong(place -> {
                touched |= states[place] != null;
                return states[place] == null ? 0 : states[place].refund(request.now, request.cost);
            }).min().orElse(0);
            return passed(-1, 0, least);
        }

        private Answer reset() {
            Arrays.fill(states, null);
            touched = true;
            return passed(-1, 0, 0);
        }

        private Answer onPermit() {
            long granted = 0;
            int refusedBy = -1;
            for (int place = 0; place < states.length; place++) {
                if (!(state(place) instanceof Concurrency.Holders permits)) {
                    continue;
                }
                long back = request.verb == Verb.RELEASE ? permits.release(request.permit, request.now) : permits.renew(request.permit, request.now);
                granted = back > 0 ? back : granted;
                refusedBy = refusedBy < 0 ? place : refusedBy;
            }
            touched |= granted > 0;
            return granted > 0 ? passed(-1, 0, granted) : refused(refusedBy, NEVER);
        }

        private Answer request() {
            for (int place = 0; request.verb == Verb.ACQUIRE && place < states.length; place++) {
                if (states[place] instanceof Concurrency.Holders permits && permits.holds(request.permit, request.now)) {
                    return refused(place, NEVER);
                }
            }
            long granted = request.verb == Verb.AT_MOST ? mostOf(request.cost) : request.cost;
            int refusedBy = -1;
            long retry = 0;
            int slowest = -1;
            long wait = 0;
            for (int place = 0; place < states.length; place++) {
                State.Outcome outcome = state(place).check(request.now, granted, request.verb == Verb.RESERVE ? request.maxWaitUs : Numbers.NO_WAIT_GIVEN);
                if (!outcome.passes()) {
                    if (refusedBy < 0 || retry != NEVER && (outcome.us() == NEVER || outcome.us() > retry)) {
                        refusedBy = place;
                        retry = outcome.us();
                    }
                } else if (outcome.us() > wait) {
                    wait = outcome.us();
                    slowest = place;
                }
            }
            if (refusedBy >= 0) {
                begin();
                return refused(refusedBy, retry);
            }
            for (int place = 0; request.verb != Verb.PEEK && place < states.length; place++) {
                charge(place, granted);
            }
            return passed(slowest, wait, granted);
        }

        private long mostOf(long cost) {
            return Math.max(places().mapToLong(place -> Math.min(state(place).available(request.now), cost)).min().orElse(cost), 1);
        }

        // The budget of a key whose first request is refused begins to fill.
        private void begin() {
            for (int place = 0; request.verb != Verb.PEEK && place < states.length; place++) {
                if (states[place] == null && set.rules().get(place).primitive().beginsRefused()) {
                    states[place] = state(place);
                    touched = true;
                }
            }
        }

        private Answer refused(int decider, long retryUs) {
            State state = state(decider);
            return new Answer(false, 0, 0, set.rules().get(decider).limit(), state.remaining(request.now), retryUs, state.resetAfterUs(request.now), decider);
        }

        /** The answer of the slowest, or, where none waits, of the rule with the least remaining. */
        private Answer passed(int slowest, long waitUs, long granted) {
            int decider = Math.max(slowest, 0);
            for (int place = 1; slowest < 0 && place < states.length; place++) {
                decider = state(place).remaining(request.now) < state(decider).remaining(request.now) ? place : decider;
            }
            State state = state(decider);
            return new Answer(true, granted, waitUs, set.rules().get(decider).limit(), state.remaining(request.now), 0, state.resetAfterUs(request.now), decider);
        }
    }
}

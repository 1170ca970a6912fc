package io.sluicegate.internal.kernel;

import static io.sluicegate.internal.kernel.Numbers.NEVER;

import io.sluicegate.Carry;
import java.util.Arrays;

/**
 * What is in use of the budget of one key, and the decisions about it without Redis, in the steps of the script. It is not
 * for several threads at a time.
 */
public final class Usage {
    private RuleSet rules;
    private State[] states;

    /** The usage of a key that was never seen. */
    public Usage() {}

    private Usage(RuleSet rules, State[] states) {
        this.rules = rules;
        this.states = states;
    }

    /** {@return a usage of its own that begins as this one} */
    public Usage copy() {
        return new Usage(rules, states == null ? null : copy(states));
    }

    private static State[] copy(State[] states) {
        State[] copies = new State[states.length];
        for (int place = 0; place < states.length; place++) {
            copies[place] = states[place] == null ? null : states[place].copy();
        }
        return copies;
    }

    /** {@return whether nothing is remembered} */
    public boolean isEmpty() {
        return states == null;
    }

    /**
     * What is asked.
     *
     * @param verb what is wanted; one that the rules know
     * @param cost 1 to 2^31
     * @param maxWaitUs of a reserve; else {@link Numbers#NO_WAIT_GIVEN}
     * @param permit of the verbs that name one; else null
     * @param now the instant, in µs since 1970
     * @param windows the calendar windows around now, as {@link RuleSet#windowsAround} gives them
     */
    public record Ask(Verb verb, long cost, long maxWaitUs, PermitId permit, long now, long[][] windows) {
        At at(int place) {
            return new At(now, windows[place] == null ? 0 : windows[place][1]);
        }
    }

    /** Decides under rules that know the verb, and remembers what that changed; returns the decision. */
    public Answer decide(RuleSet now, Ask ask) {
        boolean peek = ask.verb == Verb.PEEK;
        Decider decider = new Decider(now, ask, peek);
        Answer answer = decider.decide();
        if (!peek && decider.touched) {
            rules = now;
            states = decider.isFull() ? null : decider.states;
        }
        return answer;
    }

    /** Takes this usage over into the states of other rules, at {@code ask.now}. */
    private State[] takeOver(RuleSet to, Ask ask, boolean keep) {
        int count = to.rules().size();
        State[] taken = new State[count];
        if (states == null) {
            return taken;
        }
        if (to.equals(rules)) {
            return keep ? copy(states) : states;
        }
        if (to.carry() == Carry.RESET) {
            return taken;
        }
        State[] before = copy(states);
        for (int place = 0; place < count; place++) {
            for (int other = 0; other < before.length; other++) {
                Rule old = rules.rules().get(other);
                if (before[other] != null && to.rules().get(place).isCalledLike(old)) {
                    taken[place] = carried(to, place, old, before[other], ask.at(place));
                }
            }
        }
        return taken;
    }

    private static State carried(RuleSet to, int place, Rule old, State state, At at) {
        Rule rule = to.rules().get(place);
        if (rule.isAlike(old) && rule.hasNumbersOf(old)) {
            return state;
        }
        Primitive primitive = rule.primitive();
        Primitive earlier = old.primitive();
        if (primitive instanceof Concurrency && earlier instanceof Concurrency) {
            primitive.rewind(state, at);
            return state;
        }
        long used = earlier.used(state, at);
        if (primitive instanceof Level level && level.isPaidAfterwards()) {
            // Guava's two begin with nothing stored, and keep what is paid afterwards.
            long owed = earlier instanceof Level before && before.isPaidAfterwards() ? Math.max(used - before.unstored(), 0) : 0;
            return level.withUsed(at, level.unstored() + owed);
        }
        if (to.carry() == Carry.PROPORTIONAL && !rule.handsOutPermits()) {
            used = Numbers.mulDivUp(Math.min(used, Numbers.UNITS_MAX), primitive.limit(), earlier.limit());
        }
        return primitive.withUsed(at, used);
    }

    /** {@return the permits in use of each rule, rounded up; of a key that was never seen what a new key has in use} */
    public long[] used(RuleSet now, long instant) {
        Ask ask = new Ask(Verb.PEEK, 1, Numbers.NO_WAIT_GIVEN, null, instant, now.windowsAround(instant));
        Decider decider = new Decider(now, ask, true);
        long[] used = new long[decider.states.length];
        for (int place = 0; place < used.length; place++) {
            used[place] = decider.used(place);
        }
        return used;
    }

    /** Puts down that so many permits of each rule are in use, as of {@code instant}; below 0: what is remembered stays. */
    public void putDown(RuleSet now, long[] used, long instant) {
        Ask ask = new Ask(Verb.CHECK, 1, Numbers.NO_WAIT_GIVEN, null, instant, now.windowsAround(instant));
        Decider decider = new Decider(now, ask, false);
        for (int place = 0; place < used.length; place++) {
            if (used[place] >= 0) {
                decider.states[place] = decider.rule(place).primitive().withUsed(ask.at(place), used[place]);
            }
        }
        rules = now;
        states = decider.states;
    }

    /** Charges each rule as many permits of its own as are there; returns what was charged. */
    public long[] charge(RuleSet now, long[] permits, long instant) {
        Ask ask = new Ask(Verb.CHECK, 1, Numbers.NO_WAIT_GIVEN, null, instant, now.windowsAround(instant));
        Decider decider = new Decider(now, ask, false);
        long[] charged = new long[permits.length];
        for (int place = 0; place < permits.length; place++) {
            if (!decider.rule(place).handsOutPermits()) {
                charged[place] = decider.chargeUpTo(place, permits[place]);
            }
        }
        rules = now;
        states = decider.states;
        return charged;
    }

    /** {@return whether every budget is full at {@code instant} and that is the same as a new key} */
    public boolean isFull(RuleSet now, long instant) {
        if (states == null) {
            return true;
        }
        Ask ask = new Ask(Verb.PEEK, 1, Numbers.NO_WAIT_GIVEN, null, instant, now.windowsAround(instant));
        Decider decider = new Decider(now, ask, true);
        decider.answer(-1, 0, false, 0);
        return decider.isFull();
    }

    /** One decision: the states that it works on, and what it found. */
    private final class Decider {
        private final RuleSet set;
        private final Ask ask;
        private final State[] states;
        private boolean touched;
        private boolean fullIsFresh = true;
        private long fullAfterUs;

        Decider(RuleSet set, Ask ask, boolean keep) {
            this.set = set;
            this.ask = ask;
            this.states = takeOver(set, ask, keep);
            this.touched = Usage.this.states != null && !set.equals(rules);
            for (int place = 0; place < states.length; place++) {
                if (states[place] != null) {
                    touched |= rule(place).primitive().rewind(states[place], ask.at(place));
                }
            }
        }

        Rule rule(int place) {
            return set.rules().get(place);
        }

        boolean isFull() {
            return Arrays.stream(states).allMatch(state -> state == null) || fullIsFresh && fullAfterUs <= 0;
        }

        long used(int place) {
            return rule(place).primitive().used(states[place], ask.at(place));
        }

        long chargeUpTo(int place, long permits) {
            Primitive primitive = rule(place).primitive();
            long charged = Math.min(primitive.available(states[place], ask.at(place)), permits);
            if (charged >= 1) {
                states[place] = primitive.charge(states[place], ask.at(place), charged, null);
            }
            return Math.max(charged, 0);
        }

        Answer decide() {
            return switch (ask.verb) {
                case REFUND -> refund();
                case RESET -> reset();
                case RELEASE, RENEW -> onPermit();
                default -> ask();
            };
        }

        private Answer refund() {
            long least = -1;
            for (int place = 0; place < states.length; place++) {
                if (rule(place).handsOutPermits()) {
                    continue;
                }
                long back = 0;
                if (states[place] != null) {
                    back = rule(place).primitive().refund(states[place], ask.at(place), ask.cost);
                    touched = true;
                }
                least = least < 0 ? back : Math.min(least, back);
            }
            return answer(-1, 0, false, Math.max(least, 0));
        }

        private Answer reset() {
            Arrays.fill(states, null);
            touched = true;
            return answer(-1, 0, false, 0);
        }

        private Answer onPermit() {
            long granted = 0;
            int refusedBy = -1;
            for (int place = 0; place < states.length; place++) {
                if (!(rule(place).primitive() instanceof Concurrency permits)) {
                    continue;
                }
                long back = ask.verb == Verb.RELEASE
                    ? permits.release(states[place], ask.at(place), ask.permit)
                    : permits.renew(states[place], ask.at(place), ask.permit);
                if (back > 0) {
                    granted = back;
                    refusedBy = -1;
                } else if (granted == 0 && refusedBy < 0) {
                    refusedBy = place;
                }
            }
            touched |= granted > 0;
            return granted > 0 ? answer(-1, 0, false, granted) : answer(refusedBy, NEVER, false, 0);
        }

        private Answer ask() {
            if (ask.verb == Verb.ACQUIRE) {
                int holder = holderOf(ask.permit);
                if (holder >= 0) {
                    return answer(holder, NEVER, false, 0);
                }
            }
            long granted = ask.verb == Verb.AT_MOST ? mostOf(ask.cost) : ask.cost;
            int refusedBy = -1;
            long retry = 0;
            int slowest = -1;
            long wait = 0;
            for (int place = 0; place < states.length; place++) {
                long maxWait = ask.verb == Verb.RESERVE ? ask.maxWaitUs : Numbers.NO_WAIT_GIVEN;
                Outcome outcome = rule(place).primitive().check(states[place], ask.at(place), granted, maxWait);
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
                return answer(refusedBy, retry, true, 0);
            }
            if (ask.verb != Verb.PEEK) {
                for (int place = 0; place < states.length; place++) {
                    states[place] = rule(place).primitive().charge(states[place], ask.at(place), granted, ask.permit);
                }
                touched = true;
            }
            return passed(slowest, wait, granted);
        }

        private int holderOf(PermitId permit) {
            for (int place = 0; place < states.length; place++) {
                if (states[place] != null && rule(place).primitive() instanceof Concurrency permits
                    && permits.holds(states[place], ask.at(place), permit)) {
                    return place;
                }
            }
            return -1;
        }

        private long mostOf(long cost) {
            long most = cost;
            for (int place = 0; place < states.length; place++) {
                most = Math.min(most, rule(place).primitive().available(states[place], ask.at(place)));
            }
            return Math.max(most, 1);
        }

        private Answer passed(int slowest, long wait, long granted) {
            Answer answer = answer(slowest, 0, false, granted);
            return new Answer(true, granted, wait, answer.limit(), answer.remaining(), 0, answer.resetAfterUs(), answer.rule());
        }

        /** The answer of the decider, or, without one, of the rule with the least remaining. */
        private Answer answer(int decider, long retry, boolean takes, long granted) {
            int deciding = -1;
            Status said = null;
            for (int place = 0; place < states.length; place++) {
                Primitive primitive = rule(place).primitive();
                if (takes && ask.verb != Verb.PEEK && states[place] == null) {
                    states[place] = primitive.firstSeen(ask.at(place));
                    touched |= states[place] != null;
                }
                Status status = primitive.status(states[place], ask.at(place));
                if (place == decider || decider < 0 && (said == null || status.remaining() < said.remaining())) {
                    deciding = place;
                    said = status;
                }
                fullAfterUs = Math.max(fullAfterUs, status.resetAfterUs());
                fullIsFresh &= rule(place).fullIsFresh();
            }
            boolean refused = retry != 0 || takes;
            return new Answer(!refused, refused ? 0 : granted, 0, rule(deciding).limit(), said.remaining(),
                refused ? retry : 0, said.resetAfterUs(), deciding);
        }

    }
}

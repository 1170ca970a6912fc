package io.sluicegate.internal.engine;

import io.sluicegate.Verb;
import io.sluicegate.internal.kernel.Answer;
import io.sluicegate.internal.kernel.Numbers;
import io.sluicegate.internal.kernel.Rule;
import io.sluicegate.internal.kernel.RuleSet;
import io.sluicegate.internal.kernel.Usage;
import io.sluicegate.internal.kernel.Usage.Ask;
import io.sluicegate.internal.redis.Result;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.IntStream;

/**
 * Budgets as the process knows them, and its decisions by its share of them while Redis does not answer. Among n nodes each
 * permit counts n times against the whole limit. Times are µs.
 */
final class Shares {
    /** Keys of which is known what Redis last said; of others nothing is known. */
    private static final int NOTES_MAX = 1_000_000;
    /** Keys with permits that were admitted here. */
    private static final int ACCOUNTS_MAX = 250_000;
    /** Within this time an answer that says less may be an older one. */
    private static final long OLDER_ANSWERS_US = 2_000_000;
    private static final long ROOM_AGAIN_US = 1_000_000;
    private static final long CLOCK_BEHIND_US = 1_000_000;
    /** The retry of what may pass when Redis is back. */
    static final long RETRY_US = 1_000_000;

    private final Map<Place, Note> notes = new ConcurrentHashMap<>();
    private final Map<Place, Account> accounts = new ConcurrentHashMap<>();
    private final AtomicLong newest = new AtomicLong();
    private final AtomicLong madeRoomAt = new AtomicLong(Long.MIN_VALUE / 2);

    /** The last answer of Redis about one key; guarded by itself. */
    private static final class Note {
        final Usage usage = new Usage();
        RuleSet rules;
        /** When each rule, by its place, was last said to use as much as was known or more. */
        long[] saidAt = {};

        boolean isSettled(int place, long nowUs) {
            return place >= saidAt.length || Math.abs(nowUs - saidAt[place]) >= OLDER_ANSWERS_US;
        }

        void saidAt(int place, long nowUs) {
            if (place >= saidAt.length) {
                int known = saidAt.length;
                saidAt = Arrays.copyOf(saidAt, rules.rules().size());
                Arrays.fill(saidAt, known, saidAt.length, Long.MIN_VALUE / 2);
            }
            saidAt[place] = nowUs;
        }
    }

    /** Permits that were admitted here for one key; guarded by itself. */
    static final class Account {
        final Usage stored;
        final Usage used;
        final long nodes;
        Question asked;
        Bill bill;
        /**
         * The id of its bills, until something is charged: Redis does not remember an id of which it charged nothing, and a
         * question that carries it and is still under way may charge it later.
         */
        String billId = Bill.newId();
        /** True if Redis may have charged the bill. */
        boolean billSent;
        /** Questions under way that carry the bill. */
        int carriers;

        Account(Usage known, long nodes, Question asked) {
            this.stored = known.copy();
            this.used = known.copy();
            this.nodes = nodes;
            this.asked = asked;
        }

        /** {@return the permits owed of each rule} */
        long[] owed(RuleSet rules, long nowUs) {
            long[] inUse = used.used(rules, nowUs);
            long[] known = stored.used(rules, nowUs);
            return IntStream.range(0, inUse.length).mapToLong(place -> {
                long more = rules.rules().get(place).handsOutPermits() ? 0 : Math.max(inUse[place] - known[place], 0);
                return Math.min(Numbers.ceilDiv(more, nodes), Numbers.COST_MAX);
            }).toArray();
        }

        boolean owes(RuleSet rules, long nowUs) {
            return Arrays.stream(owed(rules, nowUs)).anyMatch(owed -> owed > 0);
        }

        /** Redis charged so much of the bill. */
        void paid(RuleSet rules, long[] charged, long nowUs) {
            boolean whole = Arrays.equals(charged, bill.permits());
            long[] before = stored.used(rules, nowUs);
            long[] then = bill.used().used(rules, nowUs);
            long[] counted = IntStream.range(0, charged.length).mapToLong(place -> {
                long most = Math.max(then[place] - before[place], 0);
                return whole ? most : Math.min(charged[place] * nodes, most);
            }).toArray();
            stored.charge(rules, counted, nowUs);
            bill = null;
            billSent = false;
            if (Arrays.stream(charged).anyMatch(permits -> permits > 0)) {
                billId = Bill.newId();
            }
        }

        /**
         * An answer that says more is in use of a rule than is known raises both states to it: as far as there is room here, and all
         * the way if it says more than the limit, which was lowered then and may rise without Redis.
         */
        void raise(RuleSet rules, Result.Decided said, long nowUs) {
            long[] known = stored.used(rules, nowUs);
            long[] room = used.available(rules, nowUs);
            long[] permits = IntStream.range(0, known.length).mapToLong(place -> {
                Rule rule = rules.rules().get(place);
                long more = rule.isReported() ? Math.max(said.inUse()[place] - known[place], 0) : 0;
                return said.inUse()[place] > rule.limit() ? more : Math.min(more, room[place]);
            }).toArray();
            if (Arrays.stream(permits).anyMatch(more -> more > 0)) {
                used.charge(rules, permits, nowUs);
                stored.charge(rules, permits, nowUs);
                if (bill != null) {
                    bill.used().charge(rules, permits, nowUs);
                }
            }
        }
    }

    Account account(Place place) {
        return accounts.get(place);
    }

    /** {@return accounts that owe something, at most so many} */
    List<Map.Entry<Place, Account>> owing(int most, long nowUs) {
        List<Map.Entry<Place, Account>> owing = new ArrayList<>();
        for (Map.Entry<Place, Account> each : accounts.entrySet()) {
            if (owing.size() >= most) {
                break;
            }
            Account account = each.getValue();
            synchronized (account) {
                if (account.bill != null || account.owes(account.asked.rules(), nowUs)) {
                    owing.add(each);
                }
            }
        }
        return owing;
    }

    /** Notes what Redis said of each rule. */
    void learn(Place place, RuleSet rules, Result.Decided said, long nowUs) {
        Note note = notes.get(place);
        if (note == null) {
            if (notes.size() >= NOTES_MAX && !makeRoom(nowUs)) {
                return;
            }
            note = notes.computeIfAbsent(place, at -> new Note());
        }
        synchronized (note) {
            note.rules = rules;
            long[] used = note.usage.used(rules, nowUs);
            boolean changes = false;
            for (int rule = 0; rule < used.length; rule++) {
                used[rule] = believed(note, rule, used[rule], said.inUse()[rule], nowUs);
                changes |= used[rule] >= 0;
            }
            if (changes) {
                note.usage.putDown(rules, used, nowUs);
            }
        }
    }

    // Of a rule that hands out permits nothing is put down: its share is beside what Redis knows to be held.
    private static long believed(Note note, int place, long known, long said, long nowUs) {
        Rule rule = note.rules.rules().get(place);
        if (said == Result.NOT_SAID || !rule.isReported()) {
            return Result.NOT_SAID;
        }
        if (said >= known) {
            note.saidAt(place, nowUs);
            return said;
        }
        if (note.isSettled(place, nowUs)) {
            return said;
        }
        return rule.isBucket() ? Result.NOT_SAID : known;
    }

    // Once a second, what is full again makes room.
    private boolean makeRoom(long nowUs) {
        long last = madeRoomAt.get();
        if (nowUs - last >= ROOM_AGAIN_US && madeRoomAt.compareAndSet(last, nowUs)) {
            notes.values().removeIf(note -> {
                synchronized (note) {
                    return note.rules == null || note.usage.isFull(note.rules, nowUs);
                }
            });
            accounts.values().removeIf(account -> {
                synchronized (account) {
                    RuleSet rules = account.asked.rules();
                    return account.bill == null && !rules.hasCalendars() && account.used.isFull(rules, nowUs);
                }
            });
        }
        return notes.size() < NOTES_MAX;
    }

    private Usage known(Place place) {
        Note note = notes.get(place);
        if (note == null) {
            return new Usage();
        }
        synchronized (note) {
            return note.usage.copy();
        }
    }

    /**
     * {@return the instant of a decision: the latest that any had, if that is up to a second later} It is taken under the lock of
     * the account: a caller that waited for the lock would put the state back to when it came, and time would flow twice.
     */
    long instant(long nowUs) {
        long latest = newest.accumulateAndGet(nowUs, (held, now) -> now > held || held - now > CLOCK_BEHIND_US ? now : held);
        return Math.max(latest, nowUs);
    }

    /** Decides by the share of n nodes. */
    Answer decide(Place place, Question question, long nodes) {
        RuleSet rules = question.rules();
        Account account = accounts.get(place);
        if (account == null) {
            makeRoom(question.nowUs());
            if (accounts.size() >= ACCOUNTS_MAX) {
                return Answer.refused(rules, RETRY_US);
            }
            account = new Account(known(place), nodes, question);
        }
        synchronized (account) {
            if (question.cost() * account.nodes > Numbers.COST_MAX) {
                return Answer.refused(rules, RETRY_US);
            }
            long now = instant(question.nowUs());
            Answer answer = question.verb() == Verb.AT_MOST
                ? atMost(account, question, now)
                : scaled(account, question, account.used.decide(rules, ask(question, question.verb(), question.cost() * account.nodes, now)));
            account.asked = question.with(null);
            boolean keeps = account.owes(rules, now) || !account.used.isFull(rules, now);
            if (question.verb() != Verb.PEEK && keeps) {
                Account other = accounts.putIfAbsent(place, account);
                if (other != null && other != account) {
                    // Another thread opened the account first: what was decided here is decided there.
                    return decide(place, question, nodes);
                }
            }
            return answer;
        }
    }

    private static Ask ask(Question question, Verb verb, long cost, long now) {
        long maxWait = verb == Verb.RESERVE ? question.maxWaitUs() : Numbers.NO_WAIT_GIVEN;
        return new Ask(verb, cost, maxWait, question.permit(), now, question.rules().windowsAround(now));
    }

    // Takes and is granted multiples of n.
    private static Answer atMost(Account account, Question question, long now) {
        RuleSet rules = question.rules();
        Answer most = account.used.copy().decide(rules, ask(question, Verb.AT_MOST, question.cost() * account.nodes, now));
        long granted = most.granted() / account.nodes;
        // The answer reports what is left as if the part of a permit had been taken.
        Answer shown = scaled(account, question, most);
        if (most.allowed() && granted > 0) {
            account.used.decide(rules, ask(question, Verb.AT_MOST, granted * account.nodes, now));
            return shown;
        }
        return new Answer(false, 0, 0, shown.limit(), shown.remaining(), RETRY_US, shown.resetAfterUs(), shown.rule());
    }

    private static Answer scaled(Account account, Question question, Answer said) {
        long n = account.nodes;
        long retry = said.retryAfterUs();
        if (retry == Numbers.NEVER && mayEverPass(question)) {
            retry = RETRY_US;
        }
        return new Answer(said.allowed(), said.granted() / n, said.waitUs(), said.limit() / n, said.remaining() / n, retry,
            said.resetAfterUs(), said.rule());
    }

    private static boolean mayEverPass(Question question) {
        return question.rules().rules().stream().allMatch(rule -> rule.takesAnyCost() || question.cost() <= rule.limit());
    }

    /** Takes of the budget what passes all the same, as far as that goes. */
    void noteAdmitted(Place place, Question question, long nodes) {
        decide(place, question.as(Verb.AT_MOST, question.cost(), null), accounts.containsKey(place) ? nodes : 1);
    }

    /** {@return what a release or renew of a permit comes to that was handed out here, or null if none was} */
    Answer onPermit(Place place, Question question) {
        Account account = accounts.get(place);
        if (account == null) {
            return null;
        }
        synchronized (account) {
            Answer answer = account.used.copy().decide(question.rules(), ask(question, Verb.RENEW, 1, instant(question.nowUs())));
            if (!answer.allowed()) {
                return null;
            }
            return account.used.decide(question.rules(), ask(question, question.verb(), 1, instant(question.nowUs())));
        }
    }

    /** Drops an account that neither owes nor holds anything. */
    void close(Place place, Account account, long nowUs) {
        RuleSet rules = account.asked.rules();
        boolean holds = rules.handsOutPermits() && !account.used.isFull(rules, nowUs);
        if (account.bill == null && !holds && !account.owes(rules, nowUs)) {
            accounts.remove(place, account);
        }
    }

    /** Drops the accounts of a policy that is gone. */
    void drop(Place place) {
        accounts.remove(place);
    }

}

package io.sluicegate.internal.engine;

import io.sluicegate.Verb;
import io.sluicegate.internal.kernel.Answer;
import io.sluicegate.internal.kernel.Numbers;
import io.sluicegate.internal.kernel.Rule;
import io.sluicegate.internal.kernel.RuleSet;
import io.sluicegate.internal.kernel.Usage;
import io.sluicegate.internal.kernel.Usage.KernelRequest;
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
    /** Keys of which is known what Redis last reported; of others nothing is known. */
    private static final int REPORTED_MAX = 1_000_000;
    /** Keys with permits that were admitted here. */
    private static final int ACCOUNTS_MAX = 250_000;
    /** Within this time an answer that reports less may be an older one. */
    private static final long STALE_WITHIN_US = 2_000_000;
    private static final long ROOM_AGAIN_US = 1_000_000;
    private static final long CLOCK_BEHIND_US = 1_000_000;
    /** The retry of what may pass when Redis is back. */
    static final long RETRY_US = 1_000_000;
    /** The retry of what the share would admit if Redis grants nothing that it is asked for: that is known after a deadline. */
    static final long ASKED_RETRY_US = 100_000;

    private final Map<Place, ReportedUsage> reported = new ConcurrentHashMap<>();
    private final Map<Place, Account> accounts = new ConcurrentHashMap<>();
    /** Permits that requests under way ask Redis for, which may have granted them, or may do so still. */
    private final Map<Place, Long> asked = new ConcurrentHashMap<>();
    private final AtomicLong newest = new AtomicLong();
    private final AtomicLong madeRoomAt = new AtomicLong(Long.MIN_VALUE / 2);

    /** The last answer of Redis about one key; guarded by itself. */
    private static final class ReportedUsage {
        final Usage usage = new Usage();
        RuleSet rules;
        /** When each rule, by its place, was last reported to use as much as was known or more. */
        long[] raisedAt = {};

        boolean isSettled(int place, long nowUs) {
            return place >= raisedAt.length || Math.abs(nowUs - raisedAt[place]) >= STALE_WITHIN_US;
        }

        void markRaised(int place, long nowUs) {
            if (place >= raisedAt.length) {
                int length = raisedAt.length;
                raisedAt = Arrays.copyOf(raisedAt, rules.rules().size());
                Arrays.fill(raisedAt, length, raisedAt.length, Long.MIN_VALUE / 2);
            }
            raisedAt[place] = nowUs;
        }
    }

    /** Permits that were admitted here for one key; guarded by itself. */
    static final class Account {
        Usage stored;
        final Usage used;
        final long nodes;
        StoreRequest lastRequest;
        /** By whose places its bill is. */
        private RuleSet rules;
        Bill bill;
        /**
         * The id of its bills, until something is charged: Redis does not remember an id of which it charged nothing, and a
         * request that carries it and is still under way may charge it later.
         */
        String billId = Bill.newId();
        /** True if Redis may have charged the bill. */
        boolean billSent;
        /** Requests under way that carry the bill. */
        int carriers;

        Account(Usage known, long nodes, StoreRequest request) {
            this.stored = known.copy();
            this.used = known.copy();
            this.nodes = nodes;
            this.lastRequest = request;
            this.rules = request.rules();
        }

        /**
         * Adopts the rules of a request. A bill has one number for each rule, by its place and in permits of then. If these do
         * not fit the other rules, the next bill has a new id, and permits that were perhaps charged are charged again.
         */
        void adopt(RuleSet other) {
            if (!other.countsLike(rules)) {
                bill = null;
                billSent = false;
                billId = Bill.newId();
            }
            rules = other;
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
            long[] left = IntStream.range(0, charged.length).mapToLong(place -> Math.max(bill.permits()[place] - charged[place], 0) * nodes).toArray();
            // As it was used, not as of now: what counts longer here than there would hide what is admitted meanwhile.
            stored = bill.used();
            stored.refund(rules, left, nowUs);
            bill = null;
            billSent = false;
            if (Arrays.stream(charged).anyMatch(permits -> permits > 0)) {
                billId = Bill.newId();
            }
        }

        /**
         * An answer that reports more in use of a rule than is known raises both states to it: as far as there is room here, and all
         * the way if it reports more than the limit, which was lowered then and may rise without Redis.
         */
        void raise(RuleSet rules, long[] inUse, long nowUs) {
            long[] known = stored.used(rules, nowUs);
            long[] room = used.available(rules, nowUs);
            long[] permits = IntStream.range(0, known.length).mapToLong(place -> {
                Rule rule = rules.rules().get(place);
                long more = rule.isReported() ? Math.max(inUse[place] - known[place], 0) : 0;
                return inUse[place] > rule.limit() ? more : Math.min(more, room[place]);
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

    /** Redis is asked for permits of a key, until {@link #answered}. */
    void ask(Place place, long permits) {
        if (permits > 0) {
            asked.merge(place, permits, Long::sum);
        }
    }

    /** Ends a request to Redis: after {@link #learn}, and before the share decides it. */
    void answered(Place place, long permits) {
        asked.computeIfPresent(place, (at, all) -> all == permits ? null : Long.valueOf(all - permits));
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
                if (account.bill != null || account.owes(account.lastRequest.rules(), nowUs)) {
                    owing.add(each);
                }
            }
        }
        return owing;
    }

    /** Records what Redis reported of each rule, also in an account. */
    void learn(Place place, RuleSet rules, Result.Decided decided, long nowUs) {
        record(place, rules, decided, nowUs);
        // One that was opened while the request was under way.
        Account account = accounts.get(place);
        if (account != null) {
            synchronized (account) {
                account.adopt(rules);
                account.raise(rules, decided.inUse(), instant(nowUs));
            }
        }
    }

    /** Records what Redis reported of each rule, with which the next account begins. */
    void record(Place place, RuleSet rules, Result.Decided decided, long nowUs) {
        ReportedUsage last = reported.get(place);
        if (last == null) {
            if (reported.size() >= REPORTED_MAX && !makeRoom(nowUs)) {
                return;
            }
            last = reported.computeIfAbsent(place, at -> new ReportedUsage());
        }
        synchronized (last) {
            last.rules = rules;
            long[] used = last.usage.used(rules, nowUs);
            boolean changes = false;
            for (int rule = 0; rule < used.length; rule++) {
                used[rule] = accepted(last, rule, used[rule], decided.inUse()[rule], nowUs);
                changes |= used[rule] >= 0;
            }
            if (changes) {
                last.usage.setUsed(rules, used, nowUs);
            }
        }
    }

    // Of a rule that hands out permits nothing is recorded: its share is beside what Redis has as held.
    private static long accepted(ReportedUsage last, int place, long known, long reported, long nowUs) {
        Rule rule = last.rules.rules().get(place);
        if (reported == Result.NOT_REPORTED || !rule.isReported()) {
            return Result.NOT_REPORTED;
        }
        if (reported >= known) {
            last.markRaised(place, nowUs);
            return reported;
        }
        if (last.isSettled(place, nowUs)) {
            return reported;
        }
        return rule.isBucket() ? Result.NOT_REPORTED : known;
    }

    // Once a second, what is full again makes room.
    private boolean makeRoom(long nowUs) {
        long last = madeRoomAt.get();
        if (nowUs - last >= ROOM_AGAIN_US && madeRoomAt.compareAndSet(last, nowUs)) {
            reported.values().removeIf(usage -> {
                synchronized (usage) {
                    return usage.rules == null || usage.usage.isFull(usage.rules, nowUs);
                }
            });
            accounts.values().removeIf(account -> {
                synchronized (account) {
                    RuleSet rules = account.lastRequest.rules();
                    return account.bill == null && !rules.hasCalendars() && account.used.isFull(rules, nowUs);
                }
            });
        }
        return reported.size() < REPORTED_MAX;
    }

    private Usage knownUsage(Place place) {
        ReportedUsage last = reported.get(place);
        if (last == null) {
            return new Usage();
        }
        synchronized (last) {
            return last.usage.copy();
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

    /**
     * Decides by the share of n nodes. It leaves room for the permits that other requests of this key ask Redis for: these may be
     * granted as well.
     */
    Answer decide(Place place, StoreRequest request, long nodes) {
        return decide(place, request, nodes, request.verb() != Verb.PEEK);
    }

    private Answer decide(Place place, StoreRequest request, long nodes, boolean leavesRoom) {
        Account account = accounts.get(place);
        if (account == null) {
            makeRoom(request.nowUs());
            if (accounts.size() >= ACCOUNTS_MAX) {
                return Answer.refused(request.rules(), RETRY_US);
            }
            account = new Account(knownUsage(place), nodes, request);
        }
        synchronized (account) {
            if (request.cost() * account.nodes > Numbers.COST_MAX) {
                return Answer.refused(request.rules(), RETRY_US);
            }
            // The account is open before this thread decides: a request to Redis that begins from now on carries its debt.
            Account other = request.verb() == Verb.PEEK ? account : accounts.putIfAbsent(place, account);
            if (other != null && other != account) {
                // Another thread opened the account first.
                return decide(place, request, nodes, leavesRoom);
            }
            long now = instant(request.nowUs());
            account.adopt(request.rules());
            raiseToKnown(place, account, request.rules(), other == null, now);
            Answer answer = decide(account, request, leavesRoom ? asked.getOrDefault(place, 0L) : 0, now);
            account.lastRequest = request.withBill(null);
            if (other == null && !account.owes(request.rules(), now) && account.used.isFull(request.rules(), now)) {
                accounts.remove(place, account);
            }
            return answer;
        }
    }

    /**
     * Raises an account to what Redis reported: a new one, of each rule; later, of the rules that have a window. What was admitted here in
     * the window before counts a whole window's length, so it hid such a report of at most as much; and ends while that still counts.
     */
    private void raiseToKnown(Place place, Account account, RuleSet rules, boolean isNew, long now) {
        if (!isNew && rules.rules().stream().noneMatch(Rule::isFixedWindow)) {
            return;
        }
        long[] known = knownUsage(place).used(rules, now);
        Arrays.setAll(known, rule -> isNew || rules.rules().get(rule).isFixedWindow() ? known[rule] : Result.NOT_REPORTED);
        account.raise(rules, known, now);
    }

    private static Answer decide(Account account, StoreRequest request, long others, long now) {
        if (others > 0 && !hasRoomBeside(account, request, others, now)) {
            return Answer.refused(request.rules(), ASKED_RETRY_US);
        }
        return request.verb() == Verb.AT_MOST
            ? atMost(account, request, now)
            : scaled(account, request, account.used.decide(request.rules(), kernelRequest(request, request.verb(), request.cost() * account.nodes, now)));
    }

    /** {@return whether a request is decided alike if Redis grants so many permits more, or refuses them all} */
    private static boolean hasRoomBeside(Account account, StoreRequest request, long others, long now) {
        RuleSet rules = request.rules();
        KernelRequest asks = kernelRequest(request, request.verb(), request.cost() * account.nodes, now);
        Usage granted = account.used.copy();
        long[] room = granted.available(rules, now);
        granted.charge(rules, IntStream.range(0, room.length)
            .mapToLong(place -> rules.rules().get(place).isReported() ? Math.min(others, room[place]) : 0).toArray(), now);
        Answer without = account.used.copy().decide(rules, asks);
        Answer with = granted.decide(rules, asks);
        return !without.allowed() || with.allowed() && with.granted() == without.granted() && with.waitUs() == without.waitUs();
    }

    private static KernelRequest kernelRequest(StoreRequest request, Verb verb, long cost, long now) {
        long maxWait = verb == Verb.RESERVE ? request.maxWaitUs() : Numbers.NO_WAIT_GIVEN;
        return new KernelRequest(verb, cost, maxWait, request.permit(), now, request.rules().windowsAround(now));
    }

    // Takes and is granted multiples of n.
    private static Answer atMost(Account account, StoreRequest request, long now) {
        RuleSet rules = request.rules();
        Answer most = account.used.copy().decide(rules, kernelRequest(request, Verb.AT_MOST, request.cost() * account.nodes, now));
        long granted = most.granted() / account.nodes;
        // The answer reports what is left as if the part of a permit had been taken.
        Answer shown = scaled(account, request, most);
        if (most.allowed() && granted > 0) {
            account.used.decide(rules, kernelRequest(request, Verb.AT_MOST, granted * account.nodes, now));
            return shown;
        }
        return new Answer(false, 0, 0, shown.limit(), shown.remaining(), RETRY_US, shown.resetAfterUs(), shown.rule());
    }

    private static Answer scaled(Account account, StoreRequest request, Answer whole) {
        long n = account.nodes;
        long retry = whole.retryAfterUs();
        if (retry == Numbers.NEVER && mayEverPass(request)) {
            retry = RETRY_US;
        }
        return new Answer(whole.allowed(), whole.granted() / n, whole.waitUs(), whole.limit() / n, whole.remaining() / n, retry,
            whole.resetAfterUs(), whole.rule());
    }

    private static boolean mayEverPass(StoreRequest request) {
        return request.rules().rules().stream().allMatch(rule -> rule.takesAnyCost() || request.cost() <= rule.limit());
    }

    /** Records as used what passes all the same, as far as that goes. */
    void recordAdmitted(Place place, StoreRequest request, long nodes) {
        decide(place, request.withVerb(Verb.AT_MOST, request.cost(), null), accounts.containsKey(place) ? nodes : 1, false);
    }

    /** {@return what a release or renew of a permit comes to that was handed out here, or null if none was} */
    Answer onPermit(Place place, StoreRequest request) {
        Account account = accounts.get(place);
        if (account == null) {
            return null;
        }
        synchronized (account) {
            Answer answer = account.used.copy().decide(request.rules(), kernelRequest(request, Verb.RENEW, 1, instant(request.nowUs())));
            if (!answer.allowed()) {
                return null;
            }
            account.adopt(request.rules());
            return account.used.decide(request.rules(), kernelRequest(request, request.verb(), 1, instant(request.nowUs())));
        }
    }

    /** Drops an account that neither owes nor holds anything. */
    void closeIfSettled(Place place, Account account, long nowUs) {
        RuleSet rules = account.lastRequest.rules();
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

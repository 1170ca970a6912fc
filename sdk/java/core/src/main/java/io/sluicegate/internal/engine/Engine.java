package io.sluicegate.internal.engine;

import io.sluicegate.AsyncRedisPort;
import io.sluicegate.Call;
import io.sluicegate.Decision;
import io.sluicegate.ErrorCode;
import io.sluicegate.GateHealth;
import io.sluicegate.Mode;
import io.sluicegate.OnStoreFailure;
import io.sluicegate.RedisPort;
import io.sluicegate.Transport;
import io.sluicegate.Verb;
import io.sluicegate.internal.Alarm;
import io.sluicegate.internal.AsyncCalls;
import io.sluicegate.internal.AsyncPool;
import io.sluicegate.internal.Deadline;
import io.sluicegate.internal.Texts;
import io.sluicegate.internal.kernel.Answer;
import io.sluicegate.internal.kernel.Numbers;
import io.sluicegate.internal.kernel.PermitId;
import io.sluicegate.internal.kernel.RuleSet;
import io.sluicegate.internal.policy.Policy;
import io.sluicegate.internal.redis.Head;
import io.sluicegate.internal.redis.Keys;
import io.sluicegate.internal.redis.Request;
import io.sluicegate.internal.redis.Result;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.stream.IntStream;

/** Decides in Redis, and what holds while Redis does not decide: the order of the page "When Redis does not decide". */
public final class Engine implements AutoCloseable {
    /** Verbs by which a key uses more. */
    private static final Set<Verb> TAKING = EnumSet.of(Verb.CHECK, Verb.RESERVE, Verb.AT_MOST, Verb.ACQUIRE);
    /** Requests to the store for one decision of a key that owes. */
    private static final int STORE_REQUESTS_MAX = 4;
    /** Requests that are held back at a time. */
    private static final int HELD_MAX = 10_000;
    /** Maximum number of tries of a request that is held back. */
    private static final int QUEUE_TRIES_MAX = 64;
    /** Debts that are paid in one go beside requests. */
    private static final int PAYMENT_BATCH_MAX = 64;
    /** Time that a gate that is closed pays its debts. */
    private static final long FINAL_PAYMENT_NANOS = 1_000_000_000L;
    /** Pause before debts that were not paid then are sent again. */
    private static final long PAYMENT_RETRY_MS = 10;
    private static final long SHED_RETRY_US = 100_000;
    /** The longest time after which a request that waits for a permit asks again: a third of that for which its ticket counts. */
    private static final long PERMIT_LOOK_US = 1_000_000;
    private static final long PERMIT_LOOK_MIN_US = 1_000;
    /** The time after which it asks the share again, which has no tickets. */
    private static final long PERMIT_LOOK_WITHOUT_REDIS_US = 20_000;
    /**
     * Asynchronous calls under way on a port of futures at a time: as many as Redis answers within the default deadline, and a quarter of
     * what a connection of Lettuce takes.
     */
    private static final int CONCURRENT_CALLS_MAX = 1024;
    /** The result of a request whose caller gave up. */
    private static final Result ABANDONED = new Result.NoAnswer("the caller gave up", true);
    private static final String NO_POLICY = "no policy was read yet: requests by policies get no decision (filters answer 503)";

    private final Options options;
    private final RedisStore store;
    private final Policies policies;
    private final StoreWatch watch;
    private final Breaker breaker = new Breaker(() -> ThreadLocalRandom.current().nextLong(100_000, 300_001));
    private final Refusals refusals = new Refusals();
    private final Shares shares = new Shares();
    private final Semaphore places = new Semaphore(HELD_MAX);
    private final Vacancies vacancies = new Vacancies();
    /** This process among those whose requests wait for permits. */
    private final long process = ThreadLocalRandom.current().nextLong();
    private final AsyncCalls calls;
    private final Transport published = by(this::decideSteps);
    private final Housekeeper housekeeper;
    private final AtomicBoolean closed = new AtomicBoolean();

    /** Begins to follow the policies. */
    public Engine(RedisPort port, Options options) {
        this(port, options, true);
    }

    /** In a test nothing is done beside the calls. */
    Engine(RedisPort port, Options options, boolean background) {
        this.options = options;
        boolean blocks = !(port instanceof AsyncRedisPort);
        AsyncPool pool = new AsyncPool(blocks ? AsyncPool.CALLS_AT_ONCE_MAX : AsyncCalls.THREADS);
        this.calls = new AsyncCalls(blocks ? AsyncPool.CALLS_AT_ONCE_MAX : CONCURRENT_CALLS_MAX, pool);
        this.store = new RedisStore(port, pool, new Deadline(options.deadlineNanos(), options.warmsUp()));
        Supplier<Alarm> alarms = background ? Alarm::new : Alarm::silent;
        this.watch = new StoreWatch(port.address(), this::meanwhile, alarms, System::nanoTime);
        this.policies = new Policies(store, options, watch, alarms);
        if (background && options.warmsUp()) {
            WarmUp.run(port, options);
        }
        this.housekeeper = background ? new Housekeeper(store, policies, this::payDebts) : null;
        if (background) {
            port.subscribe(Keys.CHANNEL, housekeeper::onMessage);
        }
    }

    /** {@return what decides while Redis does not} */
    private String meanwhile() {
        String byShare = ": by a share of 1/" + nodes() + " of the limit, allow or deny";
        return policies.hasNone()
            ? NO_POLICY + "; limits made in code decide by on_store_failure" + byShare
            : "policies and limits decide by on_store_failure meanwhile" + byShare;
    }

    /** Counts a policy as used before the first request under it: the health shows soon whether it can be decided by. */
    public void use(String name) {
        if (policies.use(name) && housekeeper != null) {
            housekeeper.onMessage("");
        }
    }

    /** {@return a transport that decides by the policies that servers publish} */
    public Transport published() {
        return published;
    }

    /** {@return a transport that decides by a limit that the program brings along} */
    public Transport limit(Policy limit) {
        String place = Keys.LIMIT + limit.name();
        Head head = Head.broughtAlong(limit.rules());
        return by(call -> {
            Resolved found = resolved(call, call.verb(), call.maxWaitUs(), limit, place, limit.rules(), head);
            if (call.waitsForPermit()) {
                throw unsupported(Texts.ACQUIRE_WITH_MAX_WAIT, limit);
            }
            return decideOnce(found, 0);
        });
    }

    /** {@return a transport that decides by steps, on the thread of the caller or on the futures of the port} */
    private Transport by(Function<Call, Step<Decision>> decides) {
        Function<Call, Step<Decision>> steps = call -> {
            if (closed.get()) {
                // Its connections end, which is no outage of Redis: nobody would pay what the share admits.
                throw ErrorCode.NOT_CHARGED.with(Map.of("cause", "the gate is closed"));
            }
            return decides.apply(call);
        };
        return new Transport() {
            @Override
            public Decision decide(Call call) throws InterruptedException {
                return store.run(steps.apply(call));
            }

            @Override
            public CompletableFuture<Decision> decideAsync(Call call) {
                return calls.begin(begun -> store.run(begun, () -> steps.apply(call)));
            }
        };
    }

    /** {@return whether Redis decides, and if not, why not and what does} */
    public GateHealth health() {
        GateHealth.State state = policies.lacksAll() ? GateHealth.State.DOWN : GateHealth.State.DEGRADED;
        String storeProblem = watch.problem();
        if (storeProblem != null) {
            return new GateHealth(state, watch.address(), storeProblem, meanwhile());
        }
        String problem = policies.problem();
        return problem == null ? GateHealth.up(watch.address())
            : new GateHealth(state, watch.address(), problem,
                state == GateHealth.State.DOWN ? NO_POLICY + "; Redis decides by limits made in code" : policies.meanwhile());
    }

    /** Ends the calls under way, and leaves the port open. */
    void endCalls() {
        calls.close();
    }

    /** {@return whether the breaker is open} */
    public boolean isDegraded() {
        return breaker.isOpen();
    }

    @Override
    public void close() {
        if (closed.getAndSet(true)) {
            return;
        }
        long until = System.nanoTime() + FINAL_PAYMENT_NANOS;
        try {
            if (housekeeper != null) {
                housekeeper.stop();
            }
            payBeforeClose(until);
            if (housekeeper != null) {
                housekeeper.await(until);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        calls.close();
        store.port().close();
    }

    /** A call with its policy, and the request to the store. */
    private record Resolved(Call call, Policy policy, StoreRequest request) {}

    /** An answer and who gave it. */
    private record Outcome(Answer answer, Mode mode) {
        /** {@return the same, with the wait behind it} */
        Outcome withoutWait() {
            return new Outcome(answer.by(answer.rule(), 0), mode);
        }
    }

    private Step<Decision> decideSteps(Call call) {
        return resolve(call, call.verb(), call.maxWaitUs()).then(found -> {
            long queueUs = found.policy.overflow().queueMaxWaitUs();
            if (call.verb() == Verb.CHECK && queueUs > 0) {
                return decideQueued(call, queueUs);
            }
            boolean hasQueue = found.request.rules().hasQueue();
            if (call.waitsForPermit() && !hasQueue) {
                throw unsupported(Texts.ACQUIRE_WITH_MAX_WAIT, found.policy);
            }
            boolean waits = call.waitsForPermit() || call.verb() == Verb.ACQUIRE && queueUs > 0 && hasQueue;
            return waits ? acquireQueued(found, call.waitsForPermit() ? call.maxWaitUs() : queueUs) : decideOnce(found, 0);
        });
    }

    private Step<Resolved> resolve(Call call, Verb verb, long maxWaitUs) {
        return policies.find(call.policy()).map(held -> {
            Policy policy = held.policy();
            checkApp(policy, verb);
            String key = keyOf(call);
            long nowMs = options.nowUs() / 1000;
            RuleSet rules = policy.rulesOf(key, nowMs);
            Head head = Head.of(rules, policy.sinceMs(key, held.takenOverMs(), nowMs));
            return resolved(call, verb, maxWaitUs, policy, policy.name(), rules, head);
        });
    }

    private Resolved resolved(Call call, Verb verb, long maxWaitUs, Policy policy, String place, RuleSet rules, Head head) {
        if (!rules.supports(verb)) {
            throw unsupported(verb.text(), policy);
        }
        PermitId permit = PermitId.of(call.id());
        return new Resolved(call, policy, new StoreRequest(place, rules, head, keyOf(call), verb, call.cost(), maxWaitUs, permit, policies.catalog().clock(),
            options.nowUs(), null));
    }

    private static String keyOf(Call call) {
        return call.key() == null ? "" : call.key();
    }

    private static RuntimeException unsupported(String verb, Policy policy) {
        return ErrorCode.UNSUPPORTED_VERB.with(Map.of("verb", verb, "policy", policy.name()));
    }

    private void checkApp(Policy policy, Verb verb) {
        String app = options.app();
        boolean owners = verb == Verb.REFUND || verb == Verb.RESET;
        if (owners ? policy.isOwnedBy(app) : policy.isFor(app)) {
            return;
        }
        throw app == null
            ? ErrorCode.APP_MISSING.with(Map.of("policy", policy.name()))
            : ErrorCode.POLICY_NOT_AVAILABLE.with(Map.of("policy", policy.name(), "app", app));
    }

    private Step<Decision> decideOnce(Resolved found, long heldUs) {
        Outcome remembered = decideFromMemory(found);
        return remembered != null ? Step.done(decision(found, remembered, heldUs)) : decideInRedis(found).map(outcome -> decision(found, outcome, heldUs));
    }

    /** {@return the outcome without Redis: a remembered refusal, or a permit of the share; null if there is none} */
    private Outcome decideFromMemory(Resolved found) {
        StoreRequest request = found.request;
        Verb verb = request.verb();
        if (verb == Verb.CHECK) {
            Answer refusal = refusals.find(request.place(), request.cost(), request.rules(), found.policy.version(), request.nowUs());
            return refusal == null ? null : new Outcome(refusal, Mode.REMEMBERED);
        }
        Answer here = verb == Verb.RELEASE || verb == Verb.RENEW ? shares.onPermit(request.place(), request) : null;
        return here == null ? null : new Outcome(here, Mode.LOCAL);
    }

    private Step<Outcome> decideInRedis(Resolved found) {
        StoreRequest request = found.request;
        Place place = request.place();
        if (!breaker.allows(request.nowUs())) {
            return Step.done(outcomeOf(found, place, new Result.NoAnswer(noAnswerCause(), false)));
        }
        // Until Redis has answered, the share counts these permits as ones that Redis may grant.
        long asked = TAKING.contains(request.verb()) ? request.cost() : 0;
        shares.ask(place, asked);
        Runnable end = () -> shares.answered(place, asked);
        Step<Result> asks;
        try {
            asks = decideWithDebts(request, place);
        } catch (RuntimeException | Error e) {
            end.run();
            throw e;
        }
        return asks.ifAbandoned(end).map(result -> {
            recordResult(request.nowUs(), result);
            if (result instanceof Result.Decided decided) {
                shares.learn(place, request.rules(), decided, request.nowUs());
            }
            end.run();
            return outcomeOf(found, place, result);
        });
    }

    private String noAnswerCause() {
        String problem = watch.problem();
        return problem == null ? "redis does not answer" : problem;
    }

    private Result recordResult(long nowUs, Result result) {
        if (result instanceof Result.NoAnswer silent) {
            breaker.failed(nowUs);
            watch.failed(silent.cause());
            return result;
        }
        breaker.succeeded(nowUs);
        if (result instanceof Result.Shed shed) {
            watch.shed(shed.cause());
        } else {
            watch.answered();
        }
        return result;
    }

    /** Decides, after what is owed was charged. */
    private Step<Result> decideWithDebts(StoreRequest request, Place place) {
        Shares.Account account = shares.account(place);
        return account == null ? store.decideSteps(request) : decideWithDebts(request, place, account, STORE_REQUESTS_MAX);
    }

    private Step<Result> decideWithDebts(StoreRequest request, Place place, Shares.Account account, int requestsLeft) {
        if (requestsLeft == 0) {
            return Step.done(new Result.Shed("more is owed than could be paid", true));
        }
        StoreRequest sent = withBill(request, account);
        return store.decideSteps(sent).ifAbandoned(() -> settle(place, account, sent, ABANDONED)).then(result -> {
            boolean owes = settle(place, account, sent, result);
            if (!(result instanceof Result.Decided decided)) {
                return Step.done(result);
            }
            boolean grants = decided.answer().allowed() && decided.answer().granted() > 0 && request.verb() != Verb.PEEK;
            boolean isAnswer = sent.verb() == request.verb() && !(grants && owes);
            return isAnswer ? Step.done(result) : decideWithDebts(request, place, account, requestsLeft - 1);
        });
    }

    // A bill that Redis may have charged is sent again unchanged, and alone if more passed here since it was made.
    private StoreRequest withBill(StoreRequest request, Shares.Account account) {
        synchronized (account) {
            StoreRequest sent = chooseBill(request, account);
            account.carriers += sent.bill() == null ? 0 : 1;
            return sent;
        }
    }

    static StoreRequest chooseBill(StoreRequest request, Shares.Account account) {
        RuleSet rules = request.rules();
        account.adopt(rules);
        if (account.bill == null) {
            long[] owed = account.owed(rules, request.nowUs());
            boolean owes = Arrays.stream(owed).anyMatch(permits -> permits > 0);
            account.bill = owes ? Bill.of(account.billId, owed, account.used) : null;
            return request.withBill(account.bill);
        }
        long[] now = account.used.used(rules, request.nowUs());
        long[] then = account.bill.used().used(rules, request.nowUs());
        boolean more = IntStream.range(0, now.length).anyMatch(place -> now[place] > then[place]);
        return more ? request.withVerb(Verb.PEEK, 1, account.bill) : request.withBill(account.bill);
    }

    /** Records what became of a bill; returns whether the key still owes. */
    private boolean settle(Place place, Shares.Account account, StoreRequest sent, Result result) {
        synchronized (account) {
            long nowUs = shares.instant(sent.nowUs());
            account.carriers -= sent.bill() == null ? 0 : 1;
            if (result instanceof Result.Decided decided) {
                if (sent.bill() != null && sent.bill() == account.bill) {
                    account.paid(sent.rules(), decided.charged(), nowUs);
                }
                account.adopt(sent.rules());
                account.raise(sent.rules(), decided.inUse(), nowUs);
                boolean owes = account.bill != null || account.owes(sent.rules(), nowUs);
                // Before the account is dropped, also after a payment: the next one begins with it.
                shares.record(place, sent.rules(), decided, sent.nowUs());
                shares.closeIfSettled(place, account, nowUs);
                return owes;
            }
            if (sent.bill() != null && sent.bill() == account.bill) {
                account.billSent |= result.perhapsCharged();
                account.bill = account.billSent || account.carriers > 0 ? account.bill : null;
            }
            return true;
        }
    }

    private Outcome outcomeOf(Resolved found, Place place, Result result) {
        StoreRequest request = found.request;
        boolean changesUsage = request.verb() == Verb.REFUND || request.verb() == Verb.RESET || request.verb() == Verb.RELEASE
            || request.verb() == Verb.RENEW;
        if (changesUsage) {
            refusals.forget(place);
        }
        if (result instanceof Result.Decided decided) {
            Answer answer = decided.answer();
            if (request.verb() == Verb.CHECK && answer.allowed()) {
                refusals.allowed(place, request.cost(), request.rules());
            } else if (request.verb() == Verb.CHECK) {
                refusals.remember(place, answer, request.cost(), request.rules(), found.policy.version(), request.nowUs());
            }
            return new Outcome(answer, Mode.STORE);
        }
        if (request.ticket() != null && request.ticket().isGivenBack()) {
            // Nobody waits for a permit any more, also not for one of the share.
            return new Outcome(Answer.refused(request.rules(), PERMIT_LOOK_US), Mode.SHED);
        }
        if (result instanceof Result.Unsupported) {
            throw unsupported(request.ticket() == null ? request.verb().text() : Texts.ACQUIRE_WITH_MAX_WAIT, found.policy);
        }
        if (changesUsage) {
            throw noDecision(result);
        }
        if (result instanceof Result.Shed) {
            return new Outcome(Answer.refused(request.rules(), SHED_RETRY_US), Mode.SHED);
        }
        return withoutRedis(found, place, result instanceof Result.ThisKey);
    }

    private static RuntimeException noDecision(Result result) {
        String cause = result instanceof Result.NoAnswer silent ? silent.cause()
            : result instanceof Result.Shed shed ? shed.cause()
            : "the key cannot be read: " + ((Result.ThisKey) result).cause();
        return (result.perhapsCharged() ? ErrorCode.PERHAPS_CHARGED : ErrorCode.NOT_CHARGED).with(Map.of("cause", cause));
    }

    private Outcome withoutRedis(Resolved found, Place share, boolean thisKey) {
        StoreRequest request = found.request;
        OnStoreFailure how = found.policy.onStoreFailure();
        if (how == OnStoreFailure.ALLOW) {
            if (!thisKey && request.verb().compareTo(Verb.AT_MOST) <= 0) {
                shares.recordAdmitted(share, request, nodes());
            }
            return new Outcome(new Answer(true, request.cost(), 0, request.rules().rules().get(0).limit(), 0, 0, 0, 0), Mode.ALLOW);
        }
        if (how == OnStoreFailure.DENY || thisKey) {
            return new Outcome(Answer.refused(request.rules(), Shares.RETRY_US), Mode.DENY);
        }
        return new Outcome(shares.decide(share, request, nodes()), Mode.LOCAL);
    }

    private long nodes() {
        return options.nodes() > 0 ? options.nodes() : Math.max(policies.catalog().nodes(), 1);
    }

    private static Decision decision(Resolved found, Outcome outcome, long heldUs) {
        return found.policy.decision(found.request.rules(), found.call.verb(), outcome.answer, outcome.mode, heldUs);
    }

    /** A check that a queue holds back; without a place among those that are held back it does not wait. */
    private record Queued(Call call, boolean hasPlace, long maxWaitUs) {}

    // A queue holds a check back until its turn, or until it can pass by the rules.
    private Step<Decision> decideQueued(Call call, long maxWaitUs) {
        if (!places.tryAcquire()) {
            return tryTurn(new Queued(call, false, 0), 0, 1);
        }
        return Step.after(0, () -> tryTurn(new Queued(call, true, maxWaitUs), 0, 1)).ifAbandoned(places::release).map(decision -> {
            places.release();
            return decision;
        });
    }

    private Step<Decision> tryTurn(Queued queued, long heldUs, int tries) {
        long left = Math.max(queued.maxWaitUs - heldUs, 0);
        return resolve(queued.call, Verb.RESERVE, left).then(found -> {
            Vacancies.Place place = new Vacancies.Place(found.policy.name(), found.request.key(), queued.call.cost());
            Vacancies.Turn vacant = vacancies.take(place, found.request.nowUs(), left);
            Step<Outcome> outcomes = vacant == null ? decideInRedis(found) : Step.done(new Outcome(vacant.answer(), Mode.STORE));
            return outcomes.then(outcome -> {
                Answer answer = outcome.answer;
                if (answer.allowed()) {
                    long dueUs = vacant == null ? found.request.nowUs() + answer.waitUs() : vacant.dueUs();
                    long waitUs = queued.hasPlace ? dueUs - found.request.nowUs() : 0;
                    return Step.after(waitUs, () -> Step.done(decision(found, queued.hasPlace ? outcome.withoutWait() : outcome, heldUs + waitUs)))
                        .ifAbandoned(() -> vacate(place, outcome, dueUs));
                }
                long retryUs = answer.retryAfterUs();
                boolean retries = queued.hasPlace && retryUs != Numbers.NEVER && retryUs <= left && tries < QUEUE_TRIES_MAX;
                return retries ? Step.after(retryUs, () -> nextTurn(queued, heldUs + Math.max(retryUs, 1), tries + 1))
                    : Step.done(decision(found, outcome, heldUs));
            });
        });
    }

    // The policy may have lost its queue meanwhile.
    private Step<Decision> nextTurn(Queued queued, long heldUs, int tries) {
        return resolve(queued.call, Verb.CHECK, Numbers.NO_WAIT_GIVEN).then(found -> found.policy.overflow().queueMaxWaitUs() == 0
            ? decideOnce(found, heldUs)
            : tryTurn(queued, heldUs, tries));
    }

    /**
     * An acquire that waits for its permit: it asks again until it has it, or its time is over. Its ticket in Redis keeps its place.
     *
     * @param begunNanos when it began
     * @param maxWaitUs how long it may wait
     * @param hasWaited whether it has asked before
     * @param isUnsure whether a question without an answer may have got the permit
     */
    private record Waiting(Call call, long begunNanos, long maxWaitUs, boolean hasWaited, boolean isUnsure) {
        long heldUs() {
            return hasWaited ? (System.nanoTime() - begunNanos) / 1000 : 0;
        }
    }

    private Step<Decision> acquireQueued(Resolved first, long maxWaitUs) {
        if (!places.tryAcquire()) {
            return decideOnce(first, 0);
        }
        Waiting waiting = new Waiting(first.call, System.nanoTime(), maxWaitUs, false, false);
        // Who gives up leaves its ticket, and its place.
        return Step.after(0, () -> askForPermit(waiting)).ifAbandoned(() -> {
            places.release();
            leave(first.call);
        }).map(decision -> {
            places.release();
            return decision;
        });
    }

    private Step<Decision> askForPermit(Waiting waiting) {
        return resolve(waiting.call, Verb.ACQUIRE, Numbers.NO_WAIT_GIVEN).then(found -> decideInRedis(withTicket(found, false)).then(outcome -> {
            Answer answer = outcome.answer;
            boolean isHeld = outcome.mode == Mode.STORE && !answer.allowed() && answer.retryAfterUs() == Numbers.NEVER;
            if (waiting.isUnsure && isHeld) {
                // An earlier question got the permit, and its answer was lost.
                return resolve(waiting.call, Verb.RENEW, Numbers.NO_WAIT_GIVEN).then(held -> decideInRedis(held))
                    .map(renewed -> decision(found, renewed, waiting.heldUs()));
            }
            long pauseUs = pauseUs(outcome, waiting.hasWaited);
            long heldUs = waiting.heldUs();
            if (pauseUs == 0) {
                if (outcome.mode != Mode.STORE) {
                    // Redis may have a ticket, from this question or an earlier one.
                    leave(waiting.call);
                }
                return Step.done(decision(found, outcome, heldUs));
            }
            long leftUs = waiting.maxWaitUs - (System.nanoTime() - waiting.begunNanos) / 1000;
            if (leftUs <= 0) {
                Decision refusal = decision(found, new Outcome(refusal(answer), outcome.mode), heldUs);
                return decideInRedis(withTicket(found, true)).map(left -> refusal);
            }
            Waiting again = new Waiting(waiting.call, waiting.begunNanos, waiting.maxWaitUs, true, waiting.isUnsure || outcome.mode != Mode.STORE);
            return Step.after(Math.min(pauseUs, leftUs), () -> askForPermit(again));
        }));
    }

    private Resolved withTicket(Resolved found, boolean isGivenBack) {
        return new Resolved(found.call, found.policy, found.request.withTicket(new Request.Ticket(process, isGivenBack)));
    }

    /** {@return the time after which a request with this outcome asks again; 0 if it does not wait} */
    private static long pauseUs(Outcome outcome, boolean hasWaited) {
        Answer answer = outcome.answer;
        if (outcome.mode == Mode.STORE && answer.allowed() && answer.granted() == 0) {
            return Math.min(Math.max(answer.waitUs(), PERMIT_LOOK_MIN_US), PERMIT_LOOK_US);
        }
        boolean canRetry = !answer.allowed() && answer.retryAfterUs() != Numbers.NEVER;
        return switch (outcome.mode) {
            case LOCAL -> canRetry ? PERMIT_LOOK_WITHOUT_REDIS_US : 0;
            case SHED, DENY -> canRetry && hasWaited ? PERMIT_LOOK_US : 0;
            default -> 0;
        };
    }

    private static Answer refusal(Answer answer) {
        return answer.allowed() ? new Answer(false, 0, 0, answer.limit(), answer.remaining(), Math.max(answer.waitUs(), PERMIT_LOOK_MIN_US),
            answer.resetAfterUs(), answer.rule()) : answer;
    }

    // Without it the ticket stands before others until no request of this process has asked about the key for 3 s.
    private void leave(Call call) {
        calls.begin(begun -> store.run(begun, () -> resolve(call, Verb.ACQUIRE, Numbers.NO_WAIT_GIVEN)
            .then(found -> decideInRedis(withTicket(found, true)).map(outcome -> decision(found, outcome, 0)))));
    }

    // The turn of a caller that gives up is vacant.
    private void vacate(Vacancies.Place place, Outcome outcome, long dueUs) {
        if (outcome.mode == Mode.STORE) {
            vacancies.put(place, new Vacancies.Turn(outcome.answer, dueUs), options.nowUs());
        }
    }

    /** Pays the debts of keys without requests. A debt without an answer is left for the next time. */
    private void payDebts() throws InterruptedException {
        long nowUs = options.nowUs();
        for (var debtor : shares.owing(PAYMENT_BATCH_MAX, nowUs)) {
            StoreRequest peek = payment(debtor);
            if (peek == null) {
                continue;
            }
            if (!breaker.allows(nowUs) || recordResult(nowUs, store.run(decideWithDebts(peek, debtor.getKey()))) instanceof Result.NoAnswer) {
                return;
            }
        }
    }

    /**
     * Pays until nothing is owed any more, or the time is over. There is no next time, so it sends also while the breaker is
     * open, and goes on where there is no answer.
     */
    private void payBeforeClose(long untilNanos) throws InterruptedException {
        var owing = shares.owing(PAYMENT_BATCH_MAX, options.nowUs());
        while (!owing.isEmpty()) {
            for (var debtor : owing) {
                if (System.nanoTime() - untilNanos >= 0) {
                    return;
                }
                StoreRequest peek = payment(debtor);
                if (peek != null) {
                    recordResult(peek.nowUs(), store.run(decideWithDebts(peek, debtor.getKey())));
                }
            }
            owing = shares.owing(PAYMENT_BATCH_MAX, options.nowUs());
            if (!owing.isEmpty()) {
                Thread.sleep(PAYMENT_RETRY_MS);
            }
        }
    }

    /**
     * {@return the peek that pays for a key, or null if its policy is gone, and the debt with it} If the published version cannot be read,
     * the rules of the account pay: what was admitted counts.
     */
    private StoreRequest payment(Map.Entry<Place, Shares.Account> debtor) {
        StoreRequest last = debtor.getValue().lastRequest;
        RuleSet rules = last.rules();
        Head head = last.head();
        if (!head.isBroughtAlong()) {
            PolicyCatalog.Held held = policies.catalog().get(last.policy());
            if (held == null) {
                shares.drop(debtor.getKey());
                return null;
            }
            if (held.policy() != null) {
                long nowMs = options.nowUs() / 1000;
                rules = held.policy().rulesOf(last.key(), nowMs);
                head = Head.of(rules, held.policy().sinceMs(last.key(), held.takenOverMs(), nowMs));
            }
        }
        return new StoreRequest(last.policy(), rules, head, last.key(), Verb.PEEK, 1, 0, null, policies.catalog().clock(), options.nowUs(), null);
    }
}

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
import io.sluicegate.internal.policy.Key;
import io.sluicegate.internal.policy.Policy;
import io.sluicegate.internal.redis.Head;
import io.sluicegate.internal.redis.Keys;
import io.sluicegate.internal.redis.Result;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.stream.IntStream;

/** Decides in Redis, and what holds while Redis does not decide: the order of the page "When Redis does not decide". */
public final class Engine implements Transport, AutoCloseable {
    /** Questions of one decision of a key that owes. */
    private static final int QUESTIONS_MAX = 4;
    /** Requests that are held back at a time. */
    private static final int HELD_MAX = 10_000;
    /** Maximum number of questions about a request that is held back. */
    private static final int QUEUE_TRIES_MAX = 64;
    /** Debts that are paid in one go beside requests. */
    private static final int PAID_AT_ONCE_MAX = 64;
    /** Time that a gate that is closed pays its debts. */
    private static final long PAYS_LAST_NANOS = 1_000_000_000L;
    /** Pause before debts that were not paid then are asked for again. */
    private static final long PAYS_AGAIN_MS = 10;
    private static final long SHED_RETRY_US = 100_000;
    /**
     * Asynchronous calls that ask a port of futures at a time: as many as Redis answers within the default deadline, and a quarter of
     * what a connection of Lettuce takes.
     */
    private static final int ASKS_AT_ONCE_MAX = 1024;
    /** The result of a question whose caller gave up. */
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
    private final AsyncCalls calls;
    private final Transport policyDecisions = by(this::deciding);
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
        this.calls = new AsyncCalls(blocks ? AsyncPool.CALLS_AT_ONCE_MAX : ASKS_AT_ONCE_MAX, pool);
        this.store = new RedisStore(blocks ? new BlockingPort(port, pool) : (AsyncRedisPort) port,
            new Deadline(options.deadlineNanos(), options.warmsUp()));
        Supplier<Alarm> alarms = background ? Alarm::new : Alarm::silent;
        this.watch = new StoreWatch(port.address(), this::meanwhile, alarms, System::nanoTime);
        this.policies = new Policies(store, options, watch, alarms);
        if (background && options.warmsUp()) {
            WarmUp.run(port, options);
        }
        this.housekeeper = background ? new Housekeeper(store, policies, this::payDebts) : null;
        if (background) {
            port.subscribe(Keys.CHANNEL, housekeeper::heard);
        }
    }

    /** {@return what decides while Redis does not} */
    private String meanwhile() {
        String byShare = ": by a share of 1/" + nodes() + " of the limit, allow or deny";
        return policies.hasNone()
            ? NO_POLICY + "; limits made in code decide by on_store_failure" + byShare
            : "policies and limits decide by on_store_failure meanwhile" + byShare;
    }

    /** Counts a policy as used before the first request asks by it: the health knows soon whether it can be decided by. */
    public void use(String name) {
        if (policies.use(name) && housekeeper != null) {
            housekeeper.heard("");
        }
    }

    /** {@return a transport that decides by a limit that the program brings along} */
    public Transport limit(Policy limit) {
        String place = Keys.LIMIT + limit.name();
        Head head = Head.broughtAlong(limit.rules());
        return by(call -> decided(found(call, call.verb(), call.maxWaitUs(), limit, place, limit.rules(), head), 0));
    }

    /** {@return a transport that decides by steps, on the thread of the caller or on the futures of the port} */
    private Transport by(Function<Call, Step<Decision>> steps) {
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
        String away = watch.problem();
        if (away != null) {
            return new GateHealth(state, watch.address(), away, meanwhile());
        }
        String problem = policies.problem();
        return problem == null ? GateHealth.up(watch.address())
            : new GateHealth(state, watch.address(), problem,
                state == GateHealth.State.DOWN ? NO_POLICY + "; Redis decides by limits made in code" : Texts.READ_BEFORE);
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
        long until = System.nanoTime() + PAYS_LAST_NANOS;
        try {
            if (housekeeper != null) {
                housekeeper.stop();
            }
            payLast(until);
            if (housekeeper != null) {
                housekeeper.await(until);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        calls.close();
        store.port().close();
    }

    /** A call with what was found for it. */
    private record Found(Call call, Policy policy, Question question) {}

    /** An answer and who gave it. */
    private record Said(Answer answer, Mode mode) {
        /** {@return the same, with the wait behind it} */
        Said waited() {
            return new Said(answer.by(answer.rule(), 0), mode);
        }
    }

    @Override
    public Decision decide(Call call) throws InterruptedException {
        return policyDecisions.decide(call);
    }

    @Override
    public CompletableFuture<Decision> decideAsync(Call call) {
        return policyDecisions.decideAsync(call);
    }

    private Step<Decision> deciding(Call call) {
        return find(call, call.verb(), call.maxWaitUs()).then(found -> call.verb() == Verb.CHECK && found.policy.over().queueMaxWaitUs() > 0
            ? queued(call, found.policy.over().queueMaxWaitUs())
            : decided(found, 0));
    }

    private Step<Found> find(Call call, Verb verb, long maxWaitUs) {
        return policies.find(call.policy()).map(held -> {
            Policy policy = held.policy();
            checkApp(policy, verb);
            Key key = Key.of(call.key());
            long nowMs = options.nowUs() / 1000;
            RuleSet rules = policy.rulesOf(key, nowMs);
            Head head = Head.of(rules, policy.sinceMs(key, held.takenOverMs(), nowMs));
            return found(call, verb, maxWaitUs, policy, policy.name(), rules, head);
        });
    }

    private Found found(Call call, Verb verb, long maxWaitUs, Policy policy, String place, RuleSet rules, Head head) {
        Key key = Key.of(call.key());
        if (!rules.supports(verb)) {
            throw unsupported(verb, policy);
        }
        PermitId permit = PermitId.of(call.id());
        return new Found(call, policy, new Question(place, rules, head, key, verb, call.cost(), maxWaitUs, permit, policies.book().clock(),
            options.nowUs(), null));
    }

    private static RuntimeException unsupported(Verb verb, Policy policy) {
        return ErrorCode.UNSUPPORTED_VERB.with(Map.of("verb", verb.text(), "policy", policy.name()));
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

    private Step<Decision> decided(Found found, long heldUs) {
        Said known = known(found);
        return known != null ? Step.done(decision(found, known, heldUs)) : asked(found).map(said -> decision(found, said, heldUs));
    }

    /** {@return what is known without Redis, or null} */
    private Said known(Found found) {
        Question question = found.question;
        Verb verb = question.verb();
        if (verb == Verb.CHECK) {
            Answer refusal = refusals.find(question.place(), question.cost(), question.rules(), found.policy.version(), question.nowUs());
            return refusal == null ? null : new Said(refusal, Mode.REMEMBERED);
        }
        Answer here = verb == Verb.RELEASE || verb == Verb.RENEW ? shares.onPermit(question.place(), question) : null;
        return here == null ? null : new Said(here, Mode.LOCAL);
    }

    private Step<Said> asked(Found found) {
        Question question = found.question;
        Place place = question.place();
        return breaker.allows(question.nowUs())
            ? askWithDebts(question, place).map(result -> said(found, place, counted(question.nowUs(), result)))
            : Step.done(said(found, place, new Result.NoAnswer(silence(), false)));
    }

    private String silence() {
        String problem = watch.problem();
        return problem == null ? "redis does not answer" : problem;
    }

    private Result counted(long nowUs, Result result) {
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

    /** Asks, and has what is owed charged before. */
    private Step<Result> askWithDebts(Question question, Place place) {
        Shares.Account account = shares.account(place);
        return account == null ? store.asking(question) : askWithDebts(question, place, account, QUESTIONS_MAX);
    }

    private Step<Result> askWithDebts(Question question, Place place, Shares.Account account, int questions) {
        if (questions == 0) {
            return Step.done(new Result.Shed("more is owed than could be paid", true));
        }
        Question asked = withBill(question, account);
        return store.asking(asked).ifAbandoned(() -> settle(place, account, asked, ABANDONED)).then(result -> {
            boolean owes = settle(place, account, asked, result);
            if (!(result instanceof Result.Decided decided)) {
                return Step.done(result);
            }
            boolean grants = decided.answer().allowed() && decided.answer().granted() > 0 && question.verb() != Verb.PEEK;
            boolean isAnswer = asked.verb() == question.verb() && !(grants && owes);
            return isAnswer ? Step.done(result) : askWithDebts(question, place, account, questions - 1);
        });
    }

    // A bill that Redis may have charged is sent again unchanged, and alone if more passed here since it was made.
    private Question withBill(Question question, Shares.Account account) {
        synchronized (account) {
            Question asked = chooseBill(question, account);
            account.carriers += asked.bill() == null ? 0 : 1;
            return asked;
        }
    }

    private static Question chooseBill(Question question, Shares.Account account) {
        RuleSet rules = question.rules();
        if (account.bill != null && account.bill.permits().length != rules.rules().size()) {
            account.bill = null;
            account.billId = Bill.newId();
        }
        if (account.bill == null) {
            long[] owed = account.owed(rules, question.nowUs());
            boolean owes = Arrays.stream(owed).anyMatch(permits -> permits > 0);
            account.bill = owes ? Bill.of(account.billId, owed, account.used) : null;
            return question.with(account.bill);
        }
        long[] now = account.used.used(rules, question.nowUs());
        long[] then = account.bill.used().used(rules, question.nowUs());
        boolean more = IntStream.range(0, now.length).anyMatch(place -> now[place] > then[place]);
        return more ? question.as(Verb.PEEK, 1, account.bill) : question.with(account.bill);
    }

    /** Writes down what became of a bill; returns whether the key still owes. */
    private boolean settle(Place place, Shares.Account account, Question asked, Result result) {
        synchronized (account) {
            long nowUs = shares.instant(asked.nowUs());
            account.carriers -= asked.bill() == null ? 0 : 1;
            if (result instanceof Result.Decided decided) {
                if (asked.bill() != null && asked.bill() == account.bill) {
                    account.paid(asked.rules(), decided.charged(), nowUs);
                }
                account.raise(asked.rules(), decided, nowUs);
                boolean owes = account.bill != null || account.owes(asked.rules(), nowUs);
                shares.close(place, account, nowUs);
                return owes;
            }
            if (asked.bill() != null && asked.bill() == account.bill) {
                account.billSent |= result.perhapsCharged();
                account.bill = account.billSent || account.carriers > 0 ? account.bill : null;
            }
            return true;
        }
    }

    private Said said(Found found, Place place, Result result) {
        Question question = found.question;
        boolean changesUsage = question.verb() == Verb.REFUND || question.verb() == Verb.RESET || question.verb() == Verb.RELEASE
            || question.verb() == Verb.RENEW;
        if (changesUsage) {
            refusals.forget(place);
        }
        if (result instanceof Result.Decided decided) {
            Answer answer = decided.answer();
            shares.learn(place, question.rules(), decided, question.nowUs());
            if (question.verb() == Verb.CHECK && answer.allowed()) {
                refusals.allowed(place, question.cost(), question.rules());
            } else if (question.verb() == Verb.CHECK) {
                refusals.remember(place, answer, question.cost(), question.rules(), found.policy.version(), question.nowUs());
            }
            return new Said(answer, Mode.STORE);
        }
        if (result instanceof Result.Unsupported) {
            throw unsupported(question.verb(), found.policy);
        }
        if (changesUsage) {
            throw noDecision(result);
        }
        if (result instanceof Result.Shed) {
            return new Said(Answer.refused(question.rules(), SHED_RETRY_US), Mode.SHED);
        }
        return withoutRedis(found, place, result instanceof Result.ThisKey);
    }

    private static RuntimeException noDecision(Result result) {
        String cause = result instanceof Result.NoAnswer silent ? silent.cause()
            : result instanceof Result.Shed shed ? shed.cause()
            : "the key cannot be read: " + ((Result.ThisKey) result).cause();
        return (result.perhapsCharged() ? ErrorCode.PERHAPS_CHARGED : ErrorCode.NOT_CHARGED).with(Map.of("cause", cause));
    }

    private Said withoutRedis(Found found, Place share, boolean thisKey) {
        Question question = found.question;
        OnStoreFailure how = found.policy.onStoreFailure();
        if (how == OnStoreFailure.ALLOW) {
            if (!thisKey && question.verb().compareTo(Verb.AT_MOST) <= 0) {
                shares.noteAdmitted(share, question, nodes());
            }
            return new Said(new Answer(true, question.cost(), 0, question.rules().rules().get(0).limit(), 0, 0, 0, 0), Mode.ALLOW);
        }
        if (how == OnStoreFailure.DENY || thisKey) {
            return new Said(Answer.refused(question.rules(), Shares.RETRY_US), Mode.DENY);
        }
        return new Said(shares.decide(share, question, nodes()), Mode.LOCAL);
    }

    private long nodes() {
        return options.nodes() > 0 ? options.nodes() : Math.max(policies.book().nodes(), 1);
    }

    private static Decision decision(Found found, Said said, long heldUs) {
        return found.policy.decision(found.question.rules(), found.call.verb(), said.answer, said.mode, heldUs);
    }

    /** A check that a queue holds back; without a place among those that are held back it does not wait. */
    private record Queued(Call call, boolean hasPlace, long maxWaitUs) {}

    // A queue holds a check back until its turn, or until the rules say that it can pass.
    private Step<Decision> queued(Call call, long maxWaitUs) {
        if (!places.tryAcquire()) {
            return turn(new Queued(call, false, 0), 0, 1);
        }
        return Step.after(0, () -> turn(new Queued(call, true, maxWaitUs), 0, 1)).ifAbandoned(places::release).map(decision -> {
            places.release();
            return decision;
        });
    }

    private Step<Decision> turn(Queued queued, long heldUs, int tries) {
        long left = Math.max(queued.maxWaitUs - heldUs, 0);
        return find(queued.call, Verb.RESERVE, left).then(found -> {
            Vacancies.Place place = new Vacancies.Place(found.policy.name(), found.question.key(), queued.call.cost());
            Vacancies.Turn vacant = vacancies.take(place, found.question.nowUs(), left);
            Step<Said> asked = vacant == null ? asked(found) : Step.done(new Said(vacant.answer(), Mode.STORE));
            return asked.then(said -> {
                Answer answer = said.answer;
                if (answer.allowed()) {
                    long dueUs = vacant == null ? found.question.nowUs() + answer.waitUs() : vacant.dueUs();
                    long waitUs = queued.hasPlace ? dueUs - found.question.nowUs() : 0;
                    return Step.after(waitUs, () -> Step.done(decision(found, queued.hasPlace ? said.waited() : said, heldUs + waitUs)))
                        .ifAbandoned(() -> vacate(place, said, dueUs));
                }
                long retryUs = answer.retryAfterUs();
                boolean asksAgain = queued.hasPlace && retryUs != Numbers.NEVER && retryUs <= left && tries < QUEUE_TRIES_MAX;
                return asksAgain ? Step.after(retryUs, () -> nextTurn(queued, heldUs + Math.max(retryUs, 1), tries + 1))
                    : Step.done(decision(found, said, heldUs));
            });
        });
    }

    // The policy may have lost its queue meanwhile.
    private Step<Decision> nextTurn(Queued queued, long heldUs, int tries) {
        return find(queued.call, Verb.CHECK, Numbers.NO_WAIT_GIVEN).then(found -> found.policy.over().queueMaxWaitUs() == 0
            ? decided(found, heldUs)
            : turn(queued, heldUs, tries));
    }

    // The turn of a caller that gives up is vacant.
    private void vacate(Vacancies.Place place, Said said, long dueUs) {
        if (said.mode == Mode.STORE) {
            vacancies.put(place, new Vacancies.Turn(said.answer, dueUs), options.nowUs());
        }
    }

    /** Pays the debts of keys without requests. A debt without an answer is left for the next time. */
    private void payDebts() throws InterruptedException {
        long nowUs = options.nowUs();
        for (var debtor : shares.owing(PAID_AT_ONCE_MAX, nowUs)) {
            Question peek = payment(debtor);
            if (peek == null) {
                continue;
            }
            if (!breaker.allows(nowUs) || counted(nowUs, store.run(askWithDebts(peek, debtor.getKey()))) instanceof Result.NoAnswer) {
                return;
            }
        }
    }

    /**
     * Pays until nothing is owed any more, or the time is over. There is no next time, so it asks also while the breaker is
     * open, and goes on where there is no answer.
     */
    private void payLast(long untilNanos) throws InterruptedException {
        var owing = shares.owing(PAID_AT_ONCE_MAX, options.nowUs());
        while (!owing.isEmpty()) {
            for (var debtor : owing) {
                if (System.nanoTime() - untilNanos >= 0) {
                    return;
                }
                Question peek = payment(debtor);
                if (peek != null) {
                    counted(peek.nowUs(), store.run(askWithDebts(peek, debtor.getKey())));
                }
            }
            owing = shares.owing(PAID_AT_ONCE_MAX, options.nowUs());
            if (!owing.isEmpty()) {
                Thread.sleep(PAYS_AGAIN_MS);
            }
        }
    }

    /**
     * {@return the peek that pays for a key, or null if its policy is gone, and the debt with it} If the published version cannot be read,
     * the rules of the account pay: what was admitted counts.
     */
    private Question payment(Map.Entry<Place, Shares.Account> debtor) {
        Question last = debtor.getValue().asked;
        RuleSet rules = last.rules();
        Head head = last.head();
        if (!head.isBroughtAlong()) {
            PolicyBook.Held held = policies.book().get(last.policy());
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
        return new Question(last.policy(), rules, head, last.key(), Verb.PEEK, 1, 0, null, policies.book().clock(), options.nowUs(), null);
    }
}

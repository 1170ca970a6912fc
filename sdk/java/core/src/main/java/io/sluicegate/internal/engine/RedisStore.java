package io.sluicegate.internal.engine;

import static io.sluicegate.internal.redis.Keys.ascii;

import io.sluicegate.AsyncRedisPort;
import io.sluicegate.Decision;
import io.sluicegate.RedisPort;
import io.sluicegate.RedisPort.Failure;
import io.sluicegate.internal.AsyncCalls;
import io.sluicegate.internal.AsyncPool;
import io.sluicegate.internal.Deadline;
import io.sluicegate.internal.kernel.Answer;
import io.sluicegate.internal.kernel.Calendar;
import io.sluicegate.internal.kernel.Rule;
import io.sluicegate.internal.kernel.RuleSet;
import io.sluicegate.internal.redis.Head;
import io.sluicegate.internal.redis.Keys;
import io.sluicegate.internal.redis.Request;
import io.sluicegate.internal.redis.Result;
import java.util.Arrays;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BiConsumer;
import java.util.function.BiFunction;
import java.util.function.Function;
import java.util.function.Supplier;

/** Decides in Redis: the calls of one request, within one deadline. It runs the steps of calls, for callers that block and for those that do not. */
final class RedisStore {
    /** Calls of the script in one request; more only come where others change the rules each time. */
    private static final int CALLS_MAX = 8;
    /** Maximum number of times a call is sent again that Redis refused without beginning it. */
    private static final int REPEATS_MAX = 3;
    /** Rule sets that the process remembers. */
    private static final int RULE_SETS_MAX = 65_536;
    /** Slow calls on end after which Redis counts as silent. */
    private static final int SLOW_CALLS_MAX = 3;
    /** Calls on one connection that are a queue: their time passes while they wait for each other. */
    private static final int QUEUE_MIN = 64;
    /** Deadlines of silence after which Redis is no more busy, also if there is a queue or the process itself was late. */
    private static final int QUEUE_DEADLINES = 10;
    private static final long STOOD_STILL_MIN_NANOS = TimeUnit.MILLISECONDS.toNanos(20);
    private static final long STOOD_STILL_MAX_NANOS = TimeUnit.MILLISECONDS.toNanos(200);
    private static final long ANNOUNCE_AGAIN_NANOS = TimeUnit.MINUTES.toNanos(10);
    private static final long ANNOUNCED_EXTRA_MS = TimeUnit.MINUTES.toMillis(20);
    private static final long OTHER_CLOCK_EXTRA_MS = TimeUnit.DAYS.toMillis(1);
    private static final long ANNOUNCED_MAX_MS = TimeUnit.DAYS.toMillis(400);
    /** Errors of a server that did not begin the call. */
    private static final Set<String> NOT_BEGUN = Set.of("NOSCRIPT", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "CROSSSLOT", "LOADING",
        "MASTERDOWN", "BUSY", "NOAUTH", "READONLY", "NOREPLICAS", "MISCONF", "NOPERM", "OOM");

    private static final byte[] EVALSHA = ascii("EVALSHA");
    private static final byte[] ONE = ascii("1");
    private static final byte[] TWO = ascii("2");
    private static final byte[] SCRIPT = ascii("SCRIPT");
    private static final byte[] LOAD = ascii("LOAD");

    private final RedisPort port;
    private final AsyncPool pool;
    private final Deadline deadline;
    private final Map<String, Announced> announced = new ConcurrentHashMap<>();
    private final AtomicInteger underWay = new AtomicInteger();
    private final AtomicLong lastSign = new AtomicLong(System.nanoTime());
    private final AtomicInteger slowAlone = new AtomicInteger();

    private record Announced(RuleSet rules, long nanos) {}

    /** {@code pool} runs the calls of callers that do not wait, over a port whose calls block. */
    RedisStore(RedisPort port, AsyncPool pool, Deadline deadline) {
        this.port = port;
        this.pool = pool;
        this.deadline = deadline;
    }

    RedisPort port() {
        return port;
    }

    /** {@return the request as steps, whose deadline begins now} */
    Step<Result> decideSteps(StoreRequest request) {
        long now = System.nanoTime();
        return new Execution(request, now, deadline.ofDecision(now)).run();
    }

    /** A decision begins by something else than a request: the first seconds begin with it. */
    void decisionBegins() {
        deadline.ofDecision(System.nanoTime());
    }

    /** {@return a command outside of requests as a step, within one deadline} {@code then} takes the reply, or the failure. */
    <T> Step<T> command(BiFunction<Object, Failure, Step<T>> then, byte[]... command) {
        long now = System.nanoTime();
        return new Step.Send<>(now + deadline.ofLook(now), command, then, Step.NO_UNDO);
    }

    /** {@return the result of a call, for which the caller waits} */
    <T> T run(Step<T> call) throws InterruptedException {
        Step<T> step = call;
        while (true) {
            if (step instanceof Step.Done<T> done) {
                return done.value();
            }
            if (step instanceof Step.Send<T> send) {
                step = exchangeBlocking(send);
            } else {
                Step.Pause<T> pause = (Step.Pause<T>) step;
                try {
                    TimeUnit.MICROSECONDS.sleep(pause.us());
                } catch (InterruptedException e) {
                    pause.abandoned().run();
                    throw e;
                }
                step = pause.then().get();
            }
        }
    }

    private <T> Step<T> exchangeBlocking(Step.Send<T> send) throws InterruptedException {
        long now = System.nanoTime();
        if (send.untilNanos() <= now) {
            return send.then().apply(null, notSent());
        }
        boolean alone = beginCommand(now);
        Object reply = null;
        Failure failure = null;
        try {
            reply = port.call(send.untilNanos() - now, send.command());
        } catch (Failure e) {
            failure = e;
        } catch (InterruptedException | RuntimeException | Error e) {
            underWay.decrementAndGet();
            send.abandoned().run();
            throw e;
        }
        return send.then().apply(reply, endCommand(failure, alone));
    }

    /** Runs a call on the futures of the port. */
    void run(AsyncCalls.Running call, Supplier<Step<Decision>> next) {
        Step<Decision> step;
        try {
            step = next.get();
        } catch (RuntimeException | Error e) {
            call.end(null, e);
            return;
        }
        if (step instanceof Step.Done<Decision> done) {
            call.end(done.value(), null);
        } else if (step instanceof Step.Send<Decision> send) {
            exchange(send, (reply, failure) -> run(call, () -> send.then().apply(reply, failure)));
        } else {
            Step.Pause<Decision> pause = (Step.Pause<Decision>) step;
            if (pause.us() > 0) {
                call.pause(pause.us(), () -> run(call, pause.then()), pause.abandoned());
            } else {
                run(call, pause.then());
            }
        }
    }

    private void exchange(Step.Send<?> send, BiConsumer<Object, Failure> then) {
        long now = System.nanoTime();
        if (send.untilNanos() <= now) {
            then.accept(null, notSent());
            return;
        }
        boolean alone = beginCommand(now);
        CompletableFuture<Object> sent;
        try {
            sent = send(send.untilNanos() - now, send.command());
        } catch (RuntimeException | Error e) {
            sent = CompletableFuture.failedFuture(e);
        }
        sent.whenComplete((reply, problem) -> {
            Failure failure = problem == null || problem instanceof Failure ? (Failure) problem
                : new Failure("the connection was lost", true, false);
            then.accept(reply, endCommand(failure, alone));
        });
    }

    // A port whose calls block holds a thread of the pool. The deadline is that of the call, so a future that is given up only waits for that.
    private CompletableFuture<Object> send(long timeoutNanos, byte[]... command) {
        return port instanceof AsyncRedisPort async ? async.send(timeoutNanos, command)
            : AsyncPool.submit(pool, () -> port.call(timeoutNanos, command));
    }

    private Failure notSent() {
        return new Failure("the deadline passed", false, signs());
    }

    /** A command goes out; returns whether no other is under way. */
    private boolean beginCommand(long now) {
        boolean alone = underWay.getAndIncrement() == 0;
        if (alone) {
            lastSign.set(now);
        }
        return alone;
    }

    /** A command came to its end. A port that does not report what its connection has shown is taken for one connection. */
    private Failure endCommand(Failure failure, boolean alone) {
        if (failure == null) {
            lastSign.set(System.nanoTime());
            slowAlone.set(0);
        } else if (failure.timeout() && alone) {
            slowAlone.incrementAndGet();
        }
        boolean isBare = failure != null && failure.timeout() && failure.signs() == null;
        Failure seen = isBare ? new Failure(failure.getMessage(), failure.perhapsExecuted(), signs()) : failure;
        underWay.decrementAndGet();
        return seen;
    }

    private RedisPort.Signs signs() {
        return new RedisPort.Signs(System.nanoTime() - lastSign.get(), underWay.get(), slowAlone.get());
    }

    /** {@return whether the time of a command outside of requests was over while Redis is busy} */
    boolean isBusy(Failure failure) {
        return failure.timeout() && isBusy(failure.signs(), 0, deadline.ofLook(System.nanoTime()));
    }

    /**
     * {@return whether Redis is busy, and not silent: see "Silent or busy" of the page "When Redis does not decide"}
     *
     * @param lateNanos by how much the end of the call came after its deadline
     */
    static boolean isBusy(RedisPort.Signs signs, long lateNanos, long deadlineNanos) {
        if (signs.waiting() >= QUEUE_MIN || lateNanos > deadlineNanos / 4) {
            long stoodStill = Math.min(Math.max(QUEUE_DEADLINES * deadlineNanos, STOOD_STILL_MIN_NANOS), STOOD_STILL_MAX_NANOS);
            return lateNanos >= stoodStill || signs.silentNanos() < QUEUE_DEADLINES * deadlineNanos;
        }
        return signs.silentNanos() < deadlineNanos && signs.slowAlone() < SLOW_CALLS_MAX;
    }

    private static String code(String error) {
        String text = error;
        // Before Redis 7 some errors begin with their place in the script: `@user_script: 8: -OOM ..`.
        if (text.startsWith("@user_script")) {
            int dash = text.indexOf(" -");
            text = dash < 0 ? text : text.substring(dash + 2);
        }
        int end = text.indexOf(' ');
        return end < 0 ? text : text.substring(0, end);
    }

    private static Result ofError(RedisPort.ReplyError error) {
        String code = code(error.text());
        if (code.equals("WRONGTYPE")) {
            return new Result.ThisKey(code);
        }
        return new Result.NoAnswer("redis answers " + code, !NOT_BEGUN.contains(code));
    }

    /** The execution of one request: which rules decide may change from call to call. */
    private final class Execution {
        private final StoreRequest request;
        private final long deadlineNanos;
        private final long until;
        private final byte[] stateKey;
        private RuleSet deciding;
        private Head head;
        private byte[] writerBlob;
        private boolean answered;

        Execution(StoreRequest request, long now, long deadlineNanos) {
            this.request = request;
            this.deadlineNanos = deadlineNanos;
            this.until = now + deadlineNanos;
            this.stateKey = Keys.state(request.policy(), request.key());
            this.deciding = request.rules();
            this.head = request.head();
        }

        private Result failed(Failure failure) {
            if (failure.timeout() && answered) {
                return new Result.Shed("the deadline passed", failure.perhapsExecuted());
            }
            if (failure.timeout() && isBusy(failure.signs(), System.nanoTime() - until, deadlineNanos)) {
                return new Result.Shed("redis is busy", failure.perhapsExecuted());
            }
            return new Result.NoAnswer(failure.getMessage(), failure.perhapsExecuted());
        }

        /** {@return a command of this request} {@code then} takes the reply; a failure ends the request. */
        private Step<Result> send(Function<Object, Step<Result>> then, byte[]... command) {
            return new Step.Send<>(until, command, (reply, failure) -> failure == null ? then.apply(reply) : Step.done(failed(failure)), Step.NO_UNDO);
        }

        // The rules are put where others find them, before they are used and every ten minutes while they are.
        Step<Result> run() {
            String place = request.policy() + "#" + request.rules().generationHex();
            long now = System.nanoTime();
            if (request.head().isBroughtAlong() || isAnnounced(place, now)) {
                return evaluate(CALLS_MAX);
            }
            long ttlMs = request.rules().lifeMs() + ANNOUNCED_EXTRA_MS
                + (request.clock() == Request.Clock.SERVER ? 0 : OTHER_CLOCK_EXTRA_MS);
            return send(reply -> {
                if (reply instanceof RedisPort.ReplyError error) {
                    Result result = ofError(error);
                    return Step.done(result instanceof Result.NoAnswer silent ? new Result.NoAnswer(silent.cause(), false) : result);
                }
                remember(place, new Announced(request.rules(), now));
                return evaluate(CALLS_MAX);
            }, ascii("SET"), Keys.rules(request.policy(), request.rules().generationHex()), request.rules().bytes(), ascii("PX"),
                ascii(Long.toString(Math.min(ttlMs, ANNOUNCED_MAX_MS))));
        }

        private boolean isAnnounced(String place, long now) {
            Announced last = announced.get(place);
            return last != null && now - last.nanos < ANNOUNCE_AGAIN_NANOS;
        }

        /** Calls the script, so many times at most. */
        private Step<Result> evaluate(int calls) {
            if (calls == 0) {
                return Step.done(new Result.Shed("rules change with every call", false));
            }
            long[][] windows = windows();
            if (windows == null) {
                return Step.done(new Result.ThisKey("later rules have a calendar that is not known here"));
            }
            byte[] blob = head.blob(deciding);
            byte[] encoded = encode(windows);
            byte[][] command = request.bill() == null
                ? new byte[][] {EVALSHA, Script.SHA1, ONE, stateKey, blob, encoded}
                : new byte[][] {EVALSHA, Script.SHA1, TWO, stateKey, debtKey(), blob, encoded};
            return evaluate(command, REPEATS_MAX, calls);
        }

        private Step<Result> evaluate(byte[][] command, int repeats, int calls) {
            return send(reply -> {
                if (reply instanceof RedisPort.ReplyError error) {
                    return repeats > 0 && code(error.text()).equals("NOSCRIPT")
                        ? send(loaded -> evaluate(command, repeats - 1, calls), SCRIPT, LOAD, Script.TEXT)
                        : Step.done(ofError(error));
                }
                if (!(reply instanceof byte[] bytes)) {
                    return Step.done(new Result.NoAnswer("redis answers with no string", true));
                }
                answered = true;
                boolean lacksQueue = request.ticket() != null && !deciding.hasQueue() && bytes.length == 1 && bytes[0] == 2;
                Result read = lacksQueue ? new Result.Unsupported() : Result.read(bytes, deciding, request.verb(), request.bill() != null);
                if (read instanceof Result.OtherRules other) {
                    return findWriter(other.state(), calls - 1);
                }
                return Step.done(read instanceof Result.Decided decided ? decided(decided) : read);
            }, command);
        }

        private void remember(String place, Announced rules) {
            if (announced.size() >= RULE_SETS_MAX) {
                announced.clear();
            }
            announced.put(place, rules);
        }

        private byte[] encode(long[][] windows) {
            Request.End end = new Request.End(request.clock(), request.nowUs(), windows, writerBlob);
            byte[] encoded = request.ticket() == null ? Request.of(request.verb(), request.cost(), request.maxWaitUs(), request.permit(), end)
                : Request.of(request.ticket(), request.cost(), request.permit(), end);
            return request.bill() == null ? encoded : Request.afterDebt(permitsOf(request.bill()), encoded, end);
        }

        // Later rules are each charged the most that any rule owes.
        private long[] permitsOf(Bill bill) {
            if (deciding == request.rules()) {
                return bill.permits();
            }
            long[] permits = new long[deciding.rules().size()];
            Arrays.fill(permits, Arrays.stream(bill.permits()).max().orElse(0));
            return permits;
        }

        private byte[] debtKey() {
            byte[] suffix = ascii(":" + request.bill().id());
            byte[] key = Arrays.copyOf(stateKey, stateKey.length + suffix.length);
            System.arraycopy(suffix, 0, key, stateKey.length, suffix.length);
            return key;
        }

        /** {@return the windows of the deciding rules, or null where one's calendar is not known} */
        private long[][] windows() {
            if (deciding == request.rules()) {
                return deciding.windowsAround(request.nowUs());
            }
            long[][] windows = new long[deciding.rules().size()][];
            for (int place = 0; place < windows.length; place++) {
                Rule later = deciding.rules().get(place);
                if (later.hasCalendar()) {
                    Calendar calendar = calendarLike(later);
                    if (calendar == null) {
                        return null;
                    }
                    windows[place] = calendar.windowAround(request.nowUs());
                }
            }
            return windows;
        }

        private Calendar calendarLike(Rule later) {
            double[] numbers = later.numbers();
            for (Rule own : request.rules().rules()) {
                double[] others = own.numbers();
                if (own.hasCalendar() && numbers[3] == others[3] && numbers[4] == others[4]) {
                    return own.calendar();
                }
            }
            return null;
        }

        /** Finds the rules that wrote the state, and goes on; the later version decides. */
        private Step<Result> findWriter(byte[] state, int calls) {
            if (request.head().isBroughtAlong()) {
                // It always decides, whatever was there before.
                RuleSet rules = Head.rulesOfState(state);
                writerBlob = rules == null ? new byte[0] : Head.broughtAlong(rules).blob(rules);
                return evaluate(calls);
            }
            Head writer = Head.ofState(state);
            if (writer == null) {
                return decideAfter(null, null, calls);
            }
            String place = request.policy() + "#" + writer.generationHex();
            Announced announcement = announced.get(place);
            return announcement != null ? decideAfter(writer, announcement.rules, calls)
                : send(found -> decideAfter(writer, rulesOf(found, place, writer), calls), ascii("GET"), Keys.rules(request.policy(), writer.generationHex()));
        }

        private Step<Result> decideAfter(Head writer, RuleSet rules, int calls) {
            boolean isLater = rules != null && writer.isLaterThan(request.head());
            deciding = isLater ? rules : request.rules();
            head = isLater ? writer : request.head();
            writerBlob = isLater ? null : rules == null ? new byte[0] : writer.blob(rules);
            return evaluate(calls);
        }

        private RuleSet rulesOf(Object found, String place, Head writer) {
            if (!(found instanceof byte[] bytes)) {
                return null;
            }
            try {
                RuleSet rules = RuleSet.read(bytes);
                if (!rules.generationHex().equals(writer.generationHex())) {
                    return null;
                }
                // Long ago: if this process decides by them, it announces them itself.
                remember(place, new Announced(rules, System.nanoTime() - ANNOUNCE_AGAIN_NANOS));
                return rules;
            } catch (IllegalArgumentException e) {
                return null;
            }
        }

        private Result decided(Result.Decided decided) {
            if (deciding == request.rules()) {
                return decided;
            }
            Answer answer = decided.answer();
            int place = Math.max(request.rules().placeOf(deciding.rules().get(answer.rule())), 0);
            long least = Arrays.stream(decided.charged()).min().orElse(0);
            long[] charged = Arrays.stream(request.bill() == null ? new long[0] : request.bill().permits())
                .map(owed -> Math.min(owed, least)).toArray();
            return new Result.Decided(answer.by(place, answer.waitUs()), ownInUse(decided.inUse(), answer.rule(), place), charged);
        }

        // The usage of later rules counts for the own rules of the same names; without such, that of the deciding one for the own rule
        // that is reported.
        private long[] ownInUse(long[] reported, int decider, int ownDecider) {
            long[] own = new long[request.rules().rules().size()];
            Arrays.fill(own, Result.NOT_REPORTED);
            boolean isNamed = false;
            for (int later = 0; later < reported.length; later++) {
                int place = request.rules().placeOf(deciding.rules().get(later));
                if (place >= 0) {
                    own[place] = reported[later];
                    isNamed = true;
                }
            }
            if (!isNamed) {
                own[ownDecider] = reported[decider];
            }
            return own;
        }
    }
}

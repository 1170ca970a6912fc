package io.sluicegate.internal.engine;

import static io.sluicegate.internal.redis.Keys.ascii;

import io.sluicegate.RedisPort;
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
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/** Asks Redis: the calls of one question, within one deadline. */
final class RedisStore {
    /** Calls of the script in one question; more only come where others change the rules each time. */
    private static final int CALLS_MAX = 8;
    /** How often a call goes again that Redis refused without beginning it. */
    private static final int REPEATS_MAX = 3;
    /** Rule sets that the process remembers. */
    private static final int RULE_SETS_MAX = 65_536;
    /** Slow calls on end after which Redis counts as silent. */
    private static final int SLOW_CALLS_MAX = 3;
    private static final long ANNOUNCE_AGAIN_NANOS = TimeUnit.MINUTES.toNanos(10);
    private static final long ANNOUNCED_EXTRA_MS = TimeUnit.MINUTES.toMillis(20);
    private static final long OTHER_CLOCK_EXTRA_MS = TimeUnit.DAYS.toMillis(1);
    private static final long ANNOUNCED_MAX_MS = TimeUnit.DAYS.toMillis(400);
    /** Errors of a server that did not begin the call. */
    private static final Set<String> NOT_BEGUN = Set.of("NOSCRIPT", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "CROSSSLOT", "LOADING",
        "MASTERDOWN", "BUSY", "NOAUTH", "READONLY", "NOREPLICAS", "MISCONF", "NOPERM", "OOM");

    private final RedisPort port;
    private final long deadlineNanos;
    private final Map<String, Announced> announced = new ConcurrentHashMap<>();
    private final AtomicInteger underWay = new AtomicInteger();
    private final AtomicLong lastSign = new AtomicLong(System.nanoTime());
    private final AtomicInteger slowOnEnd = new AtomicInteger();

    private record Announced(RuleSet rules, long nanos) {}

    RedisStore(RedisPort port, long deadlineNanos) {
        this.port = port;
        this.deadlineNanos = deadlineNanos;
    }

    RedisPort port() {
        return port;
    }

    Result ask(Question question) throws InterruptedException {
        Asking asking = new Asking(question, System.nanoTime() + deadlineNanos);
        try {
            return asking.run();
        } catch (RedisPort.Failure failure) {
            return asking.failed(failure);
        }
    }

    /** {@return the reply to a command outside of questions, within one deadline} */
    Object command(byte[]... command) throws RedisPort.Failure, InterruptedException {
        return call(System.nanoTime() + deadlineNanos, command);
    }

    private Object call(long until, byte[]... command) throws RedisPort.Failure, InterruptedException {
        long left = until - System.nanoTime();
        if (left <= 0) {
            throw new RedisPort.Failure("the deadline passed", false, true);
        }
        if (underWay.getAndIncrement() == 0) {
            lastSign.set(System.nanoTime());
        }
        try {
            Object reply = port.call(left, command);
            lastSign.set(System.nanoTime());
            slowOnEnd.set(0);
            return reply;
        } catch (RedisPort.Failure failure) {
            if (failure.timeout()) {
                slowOnEnd.incrementAndGet();
            }
            throw failure;
        } finally {
            underWay.decrementAndGet();
        }
    }

    private boolean isBusy() {
        return System.nanoTime() - lastSign.get() < deadlineNanos && slowOnEnd.get() < SLOW_CALLS_MAX;
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

    /** One question: which rules decide may change from call to call. */
    private final class Asking {
        private final Question question;
        private final long until;
        private final byte[] stateKey;
        private RuleSet deciding;
        private Head head;
        private byte[] before;
        private boolean answered;

        Asking(Question question, long until) {
            this.question = question;
            this.until = until;
            this.stateKey = Keys.state(question.policy(), question.key().bytes());
            this.deciding = question.rules();
            this.head = question.head();
        }

        Result failed(RedisPort.Failure failure) {
            if (failure.timeout() && answered) {
                return new Result.Shed("the deadline passed", failure.perhapsExecuted());
            }
            if (failure.timeout() && isBusy()) {
                return new Result.Shed("redis is busy", failure.perhapsExecuted());
            }
            return new Result.NoAnswer(failure.getMessage(), failure.perhapsExecuted());
        }

        Result run() throws RedisPort.Failure, InterruptedException {
            Result refused = announce();
            if (refused != null) {
                return refused;
            }
            for (int calls = 0; calls < CALLS_MAX; calls++) {
                long[][] windows = windows();
                if (windows == null) {
                    return new Result.ThisKey("later rules have a calendar that is not known here");
                }
                Object reply = evaluate(request(windows));
                if (reply instanceof RedisPort.ReplyError error) {
                    return ofError(error);
                }
                if (!(reply instanceof byte[] bytes)) {
                    return new Result.NoAnswer("redis answers with no string", true);
                }
                answered = true;
                Result read = Result.read(bytes, deciding, question.verb(), question.bill() != null);
                if (!(read instanceof Result.OtherRules other)) {
                    return read instanceof Result.Decided decided ? decided(decided) : read;
                }
                meet(other.state());
            }
            return new Result.Shed("rules change with every call", false);
        }

        // The rules are put where others find them, before they are used and every ten minutes while they are.
        private Result announce() throws RedisPort.Failure, InterruptedException {
            if (question.head().isBroughtAlong()) {
                return null;
            }
            String place = question.policy() + "#" + question.rules().generationHex();
            Announced last = announced.get(place);
            long now = System.nanoTime();
            if (last != null && now - last.nanos < ANNOUNCE_AGAIN_NANOS) {
                return null;
            }
            long life = question.rules().lifeMs() + ANNOUNCED_EXTRA_MS
                + (question.clock() == Request.Clock.SERVER ? 0 : OTHER_CLOCK_EXTRA_MS);
            Object reply = call(until, ascii("SET"), Keys.rules(question.policy(), question.rules().generationHex()),
                question.rules().bytes(), ascii("PX"), ascii(Long.toString(Math.min(life, ANNOUNCED_MAX_MS))));
            if (reply instanceof RedisPort.ReplyError error) {
                Result result = ofError(error);
                return result instanceof Result.NoAnswer silent ? new Result.NoAnswer(silent.cause(), false) : result;
            }
            remember(place, new Announced(question.rules(), now));
            return null;
        }

        private void remember(String place, Announced rules) {
            if (announced.size() >= RULE_SETS_MAX) {
                announced.clear();
            }
            announced.put(place, rules);
        }

        private byte[] request(long[][] windows) {
            Request.End end = new Request.End(question.clock(), question.nowUs(), windows, null);
            Bill bill = question.bill();
            if (bill == null) {
                return Request.of(question.verb(), question.cost(), question.maxWaitUs(), question.permit(), end.with(before));
            }
            byte[] request = Request.of(question.verb(), question.cost(), question.maxWaitUs(), question.permit(), end.with(before));
            return Request.afterDebt(permitsOf(bill), request, end.with(before));
        }

        // Later rules are each charged the most that any rule owes.
        private long[] permitsOf(Bill bill) {
            if (deciding == question.rules()) {
                return bill.permits();
            }
            long[] permits = new long[deciding.rules().size()];
            Arrays.fill(permits, Arrays.stream(bill.permits()).max().orElse(0));
            return permits;
        }

        private Object evaluate(byte[] request) throws RedisPort.Failure, InterruptedException {
            byte[] blob = head.blob(deciding);
            Object reply = null;
            for (int tries = 0; tries <= REPEATS_MAX; tries++) {
                reply = question.bill() == null
                    ? call(until, ascii("EVALSHA"), Script.SHA1, ascii("1"), stateKey, blob, request)
                    : call(until, ascii("EVALSHA"), Script.SHA1, ascii("2"), stateKey, noted(), blob, request);
                if (!(reply instanceof RedisPort.ReplyError error) || !code(error.text()).equals("NOSCRIPT")) {
                    return reply;
                }
                call(until, ascii("SCRIPT"), ascii("LOAD"), Script.TEXT);
            }
            return reply;
        }

        private byte[] noted() {
            byte[] suffix = ascii(":" + question.bill().id());
            byte[] noted = Arrays.copyOf(stateKey, stateKey.length + suffix.length);
            System.arraycopy(suffix, 0, noted, stateKey.length, suffix.length);
            return noted;
        }

        /** {@return the windows of the deciding rules, or null where one's calendar is not known} */
        private long[][] windows() {
            if (deciding == question.rules()) {
                return deciding.windowsAround(question.nowUs());
            }
            long[][] windows = new long[deciding.rules().size()][];
            for (int place = 0; place < windows.length; place++) {
                Rule later = deciding.rules().get(place);
                if (later.hasCalendar()) {
                    Calendar calendar = calendarLike(later);
                    if (calendar == null) {
                        return null;
                    }
                    windows[place] = calendar.windowAround(question.nowUs());
                }
            }
            return windows;
        }

        private Calendar calendarLike(Rule later) {
            double[] numbers = later.numbers();
            for (Rule own : question.rules().rules()) {
                double[] others = own.numbers();
                if (own.hasCalendar() && numbers[3] == others[3] && numbers[4] == others[4]) {
                    return own.calendar();
                }
            }
            return null;
        }

        /** Finds the rules that wrote the state; the later version decides. */
        private void meet(byte[] state) throws RedisPort.Failure, InterruptedException {
            if (question.head().isBroughtAlong()) {
                // It always decides, whatever was there before.
                RuleSet rules = Head.rulesOfState(state);
                before = rules == null ? new byte[0] : Head.broughtAlong(rules).blob(rules);
                return;
            }
            Head wrote = Head.ofState(state);
            RuleSet rules = wrote == null ? null : find(wrote.generationHex());
            if (rules == null) {
                deciding = question.rules();
                head = question.head();
                before = new byte[0];
            } else if (wrote.compareTo(question.head()) > 0) {
                deciding = rules;
                head = wrote;
                before = null;
            } else {
                deciding = question.rules();
                head = question.head();
                before = wrote.blob(rules);
            }
        }

        private RuleSet find(String generationHex) throws RedisPort.Failure, InterruptedException {
            String place = question.policy() + "#" + generationHex;
            Announced known = announced.get(place);
            if (known != null) {
                return known.rules;
            }
            Object found = call(until, ascii("GET"), Keys.rules(question.policy(), generationHex));
            if (!(found instanceof byte[] bytes)) {
                return null;
            }
            try {
                RuleSet rules = RuleSet.read(bytes);
                if (!rules.generationHex().equals(generationHex)) {
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
            if (deciding == question.rules()) {
                return decided;
            }
            Answer said = decided.answer();
            int place = Math.max(question.rules().placeOf(deciding.rules().get(said.rule())), 0);
            long least = Arrays.stream(decided.charged()).min().orElse(0);
            long[] charged = Arrays.stream(question.bill() == null ? new long[0] : question.bill().permits())
                .map(owed -> Math.min(owed, least)).toArray();
            return new Result.Decided(said.by(place, said.waitUs()), ownInUse(decided.inUse()), charged);
        }

        // The usage of later rules counts for the own rules of the same names; without such, for none.
        private long[] ownInUse(long[] said) {
            long[] own = Result.NONE;
            for (int later = 0; later < said.length; later++) {
                int place = question.rules().placeOf(deciding.rules().get(later));
                if (place >= 0 && own.length == 0) {
                    own = new long[question.rules().rules().size()];
                    Arrays.fill(own, Result.NOT_SAID);
                }
                if (place >= 0) {
                    own[place] = said[later];
                }
            }
            return own;
        }
    }
}

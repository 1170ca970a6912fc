package io.sluicegate.internal.engine;

import io.sluicegate.internal.Deadline;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;

import io.sluicegate.Carry;
import io.sluicegate.Limit;
import io.sluicegate.RedisPort;
import io.sluicegate.Verb;
import io.sluicegate.internal.kernel.Calendar;
import io.sluicegate.internal.kernel.Numbers;
import io.sluicegate.internal.kernel.PermitId;
import io.sluicegate.internal.kernel.Rule;
import io.sluicegate.internal.kernel.RuleSet;
import io.sluicegate.internal.kernel.Rules;
import io.sluicegate.internal.kernel.Usage;
import io.sluicegate.internal.redis.Head;
import io.sluicegate.internal.redis.Request.Clock;
import io.sluicegate.internal.redis.Result;
import io.sluicegate.testing.Vector;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/** Random lives, which Redis must decide; and as long as their rules do not change, those of levels and held permits here alike. */
public final class RandomLives {
    private static final int STEPS = 60;
    private static final String[] ZONES = {"UTC", "Europe/Berlin", "America/Havana", "Australia/Lord_Howe"};

    private final RedisStore store;
    private final long seed;
    private final Random random;

    public RandomLives(RedisPort port) {
        store = new RedisStore(port, null, new Deadline(2_000_000_000L, false));
        seed = System.getenv("SEED") != null ? Long.parseLong(System.getenv("SEED")) : new Random().nextInt(1_000_000);
        random = new Random(seed);
        System.out.println("RandomLives: SEED=" + seed);
    }

    private long upTo(long most) {
        return 1 + Math.min((long) (Math.pow(random.nextDouble(), 3) * most), most - 1);
    }

    private Rule rule(String name) {
        Rules.Rate rate = new Rules.Rate(upTo(1000), upTo(10_000_000));
        long limit = upTo(random.nextInt(5) == 0 ? 1L << 32 : 30);
        long window = upTo(20_000_000);
        return switch (random.nextInt(10)) {
            case 0 -> Rules.tokenBucket(name, rate, limit, random.nextBoolean() ? limit : limit / 3, false);
            case 1 -> Rules.tokenBucket(name, rate, limit, random.nextBoolean() ? limit : limit / 3, true);
            case 2 -> Rules.leakyBucket(name, rate, limit, random.nextInt(3) == 0 ? -1 : limit / (1 + random.nextInt(4)));
            case 3 -> Rules.smoothBursty(name, rate, window);
            case 4 -> Rules.smoothWarmup(name, rate, window, 1 + random.nextDouble() * 5);
            case 5 -> Rules.fixedWindow(name, limit, window, random.nextBoolean());
            case 6 -> {
                String zone = ZONES[random.nextInt(ZONES.length)];
                yield Rules.calendarWindow(name, limit, new Calendar(Limit.Every.values()[random.nextInt(4)], Calendar.zoneOf(zone), zone));
            }
            case 7 -> Rules.slidingWindow(name, limit, window + 20, 1 + random.nextInt(12));
            case 8 -> Rules.slidingCounter(name, Math.min(limit, (1L << 32) - 1), window);
            default -> Rules.slidingLog(name, Math.min(limit, 30), window);
        };
    }

    private RuleSet rules(boolean permits) {
        List<Rule> rules = new ArrayList<>();
        for (int place = random.nextInt(3); place >= 0; place--) {
            rules.add(permits && place == 0 ? Rules.concurrency("c", upTo(8), upTo(20_000_000)) : rule("r" + place));
        }
        return new RuleSet(Carry.values()[random.nextInt(3)], rules);
    }

    /** Lives so many lives. */
    public void live(int lives) throws InterruptedException {
        for (int life = 0; life < lives; life++) {
            one("random-" + seed + "-" + life);
        }
    }

    private void one(String name) throws InterruptedException {
        boolean permits = random.nextInt(4) == 0;
        RuleSet rules = rules(permits);
        Usage usage = new Usage();
        boolean alike = isAlike(rules);
        long now = 1_780_000_000_000_000L + random.nextInt();
        for (int step = 1; step <= STEPS; step++) {
            // Time that goes back may find a full state that Redis did not delete; the vectors have it.
            now += random.nextInt(3) == 0 ? 0 : upTo(8_000_000);
            if (random.nextInt(15) == 0) {
                rules = rules(permits);
                alike = false;
            }
            Verb verb = Verb.values()[random.nextInt(Verb.values().length)];
            if (!rules.supports(verb)) {
                verb = permits ? Verb.ACQUIRE : Verb.CHECK;
            }
            if (verb == Verb.REFUND && usage.isFull(rules, now)) {
                // Redis leaves a full state that a refund does not change, and deletes one that it does.
                verb = Verb.PEEK;
            }
            long cost = random.nextInt(3) == 0 ? upTo(40) : 1 + random.nextInt(3);
            long maxWait = random.nextInt(3) == 0 ? Numbers.SPAN_MAX_US : upTo(10_000_000);
            PermitId permit = verb.namesPermit() ? PermitId.of("id" + random.nextInt(6)) : null;
            if (verb == Verb.RELEASE || verb == Verb.RENEW) {
                cost = 1;
            }
            RuleSet set = rules;
            Result result = store.run(store.decideSteps(new StoreRequest(name, set, Head.of(set, 1_767_225_600_000L + step), "k", verb, cost, maxWait, permit,
                Clock.GIVEN, now, null)));
            String answered = name + " step " + step + " " + verb + " cost " + cost + " at " + now;
            Result.Decided decided = assertInstanceOf(Result.Decided.class, result, answered);
            Usage.KernelRequest request = new Usage.KernelRequest(verb, cost, verb == Verb.RESERVE ? maxWait : Numbers.NO_WAIT_GIVEN, permit, now, set.windowsAround(now));
            String own = Vector.text(usage.decide(set, request), set);
            if (alike) {
                assertEquals(Vector.text(decided.answer(), set), own, answered);
            }
            if (alike) {
                assertArrayEquals(usage.used(set, now), decided.inUse(), answered);
            }
        }
    }

    private static boolean isAlike(RuleSet rules) {
        return rules.rules().stream().allMatch(rule -> rule.isBucket() || rule.handsOutPermits());
    }
}

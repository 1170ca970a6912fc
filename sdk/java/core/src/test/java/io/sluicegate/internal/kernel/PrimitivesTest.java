package io.sluicegate.internal.kernel;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.Carry;
import io.sluicegate.Limit;
import io.sluicegate.Verb;
import io.sluicegate.internal.json.Json;
import io.sluicegate.testing.Checkout;
import io.sluicegate.testing.Vector;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

class PrimitivesTest {
    private static final long NOW = 1_774_745_000_000_000L;
    private static final long HOUR_US = 3_600_000_000L;

    @TestFactory
    Stream<DynamicTest> a_share_is_as_the_wire_says() {
        List<?> entries = (List<?>) ((Map<?, ?>) Json.read(Checkout.bytes("spec/wire/shares.json"))).get("entries");
        assertEquals(47, entries.size());
        return entries.stream().map(each -> (Map<?, ?>) each)
            .map(entry -> DynamicTest.dynamicTest((String) entry.get("algorithm"), () -> share(entry)));
    }

    private static void share(Map<?, ?> entry) {
        RuleSet rules = Vector.ruleOf(entry);
        Usage usage = new Usage();
        int place = 0;
        for (Object each : (List<?>) entry.get("steps")) {
            Vector.Step step = Vector.stepOf((Map<?, ?>) each);
            if (step.verb() == null) {
                usage.setUsed(rules, new long[] {step.cost()}, step.at());
            } else {
                Map<Object, Object> expect = new HashMap<>((Map<?, ?>) step.expect());
                expect.put("limit", rules.rules().get(0).limit());
                expect.put("rule", "rule");
                Vector.Step whole = new Vector.Step(step.at(), step.op(), step.verb(), step.cost(), step.maxWait(), null, null, null, expect);
                long maxWait = step.verb() == Verb.RESERVE ? step.maxWait() : Numbers.NO_WAIT_GIVEN;
                Usage.KernelRequest request = new Usage.KernelRequest(
                    step.verb(), step.cost(), maxWait, PermitId.of(step.id()), step.at(), rules.windowsAround(step.at()));
                assertEquals(whole.expected(), Vector.text(usage.decide(rules, request), rules), "step " + place);
            }
            place++;
        }
    }

    private static final class Lives {
        private final Random random;

        Lives(long seed) {
            random = new Random(seed);
        }

        long upTo(long most) {
            return 1 + Math.min((long) (Math.pow(random.nextDouble(), 3) * most), most - 1);
        }

        Rule rule() {
            Rules.Rate rate = new Rules.Rate(upTo(1000), upTo(10_000_000));
            long limit = upTo(random.nextInt(5) == 0 ? 1L << 32 : 30);
            long window = upTo(20_000_000);
            return switch (random.nextInt(8)) {
                case 0 -> Rules.tokenBucket("r", rate, limit, random.nextBoolean() ? limit : limit / 3, random.nextBoolean());
                case 1 -> Rules.leakyBucket("r", rate, limit, random.nextInt(3) == 0 ? -1 : limit / (1 + random.nextInt(4)));
                case 2 -> Rules.smoothBursty("r", rate, window);
                case 3 -> Rules.smoothWarmup("r", rate, window, 1 + random.nextDouble() * 5);
                case 4 -> Rules.fixedWindow("r", limit, window, random.nextBoolean());
                case 5 -> Rules.slidingWindow("r", limit, window + 20, 1 + random.nextInt(12));
                case 6 -> Rules.slidingCounter("r", Math.min(limit, (1L << 32) - 1), window);
                default -> Rules.slidingLog("r", Math.min(limit, 30), window);
            };
        }
    }

    private record Passed(long at, long granted) {}

    @Test
    void no_interval_has_more_than_the_share() {
        long seed = System.getenv("SEED") != null ? Long.parseLong(System.getenv("SEED")) : new Random().nextInt(1_000_000);
        Lives lives = new Lives(seed);
        for (int life = 0; life < 1000; life++) {
            Rule rule = lives.rule();
            RuleSet rules = new RuleSet(Carry.USAGE, List.of(rule));
            Usage usage = new Usage();
            List<Passed> passed = new ArrayList<>();
            long now = NOW;
            long largest = 0;
            long pause = 1L << lives.random.nextInt(30);
            for (int step = 0; step < 60; step++) {
                now += lives.random.nextLong(pause);
                Verb verb = lives.random.nextBoolean() ? Verb.CHECK : Verb.AT_MOST;
                long cost = lives.random.nextInt(10) == 0 ? lives.upTo(Numbers.COST_MAX) : lives.upTo(3);
                Answer answer = usage.decide(rules, new Usage.KernelRequest(verb, cost, Numbers.NO_WAIT_GIVEN, null, now, rules.windowsAround(now)));
                if (answer.allowed()) {
                    passed.add(new Passed(now, answer.granted()));
                    largest = Math.max(largest, answer.granted());
                }
            }
            for (int first = 0; first < passed.size(); first++) {
                double total = 0;
                for (Passed each : passed.subList(first, passed.size())) {
                    total += each.granted;
                    double most = most(rule, each.at - passed.get(first).at, largest);
                    assertTrue(total <= most, "SEED=" + seed + " life " + life + ": " + total + " of " + most + ", code " + rule.code());
                }
            }
        }
    }

    /** The most that an algorithm lets pass in an interval of so many µs, by the numbers of its rule. */
    private static double most(Rule rule, long span, long largest) {
        double[] n = rule.numbers();
        return switch (rule.code()) {
            case 1, 4 -> (n[3] + (Math.floor(span / n[0]) + 1) * n[1]) / n[2] + 1;
            case 2 -> n[2] + span * n[0] / n[1] + 2 + largest; // the last one is paid afterwards
            case 3 -> span / n[0] + 2 + largest;
            case 5 -> (Math.floor(span / n[2]) + 1) * n[0];
            default -> (Math.floor(span / n[1]) + 1) * n[0];
        };
    }

    @Test
    void a_report_of_a_calendar_window_ends_with_it() {
        RuleSet rules = new RuleSet(Carry.USAGE, List.of(
            Rules.calendarWindow("r", 10, new Calendar(Limit.Every.DAY, Calendar.zoneOf("UTC"), "UTC"))));
        long day = NOW - NOW % (24 * HOUR_US);
        Usage usage = new Usage();
        usage.setUsed(rules, new long[] {10}, day + 23 * HOUR_US);
        assertFalse(passes(usage, rules, 1, day + 24 * HOUR_US - 1));
        assertTrue(passes(usage, rules, 10, day + 24 * HOUR_US), "what Redis reported of yesterday does not count today");
        // What passed here counts for the longest day, which has 25 hours, and a tenth of it at most.
        assertFalse(passes(usage, rules, 1, day + 49 * HOUR_US - 1));
        assertTrue(passes(usage, rules, 10, day + 52 * HOUR_US));
    }

    private static boolean passes(Usage usage, RuleSet rules, long cost, long now) {
        return usage.decide(rules, new Usage.KernelRequest(Verb.CHECK, cost, Numbers.NO_WAIT_GIVEN, null, now, rules.windowsAround(now))).allowed();
    }

    @Test
    void guavas_two_begin_with_nothing_stored_under_other_rules() {
        Rules.Rate ten = new Rules.Rate(10, 1_000_000);
        Rule bursty = Rules.smoothBursty("r", ten, 1_000_000);
        assertEquals(500_000, waitUnder(bursty, Rules.smoothBursty("r", ten, 10_000_000)));
        assertEquals(500_000, waitUnder(bursty, Rules.smoothWarmup("r", ten, 3_000_000, 3)));
        assertEquals(0, waitUnder(Rules.tokenBucket("r", new Rules.Rate(5, 1_000_000), 5, 5, false), bursty));
    }

    private static long waitUnder(Rule before, Rule later) {
        Usage usage = new Usage();
        RuleSet first = new RuleSet(Carry.USAGE, List.of(before));
        Usage.KernelRequest reserve = new Usage.KernelRequest(Verb.RESERVE, 1, Numbers.SPAN_MAX_US, null, NOW, new long[1][]);
        for (int each = 0; each < 5; each++) {
            assertTrue(usage.decide(first, reserve).allowed());
        }
        return usage.decide(new RuleSet(Carry.USAGE, List.of(later)), reserve).waitUs();
    }
}

package io.sluicegate.testing;

import io.sluicegate.Carry;
import io.sluicegate.Limit;
import io.sluicegate.Verb;
import io.sluicegate.internal.json.Json;
import io.sluicegate.internal.kernel.Answer;
import io.sluicegate.internal.kernel.Calendar;
import io.sluicegate.internal.kernel.Numbers;
import io.sluicegate.internal.kernel.Rule;
import io.sluicegate.internal.kernel.RuleSet;
import io.sluicegate.internal.kernel.Rules;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** One key's life from spec/vectors. */
public record Vector(String name, RuleSet rules, List<Step> steps) {
    /** A step; of a configure only {@code rules} counts. */
    public record Step(long at, String op, Verb verb, long cost, long maxWait, String id, long[][] windows, RuleSet rules,
                       Object expect) {
        /** Returns the expected answer as text. */
        public String expected() {
            Map<?, ?> fields = (Map<?, ?>) expect;
            if (fields.get("error") != null) {
                return "error " + fields.get("error");
            }
            return "allowed=" + fields.get("allowed") + " granted=" + fields.get("granted") + " wait=" + fields.get("wait_us")
                + " limit=" + fields.get("limit") + " remaining=" + fields.get("remaining")
                + " retry=" + (fields.get("retry_after_us") == null ? "-1" : fields.get("retry_after_us"))
                + " reset=" + fields.get("reset_after_us") + " rule=" + fields.get("rule");
        }
    }

    /** Returns an answer as text, in the form of {@link Step#expected}. */
    public static String text(Answer a, RuleSet rules) {
        return "allowed=" + a.allowed() + " granted=" + a.granted() + " wait=" + a.waitUs() + " limit=" + a.limit()
            + " remaining=" + a.remaining() + " retry=" + a.retryAfterUs() + " reset=" + a.resetAfterUs()
            + " rule=" + rules.rules().get(a.rule()).name();
    }

    public static Vector load(Path file) {
        try {
            Map<?, ?> life = (Map<?, ?>) Json.read(Files.readAllBytes(file));
            RuleSet rules = rules((List<?>) life.get("rules"), Carry.USAGE);
            List<Step> steps = new ArrayList<>();
            for (Object step : (List<?>) life.get("steps")) {
                steps.add(step((Map<?, ?>) step));
            }
            return new Vector(file.getParent().getFileName() + "/" + life.get("name"), rules, steps);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static Step step(Map<?, ?> step) {
        String op = (String) step.get("op");
        RuleSet rules = null;
        if (step.get("rules") instanceof List<?> list) {
            Object carry = step.get("carry");
            rules = rules(list, carry == null ? Carry.USAGE : Carry.valueOf(((String) carry).toUpperCase(Locale.ROOT)));
        }
        Verb verb = op.equals("configure") ? null : Verb.valueOf(op.toUpperCase(Locale.ROOT));
        long[][] windows = null;
        if (step.get("windows") instanceof List<?> list) {
            windows = list.stream().map(window -> window instanceof List<?> pair
                ? new long[] {number(pair.get(0)), number(pair.get(1))} : null).toArray(long[][]::new);
        }
        long maxWait = step.containsKey("max_wait_us") ? number(step.get("max_wait_us")) : Numbers.SPAN_MAX_US;
        return new Step(number(step.get("at_us")), op, verb, step.containsKey("cost") ? number(step.get("cost")) : 1,
            maxWait, (String) step.get("id"), windows, rules, step.get("expect"));
    }

    private static long number(Object value) {
        return Long.parseLong(value.toString());
    }

    /** The rule of an entry of spec/wire/shares.json. */
    public static RuleSet ruleOf(Map<?, ?> entry) {
        return new RuleSet(Carry.USAGE, List.of(rule("rule", (String) entry.get("algorithm"), (Map<?, ?>) entry.get("params"))));
    }

    /** A step of such an entry. */
    public static Step stepOf(Map<?, ?> step) {
        return step.get("op").equals("said")
            ? new Step(number(step.get("at_us")), "said", null, number(step.get("cost")), 0, null, null, null, null) : step(step);
    }

    private static RuleSet rules(List<?> specs, Carry carry) {
        List<Rule> rules = new ArrayList<>();
        for (Object each : specs) {
            Map<?, ?> spec = (Map<?, ?>) each;
            rules.add(rule((String) spec.get("name"), (String) spec.get("algorithm"), (Map<?, ?>) spec.get("params")));
        }
        return new RuleSet(carry, rules);
    }

    private static Rule rule(String name, String algorithm, Map<?, ?> p) {
        Rules.Rate rate = p.get("rate") instanceof Map<?, ?> r
            ? new Rules.Rate(number(r.get("permits")), number(r.get("period_us"))) : null;
        long limit = p.containsKey("limit") ? number(p.get("limit")) : 0;
        long window = p.containsKey("window_us") ? number(p.get("window_us")) : 0;
        switch (algorithm) {
            case "token_bucket": {
                long burst = p.containsKey("burst") ? number(p.get("burst")) : rate.permits();
                long initial = p.containsKey("initial") ? number(p.get("initial")) : burst;
                return Rules.tokenBucket(name, rate, burst, initial, "interval".equals(p.get("refill")));
            }
            case "leaky_bucket": {
                Object delay = p.get("delay");
                long delayed = delay == null || delay.equals("all") ? 0 : delay.equals("none") ? -1 : number(delay);
                return Rules.leakyBucket(name, rate, p.containsKey("burst") ? number(p.get("burst")) : 0, delayed);
            }
            case "smooth_bursty":
                return Rules.smoothBursty(name, rate, p.containsKey("max_burst_us") ? number(p.get("max_burst_us")) : 1_000_000);
            case "smooth_warmup":
                return Rules.smoothWarmup(name, rate, number(p.get("warmup_us")),
                    p.containsKey("cold_factor") ? Double.parseDouble(p.get("cold_factor").toString()) : 3);
            case "fixed_window": {
                if (p.get("calendar") == null) {
                    return Rules.fixedWindow(name, limit, window, "first".equals(p.get("align")));
                }
                String zone = p.get("time_zone") == null ? "UTC" : (String) p.get("time_zone");
                return Rules.calendarWindow(name, limit,
                    new Calendar(Limit.Every.valueOf(((String) p.get("calendar")).toUpperCase(Locale.ROOT)), Calendar.zoneOf(zone), zone));
            }
            case "sliding_window":
                return Rules.slidingWindow(name, limit, window, p.containsKey("buckets") ? number(p.get("buckets")) : 10);
            case "sliding_counter":
                return Rules.slidingCounter(name, limit, window);
            case "sliding_log":
                return Rules.slidingLog(name, limit, window);
            case "concurrency":
                return Rules.concurrency(name, limit, number(p.get("ttl_us")));
            default:
                throw new IllegalArgumentException(algorithm);
        }
    }
}

package io.sluicegate.internal.policy;

import static io.sluicegate.internal.policy.Values.PERMITS_MAX;

import io.sluicegate.internal.json.Json;
import io.sluicegate.internal.kernel.Calendar;
import io.sluicegate.Carry;
import io.sluicegate.internal.kernel.Rule;
import io.sluicegate.internal.kernel.RuleSet;
import io.sluicegate.internal.kernel.Rules;
import io.sluicegate.internal.kernel.Rules.Rate;
import java.time.DateTimeException;
import java.time.LocalDateTime;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.time.format.ResolverStyle;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;

/** Reads the rules of a document. */
final class RulesReader {
    private static final List<String> ALGORITHMS = List.of("token_bucket", "leaky_bucket", "smooth_bursty", "smooth_warmup",
        "fixed_window", "sliding_window", "sliding_counter", "sliding_log", "concurrency");

    private RulesReader() {}

    static RuleSet read(String path, Object value, Carry carry) {
        List<?> list = Fields.list(path, value, 1, RuleSet.RULES_MAX);
        List<Rule> rules = new ArrayList<>();
        Set<String> names = new HashSet<>();
        for (int place = 0; place < list.size(); place++) {
            String at = path + "[" + place + "]";
            Rule rule = rule(at, new Fields(at, list.get(place)), list.size() > 1);
            if (!names.add(rule.name())) {
                throw new PolicyException(at + ".name", "two rules are named `" + rule.name() + "`");
            }
            rules.add(rule);
        }
        return new RuleSet(carry, rules);
    }

    private static Rule rule(String path, Fields fields, boolean needsName) {
        String algorithm = null;
        for (String name : fields.names()) {
            if (name.equals("name")) {
                continue;
            }
            if (!ALGORITHMS.contains(name)) {
                throw new PolicyException(path, "unknown algorithm `" + name + "`");
            }
            if (algorithm != null) {
                throw new PolicyException(path, "two algorithms");
            }
            algorithm = name;
        }
        if (algorithm == null) {
            throw new PolicyException(path, "missing algorithm");
        }
        String name = algorithm;
        if (needsName && !fields.has("name")) {
            throw new PolicyException(fields.at("name"), "is missing: with several rules, each needs a name");
        }
        if (fields.has("name")) {
            name = name(fields.at("name"), fields.need("name"));
        }
        Fields params = new Fields(fields.at(algorithm), fields.need(algorithm));
        Rule rule = switch (algorithm) {
            case "token_bucket" -> tokenBucket(name, params);
            case "leaky_bucket" -> leakyBucket(name, params);
            case "smooth_bursty" -> Rules.smoothBursty(name, rate(params), duration(params, "max_burst", 1_000_000));
            case "smooth_warmup" -> smoothWarmup(name, params);
            case "fixed_window" -> fixedWindow(name, params);
            case "sliding_window" -> slidingWindow(name, params);
            case "sliding_counter" -> Rules.slidingCounter(name, params.whole("limit", 1, PERMITS_MAX - 1), duration(params, "window"));
            case "sliding_log" -> Rules.slidingLog(name, params.whole("limit", 1, 10_000), duration(params, "window"));
            default -> concurrency(name, params);
        };
        params.done();
        return rule;
    }

    static String name(String path, Object value) {
        String name = Fields.text(path, value);
        if (!Values.isName(name)) {
            throw new PolicyException(path, "`" + name + "` is not a name; expected 1..=128 bytes of `[a-z0-9._-]`");
        }
        return name;
    }

    private static final DateTimeFormatter INSTANT =
        DateTimeFormatter.ofPattern("uuuu-MM-dd'T'HH:mm:ss'Z'", Locale.ROOT).withResolverStyle(ResolverStyle.STRICT);

    /** {@return a second of UTC, in ms since 1970} */
    static long instantMs(String path, Object value) {
        String text = Fields.text(path, value);
        try {
            LocalDateTime at = LocalDateTime.parse(text, INSTANT);
            if (text.length() == 20 && at.getYear() >= 1970 && at.getYear() < 2100) {
                return at.toEpochSecond(ZoneOffset.UTC) * 1000;
            }
        } catch (DateTimeException e) {
            // It is reported below.
        }
        throw new PolicyException(path, "`" + text + "` is not an instant of UTC such as `2026-12-31T18:00:00Z`");
    }

    static String word(Fields fields, String field, String otherwise, String... words) {
        if (!fields.has(field)) {
            return otherwise;
        }
        String word = fields.text(field);
        if (!List.of(words).contains(word)) {
            throw new PolicyException(fields.at(field), "`" + word + "` is none of " + String.join(", ", words));
        }
        return word;
    }

    private static Rate rate(Fields fields) {
        String text = fields.text("rate");
        Rate rate = Values.rate(text);
        if (rate == null) {
            throw new PolicyException(fields.at("rate"), "`" + text + "` is not a rate; expected permits per time, such as `10/s`");
        }
        return rate;
    }

    static long duration(Fields fields, String field) {
        String text = fields.text(field);
        long us = Values.duration(text);
        if (us < 0) {
            throw new PolicyException(fields.at(field), "`" + text + "` is not a duration from 1us to 366d");
        }
        return us;
    }

    private static long duration(Fields fields, String field, long otherwise) {
        return fields.has(field) ? duration(fields, field) : otherwise;
    }

    private static Rule tokenBucket(String name, Fields fields) {
        Rate rate = rate(fields);
        long burst = fields.whole("burst", 1, PERMITS_MAX, rate.permits());
        long initial = fields.within("initial", burst, burst);
        boolean interval = word(fields, "refill", "smooth", "smooth", "interval").equals("interval");
        return Rules.tokenBucket(name, rate, burst, initial, interval);
    }

    private static Rule leakyBucket(String name, Fields fields) {
        Rate rate = rate(fields);
        long burst = fields.whole("burst", 0, PERMITS_MAX, 0);
        long delay = 0;
        if (fields.get("delay") instanceof String) {
            delay = word(fields, "delay", "all", "all", "none").equals("none") ? -1 : 0;
        } else {
            delay = fields.within("delay", burst, 0);
        }
        return Rules.leakyBucket(name, rate, burst, delay);
    }

    private static Rule smoothWarmup(String name, Fields fields) {
        double factor = 3;
        if (fields.has("cold_factor")) {
            Object value = fields.get("cold_factor");
            if (!(value instanceof Json.Num number) || number.text().indexOf('+') >= 0) {
                throw new PolicyException(fields.at("cold_factor"), "`" + value + "` is not a factor");
            }
            factor = Double.parseDouble(number.text());
        }
        if (!(factor > 1 && factor <= 1000)) {
            throw new PolicyException(fields.at("cold_factor"), "`" + factor + "` is not above 1 and at most 1000");
        }
        return Rules.smoothWarmup(name, rate(fields), duration(fields, "warmup"), factor);
    }

    private static Rule fixedWindow(String name, Fields fields) {
        long limit = fields.whole("limit", 1, PERMITS_MAX);
        if (!fields.has("calendar")) {
            boolean first = word(fields, "align", "epoch", "epoch", "first").equals("first");
            return Rules.fixedWindow(name, limit, duration(fields, "window"), first);
        }
        Calendar.Unit unit = Calendar.Unit.of(word(fields, "calendar", "", "day", "week", "month", "year"));
        String zoneName = fields.has("time_zone") ? fields.text("time_zone") : "UTC";
        ZoneId zone = Calendar.zoneOf(zoneName);
        if (zone == null) {
            throw new PolicyException(fields.at("time_zone"), "unknown time zone `" + zoneName + "`");
        }
        return Rules.calendarWindow(name, limit, new Calendar(unit, zone, zoneName));
    }

    private static Rule slidingWindow(String name, Fields fields) {
        long buckets = fields.whole("buckets", 1, 1000, 10);
        long windowUs = duration(fields, "window");
        if (windowUs < buckets) {
            throw new PolicyException(fields.at("window"), "is shorter than a µs for each bucket");
        }
        return Rules.slidingWindow(name, fields.whole("limit", 1, PERMITS_MAX), windowUs, buckets);
    }

    private static Rule concurrency(String name, Fields fields) {
        fields.whole("queue", 0, 0, 0);
        return Rules.concurrency(name, fields.whole("limit", 1, 10_000), duration(fields, "ttl"));
    }
}

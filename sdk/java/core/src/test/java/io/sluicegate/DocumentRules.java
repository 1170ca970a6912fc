package io.sluicegate;

import java.time.Duration;
import java.time.ZoneId;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Limits in code of the rules of documents, as far as tests have them. */
final class DocumentRules {
    private static final Pattern SPAN = Pattern.compile("([0-9]*)(us|ms|s|m|h|d)");
    private static final Map<String, ChronoUnit> UNITS = Map.of("us", ChronoUnit.MICROS, "ms", ChronoUnit.MILLIS, "s", ChronoUnit.SECONDS,
        "m", ChronoUnit.MINUTES, "h", ChronoUnit.HOURS, "d", ChronoUnit.DAYS);

    private DocumentRules() {}

    static Limit limit(Map<?, ?> document) {
        Limit limit = null;
        for (Object rule : (List<?>) document.get("rules")) {
            Limit one = rule((Map<?, ?>) rule);
            limit = limit == null ? one : limit.and(one);
        }
        Object carry = document.get("carry");
        return carry == null ? limit : limit.carry(Carry.valueOf(((String) carry).toUpperCase(Locale.ROOT)));
    }

    private static Limit rule(Map<?, ?> rule) {
        String algorithm = rule.keySet().stream().map(String.class::cast).filter(name -> !name.equals("name")).findFirst().orElseThrow();
        Limit limit = made(algorithm, (Map<?, ?>) rule.get(algorithm));
        // In a document a rule without a name is called like its algorithm.
        return limit.named(rule.get("name") instanceof String name ? name : algorithm);
    }

    private static Limit made(String algorithm, Map<?, ?> p) {
        long limit = p.get("limit") instanceof Long given ? given : 0;
        Limit made = switch (algorithm) {
            case "token_bucket" -> Limit.tokenBucket(permits(p), period(p));
            case "leaky_bucket" -> Limit.leakyBucket(permits(p), period(p));
            case "smooth_bursty" -> Limit.smoothBursty(permits(p), period(p));
            case "smooth_warmup" -> Limit.smoothWarmup(permits(p), period(p), span(p.get("warmup")));
            case "fixed_window" -> p.containsKey("window") ? Limit.fixedWindow(limit, span(p.get("window"))) : calendar(limit, p);
            case "sliding_window" -> Limit.slidingWindow(limit, span(p.get("window")));
            case "sliding_counter" -> Limit.slidingCounter(limit, span(p.get("window")));
            case "sliding_log" -> Limit.slidingLog(limit, span(p.get("window")));
            default -> Limit.concurrency(limit, span(p.get("ttl")));
        };
        for (Map.Entry<?, ?> each : p.entrySet()) {
            Object value = each.getValue();
            made = switch ((String) each.getKey()) {
                case "burst" -> made.burst((Long) value);
                case "initial" -> made.initial((Long) value);
                case "refill" -> value.equals("interval") ? made.refillByInterval() : made;
                case "delay" -> value instanceof Long delay ? made.delay(delay) : value.equals("none") ? made.noDelay() : made;
                case "max_burst" -> made.maxBurst(span(value));
                case "cold_factor" -> made.coldFactor(((Number) value).doubleValue());
                case "align" -> value.equals("first") ? made.fromFirst() : made;
                case "buckets" -> made.buckets((Long) value);
                default -> made;
            };
        }
        return made;
    }

    private static Limit calendar(long limit, Map<?, ?> p) {
        String zone = p.get("time_zone") instanceof String name ? name : "UTC";
        return Limit.calendarWindow(limit, Limit.Every.valueOf(((String) p.get("calendar")).toUpperCase(Locale.ROOT)), ZoneId.of(zone));
    }

    private static long permits(Map<?, ?> p) {
        String permits = ((String) p.get("rate")).split("/")[0];
        return permits.endsWith("MiB") ? Long.parseLong(permits.replace("MiB", "")) << 20 : Long.parseLong(permits);
    }

    private static Duration period(Map<?, ?> p) {
        return span(((String) p.get("rate")).split("/")[1]);
    }

    private static Duration span(Object text) {
        Matcher span = SPAN.matcher((String) text);
        if (!span.matches()) {
            throw new IllegalArgumentException((String) text);
        }
        return Duration.of(span.group(1).isEmpty() ? 1 : Long.parseLong(span.group(1)), UNITS.get(span.group(2)));
    }
}

package io.sluicegate.internal.policy;

import static io.sluicegate.internal.policy.RecordException.damaged;
import static io.sluicegate.internal.policy.RecordException.later;

import io.sluicegate.ErrorCode;
import io.sluicegate.Limit;
import io.sluicegate.OnStoreFailure;
import io.sluicegate.Overflow;
import io.sluicegate.internal.Texts;
import io.sluicegate.internal.json.Json;
import io.sluicegate.internal.json.JsonException;
import io.sluicegate.internal.kernel.Calendar;
import io.sluicegate.internal.kernel.RuleSet;
import io.sluicegate.internal.policy.Policy.OwnRules;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Reads the records of policies: spec/record.md. */
public final class RecordReader {
    private static final long FORMAT = 1;
    /** The format of the hash, and of a file of records. */
    private static final long FILE_FORMAT = 1;
    private static final int BYTES_MAX = 8_388_608;
    private static final long INTEGER_MAX = (1L << 53) - 1;
    /** 400 days. */
    private static final long LIFE_MAX_MS = 34_560_000_000L;

    private RecordReader() {}

    /**
     * {@return the policies of a file of records}
     *
     * @throws io.sluicegate.SluicegateException if one of them cannot be read
     */
    public static List<Policy> file(String text) {
        List<Policy> policies = new ArrayList<>();
        String name = null;
        try {
            Members members = Members.of("", Json.read(text));
            long format = members.whole("#format", 0);
            if (format != FILE_FORMAT) {
                throw later("#format", "`" + format + "` is another format; this program reads " + FILE_FORMAT);
            }
            for (Map.Entry<?, ?> each : members.values.entrySet()) {
                name = (String) each.getKey();
                if (!name.startsWith("#")) {
                    policies.add(policy(name, each.getValue()));
                }
            }
            return policies;
        } catch (RecordException | JsonException e) {
            throw name == null ? ErrorCode.RULES.with(Map.of("cause", e.getMessage()))
                : ErrorCode.UNREADABLE_POLICY.with(Map.of("policy", name, "cause", e.getMessage()));
        }
    }

    /**
     * {@return the policy of a record in Redis}
     *
     * @throws RecordException if it is damaged or of a later version, or Redis would take too long for its rules
     */
    public static Policy read(String name, byte[] record) {
        if (record.length > BYTES_MAX) {
            throw damaged("", "is longer than " + BYTES_MAX + " bytes");
        }
        try {
            return policy(name, Json.read(record));
        } catch (JsonException e) {
            throw damaged("", e.getMessage());
        }
    }

    private static Policy policy(String name, Object value) {
        Members record = Members.of("", value);
        long format = record.need("record", Long.class, "an integer");
        if (format != FORMAT) {
            throw later("record", "`" + format + "` is of a later version; this program reads " + FORMAT);
        }
        Map<String, OwnRules> overrides = new HashMap<>();
        for (Members each : record.has("overrides") ? record.objects("overrides") : List.<Members>of()) {
            long endsMs = each.has("until_ms") ? each.whole("until_ms", 0) : OwnRules.ENDLESS;
            overrides.put(each.text("key"), new OwnRules(rules(each), endsMs));
        }
        return new Policy(name, record.whole("version", 0), sinceMs(record), record.text("app"), apps(record), rules(record), overrides,
            over(record.object("overflow")), word(record, "on_store_failure", OnStoreFailure.values()));
    }

    // A server that does not know the instant leaves it out; another value counts as left out.
    private static long sinceMs(Members record) {
        return record.values.get("since_ms") instanceof Long ms && ms >= 0 && ms <= INTEGER_MAX ? ms : Policy.SINCE_UNKNOWN;
    }

    private static List<String> apps(Members record) {
        List<?> apps = record.need("apps", List.class, "a list");
        if (apps.isEmpty() || !apps.stream().allMatch(String.class::isInstance)) {
            throw damaged("apps", "expected at least one string");
        }
        return apps.stream().map(String.class::cast).toList();
    }

    private static <E extends Enum<E>> E word(Members members, String name, E[] words) {
        String text = members.text(name);
        return Texts.word(text, words).orElseThrow(() -> later(members.at(name), "`" + text + "` is unknown"));
    }

    private static OverflowAction over(Members overflow) {
        String kind = overflow.text("kind");
        return switch (kind) {
            case "reject" -> OverflowAction.REJECT;
            case "shadow" -> OverflowAction.SHADOW;
            case "queue" -> new OverflowAction(null, overflow.whole("max_wait_us", 1));
            case "degrade" -> new OverflowAction(degrade(overflow), 0);
            case "divert" -> new OverflowAction(new Overflow.Divert(overflow.text("target")), 0);
            default -> throw later("overflow.kind", "`" + kind + "` is unknown");
        };
    }

    private static Overflow degrade(Members overflow) {
        if (overflow.has("tag")) {
            return new Overflow.Tag(overflow.text("tag"));
        }
        if (!overflow.has("response")) {
            throw later("overflow", "has neither `tag` nor `response`");
        }
        Members response = overflow.object("response");
        long status = response.whole("status", 200);
        if (status > 599) {
            throw damaged("overflow.response.status", "`" + status + "` is outside 200..=599");
        }
        Members fields = response.object("headers");
        Map<String, String> headers = new HashMap<>();
        fields.values.keySet().forEach(header -> headers.put((String) header, fields.text((String) header)));
        return new Overflow.Response((int) status, Map.copyOf(headers), response.text("body"));
    }

    private static RuleSet rules(Members members) {
        List<RuleSet.Description> each = new ArrayList<>();
        for (Members rule : members.objects("each")) {
            long windowUs = rule.has("window_us") ? rule.whole("window_us", 1) : 0;
            each.add(new RuleSet.Description(rule.text("name"), rule.whole("limit", 1), windowUs, calendar(rule)));
        }
        String blob = members.text("blob");
        long lifeMs = members.whole("life_ms", 1, LIFE_MAX_MS);
        RuleSet rules;
        try {
            rules = RuleSet.read(Base64.getUrlDecoder().decode(blob)).described(each, lifeMs);
        } catch (RuleSet.LaterException e) {
            throw later(members.at("blob"), e.getMessage());
        } catch (IllegalArgumentException e) {
            throw damaged(members.at("blob"), e.getMessage());
        }
        if (rules.costsTooMuch()) {
            throw damaged(members.at("blob"), "one decision could take Redis too long");
        }
        return rules;
    }

    private static Calendar calendar(Members rule) {
        if (!rule.has("calendar")) {
            return null;
        }
        Members calendar = rule.object("calendar");
        String zone = calendar.text("zone");
        if (Calendar.zoneOf(zone) == null) {
            throw later(calendar.at("zone"), "`" + zone + "` is unknown");
        }
        return new Calendar(word(calendar, "unit", Limit.Every.values()), Calendar.zoneOf(zone), zone);
    }

    /** The members of an object, which is at a path of the record. */
    private record Members(String path, Map<?, ?> values) {
        static Members of(String path, Object value) {
            if (value instanceof Map<?, ?> values) {
                return new Members(path, values);
            }
            throw damaged(path, "expected an object");
        }

        String at(String name) {
            return path.isEmpty() ? name : path + "." + name;
        }

        boolean has(String name) {
            return values.containsKey(name);
        }

        <T> T need(String name, Class<T> type, String expected) {
            if (!has(name)) {
                throw damaged(at(name), "is missing");
            }
            if (!type.isInstance(values.get(name))) {
                throw damaged(at(name), "expected " + expected);
            }
            return type.cast(values.get(name));
        }

        String text(String name) {
            return need(name, String.class, "a string");
        }

        long whole(String name, long least) {
            return whole(name, least, INTEGER_MAX);
        }

        long whole(String name, long least, long most) {
            long value = need(name, Long.class, "an integer");
            if (value < least || value > most) {
                throw damaged(at(name), "`" + value + "` is outside " + least + "..=" + most);
            }
            return value;
        }

        Members object(String name) {
            return of(at(name), values.get(name));
        }

        List<Members> objects(String name) {
            List<Members> objects = new ArrayList<>();
            for (Object each : need(name, List.class, "a list")) {
                objects.add(of(at(name) + "[" + objects.size() + "]", each));
            }
            return objects;
        }
    }
}

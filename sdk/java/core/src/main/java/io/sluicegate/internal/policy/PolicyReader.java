package io.sluicegate.internal.policy;

import io.sluicegate.OnStoreFailure;
import io.sluicegate.Overflow;
import io.sluicegate.internal.json.Json;
import io.sluicegate.internal.json.JsonException;
import io.sluicegate.internal.kernel.Calendar;
import io.sluicegate.Carry;
import io.sluicegate.internal.kernel.RuleSet;
import io.sluicegate.internal.policy.Policy.OwnRules;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.function.Predicate;

/** Reads policies: documents, and what is published of them. Whatever is wrong is a {@link PolicyException}. */
public final class PolicyReader {
    private static final int DOCUMENT_BYTES_MAX = 8_388_608;
    private static final long SINCE_MAX_MS = (1L << 53) - 1;
    private static final int MATCHES_MAX = 256;
    private static final long OVERLOAD_WAIT_MAX_US = 10_000_000;

    private PolicyReader() {}

    /** {@return the policy of a document that has no version, app and state beside it} */
    public static Policy document(String json) {
        Object document = json(json.getBytes(java.nio.charset.StandardCharsets.UTF_8));
        return read("", document, null, 0, Policy.SINCE_UNKNOWN, "", false);
    }

    /** {@return the policy of a limit that a program makes, of the members that a document has} */
    public static Policy limit(Map<String, ?> document, OnStoreFailure onStoreFailure) {
        Policy policy = read("", document, null, 0, Policy.SINCE_UNKNOWN, "", false);
        if (policy.costsTooMuch()) {
            throw new PolicyException("rules", "one decision could take Redis too long");
        }
        return new Policy(policy.name(), 0, Policy.SINCE_UNKNOWN, "", null, policy.rules(), Map.of(), Over.REJECT, onStoreFailure, 0);
    }

    /** {@return the policy of a field of the hash of the policies} */
    public static Policy published(String name, byte[] value) {
        if (!(json(value) instanceof Map<?, ?> members)) {
            throw new PolicyException("", "expected an object");
        }
        String state = Fields.text("state", need(members, "state"));
        if (!state.equals("active") && !state.equals("shadow")) {
            throw new PolicyException("state", "unknown state `" + state + "`");
        }
        long version = Fields.whole("version", need(members, "version"), 0, (1L << 53) - 1);
        Object app = members.get("app");
        Object document = need(members, "document");
        Policy policy = read("document", document, members.get("compiled"), version, sinceMs(members.get("since_ms")),
            app == null ? "" : Fields.text("app", app), state.equals("shadow"));
        if (!policy.name().equals(name)) {
            throw new PolicyException("document.name", "`" + policy.name() + "` is another policy's");
        }
        if (policy.costsTooMuch()) {
            throw new PolicyException("document.rules", "one decision could take Redis too long");
        }
        return policy;
    }

    // Servers of before that member do not write it; what is no instant is as if it were not there.
    private static long sinceMs(Object value) {
        boolean isWhole = value instanceof Json.Num number && number.isWhole();
        long ms = isWhole ? Values.digits(value.toString()) : Policy.SINCE_UNKNOWN;
        return ms <= SINCE_MAX_MS ? ms : Policy.SINCE_UNKNOWN;
    }

    private static Object need(Map<?, ?> members, String name) {
        Object value = members.get(name);
        if (value == null) {
            throw new PolicyException("", "missing field `" + name + "`");
        }
        return value;
    }

    private static Object json(byte[] bytes) {
        if (bytes.length > DOCUMENT_BYTES_MAX) {
            throw new PolicyException("", "is longer than " + DOCUMENT_BYTES_MAX + " bytes");
        }
        try {
            return Json.read(bytes);
        } catch (JsonException e) {
            throw new PolicyException("", e.getMessage());
        }
    }

    private static Policy read(String path, Object document, Object compiled, long version, long sinceMs, String app,
                               boolean shadow) {
        Fields fields = new Fields(path, document);
        String name = RulesReader.name(fields.at("name"), fields.need("name"));
        List<String> apps = apps(fields);
        Carry carry = Carry.valueOf(RulesReader.word(fields, "carry", "usage", "usage", "proportional", "reset").toUpperCase(Locale.ROOT));
        RuleSet rules;
        Map<Key, OwnRules> overrides;
        fields.need("rules");
        fields.has("overrides");
        // What a server has compiled it has checked.
        boolean isCompiled = compiled instanceof Map<?, ?> members && isKnown(members);
        if (isCompiled) {
            Map<?, ?> known = (Map<?, ?>) compiled;
            rules = compiledRules(known.get("rules"));
            overrides = compiledOverrides(known.get("overrides"));
        } else {
            rules = RulesReader.read(fields.at("rules"), fields.need("rules"), carry);
            overrides = overrides(fields, carry);
        }
        Over over = over(fields);
        OnStoreFailure onFailure = OnStoreFailure.valueOf(
            RulesReader.word(fields, "on_store_failure", "local", "local", "allow", "deny").toUpperCase(Locale.ROOT));
        long overloadWaitUs = overloadWait(fields);
        RulesReader.word(fields, "on_key_quota", "share", "share", "deny");
        checkMatch(fields);
        checkKey(fields);
        if (LeasesReader.hasBounds(fields) && !isCompiled) {
            LeasesReader.checkLeasable(fields.at("leases"), rules, overrides.values(), over);
        }
        if (!isCompiled) {
            checkPermits(fields, rules, overrides.values(), over);
        }
        fields.done();
        return new Policy(name, version, sinceMs, app, apps, rules, overrides, shadow ? Over.SHADOW : over, onFailure, overloadWaitUs);
    }

    /** Rejects {@code overflow: queue} and {@code match} beside rules that hand out permits: an acquire never waits, a gateway only checks. */
    private static void checkPermits(Fields fields, RuleSet rules, Collection<OwnRules> overrides, Over over) {
        boolean holds = rules.handsOutPermits() || overrides.stream().anyMatch(own -> own.rules().handsOutPermits());
        if (holds && over.queueMaxWaitUs() > 0) {
            throw new PolicyException(fields.at("overflow"), "`queue` is not supported with a `concurrency` rule: acquire does not wait; "
                + "expected `reject`, `degrade`, `divert` or `shadow`");
        }
        if (holds && fields.has("match")) {
            throw new PolicyException(fields.at("match"), "not supported with a `concurrency` rule: gateways only check requests");
        }
    }

    private static List<String> apps(Fields fields) {
        if (!fields.has("apps")) {
            return null;
        }
        List<String> apps = new ArrayList<>();
        Set<String> named = new HashSet<>();
        for (Object app : Fields.list(fields.at("apps"), fields.get("apps"), 1, 1000)) {
            String at = fields.at("apps") + "[" + apps.size() + "]";
            apps.add("*".equals(app) ? "*" : RulesReader.name(at, app));
            if (!named.add(apps.get(apps.size() - 1))) {
                throw new PolicyException(at, "is there twice");
            }
        }
        return List.copyOf(apps);
    }

    private static Map<Key, OwnRules> overrides(Fields fields, Carry carry) {
        Map<Key, OwnRules> overrides = new LinkedHashMap<>();
        if (!fields.has("overrides")) {
            return overrides;
        }
        List<?> list = Fields.list(fields.at("overrides"), fields.get("overrides"), 0, 1000);
        for (int place = 0; place < list.size(); place++) {
            String path = fields.at("overrides") + "[" + place + "]";
            Fields each = new Fields(path, list.get(place));
            String key = each.text("key");
            int length = Fields.bytes(key);
            if (length < 1 || length > 1024) {
                throw new PolicyException(each.at("key"), "`" + length + "` bytes are outside 1..=1024");
            }
            RuleSet rules = RulesReader.read(each.at("rules"), each.need("rules"), carry);
            long endsMs = each.has("until") ? RulesReader.instantMs(each.at("until"), each.get("until")) : OwnRules.ENDLESS;
            each.done();
            if (overrides.put(Key.of(key), new OwnRules(rules, endsMs)) != null) {
                throw new PolicyException(each.at("key"), "is another override's");
            }
        }
        return overrides;
    }

    private static Over over(Fields fields) {
        if (!fields.has("overflow")) {
            return Over.REJECT;
        }
        String path = fields.at("overflow");
        Object value = fields.get("overflow");
        if ("reject".equals(value)) {
            return Over.REJECT;
        }
        if ("shadow".equals(value)) {
            return Over.SHADOW;
        }
        Fields kinds = new Fields(path, value);
        if (kinds.names().size() != 1) {
            throw new PolicyException(path, "expected one field");
        }
        Over over;
        if (kinds.has("queue")) {
            Fields queue = new Fields(kinds.at("queue"), kinds.get("queue"));
            over = new Over(null, RulesReader.duration(queue, "max_wait"));
            queue.done();
        } else if (kinds.has("divert")) {
            Fields divert = new Fields(kinds.at("divert"), kinds.get("divert"));
            over = new Over(new Overflow.Divert(Fields.plain(divert.at("target"), divert.need("target"), 4096)), 0);
            divert.done();
        } else {
            over = new Over(degrade(new Fields(kinds.at("degrade"), kinds.need("degrade"))), 0);
        }
        kinds.done();
        return over;
    }

    private static Overflow degrade(Fields fields) {
        if (fields.names().size() != 1) {
            throw new PolicyException(fields.at("degrade"), "expected either `tag` or `response`");
        }
        Overflow overflow = fields.has("tag")
            ? new Overflow.Tag(RulesReader.name(fields.at("tag"), fields.get("tag")))
            : response(new Fields(fields.at("response"), fields.need("response")));
        fields.done();
        return overflow;
    }

    private static Overflow response(Fields fields) {
        int status = (int) fields.whole("status", 200, 599);
        String body = fields.text("body");
        if (Fields.bytes(body) > 65_536) {
            throw new PolicyException(fields.at("body"), "is longer than 65536 bytes");
        }
        Map<String, String> headers = new HashMap<>();
        if (fields.has("headers")) {
            Fields given = new Fields(fields.at("headers"), fields.get("headers"));
            if (given.names().size() > 32) {
                throw new PolicyException(fields.at("headers"), "more than 32 fields");
            }
            for (String name : given.names()) {
                String text = Fields.plain(given.at(name), given.get(name), 4096);
                boolean ascii = text.chars().allMatch(c -> c < 0x7f);
                if (!Values.isToken(name) || !ascii || headers.put(name.toLowerCase(Locale.ROOT), text) != null) {
                    throw new PolicyException(given.at(name), "expected a token, once, and ASCII");
                }
            }
        }
        fields.done();
        return new Overflow.Response(status, Map.copyOf(headers), body);
    }

    private static long overloadWait(Fields fields) {
        if (!fields.has("on_overload") || "refuse".equals(fields.get("on_overload"))) {
            return 0;
        }
        Fields overload = new Fields(fields.at("on_overload"), fields.get("on_overload"));
        long waitUs = RulesReader.duration(overload, "wait");
        overload.done();
        if (waitUs > OVERLOAD_WAIT_MAX_US) {
            throw new PolicyException(overload.at("wait"), "is longer than 10s");
        }
        return waitUs;
    }

    private static void checkMatch(Fields fields) {
        if (!fields.has("match")) {
            return;
        }
        String at = fields.at("match");
        if (!(fields.get("match") instanceof List)) {
            checkConditions(new Fields(at, fields.get("match")), true);
            return;
        }
        int place = 0;
        for (Object of : Fields.list(at, fields.get("match"), 1, MATCHES_MAX)) {
            checkConditions(new Fields(at + "[" + place + "]", of), true);
            place++;
        }
    }

    /** Conditions on requests; a case of {@code match} may have exceptions, which have none. */
    private static void checkConditions(Fields match, boolean isCase) {
        if (match.names().isEmpty()) {
            throw new PolicyException(match.path(), "expected at least one of `host`, `path` and `method`");
        }
        if (match.has("host")) {
            checkEach(match.at("host"), match.get("host"), 64, Values::isHost, "a host in small letters");
        }
        if (match.has("path")) {
            Fields path = new Fields(match.at("path"), match.get("path"));
            if (path.names().size() != 1) {
                throw new PolicyException(
                        match.at("path"), "expected exactly one of `exact`, `prefix` and `starts_with`");
            }
            String field = path.has("exact") ? "exact" : path.has("prefix") ? "prefix" : "starts_with";
            String text = Fields.plain(path.at(field), path.need(field), 4096);
            if (!text.startsWith("/") || text.indexOf('?') >= 0 || text.indexOf('#') >= 0) {
                throw new PolicyException(path.at(field), "`" + text + "` is not a path");
            }
            path.done();
        }
        if (match.has("method")) {
            Predicate<String> isMethod =
                    text -> Values.isToken(text) && text.equals(text.toUpperCase(Locale.ROOT));
            checkEach(match.at("method"), match.get("method"), 40, isMethod, "a method");
        }
        if (isCase && match.has("except")) {
            int place = 0;
            for (Object except : Fields.list(match.at("except"), match.get("except"), 1, MATCHES_MAX)) {
                checkConditions(new Fields(match.at("except") + "[" + place + "]", except), false);
                place++;
            }
        }
        match.done();
    }

    /** A list of texts, each once. */
    private static void checkEach(String path, Object list, int most, Predicate<String> is, String what) {
        Set<Object> seen = new HashSet<>();
        for (Object element : Fields.list(path, list, 1, most)) {
            String at = path + "[" + seen.size() + "]";
            String text = Fields.text(at, element);
            if (!is.test(text) || !seen.add(text)) {
                throw new PolicyException(at, "`" + text + "` is not " + what + ", or is there twice");
            }
        }
    }

    private static void checkKey(Fields fields) {
        if (!fields.has("key")) {
            return;
        }
        Set<String> attributes = new HashSet<>();
        for (Object attribute : Fields.list(fields.at("key"), fields.get("key"), 1, 8)) {
            String at = fields.at("key") + "[" + attributes.size() + "]";
            String text = Fields.text(at, attribute);
            boolean known = Set.of("remote_ip", "path", "method", "host", "user_agent", "status").contains(text)
                || text.startsWith("header:") && Values.isToken(text.substring(7));
            if (!known || !attributes.add(text.toLowerCase(Locale.ROOT))) {
                throw new PolicyException(at, "`" + text + "` is not an attribute, or is there twice");
            }
        }
    }

    private static boolean isKnown(Map<?, ?> compiled) {
        return compiled.get("format") instanceof Json.Num format && format.text().equals(Integer.toString(RuleSet.FORMAT));
    }

    private static Map<Key, OwnRules> compiledOverrides(Object value) {
        Map<Key, OwnRules> overrides = new HashMap<>();
        if (value != null) {
            for (Object each : Fields.list("compiled.overrides", value, 0, 1000)) {
                String key = each instanceof Map<?, ?> members ? Fields.text("compiled.overrides", members.get("key")) : "";
                long endsMs = ((Map<?, ?>) each).get("until_ms") instanceof Json.Num end ? Long.parseLong(end.text()) : OwnRules.ENDLESS;
                overrides.put(Key.of(key), new OwnRules(compiledRules(each), endsMs));
            }
        }
        return overrides;
    }

    private static RuleSet compiledRules(Object value) {
        if (!(value instanceof Map<?, ?> members)) {
            throw new PolicyException("compiled.rules", "expected an object");
        }
        List<RuleSet.Description> each = new ArrayList<>();
        for (Object rule : Fields.list("compiled.each", members.get("each"), 1, RuleSet.RULES_MAX)) {
            each.add(description(rule));
        }
        try {
            byte[] blob = Base64.getUrlDecoder().decode(Fields.text("compiled.blob", members.get("blob")));
            return RuleSet.read(blob).described(each);
        } catch (IllegalArgumentException e) {
            throw new PolicyException("compiled.rules", e.getMessage());
        }
    }

    private static RuleSet.Description description(Object value) {
        if (!(value instanceof Map<?, ?> members)) {
            throw new PolicyException("compiled.each", "expected an object");
        }
        Calendar calendar = null;
        if (members.get("calendar") instanceof Map<?, ?> named) {
            Calendar.Unit unit = Calendar.Unit.of(Fields.text("compiled.each.calendar.unit", named.get("unit")));
            String zone = Fields.text("compiled.each.calendar.zone", named.get("zone"));
            if (unit == null || Calendar.zoneOf(zone) == null) {
                throw new PolicyException("compiled.each.calendar", "unknown unit or zone `" + zone + "`");
            }
            calendar = new Calendar(unit, Calendar.zoneOf(zone), zone);
        }
        long most = (1L << 53) - 1;
        Object window = members.get("window_us");
        return new RuleSet.Description(Fields.text("compiled.each.name", members.get("name")),
            Fields.whole("compiled.each.limit", members.get("limit"), 0, most + 1),
            window == null ? 0 : Fields.whole("compiled.each.window_us", window, 0, most), calendar);
    }
}

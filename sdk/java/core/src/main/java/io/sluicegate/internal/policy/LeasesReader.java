package io.sluicegate.internal.policy;

import io.sluicegate.internal.kernel.Rule;
import io.sluicegate.internal.kernel.RuleSet;
import io.sluicegate.internal.policy.Policy.OwnRules;
import java.util.Collection;
import java.util.Map;

/** Checks {@code leases}. This process leases nothing, but rejects what servers reject. */
final class LeasesReader {
    private static final int SHARE_PERCENT_MAX = 50;
    private static final long TERM_MIN_US = 100_000;
    private static final long TERM_MAX_US = 2_000_000;
    private static final long SECOND_US = 1_000_000;

    private LeasesReader() {}

    /** {@return whether the policy sets bounds of leases} */
    static boolean hasBounds(Fields fields) {
        if (!fields.has("leases") || "auto".equals(fields.get("leases")) || "off".equals(fields.get("leases"))) {
            return false;
        }
        String path = fields.at("leases");
        if (!(fields.get("leases") instanceof Map)) {
            throw new PolicyException(path, "expected `auto`, `off` or `{ max_share: 10%, term: 1s }`");
        }
        Fields bounds = new Fields(path, fields.get("leases"));
        if (bounds.has("max_share")) {
            checkShare(bounds.at("max_share"), bounds.get("max_share"));
        }
        if (bounds.has("term")) {
            long us = RulesReader.duration(bounds, "term");
            if (us < TERM_MIN_US || us > TERM_MAX_US) {
                throw new PolicyException(bounds.at("term"),
                    "`" + bounds.get("term") + "` is out of range, expected a duration from 100ms to 2s, such as `1s`");
            }
        }
        bounds.done();
        return true;
    }

    private static void checkShare(String path, Object value) {
        if (!(value instanceof String text)) {
            throw new PolicyException(path, "expected a share from 1% to 50%, such as `10%`");
        }
        boolean isPercent = text.matches("[1-9][0-9]?%");
        if (!isPercent || Integer.parseInt(text.substring(0, text.length() - 1)) > SHARE_PERCENT_MAX) {
            throw new PolicyException(path, "`" + text + "` is not a whole percentage from 1% to 50%, such as `10%`");
        }
    }

    /** Rejects bounds of leases, at this path, for a policy whose permits cannot be leased. */
    static void checkLeasable(String path, RuleSet rules, Collection<OwnRules> overrides, Over over) {
        String reason = neverLeased(rules);
        int place = 0;
        for (OwnRules own : overrides) {
            String ofOverride = neverLeased(own.rules());
            if (reason == null && ofOverride != null) {
                reason = "in overrides[" + place + "], " + ofOverride;
            }
            place++;
        }
        if (reason == null && over.queueMaxWaitUs() > 0) {
            reason = "`overflow: queue` books permits in advance";
        }
        if (reason != null) {
            throw new PolicyException(path, reason + "; expected `auto` or `off`");
        }
    }

    private static String neverLeased(RuleSet rules) {
        for (Rule rule : rules.rules()) {
            Never never = neverLeased(rule);
            if (never != null) {
                return "rule `" + rule.name() + "` is a `" + never.algorithm + "`, " + never.reason;
            }
        }
        return null;
    }

    private record Never(String algorithm, String reason) {}

    private static Never neverLeased(Rule rule) {
        double[] n = rule.numbers();
        String tooShort = "whose window of less than 10 s is too short to lease";
        return switch (rule.code()) {
            case 2 -> new Never("smooth_bursty", "which books permits in advance");
            case 3 -> new Never("smooth_warmup", "which books permits in advance");
            case 4 -> n[5] == 1 ? new Never("leaky_bucket", "whose `delay` is not `none`") : null;
            case 5 -> (rule.flags() & Rule.CALENDAR) == 0 && n[2] < SECOND_US
                ? new Never("fixed_window", "whose window of less than 1 s is too short to lease") : null;
            case 6 -> n[1] < 10 * SECOND_US ? new Never("sliding_window", tooShort) : null;
            case 7 -> n[1] < 10 * SECOND_US ? new Never("sliding_counter", tooShort) : null;
            case 8 -> n[1] < 10 * SECOND_US ? new Never("sliding_log", tooShort) : null;
            case 9 -> new Never("concurrency", "whose permits cannot be leased");
            default -> null;
        };
    }
}

package io.sluicegate.http;

import io.sluicegate.Decision;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * The expected result of a check, and the reasons.
 *
 * @param policy the policy's name
 * @param apps the apps that may use the policy; null for every app
 * @param wouldCharge permits that a check would take from each rule
 * @param isOverride whether the key has rules of its own
 * @param overflow what becomes of requests over the limit: {@code reject}, {@code queue}, {@code degrade}, {@code divert} or
 *     {@code shadow}
 * @param onStoreFailure who decides while the store does not answer: {@code local}, {@code allow} or {@code deny}
 * @param decision the answer that a check would get, without quotas
 * @param rules each rule that holds for the key
 */
public record Explanation(String policy, List<String> apps, long wouldCharge, boolean isOverride, String overflow, String onStoreFailure,
                          Decision decision, List<Rule> rules) {
    /**
     * A rule, looked at alone.
     *
     * @param name its name
     * @param algorithm its algorithm
     * @param limit the largest cost that can pass at once
     * @param window the time in which a used-up budget is full again; null where that is not one number
     * @param left what is left; null while the store does not answer
     */
    public record Rule(String name, String algorithm, long limit, Duration window, Left left) {}

    /**
     * The remainder of a rule. Times are in µs.
     *
     * @param allowed whether the rule would let the check pass
     * @param remaining permits
     * @param retryAfterUs the time after which it would; {@link Decision#NEVER} if it never can
     * @param resetAfterUs the time until its budget is full
     */
    public record Left(boolean allowed, long remaining, long retryAfterUs, long resetAfterUs) {}

    static Explanation read(String policy, Map<?, ?> fields) {
        List<Rule> rules = new ArrayList<>();
        for (Object each : (List<?>) fields.get("rules")) {
            Map<?, ?> rule = (Map<?, ?>) each;
            Left left = rule.get("left") instanceof Map<?, ?> members
                ? new Left(Answers.bool(members, "allowed"), Answers.number(members, "remaining"), Answers.retryAfterUs(members),
                    Answers.number(members, "reset_after_us"))
                : null;
            Duration window = rule.get("window_s") instanceof Long ? Duration.ofSeconds(Answers.number(rule, "window_s")) : null;
            rules.add(new Rule(Answers.text(rule, "name"), Answers.text(rule, "algorithm"), Answers.number(rule, "limit"), window, left));
        }
        List<String> apps = fields.get("apps") instanceof List<?> names ? names.stream().map(String::valueOf).toList() : null;
        return new Explanation(policy, apps, Answers.number(fields, "would_charge"), "override".equals(Answers.text(fields, "rules_of")),
            Answers.text(fields, "overflow"), Answers.text(fields, "on_store_failure"),
            Answers.decision(policy, (Map<?, ?>) fields.get("decision"), ""), List.copyOf(rules));
    }
}

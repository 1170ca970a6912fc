//! Mistakes that people make in documents are named with what to write instead.

use sluicegate_policy::Policy;

use crate::messages::{check, rest, rule};

#[test]
fn a_word_for_every_method_is_refused_where_no_request_would_match() {
    for word in ["*", "ALL", "any"] {
        let expected =
            format!("~[0]: `{word}` is not a method: leave `method` out for every method");
        rest(
            &format!("match: {{ path: {{ prefix: / }}, method: ['{word}'] }}"),
            &expected.replace('~', "~.match.method"),
        );
        rest(
            &format!("match: [ {{ except: [ {{ method: ['{word}'] }} ] }} ]"),
            &expected.replace('~', "~.match[0].except[0].method"),
        );
    }
    rest("match: { method: ['ANYTHING', 'M-SEARCH'] }", "ok");
    // A catalog or a Redis may have it from before: there it is a method that no request has.
    let kept = r#"{"name":"a","rules":[{"token_bucket":{"rate":"1/s"}}],"match":{"method":["*"]}}"#;
    assert!(Policy::parse_one(kept).is_err());
    assert!(Policy::parse_kept(kept).is_ok_and(|policy| policy.matcher().is_some()));
}

#[test]
fn a_placeholder_of_a_template_is_named_where_a_value_should_be() {
    let expected = |given: &str| {
        format!(
            "`{given}` has a placeholder of a template: fill the template in first, such as with `helm template` or \
             `envsubst`"
        )
    };
    for (field, given) in [("rate", "${RATE}"), ("burst", "{{ .Values.burst }}")] {
        let rate = if field == "burst" { "rate: 1/s, " } else { "" };
        let bucket = format!("{{ token_bucket: {{ {rate}{field}: '{given}' }} }}");
        rule(&bucket, &format!("~.token_bucket.{field}: {}", expected(given)));
    }
    let window = "{ fixed_window: { limit: 1, window: '${WINDOW}' } }";
    rule(window, &format!("~.fixed_window.window: {}", expected("${WINDOW}")));
    rest("carry: '{% if x %}'", &format!("~.carry: {}", expected("{% if x %}")));
}

#[test]
fn parameters_that_do_not_stand_in_their_algorithm() {
    rule(
        "{ token_bucket: , rate: 10/s, burst: 5 }",
        "~.rate: `rate` is a parameter of `token_bucket`: indent it below `token_bucket:`, or write `token_bucket: { \
         rate: … }`\n~.burst: `burst` is a parameter of `token_bucket`: indent it below `token_bucket:`, or write \
         `token_bucket: { burst: … }`",
    );
    rule(
        "{ rate: 10/s, burst: 5 }",
        "~: `rate` is a parameter: write it in its algorithm, such as `token_bucket: { rate: 10/s }`",
    );
    rest(
        "shadow: true, window: 1m",
        "~.shadow: unknown field, write `overflow: shadow`\n~.window: unknown field, write `rules: [ { \
         fixed_window: { limit: 100, window: 1m } } ]`",
    );
}

#[test]
fn a_calendar_window_is_not_a_duration() {
    for (given, calendar, near) in
        [("1month", "month", "30d"), ("monthly", "month", "30d"), ("2 years", "year", "365d")]
    {
        rule(
            &format!("{{ fixed_window: {{ limit: 1, window: {given} }} }}"),
            &format!(
                "~.fixed_window.window: invalid duration `{given}`: a {calendar} has no fixed length; write `{near}`, \
                 or for a calendar window `fixed_window: {{ limit: 10, calendar: {calendar} }}`"
            ),
        );
    }
}

#[test]
fn a_manifest_of_kubernetes_is_named() {
    check(
        "apiVersion: v1\nkind: ConfigMap\ndata:\n  policies.yaml: |\n    policies: []",
        "kind: `ConfigMap` is a manifest of Kubernetes: expected the policies themselves, such as a text under its `data`",
    );
}

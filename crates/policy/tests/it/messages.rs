//! Errors of a document are exact: the place, the given value, the permitted ones.

use sluicegate_policy::limits::ERRORS_MAX;
use sluicegate_policy::{Document, Overflow, Policy};

pub(crate) fn check(document: &str, expected: &str) {
    let found = Document::parse(document).map_or_else(|errors| errors.to_string(), |_| "ok".into());
    assert_eq!(found, expected, "\n{document}");
}

/// `fields` of the only policy of a document, besides its name.
fn policy(fields: &str, expected: &str) {
    check(&format!("policies: [ {{ name: a, {fields} }} ]"), expected);
}

/// The only rule of a document.
pub(crate) fn rule(rule: &str, expected: &str) {
    policy(&format!("rules: [ {rule} ]"), &expected.replace('~', "policies[0].rules[0]"));
}

/// `fields` of a policy whose rules are in order.
pub(crate) fn rest(fields: &str, expected: &str) {
    let rules = "rules: [ token_bucket: { rate: 1/s } ]";
    policy(&format!("{rules}, {fields}"), &expected.replace('~', "policies[0]"));
}

#[test]
fn of_the_document() {
    check("", "expected a map with `policies`, found nothing");
    check("policies", "expected a map with `policies`, found the text `policies`");
    check("[]", "expected a map with `policies`, found a list");
    check("{}", "policies: is missing, expected a list of policies");
    check("policies: []", "ok");
    check("policies: {}", "policies: expected a list of policies, found a map");
    check(
        "policies: [1]",
        "policies[0]: expected a map with `name`, `apps`, `rules`, `overflow`, `on_store_failure`, `on_overload`, `on_key_quota`, `leases`, `match`, `key`, `overrides` and `carry`, found the number `1`",
    );
    check(
        "polices: []",
        "polices: unknown field, did you mean `policies`?\npolicies: is missing, expected a list of policies",
    );
    check("policies: []\npolicies: []", "policies: is given twice");
    check("policies: []\n<<: {}", "[\"<<\"]: merge keys are not supported: repeat the fields");
    check("policies: [", "unclosed bracket '[' at line 1 column 11");
    check("{\"policies\": ]", "expected value at line 1 column 14");
    let eleven = format!("policies: [{}]", "0,".repeat(10_001));
    check(&eleven, "policies: expected 0 to 10000 policies, found 10001");
}

#[test]
fn of_names() {
    let rules = "rules: [ token_bucket: { rate: 1/s } ]";
    let name = |name: &str, expected: &str| {
        check(&format!("policies: [ {{ name: {name}, {rules} }} ]"), expected);
    };
    name("orders.create_2-b", "ok");
    name(
        "Orders",
        "policies[0].name: invalid name `Orders`: expected 1 to 128 bytes of `[a-z0-9._-]`, such as `orders`",
    );
    name("''", "policies[0].name: invalid name ``: expected 1 to 128 bytes of `[a-z0-9._-]`");
    name("12", "policies[0].name: expected a name, found the number `12`: put it in quotes");
    name("true", "policies[0].name: expected a name, found `true`: put it in quotes");
    name("~", "policies[0].name: expected a name, found nothing");
    name(
        "\"a\\nb\"",
        "policies[0].name: invalid name `a\\nb`: expected 1 to 128 bytes of `[a-z0-9._-]`",
    );
    name(
        &"x".repeat(129),
        &format!(
            "policies[0].name: invalid name `{}…`: expected 1 to 128 bytes of `[a-z0-9._-]`",
            "x".repeat(60)
        ),
    );
    check(
        &format!("policies: [ {{ {rules} }}, {{ name: b, {rules} }}, {{ name: b, {rules} }} ]"),
        "policies[0].name: is missing, expected a name\npolicies[2].name: `b` is already the name of policies[1]",
    );
}

#[test]
fn of_maps_in_place_of_lists() {
    for (document, item) in [
        ("policies: { login: { rules: [] } }", "name: login"),
        ("policies: { name: login, rules: [] }", "name: login"),
    ] {
        let expected = "policies: expected a list of policies, found a map: write `- ~`";
        check(document, &expected.replace('~', item));
    }
    for (rules, item) in [
        ("limit: { token_bucket: { rate: 1/s } }", "name: limit"),
        ("token_bucket: { rate: 1/s }", "token_bucket: { … }"),
        ("name: limit, token_bucket: { rate: 1/s }", "name: limit"),
    ] {
        let expected =
            format!("policies[0].rules: expected a list of rules, found a map: write `- {item}`");
        policy(&format!("rules: {{ {rules} }}"), &expected);
    }
    rest(
        "overrides: { alice: { rules: [] } }",
        "~.overrides: expected a list of overrides, found a map: write `- key: alice`",
    );
    // Text that means something else in another place is not repeated.
    policy("rules: { 'a b': {} }", "policies[0].rules: expected a list of rules, found a map");
}

#[test]
fn of_policies() {
    rest("nmae: b", "~.nmae: unknown field, did you mean `name`?");
    policy("apps: [b]", "policies[0].rules: is missing, expected a list of rules");
    policy("rules: []", "policies[0].rules: expected 1 to 8 rules, found 0");
    policy("rules: {}", "policies[0].rules: expected a list of rules, found a map");
    rest("apps: []", "~.apps: expected 1 to 1000 apps, found 0");
    rest(
        "apps: [b, B, b, 1]",
        "~.apps[1]: invalid name `B`: expected 1 to 128 bytes of `[a-z0-9._-]`, such as `b`\n~.apps[2]: is listed twice\n~.apps[3]: expected a name, found the number `1`: put it in quotes",
    );
    rest("apps: b", "~.apps: expected a list of apps: write `[b]`");
    rest(
        "on_store_failure: open",
        "~.on_store_failure: expected `local`, `allow` or `deny`, found the text `open`",
    );
    rest(
        "on_overload: wait",
        "~.on_overload: expected `refuse` or `{ wait: 200ms }`, found the text `wait`",
    );
    rest(
        "on_overload: { wait: 1m }",
        "~.on_overload.wait: `1m` is too long, expected a duration of at most 10s, such as `200ms`",
    );
    rest("on_key_quota: drop", "~.on_key_quota: expected `share` or `deny`, found the text `drop`");
    rest("carry: 1", "~.carry: expected `usage`, `proportional` or `reset`, found the number `1`");
    rest("match: {}", "~.match: expected at least one of `host`, `path`, `method` and `except`");
    rest("match: []", "~.match: expected 1 to 256 cases, found 0");
    rest(
        "match: [{ path: { prefix: / } }, { method: [GET], hosts: [a] }]",
        "~.match[1].hosts: unknown field, did you mean `host`?",
    );
    rest(
        "match: { host: ['*.Shop'] }",
        "~.match.host[0]: invalid host `*.Shop`: expected a name in small letters without a port, such as \
         `shop.example.com` or `*.example.com`",
    );
    rest(
        "match: { except: [{}] }",
        "~.match.except[0]: expected at least one of `host`, `path` and `method`",
    );
    rest(
        "match: { except: [{ method: [GET], except: [] }] }",
        "~.match.except[0].except: unknown field, expected `host`, `path` or `method`",
    );
    rest(
        "match: { path: /a }",
        "~.match.path: expected a map: write `{ prefix: /a }` or `{ exact: /a }`",
    );
    rest(
        "match: { path: { exact: /a, prefix: /b } }",
        "~.match.path: expected exactly one of `exact`, `prefix` and `starts_with`",
    );
    rest(
        "match: { path: { exact: a } }",
        "~.match.path.exact: invalid path `a`: expected a `/` first, no `?` or `#`",
    );
    rest(
        "match: { method: [get] }",
        "~.match.method[0]: invalid method `get`: expected capitals such as `GET`",
    );
    rest(
        "key: ['header:X Foo']",
        "~.key[0]: `X Foo` is not a header name: expected letters, digits and `-`, such as `header:x-tenant`",
    );
    rest("match: { method: GET }", "~.match.method: expected a list of methods: write `[GET]`");
    rest(
        "key: [ip]",
        "~.key[0]: unknown attribute `ip`: expected `remote_ip`, `path`, `method`, `user_agent`, `status`, `host` or `header:NAME`",
    );
    rest("key: [path, path]", "~.key[1]: is listed twice");
    rest("key: []", "~.key: expected 1 to 8 attributes, found 0");
}

#[test]
fn of_leases() {
    for accepted in ["auto", "off", "{}", "{ max_share: 1% }", "{ term: 100ms }"] {
        rest(&format!("leases: {accepted}"), "ok");
    }
    rest("leases: { max_share: 50%, term: 2s }", "ok");
    rest("lease: auto", "~.lease: unknown field, did you mean `leases`?");
    let wanted = "expected `auto`, `off` or `{ max_share: 10%, term: 1s }`";
    rest("leases: on", &format!("~.leases: {wanted}, found the text `on`"));
    rest("leases: 5%", &format!("~.leases: {wanted}, found the text `5%`"));
    rest("leases: false", &format!("~.leases: {wanted}, found `false`"));
    rest("leases: { share: 5% }", "~.leases.share: unknown field, expected `max_share` or `term`");
    for (share, given) in [
        ("0%", "0%"),
        ("51%", "51%"),
        ("2.5%", "2.5%"),
        ("05%", "05%"),
        ("'10 %'", "10 %"),
        ("ten", "ten"),
    ] {
        rest(
            &format!("leases: {{ max_share: {share} }}"),
            &format!(
                "~.leases.max_share: `{given}` is not a whole percentage from 1% to 50%, such as `10%`"
            ),
        );
    }
    rest(
        "leases: { max_share: 10, term: 99ms }",
        "~.leases.max_share: expected a share from 1% to 50%, such as `10%`, found the number `10`\n\
         ~.leases.term: `99ms` is out of range, expected a duration from 100ms to 2s, such as `1s`",
    );
    rest(
        "leases: { term: 2001ms }",
        "~.leases.term: `2001ms` is out of range, expected a duration from 100ms to 2s, such as `1s`",
    );
    rest(
        "leases: { term: 1 }",
        "~.leases.term: invalid duration `1`: expected a unit (us, ms, s, m, h, d), such as `1ms` or `1s`",
    );
}

#[test]
fn of_bounds_of_leases_whose_rules_are_never_leased() {
    let bucket = "{ name: burst, token_bucket: { rate: 1/s } }";
    let slots = "{ name: slots, concurrency: { limit: 5, ttl: 1m } }";
    let log = "{ name: log, sliding_log: { limit: 5, window: 9999ms } }";
    for (fields, reason) in [
        (
            format!("rules: [ {bucket}, {slots} ]"),
            "rule `slots` is a `concurrency`, whose permits cannot be leased",
        ),
        (
            format!("rules: [ {log} ]"),
            "rule `log` is a `sliding_log`, whose window of less than 10 s is too short to lease",
        ),
        (
            String::from("rules: [ leaky_bucket: { rate: 1/s, delay: all } ]"),
            "rule `leaky_bucket` is a `leaky_bucket`, whose `delay` is not `none`",
        ),
        (
            format!(
                "rules: [ {bucket} ], overrides: [ {{ key: a, rules: [ {bucket} ] }}, {{ key: b, rules: [ {slots} ] }} ]"
            ),
            "in overrides[1], rule `slots` is a `concurrency`, whose permits cannot be leased",
        ),
        (
            format!("rules: [ {bucket} ], overflow: {{ queue: {{ max_wait: 1s }} }}"),
            "`overflow: queue` books permits in advance",
        ),
    ] {
        for accepted in ["auto", "off"] {
            policy(&format!("{fields}, leases: {accepted}"), "ok");
        }
        policy(
            &format!("{fields}, leases: {{ max_share: 10% }}"),
            &format!("policies[0].leases: {reason}; expected `auto` or `off`"),
        );
    }
}

#[test]
fn of_fields_that_do_not_go_together_with_a_rule_that_hands_out_permits() {
    let bucket = "{ name: burst, token_bucket: { rate: 1/s } }";
    let slots = "{ name: slots, concurrency: { limit: 5, ttl: 1m } }";
    let of_override = format!(
        "rules: [ {bucket} ], overrides: [ {{ key: a, rules: [ {bucket} ] }}, {{ key: b, rules: [ {slots} ] }} ]"
    );
    for (rules, place) in [
        (format!("rules: [ {slots} ]"), "rules[0]"),
        (format!("rules: [ {bucket}, {slots} ]"), "rules[1]"),
        (of_override, "overrides[1].rules[0]"),
    ] {
        for accepted in ["reject", "shadow", "{ degrade: { tag: a } }", "{ divert: { target: a } }"]
        {
            policy(&format!("{rules}, overflow: {accepted}, key: [remote_ip]"), "ok");
        }
        let waits = rules.replace("ttl: 1m", "ttl: 1m, queue: 10");
        policy(&format!("{waits}, overflow: {{ queue: {{ max_wait: 1s }} }}"), "ok");
        let queue = format!(
            "policies[0].overflow: `queue` needs a queue at the `concurrency` rule at `{place}`, whose `queue` is 0; \
             expected `queue: 1` to `queue: 10000` there, or `reject`, `degrade`, `divert` or `shadow` here"
        );
        let matched = format!(
            "policies[0].match: not supported with the `concurrency` rule at `{place}`: gateways that ask for all \
             policies hold no permits; remove `match`, and have the gateway name the policy or acquire permits in your \
             program, or limit the requests by another rule in a policy of its own"
        );
        let (max_wait, post) =
            ("overflow: { queue: { max_wait: 1s } }", "match: { method: [POST] }");
        policy(&format!("{rules}, {max_wait}"), &queue);
        // A request waits for the permits of all rules, or of none.
        let other = "{ name: other, concurrency: { limit: 9, ttl: 1m } }";
        let of_one = waits.replace("{ name: slots,", &format!("{other}, {{ name: slots,"));
        policy(&format!("{of_one}, {max_wait}"), &queue);
        policy(&format!("{rules}, {post}"), &matched);
        policy(&format!("{rules}, {max_wait}, {post}"), &format!("{queue}\n{matched}"));
    }
}

#[test]
fn a_kept_policy_is_read_without_the_fields_that_had_no_effect() {
    let kept = r#"{"name":"jobs","rules":[{"concurrency":{"limit":5,"ttl":"1m"}}],
        "overflow":{"queue":{"max_wait":"1s"}},"match":{"method":["POST"]},"key":["remote_ip"]}"#;
    assert!(Policy::parse_one(kept).is_err());
    let read = Policy::parse_kept(kept).expect("it was valid once");
    assert_eq!((read.overflow(), read.matcher()), (&Overflow::Reject, None));
    // All else is an error as ever, and of other policies nothing is left out.
    assert!(Policy::parse_kept(&kept.replace("\"1s\"", "\"soon\"")).is_err());
    let other = kept
        .replace(r#"{"concurrency":{"limit":5,"ttl":"1m"}}"#, r#"{"token_bucket":{"rate":"1/s"}}"#);
    assert_eq!(Policy::parse_kept(&other), Policy::parse_one(&other));
    assert!(Policy::parse_kept(&other).is_ok_and(|policy| policy.matcher().is_some()));
}

#[test]
fn of_overflow() {
    rest("overflow: reject", "ok");
    rest("overflow: shadow", "ok");
    rest("overflow: { divert: { target: slow-pool } }", "ok");
    rest("overflow: { degrade: { tag: cached } }", "ok");
    rest(
        "overflow: drop",
        "~.overflow: expected `reject`, `shadow`, or a map with `queue`, `degrade` or `divert`, found the text `drop`",
    );
    rest(
        "overflow: { drop: {} }",
        "~.overflow.drop: unknown overflow, expected `reject`, `shadow`, or a map with `queue`, `degrade` or `divert`",
    );
    rest("overflow: { reject: {} }", "~.overflow: expected the word `reject` alone");
    rest(
        "overflow: queue",
        "~.overflow: missing maximum wait: expected `{ queue: { max_wait: 500ms } }`",
    );
    rest(
        "overflow: { queue: {} }",
        "~.overflow.queue.max_wait: is missing, expected a duration such as `500ms`",
    );
    rest(
        "overflow: { queue: { max_wait: 500 } }",
        "~.overflow.queue.max_wait: invalid duration `500`: expected a unit (us, ms, s, m, h, d), such as `500ms` or `500s`",
    );
    rest(
        "overflow: { queue: { max_wait: 0s } }",
        "~.overflow.queue.max_wait: invalid duration `0s`: expected 1us to 366d as a whole number and a unit (us, ms, s, m, h, d), such as `250ms`",
    );
    rest("overflow: { degrade: {} }", "~.overflow.degrade: expected either `response` or `tag`");
    rest(
        "overflow: { degrade: { response: { status: 99 } } }",
        "~.overflow.degrade.response.status: `99` is not a whole number from 200 to 599\n~.overflow.degrade.response.body: is missing, expected a text",
    );
    rest(
        "overflow: { degrade: { response: { status: 503, body: b, headers: { 'a b': c, x: 'y\n\nz', d: e, D: f, g: é } } } }",
        "~.overflow.degrade.response.headers[\"a b\"]: `a b` is not a header name\n~.overflow.degrade.response.headers.x: `y\\nz` is not a value: expected 1 to 4096 bytes without control characters\n~.overflow.degrade.response.headers.D: is given twice\n~.overflow.degrade.response.headers.g: expected ASCII",
    );
    for name in ["X-Sluicegate-Verdict", "x-sluicegate-x", "RateLimit", "RateLimit-Policy"] {
        rest(&format!("overflow: {{ {} }}", with_header(name)), &reserved(name));
    }
    for name in ["X-RateLimit-Limit", "Connection", "content-length", "Transfer-Encoding", "TE"] {
        rest(&format!("overflow: {{ {} }}", with_header(name)), &reserved(name));
    }
    // How long a client should stay away is for the policy to say.
    for name in ["Retry-After", "x-sluice", "x-rate", "content-type"] {
        rest(&format!("overflow: {{ {} }}", with_header(name)), "ok");
    }
    rest(
        "overflow: { divert: { target: '' } }",
        "~.overflow.divert.target: `` is not a target: expected 1 to 4096 bytes without control characters",
    );
}

/// A degraded response with a header of this name.
fn with_header(name: &str) -> String {
    format!("degrade: {{ response: {{ status: 503, body: b, headers: {{ {name}: v }} }} }}")
}

/// The error of a header of this name, which no policy may set.
fn reserved(name: &str) -> String {
    format!(
        "~.overflow.degrade.response.headers.{name}: `{name}` is reserved: Sluicegate or the connection sets it"
    )
}

#[test]
fn of_overrides() {
    let rules = "rules: [ token_bucket: { rate: 1/s } ]";
    let one = |key: &str, expected: &str| {
        rest(&format!("overrides: [ {{ key: {key}, {rules} }} ]"), expected);
    };
    one("ok", "ok");
    one("42", "~.overrides[0].key: expected a key, found the number `42`: put it in quotes");
    one("''", "~.overrides[0].key: key has 0 bytes, expected 1 to 1024");
    one(&format!("'{}'", "x".repeat(1024)), "ok");
    one(
        &format!("'{}'", "x".repeat(2048)),
        "~.overrides[0].key: key has 2048 bytes, expected 1 to 1024",
    );
    rest(
        &format!("overrides: [ {{ key: x, {rules} }}, {{ {rules} }}, {{ key: x }}, 3 ]"),
        "~.overrides[1].key: is missing, expected a key\n\
         ~.overrides[2].rules: is missing, expected a list of rules\n\
         ~.overrides[2].key: `x` is already the key of overrides[0]\n\
         ~.overrides[3]: expected a map with `key`, `until` and `rules`, found the number `3`",
    );
    rest(
        "overrides: [ { key: x, rules: [ { token_bucket: { rate: 1 } } ] } ]",
        "~.overrides[0].rules[0].token_bucket.rate: invalid rate `1`: expected permits per time, such as `1/s`",
    );
    rest(
        &format!("overrides: [ {{ key: x, until: 2026-02-29T00:00:00Z, {rules} }} ]"),
        "~.overrides[0].until: invalid instant `2026-02-29T00:00:00Z`: expected UTC from 1970 to 2099, such as \
         `2026-12-31T18:00:00Z`",
    );
    rest(
        &format!("overrides: [ {{ key: x, until: 2026, {rules} }} ]"),
        "~.overrides[0].until: expected an instant such as `2026-12-31T18:00:00Z`, found the number `2026`: put it \
         in quotes",
    );
    let many = format!("overrides: [ {} ]", "0,".repeat(1_001));
    rest(&many, "~.overrides: expected 0 to 1000 overrides, found 1001");
}

#[test]
fn of_rules() {
    let known = "`token_bucket`, `smooth_bursty`, `smooth_warmup`, `leaky_bucket`, `fixed_window`, `sliding_window`, `sliding_counter`, `sliding_log` or `concurrency`";
    rule("{ name: b, gcar: {} }", &format!("~: unknown algorithm `gcar`, expected {known}"));
    rule("{ name: b }", &format!("~: missing algorithm, expected {known}"));
    rule(
        "token_bucket",
        "~: expected a map with `name` and an algorithm, found the text `token_bucket`",
    );
    rule(
        "{ token_bucket: { rate: 1/s }, sliding_log: {} }",
        "~: `token_bucket` and `sliding_log`: a rule has one algorithm",
    );
    rule(
        "{ token_bucket: { rate: 1/s }, about: x }",
        "~.about: unknown field, expected `name` or `token_bucket`",
    );
    rule(
        "{ token_bucket: { rate: 1/s }, token_bucket: { rate: 1/s } }",
        "~.token_bucket: is given twice",
    );
    rule(
        "{ token_bucket: 100/s }",
        "~.token_bucket: expected a map with `rate`, `burst`, `initial` and `refill`, found the text `100/s`",
    );
    let two = |names: [&str; 2], expected: &str| {
        let rules =
            names.map(|name| format!("{{ {name} token_bucket: {{ rate: 1/s }} }}")).join(", ");
        policy(&format!("rules: [ {rules} ]"), expected);
    };
    two(["name: b,", "name: c,"], "ok");
    two(["name: b,", "name: b,"], "policies[0].rules[1].name: two rules are named `b`");
    two(
        ["name: b,", ""],
        "policies[0].rules[1].name: is missing: with several rules, each needs a name",
    );
    let nine = format!("rules: [ {} ]", "0,".repeat(9));
    policy(&nine, "policies[0].rules: expected 1 to 8 rules, found 9");
}

#[test]
fn of_what_was_most_likely_meant() {
    for (bad, near) in [("100", "100/s"), ("1.5 per second", "3/2s"), ("10 per minute", "10/m")] {
        rule(
            &format!("{{ token_bucket: {{ rate: {bad} }} }}"),
            &format!(
                "~.token_bucket.rate: invalid rate `{bad}`: expected permits per time, such as `{near}`"
            ),
        );
    }
    // A rate that is not the one that was meant is worse than none.
    for bad in ["1.5.0/2s", "2.0000000/10s", "0.5/200.5ms"] {
        rule(
            &format!("{{ token_bucket: {{ rate: {bad} }} }}"),
            &format!(
                "~.token_bucket.rate: invalid rate `{bad}`: expected up to 4294967296 permits (or B, kB, KiB, MB, \
                 MiB, GB, GiB) per 1us to 366d, such as `100/s`, `2.5/s`, `5/200ms` or `64KiB/s`"
            ),
        );
    }
    rule(
        "{ sliding_log: { limit: 1, window: 60 } }",
        "~.sliding_log.window: invalid duration `60`: expected a unit (us, ms, s, m, h, d), such as `60ms` or `60s`",
    );
    rule(
        "{ algorithm: token_bucket, rate: 1/s }",
        "~: `algorithm` is not a field of a rule: write `token_bucket: { … }` with the parameters in it",
    );
    rule(
        "{ key: [remote_ip], token_bucket: { rate: 1/s } }",
        "~.key: `key` is a field of the policy: all its rules share it",
    );
    rule(
        "{ key: [remote_ip], sliding_windw: { limit: 1 } }",
        "~: unknown algorithm `sliding_windw`, did you mean `sliding_window`?",
    );
    for bad in ["token_buckt", "tokenbucket", "Token-Bucket"] {
        rule(
            &format!("{{ {bad}: {{ rate: 1/s }} }}"),
            &format!("~: unknown algorithm `{bad}`, did you mean `token_bucket`?"),
        );
    }
}

#[test]
fn of_numbers() {
    let rate = "expected up to 4294967296 permits (or B, kB, KiB, MB, MiB, GB, GiB) per 1us to 366d, such as `100/s`, `2.5/s`, `5/200ms` or `64KiB/s`";
    let span =
        "expected 1us to 366d as a whole number and a unit (us, ms, s, m, h, d), such as `250ms`";
    for bad in [
        "0/s",
        "-5/s",
        "NaN",
        "inf/s",
        "1e400/s",
        "9223372036854775808/s",
        "0x10/s",
        "1/fortnight",
        "1.0000001/s",
    ] {
        let expected = format!("~.token_bucket.rate: invalid rate `{bad}`: {rate}");
        rule(&format!("{{ token_bucket: {{ rate: {bad} }} }}"), &expected);
    }
    let zero = "~.token_bucket.burst: `0` is not a whole number from 1 to 4294967296: `burst` is the size of the \
                bucket; without it, the bucket has the permits of `rate`";
    rule("{ token_bucket: { rate: 1/s, burst: 0 } }", zero);
    rule("{ leaky_bucket: { rate: 1/s, burst: 0 } }", "ok");
    for bad in [
        "-5",
        ".nan",
        ".inf",
        "-.inf",
        "1e400",
        "9223372036854775808",
        "0x10",
        "4294967297",
        "1.0",
        "1e3",
        "010",
        "1_000",
        "+5",
    ] {
        let expected =
            format!("~.token_bucket.burst: `{bad}` is not a whole number from 1 to 4294967296");
        rule(&format!("{{ token_bucket: {{ rate: 1/s, burst: {bad} }} }}"), &expected);
    }
    for bad in ["0s", "-1s", "1.55us", "367d", "1e400s"] {
        let expected = format!("~.sliding_log.window: invalid duration `{bad}`: {span}");
        rule(&format!("{{ sliding_log: {{ limit: 1, window: {bad} }} }}"), &expected);
    }
    rule(
        "{ smooth_warmup: { rate: 1/s, warmup: 1s, cold_factor: inf } }",
        "~.smooth_warmup.cold_factor: expected a number above 1, at most 1000, found the text `inf`",
    );
    for bad in ["1", "0.5", "1e400", ".nan", "-3", "0x3", "1001"] {
        let expected =
            format!("~.smooth_warmup.cold_factor: `{bad}` is not a number above 1, at most 1000");
        rule(
            &format!("{{ smooth_warmup: {{ rate: 1/s, warmup: 1s, cold_factor: {bad} }} }}"),
            &expected,
        );
    }
}

#[test]
fn of_parameters() {
    rule(
        "{ token_bucket: { burst: '5' } }",
        "~.token_bucket.rate: is missing, expected a rate such as `100/s`\n~.token_bucket.burst: expected a whole number from 1 to 4294967296, found the text `5`",
    );
    rule(
        "{ token_bucket: { rate: [1/s] } }",
        "~.token_bucket.rate: expected a rate such as `100/s`, found a list",
    );
    rule(
        "{ token_bucket: { rate: 1/s, depth: 3 } }",
        "~.token_bucket.depth: unknown field, expected `rate`, `burst`, `initial` or `refill`",
    );
    rule(
        "{ token_bucket: { rate: 1/s, refill: slow } }",
        "~.token_bucket.refill: expected `smooth` or `interval`, found the text `slow`",
    );
    rule(
        "{ token_bucket: { rate: 1/s, burst: 5, initial: 6 } }",
        "~.token_bucket.initial: `6` is outside 0..=5",
    );
    rule(
        "{ leaky_bucket: { rate: 1/s, delay: some } }",
        "~.leaky_bucket.delay: expected `all` or `none`, or a whole number from 0 to 4294967296, found the text `some`",
    );
    rule("{ leaky_bucket: { rate: 1/s, delay: 5 } }", "~.leaky_bucket.delay: `5` is outside 0..=0");
    rule(
        "{ sliding_window: { limit: 1, window: 5us } }",
        "~.sliding_window.window: `5` is outside 10..=31622400000000 (in µs)",
    );
    rule(
        "{ fixed_window: { limit: 1, calendar: day, time_zone: Mars/Base } }",
        "~.fixed_window.time_zone: unknown time zone `Mars/Base`: expected an IANA name such as `Europe/Berlin`",
    );
    rule(
        "{ fixed_window: { limit: 1, time_zone: UTC } }",
        "~.fixed_window.time_zone: requires `calendar`",
    );
    rule(
        "{ fixed_window: { limit: 1, calendar: decade } }",
        "~.fixed_window.calendar: expected `day`, `week`, `month` or `year`, found the text `decade`",
    );
    rule(
        "{ fixed_window: { limit: 1, calendar: monthly } }",
        "~.fixed_window.calendar: expected `day`, `week`, `month` or `year`, found the text `monthly`; did you mean `month`?",
    );
    rule(
        "{ fixed_window: { limit: 1, calendar: hour } }",
        "~.fixed_window.calendar: expected `day`, `week`, `month` or `year`: use `window: 1hour` for other windows",
    );
    rule(
        "{ sliding_log: { limit: 50000, window: 1h } }",
        "~.sliding_log.limit: a log holds at most 10000 requests: use `sliding_window` for higher limits",
    );
    rule(
        "{ fixed_window: { limit: 1, calendar: day, window: 1d } }",
        "~.fixed_window.window: cannot be combined with `calendar`",
    );
    rule(
        "{ fixed_window: { limit: 1 } }",
        "~.fixed_window.window: is missing, expected a duration such as `250ms`",
    );
}

/// Rates in the notation of other limiters, and the notation here.
#[test]
fn of_a_bucket_without_a_burst_whose_rate_has_a_fraction() {
    for (given, exact, burst) in
        [("2.5/s", "5/2s", 3), ("0.001/s", "1/1000s", 1), ("12.25/200ms", "49/800ms", 13)]
    {
        rule(
            &format!("token_bucket: {{ rate: {given} }}"),
            &format!(
                "~.token_bucket.burst: is missing: `{given}` is `{exact}`, so write how many permits a full bucket \
                 has, such as `burst: {burst}`"
            ),
        );
        rule(&format!("token_bucket: {{ rate: {given}, burst: {burst} }}"), "ok");
        rule(&format!("leaky_bucket: {{ rate: {given} }}"), "ok");
    }
    rule("token_bucket: { rate: 2.0/s }", "ok");
    rule("token_bucket: { rate: 1.5KiB/s }", "ok");
}

#[test]
fn a_rate_in_other_units_is_told_in_ours() {
    for (given, near) in [
        ("10/w", "10/7d"),
        ("10/week", "10/7d"),
        ("5k/s", "5000/s"),
        ("2m/h", "2000000/h"),
        ("64KB/s", "64000/s"),
        ("3mb/min", "3000000/m"),
        ("100rps", "100/s"),
        ("100 rpm", "100/m"),
        ("7req/s", "7/s"),
        ("7 req per second", "7/s"),
    ] {
        rule(
            &format!("{{ token_bucket: {{ rate: '{given}' }} }}"),
            &format!(
                "~.token_bucket.rate: invalid rate `{given}`: expected permits per time, such as `{near}`"
            ),
        );
    }
    for (given, calendar) in [("10/month", "month"), ("5 per years", "year")] {
        rule(
            &format!("{{ token_bucket: {{ rate: {given} }} }}"),
            &format!(
                "~.token_bucket.rate: invalid rate `{given}`: a {calendar} is a calendar window, such as \
                 `fixed_window: {{ limit: 10, calendar: {calendar} }}`"
            ),
        );
    }
}

#[test]
fn what_was_most_likely_meant_is_named() {
    rest(
        "match: { path: /api }",
        "~.match.path: expected a map: write `{ prefix: /api }` or `{ exact: /api }`",
    );
    rest("key: remote_ip", "~.key: expected a list of attributes: write `[remote_ip]`");
    rest(
        "key: [header: x-api-key]",
        "~.key[0]: expected an attribute: write `header:x-api-key` without a space",
    );
    rest("key: [a: b]", "~.key[0]: expected an attribute, found a map");
    // Text that would mean something else as the hint is not repeated.
    rest(
        "key: '{remote_ip}'",
        "~.key: expected a list of attributes, found the text `{remote_ip}`",
    );
    rest(
        "match: { path: '/api/*' }",
        "~.match.path: expected a map with `exact`, `prefix` and `starts_with`, found the text `/api/*`",
    );
    rest("'<<': { x: 1 }", "~[\"<<\"]: merge keys are not supported: repeat the fields");
    rest(
        "overflow: rejct",
        "~.overflow: expected `reject`, `shadow`, or a map with `queue`, `degrade` or `divert`, found the text `rejct`",
    );
}

#[test]
fn of_a_queue_of_requests() {
    let queue = |queue: &str, expected: &str| {
        rule(&format!("{{ concurrency: {{ limit: 1, ttl: 1s, queue: {queue} }} }}"), expected);
    };
    queue("0", "ok");
    queue("10000", "ok");
    queue("10001", "~.concurrency.queue: `10001` is not a whole number from 0 to 10000");
}

#[test]
fn json_numbers_are_named_as_they_were_written() {
    for bad in ["-5", "1e400", "9223372036854775808", "184467440737095516160", "1.0"] {
        let text = format!(
            r#"{{"name": "a", "rules": [{{"token_bucket": {{"rate": "1/s", "burst": {bad}}}}}]}}"#
        );
        let expected = format!(
            "rules[0].token_bucket.burst: `{bad}` is not a whole number from 1 to 4294967296"
        );
        assert_eq!(Policy::parse_one(&text).unwrap_err().to_string(), expected);
    }
}

#[test]
fn all_errors_are_told_up_to_a_bound() {
    check(
        "policies:
  - { name: A, rules: [ { token_bucket: { rate: 5 , burst: 0 } } ], carry: all }
  - { name: b, rules: [ { name: c, gcar: {} }, { sliding_log: { limit: 0 } } ] }",
        "policies[0].name: invalid name `A`: expected 1 to 128 bytes of `[a-z0-9._-]`, such as `a`
policies[0].carry: expected `usage`, `proportional` or `reset`, found the text `all`
policies[0].rules[0].token_bucket.rate: invalid rate `5`: expected permits per time, such as `5/s`
policies[0].rules[0].token_bucket.burst: `0` is not a whole number from 1 to 4294967296: `burst` is the size of the bucket; without it, the bucket has the permits of `rate`
policies[1].rules[0]: unknown algorithm `gcar`, expected `token_bucket`, `smooth_bursty`, `smooth_warmup`, `leaky_bucket`, `fixed_window`, `sliding_window`, `sliding_counter`, `sliding_log` or `concurrency`
policies[1].rules[1].sliding_log.limit: `0` is not a whole number from 1 to 10000
policies[1].rules[1].sliding_log.window: is missing, expected a duration such as `250ms`
policies[1].rules[1].name: is missing: with several rules, each needs a name",
    );
    let many = format!("policies: [{}]", "0,".repeat(ERRORS_MAX + 5));
    let errors = Document::parse(&many).unwrap_err();
    assert_eq!((errors.errors().len(), errors.omitted()), (ERRORS_MAX, 5));
    assert!(errors.to_string().ends_with("\nand 5 more"));
    assert_eq!(errors.errors()[99].path(), "policies[99]");
}

//! Answers of `envoyproxy/ratelimit`, case by case, from its documentation and its tests, in
//! configurations and words of our own. How a descriptor finds its limit is in
//! `crates/policy/tests/envoy.rs`.

use super::*;

/// The code, the limit with its unit and name, and what remains of a status.
fn told(status: &DescriptorStatus) -> (Code, Option<(u32, Unit, &str)>, u32) {
    let limit = status.current_limit.as_ref();
    let limit = limit.map(|limit| (limit.requests_per_unit, limit.unit(), limit.name.as_str()));
    (status.code(), limit, status.limit_remaining)
}

/// The status of the only descriptor.
async fn status(subject: &Subject, entries: &[(&str, &str)]) -> DescriptorStatus {
    let response = subject.ask(&message("shop", vec![descriptor(entries)])).await;
    response.statuses.into_iter().next().expect("one status")
}

fn seconds(status: &DescriptorStatus) -> Option<i64> {
    status.duration_until_reset.as_ref().map(|span| span.seconds)
}

const SHOP: &str = "
domain: shop
descriptors:
  - { key: user, rate_limit: { name: users, unit: minute, requests_per_unit: 2 } }
  - { key: user, value: probe }
  - { key: user, value: root, rate_limit: { unlimited: true } }
  - { key: user, value: eve, rate_limit: { name: banned, unit: hour, requests_per_unit: 0 } }
  - { key: user, value: dev, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: user, value: mob, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 0 } }
";

#[tokio::test]
async fn what_meets_no_limit_is_ok_with_nothing_remaining_and_no_limit() {
    let subject = Subject::serving(SHOP);
    for entries in [&[("user", "probe")][..], &[("other", "x")], &[("user", "a"), ("b", "c")], &[]]
    {
        let status = status(&subject, entries).await;
        assert_eq!(told(&status), (Code::Ok, None, 0), "{entries:?}");
        assert_eq!(status.duration_until_reset, None);
    }
}

#[tokio::test]
async fn what_is_unlimited_has_all_there_is_and_no_limit() {
    let subject = Subject::serving(SHOP);
    for _ in 0..3 {
        let status = status(&subject, &[("user", "root")]).await;
        assert_eq!(told(&status), (Code::Ok, None, u32::MAX));
        assert_eq!(status.duration_until_reset, None);
    }
}

#[tokio::test]
async fn a_limit_of_zero_tells_its_unit_and_when_the_window_ends() {
    let subject = Subject::serving(SHOP);
    subject.clock.advance(Micros::from_secs(100));
    let eve = status(&subject, &[("user", "eve")]).await;
    assert_eq!(told(&eve), (Code::OverLimit, Some((0, Unit::Hour, "banned")), 0));
    assert_eq!(seconds(&eve), Some(3_500));
    let brought = RateLimitDescriptor {
        limit: Some(RateLimitOverride { requests_per_unit: 0, unit: Unit::Minute.into() }),
        ..descriptor(&[("user", "ann")])
    };
    let response = subject.ask(&message("shop", vec![brought])).await;
    let expected = (Code::OverLimit, Some((0, Unit::Minute, "")), 0);
    assert_eq!(told(&response.statuses[0]), expected);
    assert_eq!(seconds(&response.statuses[0]), Some(20));
}

#[tokio::test]
async fn in_the_shadow_the_code_is_ok_and_the_limit_is_told() {
    let subject = Subject::serving(SHOP);
    for remaining in [0, 0, 0] {
        let dev = status(&subject, &[("user", "dev")]).await;
        assert_eq!(told(&dev), (Code::Ok, Some((1, Unit::Hour, "")), remaining));
    }
    let mob = status(&subject, &[("user", "mob")]).await;
    assert_eq!(told(&mob), (Code::Ok, Some((0, Unit::Day, "")), 0));
    assert_eq!(seconds(&mob), Some(12 * 3_600));
}

#[tokio::test]
async fn every_unit_is_told_and_ends_at_a_multiple_of_its_length() {
    let units = [
        ("second", Unit::Second, 1),
        ("minute", Unit::Minute, 60),
        ("hour", Unit::Hour, 3_600),
        ("day", Unit::Day, 86_400),
        ("week", Unit::Week, 7 * 86_400),
        ("month", Unit::Month, 30 * 86_400),
        ("year", Unit::Year, 365 * 86_400),
    ];
    for (name, unit, length_s) in units {
        let limit = format!("rate_limit: {{ unit: {name}, requests_per_unit: 7 }}");
        let subject =
            Subject::serving(&format!("domain: shop\ndescriptors: [{{ key: a, {limit} }}]"));
        let status = status(&subject, &[("a", "b")]).await;
        assert_eq!(told(&status), (Code::Ok, Some((7, unit, "")), 6));
        let now_s = NOON.get() / 1_000_000;
        assert_eq!(seconds(&status), Some(i64::try_from(length_s - now_s % length_s).unwrap()));
    }
}

fn brought(requests_per_unit: u32, unit: Unit, entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let limit = Some(RateLimitOverride { requests_per_unit, unit: unit.into() });
    RateLimitDescriptor { limit, ..descriptor(entries) }
}

#[tokio::test]
async fn a_limit_that_is_brought_along_takes_the_place_of_the_configured_one() {
    let subject = Subject::serving(SHOP);
    let sent = message("shop", vec![brought(9, Unit::Day, &[("user", "dev")])]);
    let response = subject.ask(&sent).await;
    assert_eq!(told(&response.statuses[0]), (Code::Ok, Some((9, Unit::Day, "")), 8));
    // Not in the shadow, though the configured limit is.
    for code in [Code::Ok, Code::OverLimit] {
        let sent = message("shop", vec![brought(1, Unit::Hour, &[("user", "dev")])]);
        assert_eq!(subject.ask(&sent).await.overall_code(), code);
    }
}

#[tokio::test]
async fn limits_of_different_units_that_are_brought_along_share_nothing() {
    let subject = Subject::serving(SHOP);
    let ask = async |permits, unit| {
        let sent = message("shop", vec![brought(permits, unit, &[("user", "ann")])]);
        told(&subject.ask(&sent).await.statuses[0]).2
    };
    assert_eq!(ask(3, Unit::Minute).await, 2);
    assert_eq!(ask(3, Unit::Minute).await, 1);
    // Of the same unit, the usage is the same whatever the number.
    assert_eq!(ask(9, Unit::Minute).await, 6);
    assert_eq!(ask(9, Unit::Hour).await, 8);
    assert_eq!(ask(3, Unit::Minute).await, 0);
    assert_eq!(ask(9, Unit::Hour).await, 7);
}

#[tokio::test]
async fn a_limit_that_is_brought_along_holds_only_in_a_domain_that_is_known() {
    let subject = Subject::serving("domain: shop");
    let ask = async |domain| {
        let sent = message(domain, vec![brought(1, Unit::Day, &[("user", "ann")])]);
        told(&subject.ask(&sent).await.statuses[0]).0
    };
    // Known, though it has no descriptor.
    assert_eq!([ask("shop").await, ask("shop").await], [Code::Ok, Code::OverLimit]);
    assert_eq!([ask("else").await, ask("else").await], [Code::Ok, Code::Ok]);
}

const PATTERNS: &str = "
domain: shop
descriptors:
  - { key: path, value: /api/*/action, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: file, value: '*.js', share_threshold: true, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: x-*, value: on, rate_limit: { unit: day, requests_per_unit: 1 } }
  - key: dir
    value: d*
    share_threshold: true
    descriptors:
      - { key: user, rate_limit: { unit: day, requests_per_unit: 1 } }
      - { key: ip, value: '10.*', rate_limit: { unit: day, requests_per_unit: 1 } }
";

#[tokio::test]
async fn each_value_of_a_pattern_has_a_counter_unless_they_share_one() {
    let subject = Subject::serving(PATTERNS);
    let ask = async |entries: &[(&str, &str)]| status(&subject, entries).await.code();
    for (entries, code) in [
        (&[("path", "/api/1/action")][..], Code::Ok),
        (&[("path", "/api/2/action")], Code::Ok),
        (&[("path", "/api/1/action")], Code::OverLimit),
        (&[("file", "a.js")], Code::Ok),
        (&[("file", "b.js")], Code::OverLimit),
        (&[("x-a", "on")], Code::Ok),
        (&[("x-b", "on")], Code::Ok),
        (&[("x-a", "on")], Code::OverLimit),
        // What is shared above is shared below, and what is not is not.
        (&[("dir", "d1"), ("user", "ann")], Code::Ok),
        (&[("dir", "d2"), ("user", "ann")], Code::OverLimit),
        (&[("dir", "d2"), ("user", "bob")], Code::Ok),
        (&[("dir", "d1"), ("ip", "10.1")], Code::Ok),
        (&[("dir", "d2"), ("ip", "10.1")], Code::OverLimit),
        (&[("dir", "d2"), ("ip", "10.2")], Code::Ok),
    ] {
        assert_eq!(ask(entries).await, code, "{entries:?}");
    }
}

const QUOTAS: &str = "
domain: shop
descriptors:
  - { key: a, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: b, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: never, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 0 } }
  - { key: free, quota_mode: true, rate_limit: { unlimited: true } }
  - { key: hard, rate_limit: { unit: day, requests_per_unit: 3 } }
";

#[tokio::test]
async fn quotas_refuse_a_request_only_all_together() {
    let subject = Subject::serving(QUOTAS);
    let ask = async |keys: &[&str]| {
        let of = keys.iter().map(|key| descriptor(&[(key, "x")])).collect();
        let response = subject.ask(&message("shop", of)).await;
        let codes: Vec<_> = response.statuses.iter().map(DescriptorStatus::code).collect();
        let retry = fields(&response).pop();
        (response.overall_code(), codes, retry)
    };
    let (ok, over) = (Code::Ok, Code::OverLimit);
    assert_eq!(ask(&["a", "never", "hard"]).await, (ok, vec![ok, over, ok], None));
    // One is over, as its status says; another is not, which is enough.
    assert_eq!(ask(&["a", "b", "hard"]).await, (ok, vec![over, ok, ok], None));
    let minute = Some("retry-after: 60".to_owned());
    assert_eq!(ask(&["a", "b", "hard"]).await, (over, vec![over, over, ok], minute));
    // A limit of the ordinary kind refuses whatever quotas say.
    let half_a_day = Some("retry-after: 43200".to_owned());
    assert_eq!(ask(&["free", "hard"]).await, (over, vec![ok, over], half_a_day));
    assert_eq!(ask(&["a"]).await.0, over, "one quota is all of them");
    assert_eq!(ask(&["a", "free"]).await.0, over, "what is unlimited is no quota");
    assert_eq!(ask(&["never"]).await, (over, vec![over], None));
}

#[tokio::test]
async fn header_fields_are_of_what_refuses_or_else_of_the_least_that_remains() {
    let text = "
domain: shop
descriptors:
  - { key: many, rate_limit: { unit: hour, requests_per_unit: 9 } }
  - { key: few, rate_limit: { unit: minute, requests_per_unit: 3 } }
  - { key: free, rate_limit: { unlimited: true } }
  - { key: none, rate_limit: { unit: day, requests_per_unit: 0 } }
  - { key: quota, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 0 } }
";
    let import = envoy::import([("c.yaml", text)]).expect("it can be imported");
    let policies = Document::parse(&import.policies).expect("it is a document");
    let tree = DescriptorTree::parse(&import.descriptors).expect("it is a tree");
    let subject = Subject::with(policies, tree, BudgetHeaders::of(&[HeaderStyle::XRatelimit]));
    let ask = async |descriptors: &[(&str, u64)]| {
        let of = descriptors.iter().map(|(key, n)| hits(*n, descriptor(&[(key, "x")]))).collect();
        let fields = fields(&subject.ask(&message("shop", of)).await);
        let value = |field: &String| field.split_once(": ").map(|(_, value)| value.to_owned());
        let mut values = fields.iter().take(3).filter_map(value);
        let limit = values.next().unwrap_or_default();
        let limit = limit.split(',').next().unwrap_or_default().to_owned();
        [limit].into_iter().chain(values).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(ask(&[("free", 1), ("nobody", 1)]).await, "");
    assert_eq!(ask(&[("free", 1), ("many", 1), ("few", 1)]).await, "3 2 60");
    assert_eq!(
        ask(&[("many", 7), ("few", 1)]).await,
        "9 1 3600",
        "the first of those with as much"
    );
    assert_eq!(ask(&[("few", 1), ("many", 1)]).await, "3 0 60");
    // Two refuse: the answer names the last one.
    assert_eq!(ask(&[("many", 1), ("few", 1)]).await, "3 0 60");
    assert_eq!(ask(&[("none", 1), ("free", 1)]).await, "0 0 43200");
    // What has less is a quota that does not refuse: the answer names the ordinary one that does.
    assert_eq!(ask(&[("few", 1), ("quota", 1)]).await, "3 0 60");
}

#[tokio::test]
async fn hits_are_the_descriptors_or_the_requests_or_one() {
    let subject = Subject::serving(HOURLY);
    let ann = || descriptor(&[("user", "ann")]);
    let request =
        |hits_addend, descriptors| RateLimitRequest { hits_addend, ..message("shop", descriptors) };
    let ask = async |sent: RateLimitRequest| told(&subject.ask(&sent).await.statuses[0]).2;
    assert_eq!(ask(request(0, vec![ann()])).await, 9);
    assert_eq!(ask(request(3, vec![ann()])).await, 6);
    assert_eq!(ask(request(3, vec![hits(1, ann())])).await, 5);
    assert_eq!(ask(request(3, vec![hits(0, ann())])).await, 5);
    let back = RateLimitDescriptor { is_negative_hits: true, ..hits(2, ann()) };
    assert_eq!(ask(request(3, vec![back])).await, 7);
}

#[tokio::test]
async fn a_request_needs_a_domain_and_a_descriptor() {
    let subject = Subject::serving(SHOP);
    for sent in [message("", vec![descriptor(&[("user", "ann")])]), message("shop", vec![])] {
        let refusal = subject.service.decide(&Caller::anybody(), &sent).await;
        assert_eq!(refusal.expect_err("it makes no sense").code(), Grpc::InvalidArgument);
    }
}

#[tokio::test]
async fn what_changes_is_in_force_whole_and_usage_stays() {
    let subject = Subject::serving(SHOP);
    assert_eq!(told(&status(&subject, &[("user", "ann")]).await).2, 1);
    let import =
        envoy::import([("c.yaml", &*SHOP.replace("requests_per_unit: 2", "requests_per_unit: 5"))])
            .expect("it can be imported");
    let policies = Document::parse(&import.policies).expect("it is a document");
    let old = subject.service.limits.in_force().engine().core().policies();
    let policies = PolicySet::succeeding(&old, policies);
    let tree = DescriptorTree::parse(&import.descriptors).expect("it is a tree");
    subject.service.limits.in_force().set(Some(policies), Some(tree));
    assert_eq!(told(&status(&subject, &[("user", "ann")]).await).2, 3);
}

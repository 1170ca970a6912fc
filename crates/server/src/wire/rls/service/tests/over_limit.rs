//! The effects of a refused charge: peeks after it, other descriptors of its request, and hits beyond those that
//! one decision takes. Compared with a model of `envoyproxy/ratelimit`, which counts refused hits.

use std::collections::HashMap;
use std::num::NonZeroU32;

use prost::Message as _;
use sluicegate_testkit::{Options, RedisServer, Reply, need};

use super::*;
use crate::config::TimeSource;

const LOOKS: RlsOptions = RlsOptions { looks_pass: true, stop_increment_when_over_limit: false };
const STOPS: RlsOptions = RlsOptions { looks_pass: false, stop_increment_when_over_limit: true };

const TWO_A_MINUTE: &str = "
domain: shop
descriptors: [{ key: user, rate_limit: { unit: minute, requests_per_unit: 2 } }]
";

/// The codes of requests with so many hits for one user, of which `subjects` answer one each in turn.
async fn codes(subjects: &[Subject], each: &[u64]) -> String {
    let mut told = Vec::new();
    for (nth, count) in each.iter().enumerate() {
        let subject = &subjects[nth % subjects.len()];
        let (code, _) = subject.one("shop", hits(*count, descriptor(&[("user", "ann")]))).await;
        told.push(if code == Code::Ok { "OK" } else { "OVER" });
    }
    told.join(" ")
}

/// So many servers of this configuration on one Redis, each with a connection of its own, and one clock.
async fn on_redis(
    redis: &RedisServer,
    servers: usize,
    config: &str,
    options: RlsOptions,
) -> Vec<Subject> {
    let clock = Arc::new(ManualClock::default());
    clock.advance(NOON);
    let mut subjects = Vec::new();
    for _ in 0..servers {
        let url = format!("{}?deadline_ms=5000", redis.url());
        let redis = url.parse().expect("a URL of the test");
        let store = AnyStore::open(url, &redis, TimeSource::Client, NonZeroU32::new(1)).await;
        let subject = Subject::serving_on(config, store.expect("it can be opened"), &clock);
        subjects.push(subject.with_options(options));
    }
    subjects
}

#[tokio::test]
async fn looks_pass_until_a_charge_was_refused_and_not_after_it() {
    let asked = [1, 0, 1, 0, 1, 0, 0, 5, 0];
    let subject = [Subject::serving(TWO_A_MINUTE).with_options(LOOKS)];
    assert_eq!(codes(&subject, &asked).await, "OK OK OK OK OVER OVER OVER OVER OVER");
    subject[0].clock.advance(Micros::from_secs(60));
    assert_eq!(codes(&subject, &asked).await, "OK OK OK OK OVER OVER OVER OVER OVER", "anew");
    let by_default = [Subject::serving(TWO_A_MINUTE)];
    assert_eq!(codes(&by_default, &asked).await, "OK OK OK OVER OVER OVER OVER OVER OVER");
}

#[tokio::test]
async fn a_refused_charge_is_known_to_all_servers_on_one_redis() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let subjects = on_redis(&redis, 2, TWO_A_MINUTE, LOOKS).await;
    let asked = [1, 0, 1, 0, 1, 0, 0, 5, 0];
    assert_eq!(codes(&subjects, &asked).await, "OK OK OK OK OVER OVER OVER OVER OVER");
    subjects[0].clock.advance(Micros::from_secs(60));
    assert_eq!(codes(&subjects, &asked).await, "OK OK OK OK OVER OVER OVER OVER OVER", "anew");
    // The note goes with the window, as the budget does.
    let keys = redis.cli(&["KEYS", "*"]).await.expect("it answers");
    let Reply::List(keys) = keys else { panic!("it is a list: {keys:?}") };
    // Of budgets and notes; what says which rules there are stays for longer.
    for key in keys.iter().map(Reply::text).filter(|key| key.starts_with("sg:{")) {
        let ttl = redis.cli(&["PTTL", &key]).await.expect("it answers").int();
        assert!((1..=121_000).contains(&ttl), "{key}: {ttl}");
    }
}

#[tokio::test]
async fn more_hits_than_are_left_overdraw_a_budget_and_a_few_more_do_not() {
    let subject = [Subject::serving(TWO_A_MINUTE).with_options(LOOKS)];
    assert_eq!(codes(&subject, &[2, 0, 0]).await, "OK OK OK");
    let subject = [Subject::serving(TWO_A_MINUTE).with_options(LOOKS)];
    assert_eq!(codes(&subject, &[1, 5, 0]).await, "OK OVER OVER");
    // Permits that were given back can be taken again, and peeked at.
    let back =
        RateLimitDescriptor { is_negative_hits: true, ..hits(1, descriptor(&[("user", "ann")])) };
    assert_eq!(subject[0].one("shop", back).await, (Code::Ok, 1));
    assert_eq!(codes(&subject, &[0, 1]).await, "OK OK");
}

#[tokio::test]
async fn a_bucket_is_overdrawn_until_one_permit_is_back() {
    let policies = "policies: [{ name: b, rules: [{ token_bucket: { rate: 1/s, burst: 2 } }] }]";
    let subject = Subject::new(policies, BudgetHeaders::default()).with_options(LOOKS);
    let ask = async |count| subject.one("b", hits(count, descriptor(&[("user", "ann")]))).await;
    assert_eq!(ask(2).await, (Code::Ok, 0));
    assert_eq!(ask(0).await, (Code::Ok, 0));
    assert_eq!(ask(1).await, (Code::OverLimit, 0));
    subject.clock.advance(Micros::new(999_999));
    assert_eq!(ask(0).await, (Code::OverLimit, 0));
    subject.clock.advance(Micros::new(1));
    assert_eq!(ask(0).await, (Code::Ok, 1));
    assert_eq!(ask(1).await, (Code::Ok, 0));
    assert_eq!(ask(0).await, (Code::Ok, 0));
    // All or nothing, so nothing was taken, and one is left.
    subject.clock.advance(Micros::from_secs(1));
    assert_eq!(ask(2).await, (Code::OverLimit, 1));
    assert_eq!(ask(0).await, (Code::Ok, 1));
}

#[tokio::test]
async fn a_look_in_the_shadow_passes_and_a_quota_is_over_like_others() {
    let subject = Subject::serving(
        "
domain: shop
descriptors:
  - { key: dev, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: a, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: b, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 2 } }
",
    )
    .with_options(LOOKS);
    let ask = async |count, keys: &[&str]| {
        let of = keys.iter().map(|key| hits(count, descriptor(&[(key, "x")]))).collect();
        let response = subject.ask(&message("shop", of)).await;
        let codes: Vec<_> = response.statuses.iter().map(DescriptorStatus::code).collect();
        (response.overall_code(), codes)
    };
    let (ok, over) = (Code::Ok, Code::OverLimit);
    for count in [1, 1, 0] {
        assert_eq!(ask(count, &["dev"]).await, (ok, vec![ok]));
    }
    assert_eq!(ask(1, &["a", "b"]).await, (ok, vec![ok, ok]));
    assert_eq!(ask(0, &["a", "b"]).await, (ok, vec![ok, ok]));
    assert_eq!(ask(1, &["a", "b"]).await, (ok, vec![over, ok]));
    assert_eq!(ask(0, &["a", "b"]).await, (ok, vec![over, ok]));
    assert_eq!(ask(1, &["a", "b"]).await, (over, vec![over, over]));
    assert_eq!(ask(0, &["a", "b"]).await, (over, vec![over, over]));
}

const TWO: &str = "
domain: two
descriptors:
  - { key: per_user, rate_limit: { unit: day, requests_per_unit: 2 } }
  - { key: per_day, rate_limit: { unit: day, requests_per_unit: 10 } }
";

/// The code of a request of `user`, and what is left of both limits.
async fn two(subject: &Subject, user: &str) -> (Code, Vec<u32>) {
    let asked = vec![descriptor(&[("per_user", user)]), descriptor(&[("per_day", "all")])];
    let response = subject.ask(&message("two", asked)).await;
    let left = response.statuses.iter().map(|status| status.limit_remaining).collect();
    (response.overall_code(), left)
}

/// Asserts that a request which one descriptor refuses is not counted for the others.
async fn is_not_counted_for_the_others(subject: &Subject) {
    assert_eq!(two(subject, "ann").await, (Code::Ok, vec![1, 9]));
    assert_eq!(two(subject, "ann").await, (Code::Ok, vec![0, 8]));
    for _ in 0..10 {
        assert_eq!(two(subject, "ann").await, (Code::OverLimit, vec![0, 8]));
    }
    assert_eq!(two(subject, "bob").await, (Code::Ok, vec![1, 7]));
}

#[tokio::test]
async fn a_request_that_one_descriptor_refuses_is_not_counted_for_the_others() {
    is_not_counted_for_the_others(&Subject::serving(TWO).with_options(STOPS)).await;
    let by_default = Subject::serving(TWO);
    for _ in 0..12 {
        two(&by_default, "ann").await;
    }
    assert_eq!(two(&by_default, "bob").await, (Code::OverLimit, vec![1, 0]));
}

#[tokio::test]
async fn a_request_that_one_descriptor_refuses_is_not_counted_for_the_others_on_redis() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let subjects = on_redis(&redis, 1, TWO, STOPS).await;
    is_not_counted_for_the_others(&subjects[0]).await;
}

#[tokio::test]
async fn what_stops_a_request_is_an_ordinary_limit_or_all_quotas_and_no_shadow() {
    let subject = Subject::serving(
        "
domain: shop
descriptors:
  - { key: all, rate_limit: { unit: day, requests_per_unit: 100 } }
  - { key: hard, rate_limit: { unit: day, requests_per_unit: 3 } }
  - { key: never, rate_limit: { unit: day, requests_per_unit: 0 } }
  - { key: free, rate_limit: { unlimited: true } }
  - { key: dev, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: a, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: b, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 2 } }
",
    )
    .with_options(STOPS);
    let ask = async |of: &[(&str, u64)]| {
        let of = of.iter().map(|(key, count)| hits(*count, descriptor(&[(key, "x")]))).collect();
        let response = subject.ask(&message("shop", of)).await;
        let left = response.statuses.iter().map(|status| status.limit_remaining);
        (response.overall_code(), left.collect::<Vec<_>>())
    };
    let (ok, over, max) = (Code::Ok, Code::OverLimit, u32::MAX);
    assert_eq!(ask(&[("all", 1), ("dev", 1), ("free", 1)]).await, (ok, vec![99, 0, max]));
    assert_eq!(ask(&[("all", 1), ("dev", 1), ("free", 1)]).await, (ok, vec![98, 0, max]));
    assert_eq!(ask(&[("all", 1), ("never", 1)]).await, (over, vec![98, 0]));
    assert_eq!(ask(&[("all", 1), ("a", 1), ("b", 1)]).await, (ok, vec![97, 0, 1]));
    assert_eq!(ask(&[("all", 1), ("a", 1), ("b", 1)]).await, (ok, vec![96, 0, 0]));
    assert_eq!(ask(&[("all", 1), ("a", 1), ("b", 1)]).await, (over, vec![96, 0, 0]));
    // Hits that one limit has not got take what it has, and nothing of others.
    assert_eq!(ask(&[("all", 9), ("hard", 9)]).await, (over, vec![96, 0]));
    // A look that is over the limit stops as well.
    assert_eq!(ask(&[("all", 9), ("hard", 0)]).await, (over, vec![96, 0]));
    assert_eq!(ask(&[("all", 6), ("dev", 0)]).await, (ok, vec![90, 0]));
}

#[tokio::test]
async fn hits_above_what_one_decision_takes_are_over_the_limit_and_take_what_is_left() {
    let subject = Subject::serving(
        "
domain: shop
descriptors:
  - { key: tok, rate_limit: { unit: hour, requests_per_unit: 1000 } }
  - { key: bytes, rate_limit: { unit: day, requests_per_unit: 4294967295 } }
",
    );
    let ask = async |key, count| subject.one("shop", hits(count, descriptor(&[(key, "a")]))).await;
    let back = async |key, count| {
        let of = hits(count, descriptor(&[(key, "a")]));
        subject.one("shop", RateLimitDescriptor { is_negative_hits: true, ..of }).await
    };
    for count in [(1 << 31) + 1, u64::from(u32::MAX), u64::MAX] {
        assert_eq!(ask("tok", count).await, (Code::OverLimit, 0), "{count}");
        assert_eq!(ask("tok", 0).await, (Code::OverLimit, 0));
        assert_eq!(back("tok", count).await, (Code::Ok, 1_000), "{count}");
    }
    let whole = RateLimitRequest {
        hits_addend: u32::MAX,
        ..message("shop", vec![descriptor(&[("tok", "a")])])
    };
    let response = subject.ask(&whole).await;
    assert_eq!(response.overall_code(), Code::OverLimit);
    assert_eq!(response.statuses[0].limit_remaining, 0);
    // A limit may have more permits than one decision takes.
    assert_eq!(ask("bytes", 3_000_000_000).await, (Code::Ok, 1_294_967_295));
    assert_eq!(ask("bytes", 3_000_000_000).await, (Code::OverLimit, 0));
    assert_eq!(back("bytes", 3_000_000_000).await, (Code::Ok, 3_000_000_000));
    assert_eq!(ask("bytes", u64::MAX).await, (Code::OverLimit, 0));
    let json = r#"{"domain":"shop","hitsAddend":4294967295,"descriptors":[{"entries":[{"key":"tok","value":"a"}]}]}"#;
    let response = subject.ask(&json::decode(json.as_bytes()).expect("it is a message")).await;
    assert_eq!(response.overall_code(), Code::OverLimit);
}

#[tokio::test]
async fn a_policy_that_is_named_refuses_hits_above_what_one_decision_takes_and_takes_nothing() {
    let policies = "
policies:
  - { name: p, rules: [{ fixed_window: { limit: 4294967296, window: 1d } }] }
  - { name: s, rules: [{ fixed_window: { limit: 5, window: 1d } }], overflow: shadow }
";
    let subject = Subject::new(policies, BudgetHeaders::default());
    let ask = async |policy, count| subject.one(policy, hits(count, descriptor(&[]))).await;
    assert_eq!(ask("p", u64::MAX).await, (Code::OverLimit, u32::MAX));
    assert_eq!(ask("p", 1 << 31).await, (Code::Ok, 1 << 31));
    assert_eq!(ask("s", u64::MAX).await, (Code::Ok, 5));
}

/// A message with these bytes as the user, as on the network.
fn of_bytes(user: &[u8]) -> RateLimitRequest {
    let mut asked = message("shop", vec![descriptor(&[("user", "")])]);
    asked.descriptors[0].entries[0].value = user.to_vec();
    asked
}

#[tokio::test]
async fn bytes_that_are_no_text_are_limited_as_well() {
    let subject = Subject::serving(TWO_A_MINUTE);
    let ask = async |user: &[u8]| {
        let asked = RateLimitRequest::decode(&*of_bytes(user).encode_to_vec());
        let asked = Request::new(asked.expect("it is a message"));
        let answer = subject.service.should_rate_limit(asked).await.expect("it makes sense");
        answer.into_inner().overall_code()
    };
    let (ok, over) = (Code::Ok, Code::OverLimit);
    assert_eq!([ask(b"\xff").await, ask(b"\xff").await, ask(b"\xff").await], [ok, ok, over]);
    assert_eq!(ask(b"Jos\xe9").await, ok);
    assert_eq!(ask(b"Zo\xeb").await, ok);
}

/// A model of `envoyproxy/ratelimit`: a counter of all hits, refused ones too.
#[derive(Default)]
struct Reference {
    counts: HashMap<(String, u64), u64>,
    stops: bool,
}

/// A limit of the random configuration: its key, permits, seconds, whether it is sent along, shadow or quota.
type Kind = (&'static str, u64, u64, bool, bool, bool);

const KINDS: [Kind; 6] = [
    ("second", 2, 1, false, false, false),
    ("minute", 5, 60, false, false, false),
    ("brought", 3, 60, true, false, false),
    ("shadow", 2, 60, false, true, false),
    ("quota", 3, 60, false, false, true),
    ("other", 4, 60, false, false, true),
];

const RANDOM: &str = "
domain: shop
descriptors:
  - { key: second, rate_limit: { unit: second, requests_per_unit: 2 } }
  - { key: minute, rate_limit: { unit: minute, requests_per_unit: 5 } }
  - { key: shadow, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 2 } }
  - { key: quota, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 3 } }
  - { key: other, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 4 } }
";

impl Reference {
    /// The code of the request, and code and rest of each descriptor.
    fn ask(&mut self, asked: &[(Kind, u64)], now: Micros) -> (Code, Vec<(Code, u32)>) {
        let at =
            |(key, _, length_s, ..): &Kind| ((*key).to_owned(), now.get() / 1_000_000 / length_s);
        let is_over = |(_, limit, _, _, shadow, _): &Kind, count: u64| !shadow && count > *limit;
        let overall = |codes: &[bool]| {
            let of = |quota| {
                let of_kind = asked.iter().zip(codes).filter(move |((kind, _), _)| kind.5 == quota);
                of_kind.map(|(_, over)| *over).collect::<Vec<_>>()
            };
            let (ordinary, quotas) = (of(false), of(true));
            ordinary.contains(&true) || (!quotas.is_empty() && !quotas.contains(&false))
        };
        let counted = |counts: &HashMap<_, u64>, (kind, count): &(Kind, u64)| {
            counts.get(&at(kind)).copied().unwrap_or(0) + count
        };
        let over: Vec<_> =
            asked.iter().map(|of| is_over(&of.0, counted(&self.counts, of))).collect();
        let is_stopped = self.stops && overall(&over);
        let mut told = Vec::new();
        for (of, over) in asked.iter().zip(&over) {
            if !is_stopped || *over {
                self.counts.insert(at(&of.0), counted(&self.counts, of));
            }
            let left = of.0.1.saturating_sub(self.counts.get(&at(&of.0)).copied().unwrap_or(0));
            let code = if *over { Code::OverLimit } else { Code::Ok };
            told.push((code, u32::try_from(left).expect("limits are small")));
        }
        let code = if overall(&over) { Code::OverLimit } else { Code::Ok };
        (code, told)
    }
}

/// A few hundred random requests: each of `subjects` answers some, as the model does.
async fn agrees_with_the_reference(subjects: &[Subject], stops: bool, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut reference = Reference { stops, ..Reference::default() };
    let mut now = NOON;
    for step in 0..400 {
        let mut asked = Vec::new();
        for kind in KINDS {
            if random.u8(..3) == 0 {
                asked.push((kind, *random.choice(&[0, 0, 1, 1, 1, 2, 4]).expect("there are some")));
            }
        }
        if asked.is_empty() {
            let span = Micros::new(random.u64(..1_500_000));
            subjects[0].clock.advance(span);
            now = now.plus(span);
            continue;
        }
        let descriptors = asked.iter().map(|((key, limit, _, brought, ..), count)| {
            let limit = brought.then_some(RateLimitOverride {
                requests_per_unit: u32::try_from(*limit).expect("limits are small"),
                unit: Unit::Minute.into(),
            });
            RateLimitDescriptor { limit, ..hits(*count, descriptor(&[(key, "x")])) }
        });
        let asking = message("shop", descriptors.collect());
        let subject = random.choice(subjects).expect("there is one");
        let response = subject.ask(&asking).await;
        let statuses = response.statuses.iter();
        let statuses = statuses.map(|status| (status.code(), status.limit_remaining)).collect();
        let expected = reference.ask(&asked, now);
        assert_eq!((response.overall_code(), statuses), expected, "seed {seed}, {step}: {asked:?}");
    }
}

#[tokio::test]
async fn random_requests_are_answered_as_by_the_reference() {
    for (seed, stops) in (0..20).flat_map(|seed| [(seed, false), (seed, true)]) {
        let options = RlsOptions { looks_pass: true, stop_increment_when_over_limit: stops };
        let subject = Subject::serving(RANDOM).with_options(options);
        agrees_with_the_reference(&[subject], stops, seed).await;
    }
}

#[tokio::test]
async fn random_requests_to_two_servers_on_one_redis_are_answered_as_by_the_reference() {
    let redis = need!(RedisServer::start(Options::default()).await);
    for (seed, stops) in [(0, false), (1, true)] {
        redis.cli(&["FLUSHALL"]).await.expect("it answers");
        let options = RlsOptions { looks_pass: true, stop_increment_when_over_limit: stops };
        let subjects = on_redis(&redis, 2, RANDOM, options).await;
        agrees_with_the_reference(&subjects, stops, seed).await;
    }
}

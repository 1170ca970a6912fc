//! Answers of the service, at times that the tests choose.

mod cases;
mod over_limit;
mod reference;

use sluicegate::policy::{Document, PolicySet};
use sluicegate::{Engine, ManualClock, Micros, StoreFailure};
use sluicegate_policy::descriptor::envoy;
use tonic::Code as Grpc;

use super::*;
use crate::authenticator::tests::open_listener;
use crate::config::HeaderStyle;
use crate::store::AnyStore;
use crate::wire::rls::codec::json;
use crate::wire::rls::proto::{
    Code, DescriptorStatus, Entry, HeaderValue, RateLimit, RateLimitDescriptor, RateLimitOverride,
    Unit,
};

/// A service, and the clock that it goes by, which begins at noon of some day.
struct Subject {
    service: RlsHandler,
    clock: Arc<ManualClock>,
}

const NOON: Micros = Micros::new(20_000 * DAY + 12 * HOUR);
const HOUR: u64 = 3_600_000_000;
const DAY: u64 = 24 * HOUR;

impl Subject {
    /// With these policies, and no tree.
    fn new(policies: &str, headers: BudgetHeaders) -> Self {
        let policies = Document::parse(policies).expect("it is a document");
        Self::with(policies, DescriptorTree::default(), headers)
    }

    /// With a configuration of `envoyproxy/ratelimit`.
    fn serving(config: &str) -> Self {
        let import = envoy::import([("c.yaml", config)]).expect("it can be imported");
        let policies = Document::parse(&import.policies).expect("it is a document");
        let tree = DescriptorTree::parse(&import.descriptors).expect("it is a tree");
        Self::with(policies, tree, BudgetHeaders::default())
    }

    /// Sets the options.
    fn with_options(self, options: RlsOptions) -> Self {
        let limits = Arc::try_unwrap(self.service.limits).expect("nothing else has it");
        let limits = Arc::new(limits.with_options(options));
        Self { service: RlsHandler { limits, ..self.service }, ..self }
    }

    fn with(policies: Document, tree: DescriptorTree, headers: BudgetHeaders) -> Self {
        let clock = Arc::new(ManualClock::default());
        clock.advance(NOON);
        let store = AnyStore::Memory(Arc::default());
        let engine = Engine::new(PolicySet::new(policies), store, Arc::clone(&clock) as _);
        Self::of(engine, tree, headers, clock)
    }

    /// With a configuration of `envoyproxy/ratelimit`, on a store that may fail.
    fn serving_on(config: &str, store: AnyStore, clock: &Arc<ManualClock>) -> Self {
        let import = envoy::import([("c.yaml", config)]).expect("it can be imported");
        let policies = Document::parse(&import.policies).expect("it is a document");
        let tree = DescriptorTree::parse(&import.descriptors).expect("it is a tree");
        let engine = Engine::new(PolicySet::new(policies), store, Arc::clone(clock) as _);
        let engine = engine.with_fallback(StoreFailure::shared_by(std::num::NonZeroU32::MIN));
        Self::of(engine, tree, BudgetHeaders::default(), Arc::clone(clock))
    }

    fn of(
        engine: Engine<AnyStore>,
        tree: DescriptorTree,
        headers: BudgetHeaders,
        clock: Arc<ManualClock>,
    ) -> Self {
        let limits = RateLimits::new(Arc::new(ServerEngine::new(engine)), tree, headers);
        Self { service: RlsHandler::new(Arc::new(limits), open_listener(Wire::Rls)), clock }
    }

    async fn ask(&self, message: &RateLimitRequest) -> RateLimitResponse {
        self.service.decide(&Caller::anybody(), message).await.expect("it makes sense")
    }

    /// The code and what remains of the only descriptor.
    async fn one(&self, domain: &str, descriptor: RateLimitDescriptor) -> (Code, u32) {
        let response = self.ask(&message(domain, vec![descriptor])).await;
        let [status] = &response.statuses[..] else { panic!("one status: {response:?}") };
        assert_eq!(response.overall_code, status.code);
        (status.code(), status.limit_remaining)
    }

    /// Sends 30 requests at once, and returns how many pass.
    async fn passes(&self, domain: &str, entries: &[(&str, &str)]) -> usize {
        let mut passed = 0;
        for _ in 0..30 {
            passed += usize::from(self.one(domain, descriptor(entries)).await.0 == Code::Ok);
        }
        passed
    }
}

fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).into(), value: (*value).into() };
    let entries = entries.iter().map(entry).collect();
    RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }
}

fn hits(hits: u64, of: RateLimitDescriptor) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(hits), ..of }
}

fn message(domain: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 0 }
}

const HOURLY: &str = "
domain: shop
descriptors:
  - { key: user, rate_limit: { name: per-user, unit: hour, requests_per_unit: 10 } }
  - { key: user, value: root, rate_limit: { unlimited: true } }
  - { key: user, value: eve, rate_limit: { unit: hour, requests_per_unit: 0 } }
  - { key: user, value: dev, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 2 } }
";

#[tokio::test]
async fn a_limit_passes_as_many_as_it_says_and_anew_in_the_next_window() {
    let subject = Subject::serving(HOURLY);
    assert_eq!(subject.passes("shop", &[("user", "ann")]).await, 10);
    assert_eq!(subject.passes("shop", &[("user", "bob")]).await, 10);
    subject.clock.advance(Micros::new(HOUR - 1));
    assert_eq!(subject.passes("shop", &[("user", "ann")]).await, 0);
    subject.clock.advance(Micros::new(1));
    assert_eq!(subject.passes("shop", &[("user", "ann")]).await, 10);
}

#[test]
fn a_message_that_is_decided_at_once_does_not_carry_the_space_for_waiting() {
    let subject = Subject::serving(HOURLY);
    let ask = message("shop", vec![descriptor(&[("user", "ann")])]);
    let caller = Caller::anybody();
    let deciding = subject.service.decide(&caller, &ask);
    assert!(size_of_val(&deciding) <= 1_056, "{} bytes", size_of_val(&deciding));
}

#[tokio::test]
async fn what_is_unlimited_refused_or_in_the_shadow_is_so_always() {
    let subject = Subject::serving(HOURLY);
    assert_eq!(subject.passes("shop", &[("user", "root")]).await, 30);
    assert_eq!(subject.passes("shop", &[("user", "eve")]).await, 0);
    assert_eq!(subject.passes("shop", &[("user", "dev")]).await, 30);
    assert_eq!(subject.passes("shop", &[("nobody", "")]).await, 30);
    assert_eq!(subject.passes("elsewhere", &[("user", "ann")]).await, 30);
    let root = subject.one("shop", descriptor(&[("user", "root")])).await;
    assert_eq!(root, (Code::Ok, u32::MAX));
    assert_eq!(subject.one("shop", descriptor(&[("user", "dev")])).await, (Code::Ok, 0));
}

#[tokio::test]
async fn a_status_tells_the_limit_its_unit_its_name_and_when_it_comes_back() {
    let subject = Subject::serving(HOURLY);
    subject.clock.advance(Micros::new(500_000));
    let ask = message("shop", vec![descriptor(&[("user", "ann")])]);
    let response = subject.ask(&ask).await;
    let limit =
        RateLimit { requests_per_unit: 10, unit: Unit::Hour.into(), name: "per-user".into() };
    let status = DescriptorStatus {
        code: Code::Ok.into(),
        current_limit: Some(limit),
        limit_remaining: 9,
        duration_until_reset: Some(prost_types::Duration { seconds: 3_599, nanos: 500_000_000 }),
    };
    assert_eq!(response.statuses, [status]);
    assert_eq!(response.overall_code(), Code::Ok);
}

#[tokio::test]
async fn a_request_is_over_if_one_of_its_descriptors_is_and_each_is_charged_on_its_own() {
    let subject = Subject::serving(HOURLY);
    let (ann, eve) = (descriptor(&[("user", "ann")]), descriptor(&[("user", "eve")]));
    let nobody = descriptor(&[("nobody", "")]);
    let response = subject.ask(&message("shop", vec![eve, nobody, ann.clone()])).await;
    let codes: Vec<_> = response.statuses.iter().map(DescriptorStatus::code).collect();
    assert_eq!(codes, [Code::OverLimit, Code::Ok, Code::Ok]);
    assert_eq!(response.overall_code(), Code::OverLimit);
    assert_eq!(response.statuses[1], DescriptorStatus { code: 1, ..DescriptorStatus::default() });
    assert_eq!(subject.one("shop", ann).await, (Code::Ok, 8));
}

#[tokio::test]
async fn hits_of_a_tree_that_are_more_than_is_left_use_it_up() {
    let subject = Subject::serving(HOURLY);
    let ann = || descriptor(&[("user", "ann")]);
    assert_eq!(subject.one("shop", hits(8, ann())).await, (Code::Ok, 2));
    assert_eq!(subject.one("shop", hits(0, ann())).await, (Code::Ok, 2));
    assert_eq!(subject.one("shop", hits(3, ann())).await, (Code::OverLimit, 0));
    assert_eq!(subject.one("shop", hits(0, ann())).await, (Code::OverLimit, 0));
    assert_eq!(subject.one("shop", ann()).await, (Code::OverLimit, 0));
    let back = RateLimitDescriptor { is_negative_hits: true, ..hits(4, ann()) };
    assert_eq!(subject.one("shop", back).await, (Code::Ok, 4));
    assert_eq!(subject.one("shop", hits(4, ann())).await, (Code::Ok, 0));
    let root = subject.one("shop", hits(99, descriptor(&[("user", "root")]))).await;
    assert_eq!(root, (Code::Ok, u32::MAX));
    let dev = subject.one("shop", hits(99, descriptor(&[("user", "dev")]))).await;
    assert_eq!(dev, (Code::Ok, 0));
}

#[tokio::test]
async fn what_is_given_back_is_never_over_the_limit() {
    let subject = Subject::serving(HOURLY);
    let ann = || descriptor(&[("user", "ann")]);
    let back = || RateLimitDescriptor { is_negative_hits: true, ..hits(4, ann()) };
    assert_eq!(subject.one("shop", back()).await, (Code::Ok, 10));
    assert_eq!(subject.one("shop", hits(99, ann())).await, (Code::OverLimit, 0));
    assert_eq!(subject.one("shop", back()).await, (Code::Ok, 4));
}

const POLICIES: &str = "
policies:
  - name: bucket
    apps: [web]
    rules:
      - { name: burst, token_bucket: { rate: 10/s, burst: 20 } }
      - { name: day, fixed_window: { limit: 25, calendar: day } }
  - { name: plain, rules: [{ fixed_window: { limit: 5, window: 10m } }] }
";

#[tokio::test]
async fn a_policy_that_is_named_takes_all_hits_or_none() {
    let subject = Subject::new(POLICIES, BudgetHeaders::default());
    let plain = || descriptor(&[("policy", "plain"), ("key", "k")]);
    assert_eq!(subject.one("sluicegate", hits(3, plain())).await, (Code::Ok, 2));
    assert_eq!(subject.one("sluicegate", hits(3, plain())).await, (Code::OverLimit, 2));
    assert_eq!(subject.one("sluicegate", hits(2, plain())).await, (Code::Ok, 0));
}

#[tokio::test]
async fn a_unit_is_told_where_the_limit_comes_back_in_one() {
    let subject = Subject::new(POLICIES, BudgetHeaders::default());
    let limit = async |entries: &[(&str, &str)]| {
        let response = subject.ask(&message("sluicegate", vec![descriptor(entries)])).await;
        let limit = response.statuses[0].current_limit.clone().expect("a rule decided");
        (limit.requests_per_unit, limit.unit())
    };
    // 20 at 10/s come back in 2 s, 5 in 10 minutes: these are not units.
    let bucket = [("policy", "bucket"), ("app", "web")];
    assert_eq!(limit(&bucket).await, (20, Unit::Unknown));
    assert_eq!(limit(&[("policy", "plain")]).await, (5, Unit::Unknown));
    for _ in 0..4 {
        subject.clock.advance(Micros::from_secs(1));
        subject.passes("sluicegate", &bucket).await;
    }
    assert_eq!(limit(&bucket).await, (25, Unit::Day));
}

#[tokio::test]
async fn a_limit_that_is_brought_along_is_kept_and_can_change() {
    let subject = Subject::serving(HOURLY);
    let limited = |requests_per_unit, entries: &[(&str, &str)]| RateLimitDescriptor {
        limit: Some(RateLimitOverride { requests_per_unit, unit: Unit::Minute.into() }),
        ..descriptor(entries)
    };
    let ann = [("user", "ann")];
    assert_eq!(subject.one("shop", limited(3, &ann)).await, (Code::Ok, 2));
    assert_eq!(subject.one("shop", limited(3, &ann)).await, (Code::Ok, 1));
    assert_eq!(subject.one("shop", limited(9, &ann)).await, (Code::Ok, 6));
    assert_eq!(subject.one("shop", limited(2, &ann)).await, (Code::OverLimit, 0));
    // In a domain that nobody configured there is no limit at all.
    assert_eq!(subject.one("other", limited(3, &ann)).await, (Code::Ok, 0));
    // Neither other entries nor the configured limit have lost anything.
    assert_eq!(subject.one("shop", limited(3, &[("user", "a")])).await, (Code::Ok, 2));
    assert_eq!(subject.one("shop", descriptor(&ann)).await, (Code::Ok, 9));
    assert_eq!(subject.one("shop", limited(0, &ann)).await, (Code::OverLimit, 0));
}

#[tokio::test]
async fn a_replaced_limit_is_neither_asked_nor_charged() {
    let subject = Subject::serving(
        "
domain: shop
descriptors:
  - { key: user, rate_limit: { name: base, unit: hour, requests_per_unit: 2 } }
  - key: path
    descriptors:
      - key: user
        rate_limit: { replaces: [{ name: base }], unit: hour, requests_per_unit: 20 }
",
    );
    let user = || descriptor(&[("user", "ann")]);
    let path = descriptor(&[("path", "/search"), ("user", "ann")]);
    for _ in 0..20 {
        let response = subject.ask(&message("shop", vec![user(), path.clone()])).await;
        assert_eq!(response.overall_code(), Code::Ok);
    }
    assert_eq!(subject.one("shop", user()).await, (Code::Ok, 1));
    assert_eq!(subject.one("shop", path).await, (Code::OverLimit, 0));
}

#[tokio::test]
async fn what_cannot_be_decided_has_a_status_of_its_own() {
    let subject = Subject::new(POLICIES, BudgetHeaders::default());
    let refusal = async |entries: &[(&str, &str)]| {
        let request = message("sluicegate", vec![descriptor(entries)]);
        let refusal = subject
            .service
            .decide(&Caller::anybody(), &request)
            .await
            .expect_err("it is not decided");
        (refusal.code(), refusal.message())
    };
    let (unknown, missing) = (Grpc::NotFound, Grpc::InvalidArgument);
    assert_eq!(
        refusal(&[("policy", "nope")]).await,
        (unknown, "policy: unknown policy `nope`".to_owned())
    );
    assert_eq!(
        refusal(&[("policy", "bucket"), ("app", "tv")]).await,
        (Grpc::PermissionDenied, "app: policy `bucket` is not available to app `tv`".to_owned())
    );
    let (code, message) = refusal(&[("key", "k")]).await;
    assert!(code == missing && message.contains("`policy` is missing"), "{message}");
}

/// The header fields of an answer, as text.
fn fields(response: &RateLimitResponse) -> Vec<String> {
    let field = |HeaderValue { key, value }: &HeaderValue| format!("{key}: {value}");
    response.response_headers_to_add.iter().map(field).collect()
}

#[tokio::test]
async fn header_fields_tell_the_client_as_it_was_chosen() {
    let plain = message("sluicegate", vec![descriptor(&[("policy", "plain")])]);
    let both = message(
        "sluicegate",
        vec![
            descriptor(&[("policy", "plain")]),
            descriptor(&[("policy", "bucket"), ("app", "web")]),
        ],
    );
    let draft = [
        r#"ratelimit-policy: "fixed_window";q=5;w=600, "burst";q=20;w=2, "day";q=25"#,
        r#"ratelimit: "fixed_window";r=4;t=600, "burst";r=19;t=1"#,
    ];
    let envoys = ["x-ratelimit-limit: 5", "x-ratelimit-remaining: 4", "x-ratelimit-reset: 600"];
    for (styles, expected) in [
        (&[][..], vec![]),
        (&[HeaderStyle::Ratelimit], draft.to_vec()),
        (&[HeaderStyle::XRatelimit], envoys.to_vec()),
        (&[HeaderStyle::XRatelimit, HeaderStyle::Ratelimit], [&draft[..], &envoys[..]].concat()),
    ] {
        let subject = Subject::new(POLICIES, BudgetHeaders::of(styles));
        assert_eq!(fields(&subject.ask(&both).await), expected, "{styles:?}");
        for _ in 0..4 {
            subject.ask(&plain).await;
        }
        subject.clock.advance(Micros::from_secs(1));
        let retry = fields(&subject.ask(&plain).await).pop();
        assert_eq!(retry.as_deref(), Some("retry-after: 599"), "{styles:?}");
    }
}

#[tokio::test]
async fn envoys_header_fields_tell_every_limit_with_its_window_and_name() {
    let import = envoy::import([("c.yaml", HOURLY)]).expect("it can be imported");
    let policies = Document::parse(&import.policies).expect("it is a document");
    let tree = DescriptorTree::parse(&import.descriptors).expect("it is a tree");
    let subject = Subject::with(policies, tree, BudgetHeaders::of(&[HeaderStyle::XRatelimit]));
    let limit = RateLimitOverride { requests_per_unit: 3, unit: Unit::Minute.into() };
    let brought = RateLimitDescriptor { limit: Some(limit), ..descriptor(&[("a", "b")]) };
    let request = message("shop", vec![descriptor(&[("user", "ann")]), hits(9, brought)]);
    assert_eq!(
        fields(&subject.ask(&request).await),
        [
            "x-ratelimit-limit: 3, 10;w=3600;name=\"per-user\", 3;w=60",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 60",
            "retry-after: 60",
        ]
    );
}

#[tokio::test]
async fn what_can_never_pass_has_no_retry_after() {
    let subject = Subject::new(POLICIES, BudgetHeaders::default());
    let never = hits(6, descriptor(&[("policy", "plain")]));
    let response = subject.ask(&message("sluicegate", vec![never])).await;
    assert_eq!((response.overall_code(), fields(&response)), (Code::OverLimit, vec![]));
    assert_eq!(response.statuses[0].duration_until_reset, None);
}

#[tokio::test]
async fn messages_are_json_as_proto3_maps_them() {
    let subject = Subject::serving(HOURLY);
    subject.clock.advance(Micros::new(1_500_000));
    let ask = async |body: &str| {
        let message = json::decode(body.as_bytes())?;
        Ok::<_, String>(json::encode(&subject.ask(&message).await))
    };
    let ann = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}"#;
    assert_eq!(
        ask(ann).await.unwrap(),
        r#"{"overallCode":"OK","statuses":[{"code":"OK","currentLimit":{"requestsPerUnit":10,"unit":"HOUR","name":"per-user"},"limitRemaining":9,"durationUntilReset":"3598.500s"}]}"#,
    );
    let more = r#"{"domain":"shop","hits_addend":"2","descriptors":[
        {"entries":[{"key":"user","value":"ann"}],"hitsAddend":"9","limit":null},
        {"entries":[{"key":"user"}],"limit":{"requestsPerUnit":2,"unit":"MINUTE"}},
        {"entries":[{"key":"user"}],"limit":{"requests_per_unit":"0","unit":1},"is_negative_hits":true},
        {}]}"#;
    assert_eq!(
        ask(more).await.unwrap(),
        r#"{"overallCode":"OVER_LIMIT","statuses":[{"code":"OK","currentLimit":{"requestsPerUnit":10,"unit":"HOUR","name":"per-user"},"durationUntilReset":"3598.500s"},{"code":"OK","currentLimit":{"requestsPerUnit":2,"unit":"MINUTE"},"durationUntilReset":"58.500s"},{"code":"OVER_LIMIT","currentLimit":{"unit":"SECOND"},"durationUntilReset":"0.500s"},{"code":"OK"}]}"#,
    );
    for (body, problem) in [
        (r#"{"domian":"shop"}"#, "unknown field `domian`"),
        (r#"{"hitsAddend":-1}"#, "expected a whole number that is not too large"),
        (r#"{"hitsAddend":4294967296}"#, "expected a whole number that is not too large"),
        (r#"{"descriptors":[{"limit":{"unit":"FORTNIGHT"}}]}"#, "expected a unit such as `SECOND`"),
        ("[]", "invalid type: sequence"),
        ("", "EOF"),
    ] {
        let error = ask(body).await.unwrap_err();
        assert!(error.contains(problem), "{body}: {error}");
    }
}

const OVERFLOW: &str = "
policies:
  - { name: tag, rules: [{ fixed_window: { limit: 1, window: 1h } }], overflow: { degrade: { tag: cached } } }
  - { name: divert, rules: [{ fixed_window: { limit: 1, window: 1h } }], overflow: { divert: { target: slow-lane } } }
  - { name: shadow, rules: [{ fixed_window: { limit: 1, window: 1h } }], overflow: shadow }
  - name: body
    rules: [{ fixed_window: { limit: 1, window: 1h } }]
    overflow: { degrade: { response: { status: 503, body: later, headers: { x-a: b } } } }
";

#[tokio::test]
async fn what_is_over_the_limit_goes_the_way_of_its_policy() {
    let subject = Subject::new(OVERFLOW, BudgetHeaders::default());
    let over = async |policy: &str| {
        let request = message("sluicegate", vec![descriptor(&[("policy", policy)])]);
        assert_eq!(subject.ask(&request).await.overall_code(), Code::Ok, "{policy}");
        subject.ask(&request).await
    };
    for (policy, field) in [
        ("tag", Some(("x-sluicegate-degrade", "cached"))),
        ("divert", Some(("x-sluicegate-divert", "slow-lane"))),
        ("shadow", None),
    ] {
        let response = over(policy).await;
        assert_eq!(response.overall_code(), Code::Ok, "{policy}");
        let header = response.request_headers_to_add.first();
        let header = header.map(|HeaderValue { key, value }| (key.as_str(), value.as_str()));
        assert_eq!(header, field);
        assert_eq!(fields(&response), [""; 0], "the client is told nothing");
    }
    let response = over("body").await;
    assert_eq!((response.overall_code(), &*response.raw_body), (Code::OverLimit, &b"later"[..]));
    assert_eq!(fields(&response), ["x-a: b", "retry-after: 3600"]);
}

#[tokio::test(start_paused = true)]
async fn a_request_in_a_queue_is_answered_when_it_may_pass() {
    let policies = "policies: [{ name: q, rules: [{ token_bucket: { rate: 1/s, burst: 1 } }], overflow: { queue: { max_wait: 5s } } }]";
    let subject = Subject::new(policies, BudgetHeaders::default());
    let request = message("sluicegate", vec![descriptor(&[("policy", "q")])]);
    let begin = tokio::time::Instant::now();
    for seconds in [0, 1, 3] {
        assert_eq!(subject.ask(&request).await.overall_code(), Code::Ok);
        // The clock of the decisions stands still: each books behind the others.
        assert_eq!(begin.elapsed().as_secs(), seconds);
    }
}

#[tokio::test]
async fn many_hits_over_the_limit_go_the_way_of_the_policy_too() {
    let tree = "descriptors: [{ domain: shop, entries: [{ key: user }], policy: tag }]";
    let policies = Document::parse(&OVERFLOW.replace("limit: 1", "limit: 5")).unwrap();
    let tree = DescriptorTree::parse(tree).unwrap();
    let subject = Subject::with(policies, tree, BudgetHeaders::default());
    let ask =
        async || subject.ask(&message("shop", vec![hits(3, descriptor(&[("user", "ann")]))])).await;
    assert!(ask().await.request_headers_to_add.is_empty());
    let over = ask().await;
    let [told] = &over.request_headers_to_add[..] else { panic!("one field: {over:?}") };
    assert_eq!((&*told.key, &*told.value), ("x-sluicegate-degrade", "cached"));
    assert_eq!((over.overall_code(), over.statuses[0].limit_remaining), (Code::Ok, 0));
}

#[tokio::test(start_paused = true)]
async fn what_rules_delay_is_held_and_what_takes_too_long_is_over_the_limit_in_time() {
    for policies in [
        "policies: [{ name: p, rules: [{ leaky_bucket: { rate: 1/s, burst: 20 } }] }]",
        "policies: [{ name: p, rules: [{ token_bucket: { rate: 1/s, burst: 1 } }], overflow: { queue: { max_wait: 1h } } }]",
    ] {
        let subject = Arc::new(Subject::new(policies, BudgetHeaders::default()));
        let begin = tokio::time::Instant::now();
        let mut asking = tokio::task::JoinSet::new();
        for _ in 0..12 {
            let subject = Arc::clone(&subject);
            asking.spawn(async move {
                let request = message("sluicegate", vec![descriptor(&[("policy", "p")])]);
                (subject.ask(&request).await.overall_code(), begin.elapsed().as_secs())
            });
        }
        let mut answered = asking.join_all().await;
        answered.sort_unstable_by_key(|(code, at)| (*code as i32, *at));
        let (passed, refused) = answered.split_at(10);
        let expected: Vec<_> = (0..10).map(|second| (Code::Ok, second)).collect();
        assert_eq!(passed, expected);
        // In a queue others may go away, which is waited for.
        let in_time = |(code, at): &(Code, u64)| *code == Code::OverLimit && *at <= 9;
        assert!(refused.iter().all(in_time), "{refused:?}");
    }
}

const JOBS: &str = "
policies:
  - { name: jobs, rules: [ { name: running, concurrency: { limit: 2, ttl: 1h } } ] }
  - { name: quiet, overflow: shadow, rules: [ { concurrency: { limit: 1, ttl: 1h } } ] }
";

/// The descriptor of a permit of `jobs`, of the client `ann`.
fn permit(id: &str) -> RateLimitDescriptor {
    descriptor(&[("client", "ann"), ("sluicegate_permit", id)])
}

fn back(of: RateLimitDescriptor) -> RateLimitDescriptor {
    RateLimitDescriptor { is_negative_hits: true, ..hits(1, of) }
}

#[tokio::test]
async fn a_descriptor_with_a_permit_holds_it_and_gives_it_back() {
    let subject = Subject::new(JOBS, BudgetHeaders::default());
    for (descriptor, expected) in [
        (permit("a"), (Code::Ok, 1)),
        (permit("b"), (Code::Ok, 0)),
        (permit("c"), (Code::OverLimit, 0)),
        // One that holds nothing gives nothing back.
        (back(permit("c")), (Code::Ok, 0)),
        (permit("d"), (Code::OverLimit, 0)),
        (back(permit("a")), (Code::Ok, 1)),
        (back(permit("a")), (Code::Ok, 1)),
        (hits(0, permit("a")), (Code::Ok, 1)),
        (permit("d"), (Code::Ok, 0)),
        // More than one decision takes: nothing is held.
        (hits(1 << 40, permit("e")), (Code::OverLimit, 0)),
        (
            RateLimitDescriptor { is_negative_hits: true, ..hits(1 << 40, permit("d")) },
            (Code::Ok, 1),
        ),
        // The id is no part of the key.
        (hits(0, descriptor(&[("client", "ann")])), (Code::Ok, 1)),
        (permit("d"), (Code::Ok, 0)),
    ] {
        assert_eq!(subject.one("jobs", descriptor.clone()).await, expected, "{descriptor:?}");
    }
    let named = descriptor(&[("policy", "jobs"), ("key", "bob"), ("sluicegate_permit", "a")]);
    assert_eq!(subject.one("sluicegate", named.clone()).await, (Code::Ok, 1));
    assert_eq!(subject.one("sluicegate", back(named)).await, (Code::Ok, 2));
    for _ in 0..3 {
        assert_eq!(subject.one("quiet", permit("a")).await.0, Code::Ok);
        assert_eq!(subject.one("quiet", back(permit("b"))).await.0, Code::Ok);
    }
}

#[tokio::test]
async fn a_permit_without_a_name_or_with_two_is_an_error() {
    let subject = Subject::new(JOBS, BudgetHeaders::default());
    let twice = descriptor(&[("sluicegate_permit", "a"), ("sluicegate_permit", "b")]);
    for (descriptor, problem) in [
        (permit(""), "descriptors[0].entries: `sluicegate_permit` is empty"),
        (twice, "descriptors[0].entries: `sluicegate_permit` is given twice"),
    ] {
        let message = message("jobs", vec![descriptor]);
        let refused = subject.service.decide(&Caller::anybody(), &message).await.unwrap_err();
        assert_eq!(Status::from(refused).message(), problem);
    }
}

#[tokio::test]
async fn a_permit_goes_back_where_another_descriptor_is_over_the_limit() {
    let options = RlsOptions { stop_increment_when_over_limit: true, ..RlsOptions::default() };
    let subject = Subject::new(JOBS, BudgetHeaders::default()).with_options(options);
    let named = |key: &str, id: &str| {
        descriptor(&[("policy", "jobs"), ("key", key), ("sluicegate_permit", id)])
    };
    for id in ["a", "b"] {
        assert_eq!(subject.one("sluicegate", named("full", id)).await.0, Code::Ok);
    }
    let both = message("sluicegate", vec![named("free", "x"), named("full", "x")]);
    assert_eq!(subject.ask(&both).await.overall_code(), Code::OverLimit);
    assert_eq!(subject.one("sluicegate", hits(0, named("free", "x"))).await, (Code::Ok, 2));
}

#[tokio::test]
async fn a_gateway_that_goes_away_before_the_answer_holds_no_permit() {
    let subject = Subject::new(JOBS, BudgetHeaders::default());
    for polls in 1..4 {
        let request = Request::new(message("jobs", vec![permit("a")]));
        let mut asking = subject.service.should_rate_limit(request);
        for _ in 0..polls - 1 {
            tokio::task::yield_now().await;
        }
        assert!(futures_util::poll!(&mut asking).is_pending());
        drop(asking);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(subject.one("jobs", hits(0, permit("a"))).await, (Code::Ok, 2));
    }
    let request = Request::new(message("jobs", vec![permit("a")]));
    let answer = subject.service.should_rate_limit(request).await.expect("it is decided");
    assert_eq!(answer.into_inner().overall_code(), Code::Ok);
    assert_eq!(subject.one("jobs", hits(0, permit("a"))).await, (Code::Ok, 1));
}

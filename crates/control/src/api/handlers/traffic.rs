//! Results of requests over time: by policy, and as a summary.
//!
//! Rows of the catalog have the counts of all nodes, and this node adds its own buckets that are not written
//! yet. `nodes` has the time until which each has reported: later counts are missing, not zero.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;
use sluicegate_policy::finding;
use utoipa::ToSchema;

use crate::access::{Account, Actor};
use crate::api::problem::ApiProblem;
use crate::api::request::{ApiRequest, ApiResponse};
use crate::catalog::{FleetNode, Mark, NodeBucket, PolicyLimit, PolicyState};
use crate::error::Error;
use crate::traffic::{Counts, PolicyCounts, SHED, Step, WITHOUT_STORE};

/// Most policies whose series are returned at once.
const SERIES_MAX: usize = 50;

/// Points of a summary: five minutes.
const SUMMARY_POINTS: usize = 30;

/// Maximum lead of another node's clock, in milliseconds: later buckets are left out.
const AHEAD_MAX_MS: i64 = 10 * 60 * 1_000;

/// Results of requests over time.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct Traffic {
    /// Length of a bucket in milliseconds.
    step_ms: i64,
    /// Begin of the first bucket, in milliseconds since 1970.
    from: i64,
    /// The nodes that served in this time.
    nodes: Vec<TrafficNode>,
    /// Counts of each bucket by policy; empty for a summary.
    series: Vec<Series>,
    /// Policies with traffic, busiest first; only for a summary.
    summary: Vec<TrafficSummary>,
    /// Changes of the policies in this time.
    marks: Vec<Mark>,
    /// Limits of the policies.
    limits: Vec<PolicyLimit>,
}

/// Summary of the latest results, by app.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct TrafficOverview {
    /// Length of a bucket in milliseconds.
    step_ms: i64,
    /// Begin of the first bucket, in milliseconds since 1970.
    from: i64,
    /// The nodes that served in this time.
    nodes: Vec<TrafficNode>,
    /// Apps with traffic, busiest first.
    apps: Vec<TrafficSummary>,
}

/// A node, and the time until which it has reported its traffic.
#[derive(Serialize, ToSchema)]
struct TrafficNode {
    /// Node name.
    name: String,
    /// Time of the last report, in milliseconds since 1970.
    seen_at: i64,
    /// End of the last bucket that it has reported: later counts are missing, not zero. Null: it reports none.
    through: Option<i64>,
}

/// One policy: a count for each bucket.
#[derive(Serialize, ToSchema)]
struct Series {
    /// Policy name.
    policy: String,
    /// Allowed at once.
    allowed: Vec<u64>,
    /// Allowed after a delay.
    held: Vec<u64>,
    /// Over the limit, but in shadow mode.
    shadowed: Vec<u64>,
    /// Over the limit and degraded.
    degraded: Vec<u64>,
    /// Over the limit and sent elsewhere.
    diverted: Vec<u64>,
    /// Refused by a limit, or without the store by `on_store_failure`.
    refused: Vec<u64>,
    /// Not decided, because of an error.
    error: Vec<u64>,
    /// Decided without the store; each is in another count as well.
    without_store: Vec<u64>,
    /// Not asked about any limit, because the store was overloaded: refused, or passed in shadow mode. In no other count.
    shed: Vec<u64>,
}

/// One policy or app at a glance.
#[derive(Serialize, ToSchema)]
struct TrafficSummary {
    /// Name of the policy or app.
    name: String,
    /// All requests of this time.
    decided: u64,
    /// Requests refused by a limit, or without the store by `on_store_failure`.
    refused: u64,
    /// Requests over the limit in shadow mode.
    shadowed: u64,
    /// Requests not decided, because of an error.
    error: u64,
    /// Requests decided without the store; each is in another count as well.
    without_store: u64,
    /// Requests not checked against any limit, because the store was overloaded: refused, or passed in shadow mode.
    shed: u64,
    /// Requests of each bucket.
    decided_at: Vec<u64>,
    /// Requests that a limit refused, of each bucket.
    refused_at: Vec<u64>,
    /// Requests that met an overload, of each bucket.
    shed_at: Vec<u64>,
}

/// A stretch of time, in buckets.
pub(super) struct Window {
    step: Step,
    from: i64,
    /// End of the last bucket that a node has reported.
    end: i64,
    nodes: Vec<TrafficNode>,
}

/// Counts by name and begin of the bucket.
type Buckets = HashMap<String, BTreeMap<i64, Counts>>;

pub(in crate::api) async fn of_app(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let app = ask.param("app");
    // Fails if the app does not exist.
    ask.api.catalog.app(app).await?;
    let owned = ask.api.catalog.policy_owners(Some(app)).await?;
    let owned: BTreeSet<_> = owned.into_iter().map(|(policy, _)| policy).collect();
    if ask.query().summary {
        return summary(&ask, &owned).await;
    }
    let wanted = wanted(&ask.query().policy, owned)?;
    let step = ask.query().step.unwrap_or(Step::Fine);
    let since = since(&ask, step);
    let mut buckets = Buckets::new();
    let window = read(&ask, step, since, |at, of: &PolicyCounts| {
        if wanted.contains(&of.policy) {
            add(&mut buckets, &of.policy, at, &of.counts);
        }
    });
    let window = window.await?;
    let series = wanted.iter().map(|policy| window.series(policy, buckets.remove(policy)));
    let series = series.collect();
    let mut marks = ask.api.catalog.marks(app, window.from).await?;
    marks.retain(|mark| wanted.contains(&mark.policy));
    let limits = limits(&ask, app, &wanted).await?;
    let Window { step, from, nodes, .. } = window;
    let summary = Vec::new();
    let step_ms = step.ms();
    let traffic = Traffic { step_ms, from, nodes, series, summary, marks, limits };
    Ok(ApiResponse::tagged(&ask, &traffic))
}

pub(in crate::api) async fn of_all(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let mut owners = ask.api.catalog.policy_owners(None).await?;
    if let Actor::Account(Account { is_admin: false, roles, .. }) = &ask.by.actor {
        owners.retain(|(_, app)| roles.contains_key(app));
    }
    let owners: HashMap<_, _> = owners.into_iter().collect();
    let (window, apps) = glance(&ask, |policy| owners.get(policy).map(String::as_str)).await?;
    let Window { step, from, nodes, .. } = window;
    Ok(ApiResponse::tagged(&ask, &TrafficOverview { step_ms: step.ms(), from, nodes, apps }))
}

async fn summary(ask: &ApiRequest, owned: &BTreeSet<String>) -> Result<ApiResponse, ApiProblem> {
    let (window, summary) = glance(ask, |policy| owned.get(policy).map(String::as_str)).await?;
    let Window { step, from, nodes, .. } = window;
    let (series, marks, limits) = (Vec::new(), Vec::new(), Vec::new());
    let step_ms = step.ms();
    let traffic = Traffic { step_ms, from, nodes, series, summary, marks, limits };
    Ok(ApiResponse::tagged(ask, &traffic))
}

/// Sums the last five minutes under the names that `name` gives policies; busiest first.
async fn glance<'n>(
    ask: &ApiRequest,
    name: impl Fn(&str) -> Option<&'n str> + Send + Sync,
) -> Result<(Window, Vec<TrafficSummary>), ApiProblem> {
    let step = Step::Fine;
    let points = i64::try_from(SUMMARY_POINTS).expect("it is small");
    let since = step.floor(ask.by.at) - points * step.ms();
    let mut buckets = Buckets::new();
    let window = read(ask, step, since, |at, of: &PolicyCounts| {
        if let Some(name) = name(&of.policy) {
            add(&mut buckets, name, at, &of.counts);
        }
    });
    let window = window.await?;
    let lines = buckets.into_iter().map(|(name, counts)| window.summary(name, &counts));
    let mut lines: Vec<_> = lines.filter(|line| line.decided > 0).collect();
    lines.sort_by(|a, b| b.decided.cmp(&a.decided).then_with(|| a.name.cmp(&b.name)));
    Ok((window, lines))
}

/// Calls `visit` with the counts of all nodes from `since` on, and returns the window that they cover.
pub(super) async fn read(
    ask: &ApiRequest,
    step: Step,
    since: i64,
    mut visit: impl FnMut(i64, &PolicyCounts) + Send,
) -> Result<Window, ApiProblem> {
    let (catalog, live) = (&ask.api.catalog, &ask.api.traffic);
    let _slot = ask.api.reading.acquire().await.expect("nobody closes it");
    let from = step.floor(since);
    let latest = ask.by.at + AHEAD_MAX_MS;
    let (mut own, mut reported) = (BTreeSet::new(), HashMap::new());
    let visited = catalog.visit_traffic(step, from, |NodeBucket { node, bucket }| {
        if bucket.at > latest {
            return;
        }
        bucket.policies.iter().for_each(|of| visit(bucket.at, of));
        if node == live.node() {
            own.insert(bucket.at);
        }
        let end: &mut i64 = reported.entry(node).or_default();
        *end = (*end).max(bucket.at + step.ms());
    });
    visited.await?;
    for bucket in live.buckets(step, from, &own) {
        bucket.policies.iter().for_each(|of| visit(bucket.at, of));
    }
    if let Some(through) = live.through(step) {
        reported.insert(live.node().to_owned(), through);
    }
    let nodes = catalog.fleet().await?.nodes.into_iter();
    let nodes: Vec<_> = nodes
        .filter(|node| node.seen_at >= from)
        .map(|node: FleetNode| {
            let through = reported.get(&node.name).copied().max(node.through(step));
            TrafficNode { name: node.name, seen_at: node.seen_at, through }
        })
        .collect();
    let end = nodes.iter().filter_map(|node| node.through).max();
    let end = end.unwrap_or(step.floor(ask.by.at)).clamp(from, latest);
    Ok(Window { step, from, end, nodes })
}

impl Window {
    /// Returns the value of each bucket of the window; 0 where `counts` has none.
    fn points(&self, counts: &BTreeMap<i64, Counts>, of: impl Fn(&Counts) -> u64) -> Vec<u64> {
        let begins = (0..).map(|number| self.from + number * self.step.ms());
        let begins = begins.take_while(|at| *at < self.end);
        begins.map(|at| counts.get(&at).map_or(0, &of)).collect()
    }

    fn series(&self, policy: &str, counts: Option<BTreeMap<i64, Counts>>) -> Series {
        let counts = counts.unwrap_or_default();
        let of = |place: usize| self.points(&counts, |counts| counts.0[place]);
        Series {
            policy: policy.to_owned(),
            allowed: of(0),
            held: of(1),
            shadowed: of(2),
            degraded: of(3),
            diverted: of(4),
            refused: of(5),
            error: of(6),
            without_store: of(WITHOUT_STORE),
            shed: of(SHED),
        }
    }

    fn summary(&self, name: String, counts: &BTreeMap<i64, Counts>) -> TrafficSummary {
        let mut sum = Counts::default();
        counts.values().for_each(|counts| sum.add(counts));
        TrafficSummary {
            name,
            decided: sum.decided(),
            refused: sum.0[5],
            shadowed: sum.0[2],
            error: sum.0[6],
            without_store: sum.0[WITHOUT_STORE],
            shed: sum.0[SHED],
            decided_at: self.points(counts, Counts::decided),
            refused_at: self.points(counts, |counts| counts.0[5]),
            shed_at: self.points(counts, |counts| counts.0[SHED]),
        }
    }
}

fn add(buckets: &mut Buckets, name: &str, at: i64, counts: &Counts) {
    if !buckets.contains_key(name) {
        buckets.insert(name.to_owned(), BTreeMap::new());
    }
    let of_name = buckets.get_mut(name).expect("it was inserted");
    of_name.entry(at).or_default().add(counts);
}

/// Returns the policies in `named`, or if it is empty all that the app owns.
fn wanted(named: &str, owned: BTreeSet<String>) -> Result<BTreeSet<String>, ApiProblem> {
    let named: BTreeSet<_> =
        named.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    if let Some(unknown) = named.difference(&owned).next() {
        let names = owned.iter().map(String::as_str);
        return Err(ApiProblem::not_found("policy", unknown, names));
    }
    let is_named = !named.is_empty();
    let wanted = if is_named { named } else { owned };
    if wanted.len() > SERIES_MAX {
        let problem = if is_named {
            finding!(
                "too_many_policies_asked",
                "policy: expected at most {max} names, got {count}",
                max = SERIES_MAX,
                count = wanted.len(),
            )
        } else {
            finding!(
                "policies_not_named",
                "policy: the app has {count} policies; name at most {max}",
                max = SERIES_MAX,
                count = wanted.len(),
            )
        };
        return Err(ApiProblem::new(axum::http::StatusCode::BAD_REQUEST, problem));
    }
    Ok(wanted)
}

/// Returns the begin of the requested time, no earlier than buckets are kept.
fn since(ask: &ApiRequest, step: Step) -> i64 {
    let first = step.floor(ask.by.at) - step.kept_ms();
    ask.query().since.map_or(first, |since| since.clamp(first, ask.by.at))
}

/// Returns the limits of these policies, except those of deleted ones.
async fn limits(
    ask: &ApiRequest,
    app: &str,
    policies: &BTreeSet<String>,
) -> Result<Vec<PolicyLimit>, ApiProblem> {
    let mut limits = Vec::new();
    for policy in policies {
        match ask.api.catalog.policy(app, policy).await {
            Ok(view) if view.state != PolicyState::Deleted => limits.extend(view.limits()?),
            Ok(_) | Err(Error::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(limits)
}

//! Keys that a policy refuses, and those that it would refuse if it were enforced.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use crate::api::problem::ApiProblem;
use crate::api::request::{ApiRequest, ApiResponse};
use crate::catalog::NodeBucket;
use crate::error::Error;
use crate::traffic::{Counts, RefusedKey, SHED, Step, WITHOUT_STORE};

use super::traffic::read;

/// Maximum number of keys that are returned.
const KEYS_MAX: usize = 50;

/// Age above which refused keys of other nodes are left out, in milliseconds.
const RECENT_MS: i64 = 5 * 60 * 1_000;

/// The keys of a policy that were refused most in the last minutes, by all nodes.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct RefusedKeys {
    /// `true` if the node that answers counts the policy on its own; else the keys are those of other nodes.
    counted: bool,
    /// The keys, those that were refused most first. Hashed keys differ between nodes (`admin.keys`).
    keys: Vec<RefusedKey>,
}

/// Requests that a policy in shadow mode would have refused.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct Rollout {
    /// Instant at which the policy went into shadow mode, in milliseconds since 1970; null: it is not in shadow mode.
    in_shadow_since: Option<i64>,
    /// Begin of what is counted here, in milliseconds since 1970: at most a day ago.
    from: i64,
    /// All requests.
    decided: u64,
    /// Requests over the limit in shadow mode.
    shadowed: u64,
    /// Requests that were not checked against any limit, because the store was overloaded.
    shed: u64,
    /// Requests that were decided without the store; each is in another count as well.
    without_store: u64,
    /// Least number of keys that were over the limit in the last minutes.
    keys_at_least: usize,
}

/// The keys that one node refused most.
type NodeKeys = Vec<RefusedKey>;

pub(in crate::api) async fn top(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let policy = owned(&ask).await?;
    let own = ask.api.traffic.top(&policy, KEYS_MAX);
    let counted = own.is_some();
    let mut nodes = of_others(&ask, &policy).await?;
    nodes.extend(own);
    Ok(ApiResponse::ok(&RefusedKeys { counted, keys: joined(&nodes) }))
}

pub(in crate::api) async fn rollout(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let policy = owned(&ask).await?;
    let in_shadow_since = ask.api.catalog.in_shadow_since(ask.param("app"), &policy).await?;
    let begin = in_shadow_since.unwrap_or(ask.by.at);
    // Whole buckets only: what was enforced before is not counted.
    let step = if ask.by.at - begin > Step::Fine.kept_ms() { Step::Coarse } else { Step::Fine };
    let first = step.floor(ask.by.at) - step.kept_ms();
    let from = step.floor(begin + step.ms() - 1).max(first);
    let mut sum = Counts::default();
    read(&ask, step, from, |_, of| {
        if of.policy == policy {
            sum.add(&of.counts);
        }
    })
    .await?;
    let own = ask.api.traffic.top(&policy, KEYS_MAX);
    let nodes = of_others(&ask, &policy).await?;
    // The same key may be in the list of each node, under another hash.
    let keys_at_least = nodes.iter().chain(&own).map(Vec::len).max().unwrap_or(0);
    let rollout = Rollout {
        in_shadow_since,
        from,
        decided: sum.decided(),
        shadowed: sum.0[2],
        shed: sum.0[SHED],
        without_store: sum.0[WITHOUT_STORE],
        keys_at_least,
    };
    Ok(ApiResponse::ok(&rollout))
}

/// Returns the name of the policy, if it is one of the app.
async fn owned(ask: &ApiRequest) -> Result<String, Error> {
    let (app, policy) = ask.policy();
    Ok(ask.api.catalog.policy(app, policy).await?.name)
}

/// Returns the refused keys that each other node wrote last.
async fn of_others(ask: &ApiRequest, policy: &str) -> Result<Vec<NodeKeys>, ApiProblem> {
    let own = ask.api.traffic.node();
    let mut latest = BTreeMap::new();
    let since = ask.by.at - RECENT_MS;
    let _slot = ask.api.reading.acquire().await.expect("nobody closes it");
    let visited =
        ask.api.catalog.visit_traffic(Step::Fine, since, |NodeBucket { node, bucket }| {
            let of_policy = bucket.policies.into_iter().find(|of| of.policy == policy);
            if let Some(of) = of_policy.filter(|of| node != own && !of.top.is_empty()) {
                // The latest row comes first.
                latest.entry(node).or_insert(of.top);
            }
        });
    visited.await?;
    Ok(latest.into_values().collect())
}

/// Joins the keys of these nodes. A node that does not list a key may have refused it as often as the last
/// one that it lists.
fn joined(nodes: &[NodeKeys]) -> Vec<RefusedKey> {
    let mut keys: Vec<RefusedKey> = Vec::new();
    for named in nodes.iter().flatten() {
        let is_new = !keys.iter().any(|key| is_same(key, named));
        if is_new {
            let of_node = |node: &NodeKeys| match node.iter().find(|key| is_same(key, named)) {
                Some(key) => (key.refused_at_least, key.refused_at_most),
                None => (0, node.last().map_or(0, |last| last.refused_at_most)),
            };
            let mut key = RefusedKey { refused_at_least: 0, refused_at_most: 0, ..named.clone() };
            for (at_least, at_most) in nodes.iter().map(of_node) {
                key.refused_at_least = key.refused_at_least.saturating_add(at_least);
                key.refused_at_most = key.refused_at_most.saturating_add(at_most);
            }
            keys.push(key);
        }
    }
    keys.sort_by_key(|key| std::cmp::Reverse((key.refused_at_least, key.refused_at_most)));
    keys.truncate(KEYS_MAX);
    keys
}

fn is_same(one: &RefusedKey, other: &RefusedKey) -> bool {
    (&one.key, one.key_is_cut) == (&other.key, other.key_is_cut)
}

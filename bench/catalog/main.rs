//! Measures a fleet that follows one catalog: the time until a node starts, the time until an edit is in force on all
//! nodes, and the cost of finding a policy. `bench/README.md` says how.
#![expect(clippy::disallowed_methods, reason = "a stop-watch")]

mod node;

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use node::{Node, Program};
use serde_json::{Value, json};
use sluicegate_control::catalog::{NewToken, PolicyState};
use sluicegate_control::identity::{Secret, SecretKind};
use sluicegate_control::{Catalog, ChangeContext, Scope};
use sluicegate_policy::{Document, PolicySet};
use sluicegate_testkit::{Options, RedisServer, SqlKind, SqlServer};

const NODES: usize = 3;
const EDITS: usize = 100;
const APPS: usize = 500;
const POLICIES_OF_APP: usize = 20;

/// Interval between checks whether an edit is in force.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Lookups of a round, and number of rounds, of which the median is printed.
const LOOKUPS: usize = 1_000_000;
const ROUNDS: usize = 9;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let sql = SqlServer::start(SqlKind::Postgres).await?;
    let redis = RedisServer::start(Options::default()).await?;
    println!(
        "| Catalog on PostgreSQL, {NODES} nodes | 1 policy, one Redis | 10,000, one Redis | 10,000, no Redis |"
    );
    println!("|---|--:|--:|--:|");
    let on_redis = format!("redis://{}", redis.address());
    let (mut starts, mut edits) = (Vec::new(), Vec::new());
    for (apps, store) in [(0, &*on_redis), (APPS, &*on_redis), (APPS, "memory")] {
        let url = sql.database()?;
        let token = fill(&url, apps).await?;
        let program = Program { catalog: url, store: store.to_owned() };
        let (mut nodes, mut took) = (Vec::new(), Vec::new());
        for _ in 0..NODES {
            let begin = Instant::now();
            nodes.push(program.start()?);
            took.push(begin.elapsed());
        }
        took.sort();
        starts.push(took);
        edits.push(propagate(&nodes, &token)?);
    }
    let ms = |span: Duration| format!("{:.0} ms", span.as_secs_f64() * 1_000.0);
    let row = |name: &str, cells: [String; 3]| println!("| {name} | {} |", cells.join(" | "));
    let each = |of: &dyn Fn(usize) -> Duration| [0, 1, 2].map(|at| ms(of(at)));
    row("a node starts, the slowest", each(&|at| starts[at][NODES - 1]));
    row("an edit holds on all, p50", each(&|at| edits[at][EDITS / 2]));
    row("p99, the slowest of 100", each(&|at| edits[at][EDITS * 99 / 100]));
    let among = resolve(APPS * POLICIES_OF_APP)?;
    row("finding a policy by its name", [resolve(1)?, among.clone(), among]);
    Ok(())
}

/// Creates a catalog with `apps` apps besides the one that is edited, and returns a token for that one.
async fn fill(url: &str, apps: usize) -> anyhow::Result<String> {
    let at = node::now_ms();
    let by = ChangeContext::operator("a measurement", at);
    let catalog = Catalog::open(&url.parse()?).await?;
    for app in 0..apps {
        let name = format!("app{app}");
        catalog.create_app(&by, &name, "", &[]).await?;
        // The policy that is edited counts towards the limit of policies.
        for place in usize::from(app == 0)..POLICIES_OF_APP {
            let document = document(&format!("{name}.policy{place}"), 5);
            catalog.create_policy(&by, &name, &document, PolicyState::Active).await?;
        }
    }
    catalog.create_app(&by, "shop", "", &[]).await?;
    catalog.create_policy(&by, "shop", &document("orders", 1), PolicyState::Active).await?;
    let secret = Secret::new(SecretKind::Token);
    let (scopes, hash) = ([Scope::PolicyWrite, Scope::Check], secret.hash());
    let expires_at = at + 3_600_000;
    let new = NewToken { name: "bench", scopes: &scopes, expires_at, hash: &hash };
    catalog.create_token(&by, "shop", new).await?;
    catalog.close().await;
    Ok(secret.expose().to_owned())
}

/// Returns the time that each edit took, from before its request until it was in force on every node.
fn propagate(nodes: &[Node], token: &str) -> anyhow::Result<Vec<Duration>> {
    let mut took = Vec::with_capacity(EDITS);
    for edit in 0..EDITS {
        let limit = u64::try_from(edit)? + 2;
        // The pause keeps the edits out of step with the nodes' checks.
        #[expect(clippy::disallowed_methods, reason = "a benchmark waits for other processes")]
        std::thread::park_timeout(Duration::from_millis(fastrand::u64(..300)));
        let begin = Instant::now();
        let editor = &nodes[edit % nodes.len()];
        let body = json!({ "document": document("orders", limit) });
        let path = "/v1/admin/apps/shop/policies/orders";
        let version = edit + 1;
        let (status, changed) = editor.admin(token, version, path, &body)?;
        anyhow::ensure!(status == 200, "edit {edit}: {status} {changed}");
        while !nodes.iter().all(|node| node.limit(token) == Some(limit)) {
            anyhow::ensure!(begin.elapsed() < Duration::from_secs(20), "edit {edit} does not hold");
            #[expect(clippy::disallowed_methods, reason = "a benchmark waits for other processes")]
            std::thread::park_timeout(LOOK_EVERY);
        }
        took.push(begin.elapsed());
    }
    took.sort();
    Ok(took)
}

/// Measures the time of finding a policy among `count`.
fn resolve(count: usize) -> anyhow::Result<String> {
    let names: Vec<_> =
        (0..count).map(|place| format!("app{}.policy{place}", place % APPS)).collect();
    let policies: Vec<_> = names.iter().map(|name| document(name, 5)).collect();
    let set = PolicySet::new(Document::parse(&json!({ "policies": policies }).to_string())?);
    let mut rounds: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let mut random = fastrand::Rng::with_seed(1);
            let begin = Instant::now();
            for _ in 0..LOOKUPS {
                black_box(set.resolve(black_box(&names[random.usize(..count)])));
            }
            begin.elapsed()
        })
        .collect();
    rounds.sort();
    let median = rounds.get(ROUNDS / 2).context("there are rounds")?;
    Ok(format!("{:.0} ns", median.as_secs_f64() * 1e9 / LOOKUPS as f64))
}

fn document(name: &str, limit: u64) -> Value {
    json!({ "name": name, "rules": [{ "fixed_window": { "limit": limit, "window": "1d" } }] })
}

//! Decisions per second of an engine on Redis, beside `redis-benchmark` that makes the same calls.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use sha1_smol::Sha1;
use sluicegate::internals::WallClock;
use sluicegate::policy::{Document, PolicySet};
use sluicegate::store::redis::{RedisConfig, RedisStore};
use sluicegate::{Cost, Engine, Mode, Request, StoreFailure, Verb};
use sluicegate_store::redis::script;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cases;
use crate::server::Server;

/// Rounds of both, in turn; a figure is the median of as many.
const ROUNDS: usize = 9;

/// Duration of a round of the engine.
const ROUND: Duration = Duration::from_secs(2);

/// Calls of `redis-benchmark` in a round: about as long.
const CALLS: &str = "60000";

/// Decisions under way at the same time; clients of `redis-benchmark`.
const IN_FLIGHT: u64 = 64;

/// Keys that decisions are spread over.
const KEYS: u32 = 20_000;

/// The rule of both: so much that every check is allowed, and written.
const POLICIES: &str =
    "policies: [{ name: orders, rules: [{ token_bucket: { rate: 6/min, burst: 1000000 } }] }]";

type RedisEngine = Engine<RedisStore>;

/// Measures both and prints a table.
pub(crate) fn run(server: &mut Server) -> anyhow::Result<()> {
    let peer = peer(server)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let engine = Arc::new(runtime.block_on(engine(server.port()))?);
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let own = runtime.block_on(load(&engine));
        let other = redis_benchmark(server.port(), &peer)?;
        ours.push(own);
        theirs.push(other);
        ratios.push(own / other);
    }
    println!("| {IN_FLIGHT} decisions under way | decisions/s |");
    println!("|---|--:|");
    println!("| `redis-benchmark`, {IN_FLIGHT} clients, the same script | {} |", row(&mut theirs));
    println!("| `Engine` | {} |", row(&mut ours));
    ratios.sort_by(f64::total_cmp);
    println!("\nratio {:.2}", ratios[ROUNDS / 2]);
    Ok(())
}

async fn engine(port: &str) -> anyhow::Result<RedisEngine> {
    let config: RedisConfig = format!("redis://127.0.0.1:{port}?deadline_ms=1000").parse()?;
    let store = RedisStore::start(&config)?;
    store.ready().await?;
    let policies = PolicySet::new(Document::parse(POLICIES)?);
    let engine = Engine::new(policies, store, Arc::new(WallClock));
    Ok(engine.with_fallback(StoreFailure::shared_by(std::num::NonZeroU32::MIN)))
}

/// Decisions per second, with [`IN_FLIGHT`] under way for a round.
async fn load(engine: &Arc<RedisEngine>) -> f64 {
    let mut callers = JoinSet::new();
    let begun = Instant::now();
    for seed in 0..IN_FLIGHT {
        let engine = Arc::clone(engine);
        callers.spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut decisions = 0_u32;
            while begun.elapsed() < ROUND {
                let key = random.u32(..KEYS).to_le_bytes();
                let verb = Verb::Check { cost: Cost::ONE };
                let request = Request::new("orders", Some(&key), verb);
                let decided = engine.turn().decide(&request).await;
                let answer = decided.expect("the server of the measurement answers").answer;
                assert!(answer.decision.allowed() && answer.mode == Mode::Store);
                decisions += 1;
            }
            decisions
        });
    }
    let decisions: u32 = callers.join_all().await.into_iter().sum();
    f64::from(decisions) / begun.elapsed().as_secs_f64()
}

/// The digest of our script with its two arguments in its text: they have bytes 0, which
/// `redis-benchmark` cannot send.
fn peer(server: &mut Server) -> anyhow::Result<String> {
    let policies = PolicySet::new(Document::parse(POLICIES)?);
    let policy = policies.resolve("orders").context("the policy is in the document")?;
    let [text, ask] = cases::arguments(policy.rules().set(), 1)?.map(|bytes| lua_string(&bytes));
    let text = format!("local ARGV = {{{text}, {ask}}}\n{}", script::TEXT);
    server.load(&text)?;
    Ok(Sha1::from(&text).digest().to_string())
}

fn lua_string(bytes: &[u8]) -> String {
    let bytes: String = bytes.iter().map(|byte| format!("\\{byte:03}")).collect();
    format!("'{bytes}'")
}

/// Calls per second, on the core of this process.
fn redis_benchmark(port: &str, sha1: &str) -> anyhow::Result<f64> {
    let (clients, keys) = (IN_FLIGHT.to_string(), KEYS.to_string());
    let output = Command::new("redis-benchmark")
        .args(["-p", port, "-c", &clients, "-n", CALLS, "-r", &keys, "--csv"])
        .args(["EVALSHA", sha1, "1", "sg:000000000000__rand_int__"])
        .output()
        .context("redis-benchmark must be installed")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let figures = text.lines().last().context("a line of figures")?;
    let rate = figures.split(',').nth(1).context("the rate is the second column")?;
    Ok(rate.trim_matches('"').parse()?)
}

fn row(figures: &mut [f64]) -> String {
    figures.sort_by(f64::total_cmp);
    let (least, most) = (figures[0], figures[ROUNDS - 1]);
    format!("{:.0} [{least:.0}..{most:.0}]", figures[ROUNDS / 2])
}

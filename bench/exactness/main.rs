//! Shows whether servers on a Redis ever admit more than their bound, and how close to it they come: real processes,
//! real outages, more load than they can serve. `docs/exactness.md` states the promise, and how to read the results.
//!
//! ```text
//! sluicegate-bench-exactness --server before=PATH --server after=PATH [--only NAME,NAME] [--raw DIR] [--quick]
//! ```
//!
//! It fails if more passes than permitted. `--quick` takes a fifth of the time for leases: to check, not to measure.
//! `--only permits` judges requests that wait for a permit while servers are killed.
//! `--only random --seed N --minutes M` plays rounds that a seed decides, instead of scenarios.
//!
//! `scenario ─▶ fleet (servers, Redis, faults) ◀─ load (clients, time stamps) ─▶ bound ─▶ report`
#![expect(clippy::disallowed_methods, reason = "a stop-watch")]

mod bound;
mod fleet;
mod leases;
mod load;
mod midnight;
mod outages;
mod overload;
mod permits;
mod random;
mod report;
mod wire;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, bail, ensure};
use bound::Price;
use fleet::Build;
use random::Rounds;
use report::Outcome;

/// The scenarios, in the order in which they run.
const SCENARIOS: [&str; 43] = [
    "healthy",
    "frozen-often",
    "frozen-in-step",
    "flapping",
    "killed-remembers",
    "killed-forgets",
    "killed-forgets-quota",
    "killed-deny",
    "failover-killed",
    "failover-frozen",
    "partition",
    "replies-lost",
    "replies-late",
    "flushed",
    "load-2x2048",
    "load-1x4096",
    "load-512",
    "load-1000-keys",
    "http-900",
    "goodput",
    "goodput-dear",
    "leases",
    "leases-off",
    "leases-killed",
    "leases-stopped",
    "leases-failover",
    "leases-failover-off",
    "leases-flushed",
    "leases-flushed-off",
    "leases-restarted",
    "leases-evicted",
    "leases-replies-lost",
    "leases-replies-lost-off",
    "leases-bad-network",
    "leases-bad-network-off",
    "leases-clocks",
    "leases-clock-ahead",
    "leases-edited",
    "leases-small",
    "leases-cluster",
    "leases-mixed",
    "leases-outage",
    "leases-outage-off",
];

/// The name of rounds that a seed decides: they do not measure, so they run alone.
const RANDOM: &str = "random";

/// The name of the round of permits: it is judged by what is held, not by a rate, so it runs alone.
const PERMITS: &str = "permits";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Args { builds, scenarios, raw, rounds } = Args::parse(std::env::args().skip(1))?;
    if scenarios == [RANDOM] {
        for build in &builds {
            random::run(build, rounds).await?;
        }
        return Ok(());
    }
    if scenarios == [PERMITS] {
        for build in &builds {
            permits::run(build).await?;
        }
        return Ok(());
    }
    if let Some(raw) = &raw {
        fs::create_dir_all(raw)?;
    }
    report::print_head();
    let (mut missing, mut over) = (0, 0);
    for scenario in scenarios {
        for build in &builds {
            midnight::past_midnight().await?;
            let outcome = match run(&scenario, build).await {
                Ok(outcome) => outcome,
                Err(error) => {
                    println!("| {scenario} | {} | not measured: {error} |", build.name);
                    missing += 1;
                    continue;
                }
            };
            println!("{}", outcome.line(&scenario, &build.name));
            over += usize::from(!outcome.is_within());
            if let Some(raw) = &raw {
                let data = outcome.data(&scenario, &build.name);
                fs::write(raw.join(format!("{}-{scenario}.json", build.name)), data.to_string())?;
            }
        }
    }
    println!("\nload average at the end: {}", fs::read_to_string("/proc/loadavg")?.trim());
    ensure!(missing == 0, "{missing} scenarios could not be measured");
    ensure!(over == 0, "more passed than may in {over} scenarios");
    Ok(())
}

async fn run(scenario: &str, build: &Build) -> anyhow::Result<Outcome> {
    match scenario {
        "healthy" => outages::healthy(build).await,
        "frozen-often" => outages::frozen_often(build).await,
        "frozen-in-step" => outages::frozen_in_step(build).await,
        "flapping" => outages::flapping(build).await,
        "killed-remembers" => outages::killed(build, true, "local").await,
        "killed-forgets" => outages::killed(build, false, "local").await,
        "killed-forgets-quota" => outages::killed_quota(build).await,
        "killed-deny" => outages::killed(build, true, "deny").await,
        "failover-killed" => outages::failover(build, true).await,
        "failover-frozen" => outages::failover(build, false).await,
        "partition" => outages::partition(build).await,
        "replies-lost" => outages::bad_replies(build, true).await,
        "replies-late" => outages::bad_replies(build, false).await,
        "flushed" => outages::flushed(build).await,
        "load-2x2048" => overload::outstanding(build, 2, 16, 1).await,
        "load-1x4096" => overload::outstanding(build, 1, 32, 1).await,
        "load-512" => overload::outstanding(build, 1, 4, 1).await,
        "load-1000-keys" => overload::outstanding(build, 2, 16, 1_000).await,
        "http-900" => overload::http(build).await,
        "goodput" => overload::goodput(build, Price::Cheap).await,
        "goodput-dear" => overload::goodput(build, Price::Dear).await,
        "leases" => leases::three_servers(build, true).await,
        "leases-off" => leases::three_servers(build, false).await,
        "leases-killed" => leases::killed(build).await,
        "leases-stopped" => leases::stopped(build).await,
        "leases-failover" => leases::failover(build, true).await,
        "leases-failover-off" => leases::failover(build, false).await,
        "leases-flushed" => leases::flushed(build, true).await,
        "leases-flushed-off" => leases::flushed(build, false).await,
        "leases-restarted" => leases::restarted(build).await,
        "leases-evicted" => leases::evicted(build).await,
        "leases-replies-lost" => leases::replies_lost(build, true).await,
        "leases-replies-lost-off" => leases::replies_lost(build, false).await,
        "leases-bad-network" => leases::bad_network(build, true).await,
        "leases-bad-network-off" => leases::bad_network(build, false).await,
        "leases-clocks" => leases::clocks(build).await,
        "leases-clock-ahead" => leases::clock_ahead(build).await,
        "leases-edited" => leases::edited(build).await,
        "leases-small" => leases::small(build).await,
        "leases-cluster" => leases::cluster(build).await,
        "leases-mixed" => leases::mixed(build).await,
        "leases-outage" => leases::outage(build, true).await,
        "leases-outage-off" => leases::outage(build, false).await,
        other => bail!("`{other}` is listed and cannot be run"),
    }
}

/// The command line.
struct Args {
    builds: Vec<Build>,
    scenarios: Vec<String>,
    raw: Option<PathBuf>,
    rounds: Rounds,
}

impl Args {
    fn parse(mut words: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let mut builds = Vec::new();
        let mut scenarios: Vec<_> = SCENARIOS.map(str::to_owned).to_vec();
        let (mut raw, mut is_quick, mut rounds) = (None, false, Rounds::default());
        while let Some(flag) = words.next() {
            if flag == "--quick" {
                is_quick = true;
                continue;
            }
            let value = words.next().with_context(|| format!("{flag}: a value is missing"))?;
            match &*flag {
                "--server" => {
                    let named = value.split_once('=').unwrap_or(("server", &value));
                    let program = fs::canonicalize(named.1).with_context(|| value.clone())?;
                    builds.push(Build { name: named.0.to_owned(), program, is_quick });
                }
                "--only" => scenarios = value.split(',').map(str::to_owned).collect(),
                "--raw" => raw = Some(value.into()),
                "--seed" => rounds.seed = value.parse().context("--seed: a number")?,
                "--minutes" => rounds.minutes = value.parse().context("--minutes: a number")?,
                _ => bail!(
                    "unknown option `{flag}`; expected --server, --only, --raw, --quick, --seed, --minutes"
                ),
            }
        }
        for scenario in &scenarios {
            let known =
                SCENARIOS.contains(&&**scenario) || scenarios == [RANDOM] || scenarios == [PERMITS];
            ensure!(
                known,
                "`{scenario}` is not a scenario; expected {}, or {RANDOM} or {PERMITS} alone",
                SCENARIOS.join(", ")
            );
        }
        builds.iter_mut().for_each(|build| build.is_quick = is_quick);
        ensure!(!builds.is_empty(), "--server NAME=PATH: which program is to be measured?");
        Ok(Self { builds, scenarios, raw, rounds })
    }
}

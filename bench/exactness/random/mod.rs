//! Rounds that a seed decides: four servers, a proxy between each and its Redis, and faults that overlap.
//!
//! ```text
//! sluicegate-bench-exactness --server PATH --only random --seed N --minutes M
//! ```
//!
//! Each round has new processes and the next seed. The same seed gives the same policy and the same faults at the same
//! times; their effects on servers and Redis differ a little each time, so a round that broke its promise is played a
//! few times.

mod judge;
mod plan;
mod sentinel;
mod world;

use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::fleet::Build;
use crate::load::Tally;
use crate::midnight::past_midnight;
use crate::wire::Wire;

use judge::{Facts, Verdict};
use plan::{FAULTS_MS, Plan, SERVERS};
use world::World;

/// Calm after the last fault, in which debts are charged and delayed messages are delivered, ms.
const CALM_MS: u64 = 3_000;

/// Rounds to be played.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rounds {
    /// The seed of the first.
    pub(crate) seed: u64,
    /// Time after which no further round begins; the first one always does.
    pub(crate) minutes: u64,
}

/// Plays the rounds, and prints the result of each.
///
/// # Errors
/// If a round breaks its promise, or cannot be played.
pub(crate) async fn run(build: &Build, rounds: Rounds) -> anyhow::Result<()> {
    let (begin, mut seed, mut over, mut missing) = (Instant::now(), rounds.seed, 0, 0);
    println!(
        "| seed | policy | faults, ms | may be over | admitted | most over | by share | verdict |"
    );
    println!("|--:|---|---|--:|--:|--:|--:|---|");
    loop {
        past_midnight().await?;
        let plan = Plan::of(seed);
        match play(build, &plan).await {
            Ok((facts, tally)) => {
                let verdict = Verdict::of(&facts, &tally);
                println!("{}", line(seed, &plan, (&facts, &tally), &verdict));
                if !verdict.is_within() {
                    over += 1;
                    println!("\nover its promise; play it again: {}\n", again(build, seed));
                }
            }
            Err(error) => {
                missing += 1;
                println!("| {seed} | {plan} | not played: {error:#} |");
            }
        }
        seed += 1;
        if begin.elapsed() >= Duration::from_secs(60 * rounds.minutes) {
            break;
        }
    }
    let played = seed - rounds.seed - missing;
    println!("\n{played} rounds played, {over} over their promise");
    ensure!(over == 0, "{over} rounds are over their promise");
    ensure!(missing == 0, "{missing} rounds could not be played");
    Ok(())
}

async fn play(build: &Build, plan: &Plan) -> anyhow::Result<(Facts, Tally)> {
    let mut world = World::start(build, plan).await?;
    let mut load = world.fleet.steady(plan.per_s);
    load.reconnects = true;
    if plan.http {
        load.servers[SERVERS - 1] = world.fleet.address(SERVERS - 1, Wire::Http);
    }
    let clients = load.start()?;
    let ends = plan.faults.iter().map(|fault| (fault.at_ms + fault.for_ms, false, fault));
    let begins = plan.faults.iter().map(|fault| (fault.at_ms, true, fault));
    let mut steps: Vec<_> = begins.chain(ends).collect();
    // A fault without a length begins before it ends.
    steps.sort_by_key(|(at_ms, begins, _)| (*at_ms, !begins));
    for (at_ms, begins, fault) in steps {
        world.wait_until(at_ms * 1_000, &clients).await;
        match begins {
            true => world.begin(fault, &clients).await?,
            false => world.end(fault, &clients).await?,
        }
    }
    world.wait_until((FAULTS_MS + CALM_MS) * 1_000, &clients).await;
    let tally = clients.stop().await?;
    ensure!(!tally.latencies_us.is_empty(), "nothing was answered");
    Ok((world.facts().await?, tally))
}

fn line(seed: u64, plan: &Plan, seen: (&Facts, &Tally), verdict: &Verdict) -> String {
    let (facts, tally) = seen;
    let faults: Vec<_> = plan.faults.iter().map(ToString::to_string).collect();
    let Verdict { may, over, may_store, over_store } = verdict;
    let by_share = tally.of_mode("local")[0];
    let word = if verdict.is_within() { "within" } else { "OVER" };
    let Facts { limit: _, lowered, losses, splits, kills: _ } = facts;
    let alone = lowered.iter().map(|(from, to, _)| to - from).sum::<u64>() / 1_000;
    format!(
        "| {seed} | {plan} | {} | {may:.0} | {} | {over:.1} | {by_share} | {word}; by Redis and leases \
         {over_store:.1} of {may_store:.0}; {losses} losses, {splits} splits, lowered alone for {alone} ms |",
        faults.join("; "),
        tally.admitted.len(),
    )
}

fn again(build: &Build, seed: u64) -> String {
    let program = build.program.display();
    format!("sluicegate-bench-exactness --server {program} --only random --seed {seed} --minutes 0")
}

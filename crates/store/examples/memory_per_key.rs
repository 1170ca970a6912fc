//! The memory of a store of a million keys, for each algorithm.
//!
//! ```sh
//! cargo run --release -p sluicegate-store --example memory_per_key
//! ```
//!
//! Each is measured in a process of its own, at the default bounds: after a million keys took one
//! permit of ten, and after they tried to take all ten. Resident memory is `VmRSS` of Linux.

use std::error::Error;
use std::process::Command;
use std::sync::Arc;
use std::{env, fs};

use sluicegate_kernel::algorithm::Delay;
use sluicegate_kernel::{
    Concurrency, Cost, FixedWindow, LeakyBucket, Micros, Moment, NamedRule, PermitId, RangeError,
    Rate, Rule, RuleSet, SlidingCounter, SlidingLog, SlidingWindow, SmoothBursty, SmoothWarmup,
    TokenBucket, Verb,
};
use sluicegate_store::{KEYS_MAX_DEFAULT, MemoryStore, Quota, RuleOrigin, StoreRequest};

const LIMIT: u64 = 10;

const NAMES: [&str; 11] = [
    "token_bucket",
    "leaky_bucket",
    "fixed_window",
    "sliding_counter",
    "smooth_bursty",
    "smooth_warmup",
    "sliding_window",
    "sliding_window of 60 buckets",
    "sliding_log",
    "concurrency",
    "token_bucket and sliding_log",
];

fn main() -> Result<(), Box<dyn Error>> {
    let Some(name) = env::args().nth(1) else {
        println!(
            "| rules | keys | of long states, MB | RSS, MB | all tried to use all: keys | of long states, MB | RSS, MB |"
        );
        println!("|---|--:|--:|--:|--:|--:|--:|");
        for name in NAMES {
            let measured = Command::new(env::current_exe()?).arg(name).output()?;
            print!("{}", String::from_utf8_lossy(&measured.stdout));
        }
        return Ok(());
    };
    let rules = Arc::new(rules(&name)?);
    let (store, before) = (MemoryStore::default(), resident()?);
    print!("| {name} ");
    for permits in [1, LIMIT - 1] {
        for key in 0..KEYS_MAX_DEFAULT {
            for permit in 0..permits {
                take(&store, &rules, key, u128::from(permits * LIMIT + permit))?;
            }
        }
        let (keys, long) = (store.len(), store.state_bytes() / 1_000_000);
        print!("| {keys} | {long} | {} ", (resident()? - before) / 1_000_000);
    }
    println!("|");
    Ok(())
}

fn take(
    store: &MemoryStore,
    rules: &Arc<RuleSet>,
    key: usize,
    permit: u128,
) -> Result<(), Box<dyn Error>> {
    let (cost, permit) = (Cost::ONE, PermitId(permit));
    let check = Verb::Check { cost };
    let verb = if rules.supports(&check).is_ok() { check } else { Verb::Acquire { cost, permit } };
    let (key, quota) = (&key.to_le_bytes()[..], Quota::of("p"));
    let request =
        StoreRequest { policy: "p", key, rules, verb: &verb, origin: RuleOrigin::default(), quota };
    store.decide_now(&request, &Moment::new(Micros::SECOND))?;
    Ok(())
}

fn rules(name: &str) -> Result<RuleSet, Box<dyn Error>> {
    let both = name.split(" and ").map(|name| -> Result<NamedRule, Box<dyn Error>> {
        let short = name.split(' ').next().unwrap_or(name);
        Ok(NamedRule { name: short.into(), rule: rule(name)? })
    });
    Ok(RuleSet::new(both.collect::<Result<_, _>>()?)?)
}

fn rule(name: &str) -> Result<Rule, RangeError> {
    let hour = Micros::from_secs(3_600);
    let rate = Rate::new(LIMIT, hour)?;
    Ok(match name {
        "token_bucket" => TokenBucket::new(rate, LIMIT)?.into(),
        "leaky_bucket" => LeakyBucket::new(rate, LIMIT - 1, Delay::None)?.into(),
        "fixed_window" => FixedWindow::epoch(LIMIT, hour)?.into(),
        "sliding_counter" => SlidingCounter::new(LIMIT, hour)?.into(),
        "smooth_bursty" => SmoothBursty::new(rate, hour)?.into(),
        "smooth_warmup" => SmoothWarmup::new(rate, hour, 3.0)?.into(),
        "sliding_window" => SlidingWindow::new(LIMIT, hour, 10)?.into(),
        "sliding_window of 60 buckets" => SlidingWindow::new(LIMIT, hour, 60)?.into(),
        "sliding_log" => SlidingLog::new(LIMIT, hour)?.into(),
        _ => Concurrency::new(LIMIT, hour, 0)?.into(),
    })
}

/// Bytes of this process that are resident.
fn resident() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).ok_or("no VmRSS")?;
    Ok(kib.parse::<u64>()? * 1024)
}

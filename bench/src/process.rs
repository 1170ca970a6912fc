//! Measurements that need a process of their own: memory, and the latencies of decisions while the
//! table grows.

use std::process::Command;

use anyhow::Context;

use crate::memory::{KEYS, Peer, key};

/// The first argument of a child; the name of the peer follows.
pub const CHILD: &str = "child";

/// One limiter that has grown from nothing to all keys.
#[derive(Clone, Copy, Debug)]
pub struct Grown {
    /// Resident memory per key.
    pub bytes_per_key: f64,
    /// Median latency of all decisions, in µs.
    pub p50: f64,
    /// See `p50`.
    pub p99: f64,
    /// See `p50`.
    pub p999: f64,
    /// See `p50`.
    pub max: f64,
}

/// Grows a limiter in this process and prints a line that [`grow`] parses.
///
/// # Errors
/// If the limiter cannot be made or the system does not report the memory in use.
pub fn child(peer: Peer) -> anyhow::Result<()> {
    let clock = quanta::Clock::new();
    let mut histogram = vec![0_u32; 64 << STEPS_BITS];
    let limiter = peer.limiter()?;
    // The first decision loads code and data late.
    limiter.try_acquire(&key(0));
    let before = resident_bytes()?;
    for number in 0..KEYS {
        let key = key(number);
        let start = clock.raw();
        limiter.try_acquire(&key);
        let ns = clock.delta_as_nanos(start, clock.raw());
        histogram[step_of(ns)] += 1;
    }
    let bytes_per_key = (resident_bytes()? - before) / KEYS as f64;
    let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|part| quantile(&histogram, part));
    let max = quantile(&histogram, 1.0);
    println!("{bytes_per_key} {p50} {p99} {p999} {max}");
    Ok(())
}

/// Grows a limiter in a child process.
///
/// # Errors
/// If the child does not start or fails.
pub fn grow(peer: Peer) -> anyhow::Result<Grown> {
    let this = std::env::current_exe()?;
    let output = Command::new(this).args([CHILD, peer.name()]).output()?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let line = String::from_utf8(output.stdout)?;
    let numbers: Vec<f64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [bytes_per_key, p50, p99, p999, max] = numbers[..] else {
        anyhow::bail!("the child said `{line}`");
    };
    Ok(Grown { bytes_per_key, p50, p99, p999, max })
}

fn resident_bytes() -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.context("no resident set in /proc/self/status")?.parse::<f64>()? * 1024.0)
}

/// Steps of the histogram per doubling, as a power of two: to 6 %.
const STEPS_BITS: u32 = 4;

/// The step of a span: exact below 16 ns, then sixteen steps a doubling.
fn step_of(ns: u64) -> usize {
    let doublings = ns.checked_ilog2().unwrap_or(0).saturating_sub(STEPS_BITS);
    usize::try_from((u64::from(doublings) << STEPS_BITS) + (ns >> doublings))
        .expect("64 doublings of sixteen steps")
}

/// The upper end of a step, in µs.
fn end_of(step: usize) -> f64 {
    let steps = 1 << STEPS_BITS;
    let doublings = (step / steps).saturating_sub(1);
    let within = step - doublings * steps + 1;
    within as f64 * 2_f64.powf(doublings as f64) / 1_000.0
}

fn quantile(histogram: &[u32], part: f64) -> f64 {
    let all: u64 = histogram.iter().copied().map(u64::from).sum();
    let mut seen = 0;
    let step = histogram.iter().position(|count| {
        seen += u64::from(*count);
        seen as f64 >= part * all as f64
    });
    step.map_or(0.0, end_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_ends_less_than_a_fifteenth_behind_what_falls_into_it() {
        for ns in (0..100_000).chain([u64::from(u32::MAX), 1 << 50]) {
            let end = end_of(step_of(ns)) * 1_000.0;
            let ns = ns as f64;
            assert!(end > ns && end <= ns * 16.0 / 15.0 + 1.0, "{ns} ns ends at {end}");
        }
    }
}

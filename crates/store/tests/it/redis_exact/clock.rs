//! The server's clock jumps under load. A jump backwards adds no permits and blocks no request for
//! longer; a jump of δ forwards brings at most what would flow in during δ, and never more than a
//! burst.

use std::time::Duration;

use sluicegate_testkit::{Options, RedisServer, needed};

use crate::redis_exact::{Load, bucket, connect};

const RATE: u64 = 200;
const BURST: u64 = 50;
const SECOND_US: i64 = 1_000_000;

/// Moves the clock by `offsets_us`, one a second under twice the load, and returns the permits above
/// `burst + rate · elapsed` and those below it.
async fn excess_and_lack(offsets_us: &[i64]) -> Option<(f64, f64)> {
    let redis = RedisServer::start(Options { clock: true, ..Options::default() }).await;
    let redis = needed(redis)?;
    let store = connect(&redis.url()).await;
    let load = Load::start(&store, &bucket(RATE, BURST), 400);
    tokio::time::sleep(Duration::from_secs(1)).await;
    for offset in offsets_us {
        redis.set_clock_offset_us(*offset).expect("the clock can be moved");
        let before = load.admitted();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let passed = load.admitted() - before;
        assert!(passed >= RATE / 2, "only {passed} passed in the second after {offset} µs");
    }
    let (admitted, least, most) = load.end().await;
    let bound = |elapsed: Duration| BURST as f64 + RATE as f64 * elapsed.as_secs_f64();
    Some((admitted as f64 - bound(most), bound(least) - admitted as f64))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_goes_back_a_minute_gives_nothing_away_and_blocks_nobody() {
    let Some((excess, lack)) = excess_and_lack(&[-60 * SECOND_US, -60 * SECOND_US]).await else {
        return;
    };
    assert!(excess <= 1.0, "{excess} too many");
    assert!(lack <= 0.05 * RATE as f64 * 3.0, "{lack} too few");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_leaps_a_minute_gives_at_most_a_burst_away() {
    let Some((excess, _)) = excess_and_lack(&[60 * SECOND_US, 60 * SECOND_US]).await else {
        return;
    };
    assert!(excess <= BURST as f64 + 1.0, "{excess} too many");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_wavers_by_a_second_gives_at_most_a_burst_away_each_time() {
    let wavering = [SECOND_US, 0, SECOND_US, 0, SECOND_US];
    let Some((excess, _)) = excess_and_lack(&wavering).await else { return };
    assert!(excess <= 3.0 * BURST as f64 + 1.0, "{excess} too many after three leaps");
}

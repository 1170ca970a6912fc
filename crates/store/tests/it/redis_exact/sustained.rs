//! One key under twice its limit.

use std::time::Duration;

use sluicegate_testkit::{Options, RedisServer, need};

use crate::redis_exact::{Load, bucket, connect};

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_clients_get_the_limit_and_not_a_permit_more() {
    // A machine that stands still for less than the second that the burst lasts loses no permit.
    let (rate, burst) = (1_000, 1_000);
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = connect(&redis.url()).await;
    let load = Load::start(&store, &bucket(rate, burst), 2_000);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let (admitted, least, most) = load.end().await;
    let (rate, burst) = (rate as f64, burst as f64);
    let upper = burst + rate * most.as_secs_f64() + 1.0;
    let lower = 0.999 * (burst + rate * least.as_secs_f64());
    let admitted = admitted as f64;
    assert!(lower <= admitted && admitted <= upper, "{lower} <= {admitted} <= {upper}");
}

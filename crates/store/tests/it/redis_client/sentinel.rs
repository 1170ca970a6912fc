//! A master that moves: the client follows, and never goes back.

use std::time::Duration;

use sluicegate_store::redis::{CallEffect, ConnectError, RedisConfig, acl, sentinel_acl};
use sluicegate_testkit::{RedisServer, SentinelOptions, Sentinels, need};
use tokio::time::Instant;

use crate::redis_client::{
    GRACE, Load, Record, back_after, connect, count, is_slow, p99, start, until,
};

fn url(sentinels: &Sentinels) -> String {
    let hosts: Vec<_> = sentinels.addresses().iter().map(ToString::to_string).collect();
    format!("redis+sentinel://{}/{}", hosts.join(","), Sentinels::NAME)
}

async fn get(node: &RedisServer, key: &str) -> String {
    node.cli(&["GET", key]).await.expect("an answer").text()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordered_failover_is_followed_under_load() {
    let group = need!(Sentinels::start(SentinelOptions::default()).await);
    let client = connect(&format!("{}?deadline_ms=20", url(&group))).await;
    let load = Load::start(&client, 4, Duration::from_millis(1));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let old = group.master().await.expect("a master");
    let new = group.failover().await.expect("a failover");
    let there = load.now();
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let records = load.stop().await;

    assert_ne!(old, new);
    let back = back_after(&records, there);
    assert!(back < Duration::from_secs(2), "{back:?}");
    assert!(p99(&records) <= Duration::from_millis(20) + GRACE, "{:?}", p99(&records));
    let steady = |record: &&Record| record.begun > there + Duration::from_secs(2);
    let steady = records.iter().filter(steady).filter_map(|record| record.result.as_ref().err());
    assert_eq!(steady.filter(|error| !is_slow(error)).count(), 0);
    // From here on only the new master counts.
    let before: u64 = get(&group.nodes()[new], "sg:{load-0}").await.parse().expect("a count");
    assert_eq!(count(&client, "{load-0}").await, Ok(before + 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_hangs_is_left_and_never_used_again_when_it_wakes_up() {
    let group = need!(Sentinels::start(SentinelOptions::default()).await);
    let client = connect(&format!("{}?deadline_ms=20", url(&group))).await;
    assert_eq!(count(&client, "a").await, Ok(1));
    let load = Load::start(&client, 4, Duration::from_millis(1));
    let old = group.master().await.expect("a master");
    group.nodes()[old].stop_process().expect("it hangs");
    let new = group.master_other_than(old).await.expect("a failover");
    let there = load.now();
    until("the service was back", async || count(&client, "b").await.is_ok()).await;
    let back = load.now() - there;
    // The old master resumes and still acts as the master, until a Sentinel demotes it.
    group.nodes()[old].continue_process().expect("it wakes up");
    let ages = Instant::now();
    let (mut counted, mut unknown) = (0, 0);
    while ages.elapsed() < Duration::from_millis(1500) {
        match count(&client, "c").await {
            Ok(count) => counted = count,
            Err(error) if is_slow(&error) => {
                unknown += u64::from(error.outcome() == CallEffect::Unknown);
            }
            Err(error) => panic!("the new master serves: {error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let records = load.stop().await;
    assert!(back < Duration::from_secs(2), "{back:?}");
    assert!(p99(&records) <= Duration::from_millis(20) + GRACE, "{:?}", p99(&records));
    let stored: u64 = get(&group.nodes()[new], "sg:c").await.parse().expect("a count");
    assert!((counted..=counted + unknown).contains(&stored), "none went astray: {stored}");
}

#[tokio::test]
async fn a_server_that_is_no_master_is_refused() {
    // A Sentinel that names a replica has old news; the replica itself reports its role.
    let group = need!(Sentinels::start(SentinelOptions::default()).await);
    let master = group.master().await.expect("a master");
    let replica = (master + 1) % 3;
    let address = group.nodes()[replica].address().to_string();
    let [host, port] = address.split(':').collect::<Vec<_>>()[..] else { panic!("{address}") };
    for sentinel in group.sentinels() {
        sentinel.cli(&["SENTINEL", "REMOVE", Sentinels::NAME]).await.expect("an answer");
    }
    let liar = &group.sentinels()[0];
    liar.cli(&["SENTINEL", "MONITOR", "liar", host, port, "3"]).await.expect("an answer");
    let client = start(&format!("redis+sentinel://{}/liar", liar.address()));
    let error = client.ready().await.expect_err("it is a replica");
    assert!(matches!(&error, ConnectError::NotMaster { .. }), "{error:?}");
    assert!(error.to_string().ends_with("is a slave, not the master"), "{error}");
    let error = count(&client, "a").await.expect_err("nobody to count");
    assert!(error.to_string().starts_with("redis is unavailable"), "{error}");
}

#[tokio::test]
async fn a_name_that_no_sentinel_knows_is_said() {
    let group = need!(Sentinels::start(SentinelOptions::default()).await);
    let hosts = group.addresses()[0];
    let client = start(&format!("redis+sentinel://{hosts}/nobody"));
    let error = client.ready().await.expect_err("no such master");
    assert_eq!(
        error.to_string(),
        "no sentinel knows a master named `nobody`; expected `sluicegate`"
    );
}

#[tokio::test]
async fn the_least_privileged_users_suffice_behind_sentinels() {
    let own = "redis+sentinel://app:pw@h/m?sentinel_user=watch&sentinel_password=pw";
    let config: RedisConfig = own.parse().expect("a good URL");
    let line = |line: String| {
        let line = line.replace("PASSWORD", "pw");
        line.strip_prefix("user ").expect("an ACL line").to_owned()
    };
    let mut options = SentinelOptions::default();
    options.node.users.push(line(acl(&config)));
    let group = need!(Sentinels::start(options).await);
    let rules = line(sentinel_acl(&config).expect("Sentinels have users of their own"));
    for sentinel in group.sentinels() {
        let mut command = vec!["ACL", "SETUSER"];
        command.extend(rules.split(' '));
        sentinel.cli(&command).await.expect("an ACL user");
    }
    let hosts: Vec<_> = group.addresses().iter().map(ToString::to_string).collect();
    let url = own.replace("@h/m", &format!("@{}/{}", hosts.join(","), Sentinels::NAME));
    let client = connect(&format!("{url}&deadline_ms=1000")).await;
    assert_eq!(count(&client, "a").await, Ok(1));
    group.failover().await.expect("a failover");
    until("the client followed", async || count(&client, "a").await.is_ok()).await;
}

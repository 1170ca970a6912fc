//! Policies that are published in Redis: the writes of servers, the policies that programs read, and
//! the messages on the channel.
#![cfg(feature = "redis")]

mod example;
mod heard;
mod rights;
mod vectors;
mod written;

use std::collections::BTreeMap;

use sluicegate_policy::Policy;
use sluicegate_store::redis::{
    POLICIES_KEY, PolicyRecord, Publication, PublicationPolicy, PublicationSource, PublishError,
    PublishOutcome, RecordOverflow, RecordSettings, RedisConfig, RedisStore, RevisionDiff,
};
use sluicegate_testkit::{Cluster, RedisServer, Sentinels};

/// Long deadlines: these tests are about writes, not about speed on a busy machine.
const OPTIONS: &str = "deadline_ms=5000&connect_timeout_ms=5000";

fn start(url: &str) -> RedisStore {
    let config: RedisConfig = format!("{url}?{OPTIONS}").parse().expect("a URL of the test");
    RedisStore::start(&config).expect("a configuration of the test")
}

async fn connect(url: &str) -> RedisStore {
    let store = start(url);
    store.ready().await.expect("the server of the test is there");
    store
}

fn behind_sentinels(group: &Sentinels) -> String {
    let hosts: Vec<_> = group.addresses().iter().map(ToString::to_string).collect();
    format!("redis+sentinel://{}/{}", hosts.join(","), Sentinels::NAME)
}

fn in_cluster(cluster: &Cluster) -> String {
    let hosts: Vec<_> = cluster.addresses().iter().map(ToString::to_string).collect();
    format!("redis+cluster://{}", hosts.join(","))
}

/// A catalog of `count` policies, of which each revision from 1 on changes one, in turn, or removes it
/// if it is a multiple of 5.
#[derive(Clone, Copy)]
struct Catalog {
    count: i64,
    revision: i64,
}

impl Catalog {
    /// Returns its policies, and the revisions that changed them last, which are their versions.
    fn policies(self) -> BTreeMap<String, i64> {
        let changed = |place: i64| {
            let ago = (self.revision - place).rem_euclid(self.count);
            (name(place), (self.revision - ago).max(0))
        };
        let is_there = |(_, version): &(_, i64)| *version == 0 || version % 5 != 0;
        (0..self.count).map(changed).filter(is_there).collect()
    }

    /// Publishes it, with the changes since `since` if that is given.
    async fn publish(
        self,
        store: &RedisStore,
        since: Option<i64>,
    ) -> Result<PublishOutcome, PublishError> {
        let policies = self.policies();
        let documents: Vec<_> = policies.keys().map(|name| document(name)).collect();
        let policies =
            policies.iter().zip(&documents).map(|((name, version), document)| PublicationPolicy {
                name,
                app: "checkout",
                is_shadow: false,
                version: *version,
                since_ms: None,
                document,
            });
        let policies: Vec<_> = policies.collect();
        let changed = since.unwrap_or(self.revision) + 1..=self.revision;
        let changed: Vec<_> = changed.map(|revision| name(revision % self.count)).collect();
        let names: Vec<_> = changed.iter().map(String::as_str).collect();
        let changed = since.map(|since| RevisionDiff { since, names: &names });
        let publication = Publication { changed, ..of_catalog(self.revision, &policies) };
        store.publish(&publication).await
    }
}

/// Returns a publication of all policies of a catalog.
fn of_catalog<'p>(revision: i64, policies: &'p [PublicationPolicy<'p>]) -> Publication<'p> {
    Publication::new(revision, policies, PublicationSource::Catalog, record)
}

/// Returns the record of a policy that sets only its rules; `None` if these cannot be compiled.
fn record(policy: &PublicationPolicy<'_>) -> Option<PolicyRecord> {
    let read = Policy::parse_one(policy.document).ok()?;
    let settings = RecordSettings {
        apps: vec![policy.app.to_owned()],
        on_store_failure: "local",
        overflow: if policy.is_shadow { RecordOverflow::Shadow } else { RecordOverflow::Reject },
        leases: true,
        key: Vec::new(),
    };
    Some(PolicyRecord::new(settings, read.rules().set(), []))
}

fn name(place: i64) -> String {
    format!("policy-{place:05}")
}

fn document(name: &str) -> String {
    format!(r#"{{"name":"{name}","rules":[{{"fixed_window":{{"limit":10,"window":"1m"}}}}]}}"#)
}

/// Returns the content of the hash: its revision, and the versions of its policies. `None`: there is no
/// hash.
async fn there(redis: &RedisServer) -> Option<(i64, BTreeMap<String, i64>)> {
    let reply = redis.cli(&["HGETALL", POLICIES_KEY]).await.expect("it answers");
    let mut fields: BTreeMap<_, _> =
        reply.list().chunks(2).map(|pair| (pair[0].text(), pair[1].text())).collect();
    let revision = fields.remove("#revision")?.parse().expect("a number");
    assert_eq!(fields.remove("#format").as_deref(), Some("1"));
    fields.retain(|name, _| !name.starts_with('#'));
    let version = |text: &str| {
        let json: serde_json::Value = serde_json::from_str(text).expect("JSON");
        json["version"].as_i64().expect("a version")
    };
    Some((revision, fields.iter().map(|(name, text)| (name.clone(), version(text))).collect()))
}

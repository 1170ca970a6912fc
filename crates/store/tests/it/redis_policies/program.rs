//! A program that reads policies in Redis, to the letter of `spec/redis-protocol.md`.

use std::collections::BTreeMap;

use serde_json::Value as Json;
use sluicegate_conformance::Holds;
use sluicegate_policy::Policy;
use sluicegate_store::redis::POLICIES_KEY;
use sluicegate_testkit::RedisServer;

/// What it holds.
#[derive(Debug, Default)]
pub(crate) struct Program {
    revision: Option<i64>,
    policies: BTreeMap<String, i64>,
    /// Whether the last look found an earlier revision than the one that is held.
    went_back: bool,
}

impl Program {
    /// What it does every ten seconds.
    pub(crate) async fn look(&mut self, redis: &RedisServer) {
        let Some((revision, fields)) = read(redis).await else { return };
        if Some(revision) < self.revision && !self.went_back {
            self.went_back = true;
            return;
        }
        self.went_back = false;
        if Some(revision) != self.revision {
            self.take(revision, &fields);
        }
    }

    /// What it does when it hears a message.
    pub(crate) async fn hear(&mut self, message: &str, redis: &RedisServer) {
        let told = message.parse().ok();
        if told.is_none() || told == self.revision {
            return;
        }
        if let Some((revision, fields)) = read(redis).await
            && Some(revision) > self.revision
        {
            self.went_back = false;
            self.take(revision, &fields);
        }
    }

    pub(crate) fn holds(&self) -> Holds {
        Holds { revision: self.revision, policies: self.policies.clone() }
    }

    fn take(&mut self, revision: i64, fields: &BTreeMap<String, String>) {
        self.revision = Some(revision);
        self.policies.retain(|name, _| fields.contains_key(name));
        for (name, text) in fields {
            if let Some(version) = version(name, text) {
                self.policies.insert(name.clone(), version);
            }
        }
    }
}

/// The revision and the policies, if there are any in a format that is known.
async fn read(redis: &RedisServer) -> Option<(i64, BTreeMap<String, String>)> {
    let reply = redis.cli(&["HGETALL", POLICIES_KEY]).await.expect("it answers");
    let pairs = reply.list().chunks(2).map(|pair| (pair[0].text(), pair[1].text()));
    let mut fields: BTreeMap<_, _> = pairs.collect();
    let revision = fields.get("#revision")?.parse().ok()?;
    let is_known = fields.get("#format")? == "1";
    fields.retain(|name, _| !name.starts_with('#'));
    is_known.then_some((revision, fields))
}

/// The version of a policy that can be read.
fn version(name: &str, text: &str) -> Option<i64> {
    let field: Json = serde_json::from_str(text).ok()?;
    let is_known = matches!(field["state"].as_str(), Some("active" | "shadow"));
    let policy = Policy::parse_one(&field["document"].to_string()).ok()?;
    (is_known && policy.name() == name).then(|| field["version"].as_i64()).flatten()
}

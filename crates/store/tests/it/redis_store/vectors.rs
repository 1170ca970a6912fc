//! Every vector of `spec/`, through connections, on a server, a replicated set and a cluster.

use std::sync::Arc;

use sluicegate_conformance::{Subject, load, run};
use sluicegate_kernel::{Moment, RuleSet, Unsupported, Verb, Verdict};
use sluicegate_store::redis::RedisStore;
use sluicegate_store::{Quota, Store, StoreError, StoreRequest};
use sluicegate_testkit::{
    Cluster, ClusterOptions, Options, RedisServer, SentinelOptions, Sentinels, need,
};
use tokio::runtime::Handle;

use crate::redis_store::{bucket, connect, version};

/// One key after another in a store.
struct InRedis {
    store: RedisStore,
    rules: Arc<RuleSet>,
    /// How often the rules were others.
    version: u64,
    vectors: u64,
    runtime: Handle,
}

impl Subject for InRedis {
    fn start(&mut self, rules: &RuleSet) {
        self.configure(rules);
        self.vectors += 1;
    }

    fn decide(&mut self, verb: &Verb, at: &Moment<'_>) -> Result<Verdict, Unsupported> {
        let key = self.vectors.to_le_bytes();
        let request = StoreRequest {
            policy: "p",
            key: &key,
            rules: &self.rules,
            verb,
            origin: version(self.version),
            quota: Quota::default(),
        };
        match self.runtime.block_on(self.store.decide(&request, at)) {
            Ok(answer) => Ok(answer.verdict),
            Err(StoreError::Unsupported(unsupported)) => Err(unsupported),
            Err(error) => panic!("no verdict: {error}"),
        }
    }

    fn configure(&mut self, rules: &RuleSet) {
        self.rules = Arc::new(rules.clone());
        self.version += 1;
    }
}

async fn answers_every_vector(url: &str) {
    let (store, runtime) = (connect(url).await, Handle::current());
    let answering = tokio::task::spawn_blocking(move || {
        let mut subject = InRedis { store, rules: bucket(1, 1), version: 0, vectors: 0, runtime };
        let vectors = load().expect("the vectors are there");
        assert!(vectors.len() > 50, "only {} vectors", vectors.len());
        let run = |(_, vector): &_| run(vector, &mut subject).err();
        let problems = vectors.iter().filter_map(run).map(|problem| problem.to_string());
        let problems: Vec<_> = problems.collect();
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    });
    answering.await.expect("every vector holds");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_answers_every_vector() {
    let redis = need!(RedisServer::start(Options::default()).await);
    answers_every_vector(&redis.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_sentinels_name_answers_every_vector() {
    let sentinels = need!(Sentinels::start(SentinelOptions::default()).await);
    let hosts: Vec<_> = sentinels.addresses().iter().map(ToString::to_string).collect();
    let url = format!("redis+sentinel://{}/{}", hosts.join(","), Sentinels::NAME);
    answers_every_vector(&url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_answers_every_vector() {
    let cluster = need!(Cluster::start(ClusterOptions::default()).await);
    let hosts: Vec<_> = cluster.addresses().iter().map(ToString::to_string).collect();
    answers_every_vector(&format!("redis+cluster://{}", hosts.join(","))).await;
}

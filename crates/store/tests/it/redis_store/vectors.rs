//! Every vector of `spec/`, through connections, on a server, a replicated set and a cluster.

use std::sync::Arc;

use sluicegate_conformance::{LeasingSubject, Subject, load, load_leases, run, run_lease};
use sluicegate_kernel::lease::Message;
use sluicegate_kernel::{LeaseReply, Moment, RuleSet, Unsupported, Verb, Verdict};
use sluicegate_store::redis::RedisStore;
use sluicegate_store::{Quota, Store, StoreError, StoreRequest};
use sluicegate_testkit::{
    Cluster, ClusterOptions, Options, RedisServer, SentinelOptions, Sentinels, need,
};
use tokio::runtime::Handle;

use crate::redis_store::{bucket, connect, version};

/// The verb beside a message, which the store ignores.
static LOOK: Verb = Verb::Reset;

/// One key after another in a store.
struct InRedis {
    store: RedisStore,
    rules: Arc<RuleSet>,
    /// The number of times that the rules changed.
    version: u64,
    keys: u64,
    runtime: Handle,
}

impl InRedis {
    fn request<'a>(&'a self, key: &'a [u8], verb: &'a Verb) -> StoreRequest<'a> {
        let (rules, origin) = (&self.rules, version(self.version));
        StoreRequest { policy: "p", key, rules, verb, origin, quota: Quota::default() }
    }
}

impl Subject for InRedis {
    fn start(&mut self, rules: &RuleSet) {
        self.configure(rules);
        self.keys += 1;
    }

    fn decide(&mut self, verb: &Verb, at: &Moment<'_>) -> Result<Verdict, Unsupported> {
        let key = self.keys.to_le_bytes();
        match self.runtime.block_on(self.store.decide(&self.request(&key, verb), at)) {
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

impl LeasingSubject for InRedis {
    fn lease(&mut self, message: &Message, at: &Moment<'_>) -> LeaseReply {
        let key = self.keys.to_le_bytes();
        let request = self.request(&key, &LOOK);
        let reply = self.runtime.block_on(self.store.lease(&request, message, at));
        reply.unwrap_or_else(|error| panic!("no reply: {error}"))
    }

    fn lose(&mut self) {
        self.keys += 1;
    }
}

async fn answers_every_vector(url: &str) {
    let (store, runtime) = (connect(url).await, Handle::current());
    let answering = tokio::task::spawn_blocking(move || {
        let mut subject = InRedis { store, rules: bucket(1, 1), version: 0, keys: 0, runtime };
        let vectors = load().expect("the vectors are there");
        assert!(vectors.len() > 50, "only {} vectors", vectors.len());
        let leases = load_leases().expect("the vectors are there");
        let mut problems = Vec::new();
        for (_, vector) in &vectors {
            problems.extend(run(vector, &mut subject).err().map(|problem| problem.to_string()));
        }
        for vector in &leases {
            problems
                .extend(run_lease(vector, &mut subject).err().map(|problem| problem.to_string()));
        }
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

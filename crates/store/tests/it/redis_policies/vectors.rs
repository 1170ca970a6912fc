//! `spec/vectors/redis-policies.json`, on a real server.

use serde_json::Value as Json;
use sluicegate_conformance::{
    HashFields, Life, PolicyStep, PublishedAs, PublishedSpec, load_policies,
};
use sluicegate_store::redis::{
    POLICIES_CHANNEL, POLICIES_KEY, Publication, PublicationPolicy, PublishOutcome, RedisStore,
    RevisionDiff,
};
use sluicegate_testkit::{Client, Error, Options, RedisServer, need};

use crate::redis_policies::{connect, of_catalog};

#[tokio::test]
async fn what_is_published_is_as_every_vector_says() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let lives = load_policies().expect("the vectors are there");
    assert!(lives.len() >= 10, "only {}", lives.len());
    for life in lives {
        redis.cli(&["FLUSHALL"]).await.expect("it answers");
        live(&redis, &life).await;
    }
}

async fn live(redis: &RedisServer, life: &Life) {
    let store = connect(&redis.url()).await;
    let mut channel = redis.client().await.expect("a connection");
    channel.call(&["SUBSCRIBE", POLICIES_CHANNEL]).await.expect("a subscription");
    for (place, step) in life.steps.iter().enumerate() {
        let at = format!("{}: step {place}: {step:?}", life.name);
        match step {
            PolicyStep::Publish { expect, hash, message, .. } => {
                let published = publish(&store, step).await;
                assert_eq!(&told(published), expect, "{at}: {published:?}");
                assert_eq!(&fields(redis).await, hash, "{at}");
                assert_eq!(&heard(&mut channel).await, message, "{at}");
            }
            PolicyStep::Found { hash } => put(redis, hash).await,
            // The policies that a program holds are tested where programs follow:
            // `engine_following`.
            PolicyStep::Look { .. } | PolicyStep::Hear { .. } => {}
        }
    }
}

async fn publish(store: &RedisStore, step: &PolicyStep) -> PublishOutcome {
    let PolicyStep::Publish { revision, policies, since, changed, instead_of, .. } = step else {
        panic!("{step:?}")
    };
    let documents: Vec<_> = policies.values().map(|spec| spec.document.to_string()).collect();
    let policies = policies.iter().zip(&documents);
    let policies: Vec<_> =
        policies.map(|((name, spec), document)| policy(name, spec, document)).collect();
    let names: Vec<_> = changed.iter().map(String::as_str).collect();
    let publication = Publication {
        changed: since.map(|since| RevisionDiff { since, names: &names }),
        instead_of: *instead_of,
        ..of_catalog(*revision, &policies)
    };
    store.publish(&publication).await.expect("the server answers")
}

fn policy<'p>(name: &'p str, spec: &'p PublishedSpec, document: &'p str) -> PublicationPolicy<'p> {
    let PublishedSpec { version, state, app, document: _ } = spec;
    let is_shadow = match &**state {
        "shadow" => true,
        "active" => false,
        other => panic!("state `{other}`"),
    };
    PublicationPolicy { name, app, is_shadow, version: *version, since_ms: None, document }
}

fn told(published: PublishOutcome) -> PublishedAs {
    match published {
        PublishOutcome::Written => PublishedAs::Written,
        PublishOutcome::Known => PublishedAs::Known,
        PublishOutcome::Later { .. } => PublishedAs::Later,
        PublishOutcome::LaterFormat { .. } => PublishedAs::LaterFormat,
        PublishOutcome::OfCatalog => panic!("it is a catalog's"),
        PublishOutcome::Busy => panic!("nobody else writes"),
    }
}

/// Returns the fields of the hash, which is the only key.
async fn fields(redis: &RedisServer) -> HashFields {
    let keys = redis.cli(&["KEYS", "*"]).await.expect("it answers");
    assert!(keys.list().iter().all(|key| key.text() == POLICIES_KEY), "{keys:?}");
    let reply = redis.cli(&["HGETALL", POLICIES_KEY]).await.expect("it answers");
    let field = |pair: &[sluicegate_testkit::Reply]| {
        let (name, text) = (pair[0].text(), pair[1].text());
        let value = match name.starts_with('#') {
            true => Json::String(text),
            false => serde_json::from_str(&text).expect("JSON"),
        };
        (name, value)
    };
    reply.list().chunks(2).map(field).collect()
}

async fn put(redis: &RedisServer, hash: &HashFields) {
    redis.cli(&["DEL", POLICIES_KEY]).await.expect("it answers");
    for (name, value) in hash {
        let text = match value {
            Json::String(text) if name.starts_with('#') => text.clone(),
            value => value.to_string(),
        };
        redis.cli(&["HSET", POLICIES_KEY, name, &text]).await.expect("it answers");
    }
}

/// Returns the message that has come since the last call; there is one at most.
async fn heard(channel: &mut Client) -> Option<String> {
    // A ping is answered after all earlier messages.
    channel.send(&["PING"]).await.expect("a question");
    let mut heard = None;
    loop {
        let said: Result<_, Error> = channel.receive().await;
        let said = said.expect("an answer");
        let [kind, .., text] = said.list() else { panic!("{said:?}") };
        if kind.text() == "pong" {
            return heard;
        }
        assert_eq!(heard.replace(text.text()), None, "it is said once");
    }
}

//! No key takes more of Redis' time than is permitted.

use std::sync::Arc;

use sluicegate_kernel::{Cost, Micros, RuleSet, SlidingLog, Verb};
use sluicegate_store::{Executed, StoreError};
use sluicegate_testkit::{Options, RedisServer, needed};

use crate::redis_store::{ask, connect};

#[tokio::test]
async fn rules_that_would_take_too_much_of_redis_time_are_refused_with_field_and_range() {
    let Some(server) = needed(RedisServer::start(Options::default()).await) else { return };
    let store = connect(&server.url()).await;
    let log = |limit| {
        let log = SlidingLog::new(limit, Micros::SECOND).expect("in range");
        Arc::new(RuleSet::single("hits", log))
    };
    let check = Verb::Check { cost: Cost::ONE };
    for _ in 0..2 {
        let refused = ask(&store, b"k", &log(9_000), &check, Micros::SECOND).await.unwrap_err();
        assert!(matches!(refused, StoreError::TooDear(_)), "{refused:?}");
        assert_eq!(refused.executed(), Executed::No);
        let said = refused.to_string();
        assert!(said.starts_with("rules: hits.sliding_log.limit: `9000` could take"), "{said}");
        assert!(said.contains("expected 1..=2500"), "{said}");
    }
    assert!(ask(&store, b"k", &log(2_500), &check, Micros::SECOND).await.is_ok());
    let mut client = server.client().await.expect("the server of the test");
    let keys = client.call(&["KEYS", "*"]).await.expect("an answer");
    assert_eq!(keys.list().len(), 2, "the state and the rules of the one that was decided");
}

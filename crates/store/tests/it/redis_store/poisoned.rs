//! A key with a value that is not a state fails alone; other keys work.

use sluicegate_kernel::{Cost, Micros, Verb};
use sluicegate_store::StoreError;
use sluicegate_store::redis::codec::{RulesBlob, state_key};
use sluicegate_testkit::{Options, RedisServer, need};

use crate::redis_store::{ask_as, bucket, connect, passed_as, version};

const NOW: Micros = Micros::from_secs(1_800_000_000);

#[tokio::test]
async fn what_is_no_state_is_said_of_its_key_or_counts_as_used_up() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let (store, rules) = (connect(&redis.url()).await, bucket(1, 10));
    let check = Verb::Check { cost: Cost::ONE };
    let key = state_key("p", b"hash");
    redis.cli(&["HSET", &key, "field", "value"]).await.expect("it answers");
    let asked = ask_as(version(1), &store, b"hash", (&rules, &check), NOW).await;
    assert!(matches!(asked, Err(StoreError::Unreadable { .. })), "{asked:?}");

    // The head of these rules, and no state behind it.
    let head = RulesBlob::new(&rules, version(1)).head().to_vec();
    let text: String = head.iter().map(|byte| format!("\\{byte}")).collect();
    let set = format!("return redis.call('SET', KEYS[1], '{text}xy')");
    redis.cli(&["EVAL", &set, "1", &state_key("p", b"cut")]).await.expect("it answers");
    let asked = ask_as(version(1), &store, b"cut", (&rules, &check), NOW).await;
    assert!(matches!(asked, Err(StoreError::Unreadable { .. })), "{asked:?}");

    for foreign in ["x", "a text of somebody else, which is long enough to be a state"] {
        let key = state_key("p", foreign.as_bytes());
        redis.cli(&["SET", &key, foreign]).await.expect("it answers");
        let passed = passed_as(version(1), &store, foreign.as_bytes(), (&rules, 3), NOW).await;
        assert_eq!(passed, 0, "nobody knows what was in use");
        let later = NOW.plus(Micros::from_secs(2));
        let passed = passed_as(version(1), &store, foreign.as_bytes(), (&rules, 3), later).await;
        assert_eq!(passed, 2, "and it fills as ever");
    }
}

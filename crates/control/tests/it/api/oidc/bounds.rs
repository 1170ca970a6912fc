//! Bounds on a provider: the time of an answer, its size, and the clock.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use sluicegate_control::identity::Oidc;
use tokio::net::TcpListener;
use tokio::time::{pause, timeout};

use super::{Begun, Stage, config, session};
use crate::api::client::{Client, NOW_S, Served};

#[tokio::test]
async fn clocks_may_differ_by_a_minute_and_no_more() {
    let stage = Stage::start(|_| {}).await;
    stage.account("grace").await;
    for (claims, status) in [
        (json!({ "exp": NOW_S - 59 }), 303),
        (json!({ "exp": NOW_S - 60 }), 403),
        (json!({ "iat": NOW_S + 60 }), 303),
        (json!({ "iat": NOW_S + 61 }), 403),
        // A sign-in takes ten minutes at most, and clocks may differ by one.
        (json!({ "iat": NOW_S - 660 }), 303),
        (json!({ "iat": NOW_S - 661 }), 403),
        (json!({ "iat": 0 }), 403),
    ] {
        stage.provider.inner().claims = claims.clone();
        let answer = stage.sign_in().await;
        assert_eq!(answer.status, status, "{claims}: {answer:?}");
        assert_eq!(session(&answer).is_some(), status == 303, "{claims}");
    }
}

#[tokio::test]
async fn what_is_too_long_is_not_read() {
    let long = "x".repeat(1 << 20);
    let stage = Stage::start(|_| {}).await;
    stage.account("grace").await;
    stage.provider.inner().described = json!({ "x": &long });
    let answer = stage.served.ask(&Client::default(), "GET /oidc/login", None).await;
    assert_eq!(answer.status, 503, "{answer:?}");

    stage.provider.inner().described = json!({});
    stage.provider.inner().claims = json!({ "x": &long });
    let answer = stage.sign_in().await;
    assert_eq!((answer.status.as_u16(), session(&answer)), (503, None), "{answer:?}");
    stage.provider.inner().claims = json!({ "x": &long[..1_000] });
    stage.signed_in().await;
}

#[tokio::test]
async fn who_does_not_answer_is_waited_for_five_seconds() {
    // The provider accepts connections, and does no more.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let issuer = format!("http://{}", listener.local_addr().unwrap());
    let oidc = Arc::new(Oidc::new(config(&issuer)).unwrap());
    let served = Served::start_with(|api| api.with_oidc(oidc)).await;
    pause();
    let client = Client::default();
    let ask = served.ask(&client, "GET /oidc/login", None);
    let answer = timeout(Duration::from_secs(6), ask).await.unwrap();
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(answer.headers["retry-after"], "1");
}

#[tokio::test]
async fn a_provider_that_fails_is_away_and_says_nothing_of_who_somebody_is() {
    let stage = Stage::start(|_| {}).await;
    stage.account("grace").await;
    stage.provider.inner().is_broken = true;
    let answer = stage.served.ask(&Client::default(), "GET /oidc/login", None).await;
    assert_eq!(answer.status, 503, "{answer:?}");

    stage.provider.inner().is_broken = false;
    let Begun { browser, page } = stage.begin(&Client::default()).await;
    let called = stage.provider.visit(&page);
    stage.provider.inner().is_broken = true;
    let answer = stage.call_back(&browser, &called).await;
    assert_eq!((answer.status.as_u16(), session(&answer)), (503, None), "{answer:?}");
    // The same sign-in goes on when it is back.
    stage.provider.inner().is_broken = false;
    assert_eq!(stage.call_back(&browser, &called).await.status, 303);
}

//! Guesses of passwords do not lock out others.

use serde_json::json;
use sluicegate::Micros;

use crate::api::client::{Client, PASSWORD, Served};

/// The status of an attempt to sign `ada` in.
async fn attempt(served: &Served, client: &Client, password: &str) -> u16 {
    let body = json!({ "account": "ada", "password": password });
    served.ask(client, "POST /session", Some(body)).await.status.as_u16()
}

fn from(source: &str) -> Client {
    Client { source: Some(source.to_owned()), ..Client::default() }
}

#[tokio::test]
async fn guesses_from_one_network_keep_out_nobody_elsewhere() {
    let (served, _) = Served::with_admin().await;
    let mut computed = 0;
    for half_second in 0..90_u32 {
        let status = attempt(&served, &from("198.51.100.7"), "a wrong password").await;
        assert!([401, 429].contains(&status), "{status}");
        computed += u32::from(status == 401);
        if half_second % 5 == 0 {
            assert_eq!(
                attempt(&served, &from("203.0.113.9"), PASSWORD).await,
                200,
                "{half_second}"
            );
        }
        served.clock.advance(Micros::from_millis(500));
    }
    assert_eq!(computed, 10, "the others were refused before anything was computed");
    assert_eq!(
        attempt(&served, &from("198.51.100.7"), PASSWORD).await,
        429,
        "it is the same network"
    );
}

#[tokio::test]
async fn where_many_networks_guess_who_has_signed_in_lately_gets_in() {
    let (served, ada) = Served::with_admin().await;
    let signed_out = served.ask(&ada, "DELETE /session", None).await;
    assert_eq!(signed_out.status, 204);
    assert_eq!(served.ask(&ada, "GET /session", None).await.status, 401, "that is over");
    for place in 0..60 {
        let from = from(&format!("198.51.{}.7", 100 + place / 6));
        assert_eq!(attempt(&served, &from, "a wrong password").await, 401, "{place}");
    }
    assert_eq!(attempt(&served, &from("203.0.113.9"), PASSWORD).await, 429, "a stranger");
    assert_eq!(attempt(&served, &from("192.0.2.1"), PASSWORD).await, 200, "her network");
    let elsewhere = Client { cookie: ada.cookie.clone(), ..from("203.0.113.9") };
    assert_eq!(attempt(&served, &elsewhere, PASSWORD).await, 200, "her browser");
    let forged = Client { cookie: Some("__Host-sluicegate=sgs_x".to_owned()), ..elsewhere };
    assert_eq!(attempt(&served, &forged, PASSWORD).await, 200, "she was there just now");
    let forged = Client { source: Some("203.0.113.10".to_owned()), ..forged };
    assert_eq!(attempt(&served, &forged, PASSWORD).await, 429, "a browser that is not known");
}

#[tokio::test]
async fn where_somebody_guesses_beside_her_her_browser_gets_in() {
    let (served, ada) = Served::with_admin().await;
    for place in 0..70 {
        let account = format!("account{place}");
        let body = json!({ "account": account, "password": "a wrong password" });
        served.ask(&Client::default(), "POST /session", Some(body)).await;
        attempt(&served, &Client::default(), "a wrong password").await;
    }
    assert_eq!(attempt(&served, &Client::default(), PASSWORD).await, 429);
    assert_eq!(attempt(&served, &ada, PASSWORD).await, 200);
}

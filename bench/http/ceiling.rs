//! A server that decides nothing: axum on a runtime of one thread. It reads the same JSON and
//! writes a constant one of the same size.

use axum::routing::post;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};

/// The argument that makes this program the server.
pub(crate) const CHILD: &str = "ceiling";

#[derive(Deserialize)]
struct Asked {
    policy: String,
    key: String,
}

#[derive(Serialize)]
struct Fixed {
    allowed: bool,
    code: i8,
    granted: u64,
    wait_us: u64,
    limit: u64,
    remaining: u64,
    retry_after_us: Option<u64>,
    reset_after_us: u64,
    rule: &'static str,
}

async fn check(Json(asked): Json<Asked>) -> Json<Fixed> {
    std::hint::black_box((asked.policy, asked.key));
    Json(Fixed {
        allowed: true,
        code: 1,
        granted: 1,
        wait_us: 0,
        limit: 1_000_000,
        remaining: 999_999,
        retry_after_us: Some(0),
        reset_after_us: 1,
        rule: "token_bucket",
    })
}

/// Serves on a free port, which it prints as Sluicegate does.
pub(crate) fn serve() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("listening on http://{}", listener.local_addr()?);
        let router = Router::new().route("/v1/check", post(check));
        axum::serve(
            axum::serve::ListenerExt::tap_io(listener, |stream| {
                stream.set_nodelay(true).ok();
            }),
            router,
        )
        .await?;
        Ok(())
    })
}

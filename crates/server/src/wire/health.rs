//! Health checks: the same answers on every address of HTTP/1.1. The admin address also has `/healthz`, which answers
//! like `/livez`.
//!
//! | path | answer |
//! |---|---|
//! | `/livez` | 200, `ok` while the process answers |
//! | `/readyz` | 200, `ok` while the server accepts traffic; 503, `shutting down` once it stops |

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio_util::sync::CancellationToken;

/// The routes of health checks; `leaving` is cancelled when the server must get no more traffic.
pub(super) fn routes<S: Clone + Send + Sync + 'static>(leaving: CancellationToken) -> Router<S> {
    let ready = async move || match leaving.is_cancelled() {
        false => (StatusCode::OK, "ok\n"),
        true => (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n"),
    };
    Router::new().route("/livez", get(async || "ok\n")).route("/readyz", get(ready))
}

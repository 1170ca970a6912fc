//! Real gateways in front of Sluicegate, with the configurations of `examples/`, unchanged except for the ports.

mod audit;
mod auth;
pub(crate) mod client;
mod connections;
mod envoy;
mod forward;
mod haproxy;
mod imported;
mod nginx;
mod overflow;
mod page;
mod resty;
pub(crate) mod stage;

use std::time::Duration;

use sluicegate_testkit::until;

/// Longest time a test waits for a program, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `done`.
async fn soon(what: &str, done: impl AsyncFnMut() -> bool) {
    let mut done = done;
    until(what, PATIENCE, async || done().await.then_some(())).await.expect("it comes true soon");
}

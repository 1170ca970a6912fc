//! `health`.

use super::{Ran, Server, ran, run};
use crate::program::PATIENCE;

#[tokio::test]
async fn a_server_is_healthy_until_it_is_told_to_stop() {
    let server = Server::start();
    let health = format!("health --to {}", server.admin);
    assert_eq!(run(&health), ran(0, "ok"));
    server.process.signal("TERM");
    let stopping = async || Some(run(&health)).filter(|ran| ran.status != Some(0));
    let told = sluicegate_testkit::until("the server stops", PATIENCE, stopping).await;
    let err =
        "error: not ready: the server returned status 503 Service Unavailable: shutting down\n";
    let expected = Ran { out: String::new(), err: err.to_owned(), status: Some(1) };
    assert_eq!(told.expect("it was told"), expected);
}

#[test]
fn what_is_not_there_or_no_admin_address_is_not_healthy() {
    let server = Server::start();
    let wrong = run(&format!("health --to {}", server.http));
    let expected = format!(
        "error: {} has no /readyz: `--to` is the admin address, such as http://127.0.0.1:8082\n",
        server.http.trim_start_matches("http://")
    );
    assert_eq!((wrong.status, &*wrong.err), (Some(1), &*expected));
    let nobody = run("health --to unix:/nonexistent");
    assert_eq!(nobody.status, Some(1));
}

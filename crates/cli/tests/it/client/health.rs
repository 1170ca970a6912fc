//! `health`.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

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
fn the_http_address_answers_as_well_as_the_admin_address() {
    let server = Server::start();
    assert_eq!(run(&format!("health --to {}", server.http)), ran(0, "ok"));
}

#[test]
fn what_is_not_there_or_has_no_readiness_is_not_healthy() {
    let other = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = other.local_addr().expect("it is bound");
    let answering = std::thread::spawn(move || {
        let (mut client, _) = other.accept().expect("the client connects");
        let head = BufReader::new(&client).lines().map_while(Result::ok);
        assert!(head.take_while(|line| !line.is_empty()).count() > 0, "it asks");
        let answer = "HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        client.write_all(answer.as_bytes()).expect("it reads");
    });
    let wrong = run(&format!("health --to http://{address}"));
    answering.join().expect("it does not panic");
    let expected = format!(
        "error: {address} has no /readyz: `--to` is the admin, HTTP or metrics address, such as http://127.0.0.1:8082\n"
    );
    assert_eq!((wrong.status, &*wrong.err), (Some(1), &*expected));
    let nobody = run("health --to unix:/nonexistent");
    assert_eq!(nobody.status, Some(1));
}

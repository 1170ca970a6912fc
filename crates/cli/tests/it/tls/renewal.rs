//! Certificates that change while a server runs.

use sluicegate_testkit::{TlsFiles, until};

use super::{Client, Files, ping};
use crate::program::PATIENCE;
use crate::server::Server;

/// Sends the server the signal to read its files again.
fn hang_up(server: &Server) {
    server.signal("HUP");
}

/// Waits until the server logs `words` for the `count`th time.
async fn tells(server: &Server, words: &str, count: usize) {
    let told = async || (server.told().matches(words).count() >= count).then_some(());
    let told = until(words, PATIENCE, told).await;
    told.unwrap_or_else(|_| panic!("{words}: {}", server.told()));
}

#[tokio::test]
async fn a_new_certificate_is_for_new_connections_and_old_ones_go_on() {
    let (files, next) = (Files::new(), Files::new());
    let server = Server::start(&files.config(false));
    let mut before =
        Client::knowing(&files).connect(server.address("rediss")).await.expect("it knows it");
    assert!(ping(&mut before).await);
    assert!(!Client::knowing(&next).is_answered(&server).await);

    files.replace(&next.tls);
    hang_up(&server);
    tells(&server, "resp.tls: new certificate loaded", 1).await;
    assert!(Client::knowing(&next).is_answered(&server).await);
    assert!(!Client::knowing(&files).is_answered(&server).await, "that is of the past");
    assert!(ping(&mut before).await, "it goes on");
}

#[tokio::test]
async fn a_bad_certificate_is_refused_and_the_last_good_one_stays() {
    let (files, next) = (Files::new(), Files::new());
    let server = Server::start(&files.config(false));
    let cert = &files.tls.server_cert;
    // The server may read the files between two writes.
    std::fs::copy(&next.tls.server_cert, cert).expect("it can be written");
    let problem = format!(
        "resp.tls.key: {}: does not match the certificate {}",
        files.tls.server_key.display(),
        cert.display()
    );
    hang_up(&server);
    tells(&server, &problem, 1).await;
    assert!(Client::knowing(&files).is_answered(&server).await, "the last good one stays");

    std::fs::write(cert, "garbage").expect("it can be written");
    hang_up(&server);
    tells(&server, &format!("resp.tls.cert: {}: expected certificates", cert.display()), 1).await;
    std::fs::remove_file(cert).expect("it is there");
    hang_up(&server);
    tells(&server, &format!("resp.tls.cert: cannot read {}", cert.display()), 1).await;
    assert!(Client::knowing(&files).is_answered(&server).await, "the last good one stays");

    files.replace(&next.tls);
    hang_up(&server);
    tells(&server, "resp.tls: new certificate loaded", 1).await;
    assert!(Client::knowing(&next).is_answered(&server).await);
    assert_eq!(server.told().matches(&problem).count(), 1, "what is wrong is said once");
}

#[tokio::test]
async fn authorities_of_clients_change_as_well() {
    let (files, next) = (Files::new(), Files::new());
    let client_ca = files.folder.path().join("clients.crt");
    std::fs::copy(&files.tls.ca, &client_ca).expect("it can be written");
    let of_wires =
        files.config(false).replace("key =", &format!("client_ca = {client_ca:?}\nkey ="));
    let server = Server::start(&of_wires);
    let client = |own| Client::knowing(&files).showing(own);
    assert!(client(&files).is_answered(&server).await);
    assert!(!client(&next).is_answered(&server).await);
    std::fs::copy(&next.tls.ca, &client_ca).expect("it can be written");
    hang_up(&server);
    tells(&server, "resp.tls: new certificate loaded", 1).await;
    assert!(client(&next).is_answered(&server).await);
    assert!(!client(&files).is_answered(&server).await);
}

#[tokio::test]
async fn a_server_without_certificates_goes_on_when_it_is_told_that_there_may_be_new_ones() {
    let server = Server::start("");
    hang_up(&server);
    for _ in 0..20 {
        let stream = std::net::TcpStream::connect(server.address("http"));
        assert!(stream.is_ok(), "it has ended");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_new_certificate_that_clients_refuse_is_warned_of() {
    let (files, folder) = (Files::new(), tempfile::tempdir().expect("there is room for files"));
    let expired = TlsFiles::write_valid(folder.path(), 1990..1991).expect("they can be written");
    let server = Server::start(&files.config(false));
    assert_eq!(server.warnings(), "");
    files.replace(&expired);
    hang_up(&server);
    let cert = files.tls.server_cert.display();
    tells(&server, &format!("resp.tls.cert: {cert}: a certificate expired at 1991-01-01"), 1).await;
}

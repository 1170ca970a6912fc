//! A server with TLS, and the command line client of Redis.

use std::process::Command;

use sluicegate_testkit::{Error, Options, RedisServer, need};

#[tokio::test]
async fn tls_is_proved_by_the_tests_own_authority() {
    let options = Options { tls: true, password: Some("secret".to_owned()), ..Options::default() };
    let redis = need!(RedisServer::start(options).await);
    let (files, address) = (redis.tls_files().unwrap(), redis.tls_address().unwrap());
    assert_eq!(redis.tls_url(), Some(format!("rediss://:secret@localhost:{}", address.port())));

    let ping = |further: &[&std::ffi::OsStr]| {
        let output = Command::new("redis-cli")
            .args(["--tls", "-h", "localhost", "-a", "secret", "--no-auth-warning", "-p"])
            .arg(address.port().to_string())
            .args(further)
            .arg("PING")
            .output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let [cacert, cert, key] = ["--cacert", "--cert", "--key"].map(std::ffi::OsStr::new);
    let trusting = [cacert, files.ca.as_os_str()];
    let pong = need!(ping(&trusting).map_err(|_error| {
        Error::Missing("`redis-cli` is not installed; `make deps` says how to get it".to_owned())
    }));
    assert_eq!(pong, "PONG");
    let known = [&trusting[..], &[cert, files.client_cert.as_os_str()]].concat();
    let known = [&known[..], &[key, files.client_key.as_os_str()]].concat();
    assert_eq!(ping(&known).unwrap(), "PONG");
    // A client's certificate as the authority: nothing that it did not sign is trusted.
    assert_eq!(ping(&[cacert, files.client_cert.as_os_str()]).unwrap(), "");
}

//! Logins that succeed and logins that fail; each refusal names the problem, and no secret.

use sluicegate_store::redis::{ConnectError, RedisClient, RedisConfig, RedisError};
use sluicegate_testkit::{Options, RedisServer, need};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::redis_client::{connect, count, script, start};

const PASSWORD: &str = "s3cret/with@signs";
const ENCODED: &str = "s3cret%2Fwith%40signs";

fn with_password() -> Options {
    Options { password: Some(PASSWORD.to_owned()), ..Options::default() }
}

#[tokio::test]
async fn a_password_and_an_acl_user_open_the_door() {
    let mut options = with_password();
    options.users.push(format!("app on >{PASSWORD} ~* +@all"));
    let redis = need!(RedisServer::start(options).await);
    let address = redis.address();
    let client = connect(&format!("redis://:{ENCODED}@{address}")).await;
    assert_eq!(count(&client, "a").await, Ok(1));
    let client = connect(&format!("redis://app:{ENCODED}@{address}/2")).await;
    assert_eq!(count(&client, "a").await, Ok(1), "database 2 has its own keys");
}

#[tokio::test]
async fn a_wrong_or_missing_password_is_a_refused_login_and_is_not_shown() {
    let redis = need!(RedisServer::start(with_password()).await);
    let address = redis.address();
    for login in [":hunter2@", "app:hunter2@", ""] {
        let client = start(&format!("redis://{login}{address}"));
        let error = client.ready().await.expect_err("the login is wrong");
        assert!(matches!(error, ConnectError::Login { .. }), "{error:?}");
        let refused = count(&client, "a").await.expect_err("there is no connection");
        assert!(matches!(&refused, RedisError::Unavailable { cause: ConnectError::Login { .. } }));
        let shown = format!("{error} {error:?} {refused} {client:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[tokio::test]
async fn a_password_for_a_server_without_one_is_named() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let address = redis.address();
    let error = start(&format!("redis://:hunter2@{address}")).ready().await;
    let error = error.expect_err("the server has no password").to_string();
    let problem = "rejects the login: the URL has a password, and this server has none: remove it";
    assert!(error.contains(problem) && !error.contains("hunter2"), "{error}");
    // Such a user may have a password of its own.
    let error = start(&format!("redis://app:hunter2@{address}")).ready().await;
    let error = error.expect_err("there is no such user").to_string();
    assert!(error.ends_with("rejects the login: wrong user or password"), "{error}");
}

#[tokio::test]
async fn an_http_server_is_named_as_what_it_is() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let answering = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut words = [0; 64];
            if !stream.read(&mut words).await.is_ok_and(|bytes| bytes > 0) {
                continue;
            }
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n").await.ok();
        }
    });
    for scheme in ["redis", "redis+cluster"] {
        let error = start(&format!("{scheme}://{address}")).ready().await;
        let error = error.expect_err("it is no Redis").to_string();
        let problem =
            format!("{address} is an HTTP server, not a Redis: name the address of Redis");
        assert!(error.contains(&problem), "{error}");
    }
    answering.abort();
}

#[tokio::test]
async fn a_connection_that_is_reset_in_the_login_is_said() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let resetting = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.read_exact(&mut [0; 1]).await.ok();
            stream.set_zero_linger().expect("it is open");
        }
    });
    let error = start(&format!("redis://{address}")).ready().await.expect_err("it is no Redis");
    let shown = error.to_string();
    assert!(
        shown.starts_with(&format!("cannot connect to {address}: Connection reset")),
        "{shown}"
    );
    resetting.abort();
}

#[tokio::test]
async fn a_database_that_is_not_there_is_said() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let error = start(&format!("{}/200", redis.url())).ready().await.expect_err("no database 200");
    let shown = error.to_string();
    assert!(shown.contains("200") || shown.contains("out of range"), "{shown}");
}

#[tokio::test]
async fn a_user_without_the_rights_is_refused_when_it_connects() {
    let mut options = Options::default();
    options.users.push("guest on >guest ~sg:* -@all +evalsha +ping".to_owned());
    let redis = need!(RedisServer::start(options).await);
    let client = start(&format!("redis://guest:guest@{}", redis.address()));
    let error = client.ready().await.expect_err("the script may not be loaded");
    assert!(matches!(&error, ConnectError::NotPermitted { .. }), "{error:?}");
    let shown = error.to_string();
    assert!(shown.contains("NOPERM") && shown.contains("sluicegate redis-acl"), "{shown}");
}

#[tokio::test]
async fn tls_trusts_the_given_authority_and_no_other() {
    let options = || Options { tls: true, ..Options::default() };
    let redis = need!(RedisServer::start(options()).await);
    let other = need!(RedisServer::start(options()).await);
    let url = redis.tls_url().expect("TLS was asked for");
    let ca = |server: &RedisServer| {
        server.tls_files().expect("TLS was asked for").ca.display().to_string()
    };
    let client = connect(&format!("{url}?deadline_ms=1000&ca_file={}", ca(&redis))).await;
    assert_eq!(count(&client, "a").await, Ok(1));

    let client = start(&format!("{url}?ca_file={}", ca(&other)));
    let error = client.ready().await.expect_err("another authority");
    assert!(matches!(&error, ConnectError::Tls { .. }), "{error:?}");
    assert!(error.to_string().contains("certificate"), "{error}");

    let port = redis.tls_address().expect("TLS was asked for").port();
    let client = start(&format!("rediss://127.0.0.2:{port}?ca_file={}", ca(&redis)));
    let error = client.ready().await.expect_err("the certificate is for another name");
    assert!(matches!(&error, ConnectError::Tls { .. } | ConnectError::Io { .. }), "{error:?}");
}

#[tokio::test]
async fn tls_to_a_plain_port_and_the_reverse_name_the_scheme_to_use() {
    let redis = need!(RedisServer::start(Options { tls: true, ..Options::default() }).await);
    let ca = redis.tls_files().expect("TLS was asked for").ca.display().to_string();
    let plain = redis.address();
    let encrypted = redis.tls_address().expect("TLS was asked for");
    let cases = [
        (format!("rediss://{plain}?ca_file={ca}"), plain, "a server without TLS: use redis://"),
        (
            format!("rediss+cluster://{plain}?ca_file={ca}"),
            plain,
            "a server without TLS: use redis+cluster://",
        ),
        (format!("redis://{encrypted}"), encrypted, "a server that expects TLS: use rediss://"),
        (
            format!("redis+sentinel://{encrypted}/main"),
            encrypted,
            "a server that expects TLS: use rediss+sentinel://",
        ),
    ];
    for (url, address, expected) in cases {
        let error = start(&url).ready().await.expect_err("the wrong protocol").to_string();
        assert_eq!(error, format!("{address} is {expected}"), "{url}");
    }
}

#[tokio::test]
async fn an_authority_that_cannot_be_read_is_an_error_of_the_configuration() {
    for (file, reason) in
        [("/nowhere/ca.pem", "No such file"), ("/dev/null", "expected certificates in PEM")]
    {
        let config: RedisConfig = format!("rediss://h?ca_file={file}").parse().expect("a good URL");
        let error = RedisClient::start(&config, script()).expect_err("no authority");
        assert!(error.to_string().starts_with(&format!("ca_file: {file}: ")));
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[tokio::test]
async fn a_unix_socket_will_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("redis.sock");
    let config = vec![format!("unixsocket {}", socket.display())];
    let redis = need!(RedisServer::start(Options { config, ..Options::default() }).await);
    let client = connect(&format!("unix://{}", socket.display())).await;
    assert_eq!(count(&client, "a").await, Ok(1));
    let found = redis.cli(&["EXISTS", "sg:a"]).await.expect("an answer").int();
    assert_eq!(found, 1);
}

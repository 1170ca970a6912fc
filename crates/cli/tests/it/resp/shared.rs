//! Servers that share a Redis: a pipeline of decisions is charged once, from any connection.

use sluicegate_testkit::{Options, RedisServer, need};

use super::Server;

/// The answers to `times` commands in one write.
fn pipeline(server: &Server, command: &str, times: usize) -> String {
    server.lines(&vec![command; times].join("\n"))
}

#[tokio::test]
async fn two_servers_on_one_redis_share_what_callers_throttle() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let url = format!("{}?deadline_ms=10000", redis.url());
    let servers = [(); 2].map(|()| Server::start_with(&["--store", &url]));
    let mut passed = 0;
    for round in 0..4 {
        let said = pipeline(&servers[round % 2], "CL.THROTTLE k 99 1 86400", 32);
        passed += said.matches("*5\r\n:0\r\n:100\r\n").count();
        assert_eq!(said.matches("*5\r\n").count(), 32, "{said}");
    }
    assert_eq!(passed, 100);
    let said = servers[0].lines("CL.THROTTLE k 149 1 86400 0");
    assert!(said.starts_with("*5\r\n:0\r\n:150\r\n:50\r\n:-1\r\n"), "{said}");
}

#[tokio::test]
async fn two_servers_on_one_redis_share_the_rules_that_callers_send() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let url = format!("{}?deadline_ms=10000", redis.url());
    let servers = [(); 2].map(|()| Server::start_with(&["--store", &url]));
    // Double quotes are part of a word in single quotes.
    let by = |line: &str, rule: &str| format!("{line} RULES '[{{{rule}}}]'");
    let leaky = |burst: u8| format!("\"leaky_bucket\":{{\"rate\":\"1/1d\",\"burst\":{burst}}}");
    let mut passed = 0;
    for round in 0..4 {
        let said = pipeline(&servers[round % 2], &by("SG.CHECK login k", &leaky(99)), 32);
        passed += said.matches("*8\r\n:1\r\n:100\r\n").count();
        assert_eq!(said.matches("*8\r\n").count(), 32, "{said}");
    }
    assert_eq!(passed, 100);
    // Other numbers keep what is in use, and a policy of this name has its own budget.
    let said = servers[0].lines(&by("SG.PEEK login k", &leaky(149)));
    assert!(said.starts_with("*8\r\n:1\r\n:150\r\n:50\r\n"), "{said}");
    assert!(servers[1].lines("SG.PEEK login k").starts_with("*8\r\n:1\r\n:5\r\n:5\r\n"));
    let slots = |limit: u8| format!("\"concurrency\":{{\"limit\":{limit},\"ttl\":\"1h\"}}");
    for (server, line, limit, expected) in [
        (0, "SG.ACQUIRE jobs k a", 2, ":1\r\n:2\r\n:1\r\n"),
        (1, "SG.ACQUIRE jobs k b", 2, ":1\r\n:2\r\n:0\r\n"),
        (0, "SG.ACQUIRE jobs k c", 2, ":-1\r\n:2\r\n:0\r\n"),
        (1, "SG.ACQUIRE jobs k c", 3, ":1\r\n:3\r\n:0\r\n"),
        (0, "SG.ACQUIRE jobs k d", 1, ":-1\r\n:1\r\n:0\r\n"),
        (0, "SG.RENEW jobs k a", 1, ":1\r\n:1\r\n:0\r\n"),
        (1, "SG.RELEASE jobs k a", 3, ":1\r\n:3\r\n:1\r\n"),
    ] {
        let said = servers[server].lines(&by(line, &slots(limit)));
        assert!(said.starts_with(&format!("*8\r\n{expected}")), "{line}: {said}");
    }
}

#[tokio::test]
async fn a_pipeline_over_redis_is_answered_in_its_order() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let url = format!("{}?deadline_ms=10000", redis.url());
    let server = Server::start_with(&["--store", &url]);
    let said =
        server.lines("SG.CHECK login a COST 5\nSG.RESET login a\nSG.CHECK login a\nECHO end");
    let numbers: Vec<_> =
        said.split("*8\r\n").skip(1).map(|reply| reply.split("\r\n").nth(2)).collect();
    assert_eq!(numbers, [Some(":0"), Some(":5"), Some(":4")], "{said}");
    assert!(said.ends_with("$3\r\nend\r\n+OK\r\n"), "{said}");
}

#[tokio::test]
async fn without_redis_the_answer_says_who_decided() {
    let mut redis = need!(RedisServer::start(Options::default()).await);
    redis.kill();
    let server = Server::start_with(&["--store", &redis.url()]);
    let said = server.lines("SG.CHECK login a\nSG.RESET login a\nCL.THROTTLE k 1 1 60");
    let rules = r#"'[{"token_bucket":{"rate":"1/m","burst":2}}]'"#;
    let by_rules = server.lines(&format!("SG.CHECK mine k RULES {rules}"));
    assert!(by_rules.starts_with("*8\r\n:1\r\n:2\r\n:1\r\n"), "{by_rules}");
    assert!(by_rules.contains("$5\r\nlocal\r\n"), "{by_rules}");
    assert!(said.starts_with("*8\r\n:1\r\n:5\r\n:4\r\n"), "{said}");
    assert!(said.contains("$5\r\nlocal\r\n-NOTCHARGED store: "), "{said}");
    assert!(said.contains("*5\r\n:0\r\n:2\r\n:1\r\n:-1\r\n:60\r\n"), "{said}");
}

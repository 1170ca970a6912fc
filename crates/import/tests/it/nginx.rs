//! nginx.

use serde_json::json;
use sluicegate_import::ImportSource::Nginx;
use sluicegate_kernel::{Cost, Micros, Moment, States, Verb};
use sluicegate_policy::Policy;

use crate::imported;

#[test]
fn limits_become_leaky_buckets_in_their_places() {
    let (policies, notes) = imported(
        Nginx,
        "http {
    limit_req_zone $binary_remote_addr zone=one:10m rate=10r/s;
    limit_req_zone $http_x_user$uri zone=slow:1m rate=30r/m;
    limit_req_status 429;
    server {
        limit_req zone=one burst=20 nodelay;
        location /search/ { proxy_pass http://up; }
        location = /login {
            limit_req zone=slow;
            limit_req zone=one burst=5 delay=2;
        }
        location ~ \\.php$ { limit_req zone=one; }
    }
}
",
    );
    let one = json!({ "rate": "10/s", "burst": 20, "delay": "none" });
    let expected = json!([
        { "name": "one", "key": ["remote_ip"], "rules": [{ "name": "one", "leaky_bucket": one }] },
        { "name": "slow-login", "key": ["header:x-user", "path"], "match": { "path": { "exact": "/login" } },
          "rules": [{ "name": "slow", "leaky_bucket": { "rate": "30/m" } }] },
        { "name": "one-login", "key": ["remote_ip"], "match": { "path": { "exact": "/login" } },
          "rules": [{ "name": "one", "leaky_bucket": { "rate": "10/s", "burst": 5, "delay": 2 } }] },
    ]);
    assert_eq!(json!(policies), expected);
    let expected =
        [(Some(9), "nginx_outer"), (Some(12), "nginx_location"), (Some(10), "nginx_shared")];
    assert_eq!(notes, expected);
}

#[test]
fn what_differs_is_noted_with_its_line() {
    let (policies, notes) = imported(
        Nginx,
        "limit_req_zone $arg_q zone=q:1m rate=1r/s;
limit_req_zone $host zone=h:1m rate=1r/s;
limit_req_zone $host zone=bad:1m rate=1/s;
limit_conn_zone $binary_remote_addr zone=c:1m;
include other.conf;
server {
  location /a { limit_req zone=h; limit_conn c 4; }
  location /b { limit_req zone=q; limit_req_dry_run on; limit_req zone=none; }
  location /c { limit_req zone=h burst=x; if ($x) { limit_req zone=h; } }
  location /d/ { limit_req zone=h burst=1 delay=9; limit_req_dry_run on; limit_conn c many; }
}
",
    );
    let names: Vec<_> = policies.iter().map(|policy| policy["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["h-a", "c-a", "h-d"]);
    assert_eq!(policies[1]["rules"][0]["concurrency"], json!({ "limit": 4, "ttl": "60s" }));
    assert_eq!(policies[1].get("match"), None, "no gateway acquires permits");
    assert_eq!(policies[2]["overflow"], "shadow");
    assert_eq!(policies[2]["rules"][0]["leaky_bucket"]["delay"], "none");
    let expected = [
        (Some(1), "nginx_key"),
        (Some(3), "nginx_wrong"),
        (Some(5), "nginx_include"),
        (Some(7), "nginx_prefix"),
        (Some(7), "nginx_status"),
        (Some(7), "nginx_connections"),
        (Some(8), "nginx_prefix"),
        (Some(8), "nginx_zone"),
        (Some(9), "nginx_prefix"),
        (Some(9), "nginx_wrong"),
        (Some(9), "nginx_block"),
        (Some(10), "nginx_wrong"),
        (Some(10), "nginx_shared"),
    ];
    for expected in expected {
        assert!(notes.contains(&expected), "{expected:?} of {notes:?}");
    }
}

#[test]
fn as_many_pass_at_once_as_in_nginx() {
    for (burst, passing) in
        [("", 1), ("burst=5", 6), ("burst=5 nodelay", 6), ("burst=5 delay=2", 6)]
    {
        let text = format!(
            "limit_req_zone $host zone=z:1m rate=1r/s; server {{ limit_req zone=z {burst}; }}"
        );
        let (policies, _) = imported(Nginx, &text);
        let document = Policy::parse_one(&policies[0].to_string()).unwrap();
        let rules = document.rules();
        let (mut states, now) = (States::default(), Moment::new(Micros::from_secs(1_000)));
        let mut check = || rules.set().decide(&mut states, &Verb::Check { cost: Cost::ONE }, &now);
        let passed = (0..20).filter(|_| check().unwrap().decision.allowed()).count();
        assert_eq!(passed, passing, "{burst}");
    }
}

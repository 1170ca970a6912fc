//! `POST /json`, beside the other paths of HTTP.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::{Server, YEARLY};
use crate::program::PATIENCE;

/// Status and body of the answer to a request with this `head`.
pub(crate) fn send(server: &Server, head: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(server.http).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("the time is not zero");
    let length = body.len();
    let request = format!(
        "{head} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n"
    );
    let (line, fields) = request.split_once(" HTTP/1.1\r\n").expect("it has a first line");
    let (line, more) = line.split_once('\n').unwrap_or((line, ""));
    let more = if more.is_empty() { String::new() } else { format!("{more}\r\n") };
    write!(stream, "{line} HTTP/1.1\r\n{fields}{more}\r\n{body}").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("it has a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.expect("it has a status"), body.to_owned())
}

fn ask(server: &Server, user: &str, hits: u64) -> (u16, Value) {
    let body = json!({
        "domain": "shop",
        "descriptors": [{"entries": [{"key": "user", "value": user}], "hitsAddend": hits}],
    });
    let (status, body) = send(server, "POST /json", &body.to_string());
    (status, serde_json::from_str(&body).expect("it is JSON"))
}

#[test]
fn what_passes_is_200_and_what_is_over_the_limit_429() {
    let server = Server::serving(YEARLY);
    let (status, body) = ask(&server, "ann", 499);
    assert_eq!((status, &body["overallCode"]), (200, &json!("OK")));
    assert_eq!(
        body["statuses"][0]["currentLimit"],
        json!({"requestsPerUnit": 500, "unit": "YEAR"})
    );
    assert_eq!(body["statuses"][0]["limitRemaining"], 1);
    assert_eq!(ask(&server, "ann", 1).0, 200);
    let (status, body) = ask(&server, "ann", 1);
    assert_eq!((status, &body["overallCode"]), (429, &json!("OVER_LIMIT")));
    assert_eq!(body["responseHeadersToAdd"][0]["key"], "retry-after");
}

#[test]
fn what_makes_no_sense_is_told_and_takes_nothing() {
    let server = Server::serving(YEARLY);
    let (status, problem) = send(&server, "POST /json", "{");
    assert_eq!((status, &problem[..15]), (400, "EOF while parsi"));
    let (status, problem) = send(&server, "POST /json", "{}");
    assert_eq!((status, problem.as_str()), (400, "domain: is missing\n"));
    let long = "x".repeat(65 * 1024);
    assert_eq!(send(&server, "POST /json", &long).0, 413);
    assert_eq!(send(&server, "DELETE /json", "").0, 405);
    let unknown =
        r#"{"domain":"sluicegate","descriptors":[{"entries":[{"key":"policy","value":"x"}]}]}"#;
    assert_eq!(send(&server, "POST /json", unknown).0, 404);
}

#[test]
fn whatever_the_method_a_body_is_a_request() {
    let server = Server::serving(YEARLY);
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}"#;
    for (method, remaining) in [("POST", 499), ("GET", 498), ("PUT", 497)] {
        let (status, answer) = send(&server, &format!("{method} /json"), body);
        let expected = format!(r#""limitRemaining":{remaining}"#);
        assert!(status == 200 && answer.contains(&expected), "{method}: {status} {answer}");
        assert_eq!(send(&server, &format!("{method} /json"), "").0, 400);
    }
}

#[test]
fn numbers_are_numbers_however_they_are_written() {
    let server = Server::serving(YEARLY);
    let ask = |hits: &str, name: &str| {
        let entries = r#"[{"key":"user","value":"ann"}]"#;
        let body = format!(
            r#"{{"domain":"shop","descriptors":[{{"entries":{entries},"{name}":{hits}}}]}}"#
        );
        send(&server, "POST /json", &body)
    };
    for (place, hits) in ["3", "3.0", "3e0", "\"3\"", "\"3.0\"", "0.3e1"].iter().enumerate() {
        let remaining = 500 - 3 * (place + 1);
        let name = ["hitsAddend", "hits_addend"][place % 2];
        let (status, answer) = ask(hits, name);
        let expected = format!(r#""limitRemaining":{remaining}"#);
        assert!(status == 200 && answer.contains(&expected), "{hits}: {status} {answer}");
    }
    for hits in ["3.5", "-1", "\" 3\"", "\"three\"", "1e400", "\"NaN\"", "true", "[]", "1e20"] {
        let (status, answer) = ask(hits, "hitsAddend");
        assert_eq!(status, 400, "{hits}: {answer}");
    }
}

#[test]
fn a_load_balancer_hears_that_it_is_healthy() {
    let server = Server::serving(YEARLY);
    assert_eq!(send(&server, "GET /healthcheck", ""), (200, "OK".to_owned()));
    assert_eq!(send(&server, "POST /healthcheck", "").0, 405);
}

#[test]
fn a_page_in_a_browser_spends_no_budget_unasked() {
    let server = Server::serving(YEARLY);
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}"#;
    let page = "POST /json\norigin: http://evil.example\r\ncontent-type: text/plain";
    assert_eq!(send(&server, page, body).0, 415);
    let app = "POST /json\norigin: http://good.example\r\ncontent-type: application/json";
    let (status, answer) = send(&server, app, body);
    assert!(status == 200 && answer.contains(r#""limitRemaining":499"#), "{status} {answer}");
}

//! `check`, `peek`, `refund`, `reset`.

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::{Value, json};

use super::{Ran, Server, ran, run, sluicegate};
use crate::program::PATIENCE;
use crate::terminal::on_terminal;

/// The result of a command that fails with this error.
fn wrong(told: &str) -> Ran {
    Ran { out: String::new(), err: format!("error: {told}\n"), status: Some(2) }
}

#[test]
fn a_check_passes_with_status_0_and_is_refused_with_status_1() {
    let server = Server::start();
    for left in (0..5).rev() {
        let passes = format!("allowed: {left} of 5 left in \"tries\", full again in 10 min");
        assert_eq!(server.ask("check login alice"), ran(0, &passes));
    }
    let refused = ran(1, "refused: 0 of 5 left in \"tries\"; retry in 10 min");
    assert_eq!(server.ask("check login alice"), refused);
    let never = ran(1, "refused: 5 of 5 left in \"tries\"; this cost can never pass");
    assert_eq!(server.ask("check login bob --cost 6"), never);
}

#[test]
fn what_was_taken_is_seen_given_back_and_forgotten() {
    let server = Server::start();
    let left = |left| format!("{left} of 5 left in \"tries\", full again in 10 min");
    assert_eq!(server.ask("check login --cost 5").status, Some(0));
    let refused = ran(1, "would be refused: 0 of 5 left in \"tries\"; retry in 10 min");
    assert_eq!(server.ask("peek login"), refused);
    assert_eq!(server.ask("refund login --cost 2"), ran(0, &format!("gave back 2: {}", left(2))));
    assert_eq!(server.ask("peek login"), ran(0, &format!("would be allowed: {}", left(2))));
    assert_eq!(server.ask("reset login"), ran(0, "reset: 5 of 5 left in \"tries\""));
    // Another key has a budget of its own, including one that looks like an option.
    let asked = sluicegate(&format!("check login --to {} -- -k", server.http)).output();
    assert_eq!(super::finish(asked), ran(0, &format!("allowed: {}", left(4))));
}

#[test]
fn a_permit_is_held_renewed_and_released_by_its_name() {
    let server = Server::start();
    let left = |left: u32| format!("{left} of 2 left in \"running\"");
    let full = ", full again in 5 min";
    let held = server.ask("acquire jobs nightly --id run-7");
    assert_eq!(held, ran(0, &format!("holds `run-7`: {}{full}", left(1))));
    let other = server.ask("acquire jobs nightly");
    let name = other.out.split('`').nth(1).unwrap_or_default();
    assert!(other.status == Some(0) && name.len() == 32, "{other:?}");
    let refused = server.ask("acquire jobs nightly --id run-8");
    assert_eq!(refused.status, Some(1));
    assert!(refused.out.starts_with(&format!("refused: {}; retry in ", left(0))), "{refused:?}");
    let renewed = server.ask("renew jobs nightly --id run-7");
    assert_eq!(renewed, ran(0, &format!("renewed `run-7`: {}{full}", left(0))));
    let released = server.ask("release jobs nightly --id run-7");
    assert_eq!(released.status, Some(0));
    assert!(released.out.starts_with(&format!("released `run-7`: {}", left(1))), "{released:?}");
    for again in ["release", "renew"] {
        let gone = server.ask(&format!("{again} jobs nightly --id run-7"));
        assert_eq!(gone, ran(1, &format!("`run-7` is not held: {}", left(1))));
    }
}

#[test]
fn a_check_is_settled_once_to_what_it_cost() {
    let server = Server::start();
    let settle = |more: &str| server.ask(&format!("settle login alice {more}"));
    assert_eq!(server.ask("check login alice --cost 3").status, Some(0));
    let left = |left: u32| format!("{left} of 5 left in \"tries\"");
    assert_eq!(
        settle("--id a --charged 3 --cost 1"),
        ran(0, &format!("settled, gave back 2: {}", left(4)))
    );
    let again = "id: already settled within the last hour; nothing was changed";
    assert_eq!(settle("--id a --charged 3 --cost 1"), ran(1, again));
    assert_eq!(
        settle("--id b --charged 1 --cost 3"),
        ran(0, &format!("settled, took 2 more: {}", left(2)))
    );
    assert_eq!(
        settle("--id c --charged 1 --cost 1"),
        ran(0, &format!("settled, nothing to correct: {}", left(2)))
    );
    assert_eq!(
        settle("--id d --charged 1 --cost 6"),
        ran(0, &format!("settled, took 2 more (3 missing, not charged): {}", left(0)))
    );
    assert_eq!(
        settle("--id e --charged 1 --cost 6"),
        ran(0, &format!("settled, took 0 more (5 missing, not charged): {}", left(0)))
    );
    assert_eq!(server.ask("reset login alice").status, Some(0));
    assert_eq!(
        settle("--id f --charged 3 --cost 1"),
        ran(
            0,
            &format!(
                "settled, gave back 0 of 2 (the budget holds no more of this charge): {}",
                left(5)
            )
        )
    );
    assert_eq!(settle("--charged 1 --cost 1").status, Some(2));
}

#[test]
fn a_policy_without_a_name_is_not_asked_for() {
    let asked = crate::program::program().args(["check", "", "alice"]).output();
    let expected = wrong("POLICY: is empty; expected the name of a policy, such as `login`");
    assert_eq!(super::finish(asked), expected);
}

#[test]
fn json_is_what_the_server_says_on_one_line() {
    let server = Server::start();
    let Ran { out, err, status } = server.ask("check login alice --output json");
    assert_eq!((err.as_str(), status, out.lines().count()), ("", Some(0), 1));
    let decision: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&decision["allowed"], &decision["remaining"]), (&json!(true), &json!(4)));
    let refused = server.ask("check login alice --cost 5 --output json");
    assert_eq!(refused.status, Some(1));
    assert!(refused.out.contains(r#""allowed":false"#), "{}", refused.out);
}

#[test]
fn what_a_policy_wants_done_instead_is_told() {
    let server = Server::start();
    for (policy, status, begin, end) in [
        ("cached", 1, "refused: 0 of 1 left", "; serve the fallback `stale`\n"),
        ("watched", 0, "allowed (shadow mode): 0 of 1 left", "\n"),
    ] {
        assert_eq!(server.ask(&format!("check {policy} k")).status, Some(0));
        let over = server.ask(&format!("check {policy} k"));
        assert_eq!(over.status, Some(status), "{over:?}");
        assert!(over.out.starts_with(begin) && over.out.ends_with(end), "{over:?}");
    }
}

#[test]
fn what_was_not_decided_has_status_2_and_its_reason() {
    let server = Server::start();
    let check = |rest: &str| server.ask(&format!("check {rest}"));
    assert_eq!(check("nope"), wrong("policy: unknown policy `nope`"));
    let Ran { err, status, .. } = check("shop k --app admin");
    assert!(status == Some(2) && err.contains("`shop`") && err.contains("`admin`"), "{err}");
    assert_eq!(check("shop k --app checkout").status, Some(0));
    let ms = "is not a whole number of milliseconds 1..=9007199254740";
    assert_eq!(check("login --max-wait 1500us"), wrong(&format!("--max-wait: `1500us` {ms}")));
    for (typed, told) in [
        ("login --cost 0", "'--cost <N>': expected a whole number from 1 to 2147483648"),
        ("login --timeout never", "invalid duration `never`: expected 1us to 366d"),
        ("login --output xml", "possible values: text, json"),
    ] {
        let Ran { err, status, .. } = check(typed);
        assert!(status == Some(2) && err.contains(told), "{typed}: {err}");
    }
    let address = run("check login --to 127.0.0.1");
    assert!(address.err.contains("no port: expected an address such as"), "{}", address.err);
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let refused = format!("cannot connect to {nobody}: Connection refused (os error 111)");
    assert_eq!(run(&format!("check login --to {nobody}")), wrong(&refused));
    let nowhere = "cannot connect to unix:/nonexistent: No such file or directory (os error 2)";
    assert_eq!(run("check login --to unix:/nonexistent"), wrong(nowhere));
}

#[test]
fn a_server_is_found_by_its_socket_its_name_and_the_environment() {
    let server = Server::start();
    let port = server.http.rsplit(':').next().unwrap();
    for to in [&*server.unix, &format!("http://localhost:{port}/"), &format!("localhost:{port}")] {
        let asked = run(&format!("check wide k --to {to}"));
        assert_eq!(asked.status, Some(0), "{to}: {asked:?}");
    }
    let asked = sluicegate("check wide k").env("SLUICEGATE_URL", &server.http).output();
    assert_eq!(super::finish(asked).status, Some(0));
}

/// Runs a check against a server that reads the request and sends only `answer`. Returns the result
/// of the command, and the request.
fn check_against(answer: &'static [u8], options: &str) -> (Ran, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there are free ports");
    let address = listener.local_addr().expect("it has one");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the program connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
        let mut request = vec![0; 4096];
        let length = stream.read(&mut request).expect("the program asks");
        stream.write_all(answer).ok();
        // The server reads until the program ends.
        std::io::copy(&mut (&stream).take(1 << 20), &mut std::io::sink()).ok();
        String::from_utf8(request[..length].to_vec()).expect("it asks in text")
    });
    let ran = run(&format!("check login k --to {address} {options}"));
    let request = server.join().expect("the server ends with its client");
    (Ran { err: ran.err.replace(&address.to_string(), "SERVER"), ..ran }, request)
}

#[test]
fn everything_that_was_typed_is_asked_for_and_a_booked_time_is_told() {
    let booked =
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 135\r\n\r\n\
        {\"allowed\":true,\"granted\":2,\"wait_us\":120000,\"limit\":5,\"remaining\":0,\
        \"retry_after_us\":0,\"reset_after_us\":900000,\"rule\":\"tries\",\"new\":1}";
    let (ran, request) = check_against(booked, "--app shop --cost 2 --max-wait 250ms");
    let passes = "allowed after 120 ms: 0 of 5 left in \"tries\", full again in 900 ms";
    assert_eq!(ran, super::ran(0, passes));
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /v1/check HTTP/1.1\r\n"), "{head}");
    let asked =
        json!({"policy": "login", "key": "k", "app": "shop", "cost": 2, "max_wait_ms": 250});
    assert_eq!(serde_json::from_str::<Value>(body).unwrap(), asked);
}

#[test]
fn a_server_that_says_nothing_nonsense_or_too_much_is_an_error() {
    let silent = wrong("SERVER did not answer within 50 ms");
    assert_eq!(check_against(b"", "--timeout 50ms").0, silent);
    assert_eq!(check_against(b"HTTP/1.1 200 OK\r\n", "--timeout 50ms").0, silent);
    let bad = b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 6\r\n\r\n<html>";
    assert_eq!(
        check_against(bad, "").0,
        wrong("the server returned status 502 Bad Gateway: <html>")
    );
    for answer in [
        &b"-ERR unknown command\r\n\r\n"[..],
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\ncontent-length: 300000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{\"allowed\"",
    ] {
        let (ran, _) = check_against(answer, "--timeout 5s");
        assert_eq!(ran.status, Some(2));
        assert!(ran.err.starts_with("error: SERVER did not answer "), "{}", ran.err);
    }
}

#[test]
fn the_outcome_has_a_colour_on_a_terminal_and_nowhere_else() {
    let server = Server::start();
    let ask = |key: &str, more: &[(&str, &str)]| {
        let mut command = sluicegate(&format!("check login {key} --to {}", server.http));
        command.env_remove("NO_COLOR").env("TERM", "xterm").envs(more.iter().copied());
        command
    };
    let piped = super::finish(ask("piped", &[]).output()).out;
    assert!(piped.starts_with("allowed: 4 of 5"), "{piped}");
    let (green, _) = on_terminal(ask("green", &[]), &[]);
    assert!(green.starts_with("\u{1b}[32mallowed\u{1b}[0m: 4 of 5"), "{green:?}");
    let (plain, _) = on_terminal(ask("plain", &[("NO_COLOR", "1")]), &[]);
    assert!(plain.starts_with("allowed: 4 of 5"), "{plain:?}");
    let (red, _) = on_terminal(
        {
            let mut command = ask("red", &[]);
            command.args(["--cost", "6"]);
            command
        },
        &[],
    );
    assert!(red.starts_with("\u{1b}[31mrefused\u{1b}[0m: 5 of 5"), "{red:?}");
}

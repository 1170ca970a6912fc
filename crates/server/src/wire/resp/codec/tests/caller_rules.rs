//! Commands with rules of their own, after the option `RULES`.

use super::Connection;

/// Words of a rule without blanks: requests are split at those.
fn with(rules: &str, line: &str) -> String {
    format!("{line} RULES {}", rules.replace(' ', ""))
}

#[test]
fn rules_that_come_along_are_decided_without_a_policy() {
    let mut connection = Connection::new("");
    let leaky = r#"[{"leaky_bucket":{"rate":"2/s","burst":3}}]"#;
    let mut ask = |line: &str, expected: &str| {
        assert_eq!(connection.line(&with(leaky, line)), expected, "{line}");
    };
    let of = |numbers: &str| format!("*8 {numbers} $12 leaky_bucket $5 store");
    ask("SG.PEEK mine a", &of(":1 :4 :4 :0 :0 :0"));
    for (remaining, reset_ms, wait_ms) in
        [(3, 500, 0), (2, 1000, 500), (1, 1500, 1000), (0, 2000, 1500)]
    {
        ask("SG.CHECK mine a", &of(&format!(":1 :4 :{remaining} :0 :{reset_ms} :{wait_ms}")));
    }
    ask("SG.CHECK mine a", &of(":-1 :4 :0 :500 :2000 :0"));
    ask("SG.CHECK mine a MAXWAIT 500", &of(":-1 :4 :0 :1500 :2000 :0"));
    ask("SG.REFUND mine a COST 2", &of(":1 :4 :2 :0 :1000 :0"));
    ask("SG.PEEK mine a", &of(":1 :4 :2 :0 :1000 :1000"));
    ask("SG.CHECK mine a APP shop", &of(":1 :4 :3 :0 :500 :0"));
    ask("SG.CHECK Mine a", &of(":1 :4 :3 :0 :500 :0"));
    ask("SG.RESET mine a", &of(":1 :4 :4 :0 :0 :0"));
    let problem = "it has no `concurrency` rule";
    ask(
        "SG.RENEW mine a i",
        &format!("-NOTCHARGED op: `renew` is not supported by this policy: {problem}"),
    );
}

#[test]
fn permits_of_rules_that_come_along_are_held_and_given_back() {
    let mut connection = Connection::new("");
    let slots = r#"[{"concurrency":{"limit":2,"ttl":"30s"}}]"#;
    let mut ask = |line: &str, expected: &str| {
        assert_eq!(connection.line(&with(slots, line)), expected, "{line}");
    };
    let of = |numbers: &str| format!("*8 {numbers} $11 concurrency $5 store");
    ask("SG.ACQUIRE mine a 1", &of(":1 :2 :1 :0 :30000 :0"));
    ask("SG.ACQUIRE mine a 2", &of(":1 :2 :0 :0 :30000 :0"));
    ask("SG.ACQUIRE mine a 3", &of(":-1 :2 :0 :30000 :30000 :0"));
    ask("SG.RENEW mine a 1", &of(":1 :2 :0 :0 :30000 :0"));
    ask("SG.RELEASE mine a 2", &of(":1 :2 :1 :0 :30000 :0"));
    ask("SG.RELEASE mine a 2", &of(":-1 :2 :1 :-1 :30000 :0"));
    ask(
        "SG.CHECK mine a",
        "-NOTCHARGED op: `check` is not supported by this policy: it has a `concurrency` rule, use `acquire`",
    );
}

#[test]
fn budgets_of_rules_that_come_along_are_those_of_nothing_else() {
    let mut connection = Connection::new("");
    let log = r#"[{"name":"tries","sliding_log":{"limit":2,"window":"10s"}}]"#;
    let throttle = r#"[{"name":"limit","token_bucket":{"rate":"1/s","burst":2}}]"#;
    let full = "*8 :1 :2 :1 :0 :10000 :0 $5 tries $5 store";
    for line in ["SG.CHECK login a", "SG.CHECK api a APP shop", "CL.THROTTLE a 1 1 1"] {
        connection.line(line);
    }
    // Names of a policy, of an app, and what stores call other budgets.
    for line in [
        "SG.CHECK login a",
        "SG.CHECK api a APP shop",
        "SG.CHECK CL.THROTTLE a",
        "SG.CHECK SG.RULES a",
    ] {
        assert_eq!(connection.line(&with(log, line)), full, "{line}");
    }
    let of_throttle = connection.line(&with(throttle, "SG.CHECK CL.THROTTLE b"));
    assert_eq!(of_throttle, "*8 :1 :2 :1 :0 :1000 :0 $5 limit $5 store");
    assert_eq!(connection.line("CL.THROTTLE b 1 1 1"), "*5 :0 :2 :1 :-1 :1");
    assert_eq!(connection.line("SG.PEEK login a"), "*8 :1 :2 :1 :0 :10000 :0 $5 tries $5 store");
    assert_eq!(connection.line("SG.CHECK mine a"), "*8 :0 :0 :0 :-1 :0 :0 $-1 $-1");
}

#[test]
fn other_numbers_keep_the_permits_in_use() {
    let mut connection = Connection::new("");
    let leaky = |rate: &str, burst: u8| {
        format!(r#"[{{"leaky_bucket":{{"rate":"{rate}","burst":{burst}}}}}]"#)
    };
    for _ in 0..3 {
        connection.line(&with(&leaky("1/s", 3), "SG.CHECK mine a"));
    }
    let of = |numbers: &str| format!("*8 {numbers} $12 leaky_bucket $5 store");
    // Three are in the bucket: at twice the rate they take half of the time.
    let said = connection.line(&with(&leaky("2/s", 3), "SG.CHECK mine a"));
    assert_eq!(said, of(":1 :4 :0 :0 :2000 :1500"));
    let said = connection.line(&with(&leaky("2/s", 5), "SG.CHECK mine a"));
    assert_eq!(said, of(":1 :6 :1 :0 :2500 :2000"));
    let said = connection.line(&with(&leaky("2/s", 1), "SG.CHECK mine a"));
    assert_eq!(said, of(":-1 :2 :0 :2000 :2500 :0"));
    let slots = |limit: u8| format!(r#"[{{"concurrency":{{"limit":{limit},"ttl":"30s"}}}}]"#);
    for id in 0..3 {
        connection.line(&with(&slots(3), &format!("SG.ACQUIRE mine b {id}")));
    }
    let said = connection.line(&with(&slots(4), "SG.ACQUIRE mine b 3"));
    assert_eq!(said, "*8 :1 :4 :0 :0 :30000 :0 $11 concurrency $5 store");
    let said = connection.line(&with(&slots(2), "SG.ACQUIRE mine b 4"));
    assert_eq!(said, "*8 :-1 :2 :0 :30000 :30000 :0 $11 concurrency $5 store");
    // A permit keeps its id: its holder can give it back.
    let said = connection.line(&with(&slots(9), "SG.RELEASE mine b 1"));
    assert_eq!(said, "*8 :1 :9 :6 :0 :30000 :0 $11 concurrency $5 store");
}

#[test]
fn rules_that_are_invalid_are_refused_with_their_path() {
    let many = |count: usize| {
        let rule = |n| format!(r#"{{"name":"r{n}","fixed_window":{{"limit":1,"window":"1s"}}}}"#);
        format!("[{}]", (0..count).map(rule).collect::<Vec<_>>().join(","))
    };
    let long = format!("[{}]", " ".repeat(4_094));
    let deep = "[".repeat(2_000);
    let nested = "[".repeat(20) + &"]".repeat(20);
    let mut connection = Connection::new("");
    for (name, rules, expected) in [
        ("n", &*long, "rules: `4096` bytes are outside 1..=2048"),
        ("n", "", "rules: `0` bytes are outside 1..=2048"),
        ("n", "[]", "rules: expected 1 to 8 rules, found 0"),
        ("n", "{}", "rules: expected a list of rules, found a map"),
        ("n", "x", "rules: expected value at line 1 column 1"),
        ("n", "- leaky_bucket: {}", "rules: invalid number at line 1 column 2"),
        ("n", &deep, "rules: EOF while parsing a list at line 1 column 2000"),
        ("n", &nested, "rules: nested more than 16 deep at line 1 column 17"),
        ("n", &many(11), "rules: expected 1 to 8 rules, found 11"),
        ("n", r#"[{"gcar":{}}]"#, "rules[0]: unknown algorithm `gcar`, expected "),
        (
            "n",
            r#"[{"leaky_bucket":{"rate":"0/s"}}]"#,
            "rules[0].leaky_bucket.rate: invalid rate `0/s`",
        ),
        (
            "n",
            r#"[{"leaky_bucket":{"rate":"1/s","queue":3}}]"#,
            "rules[0].leaky_bucket.queue: unknown field",
        ),
        ("n", r#"[{"leaky_bucket":{}},{"gcar":{}}]"#, "rules[0].leaky_bucket.rate: is missing"),
        (
            "n",
            r#"[{"name":"a","fixed_window":{"limit":1,"window":"1s"}},{"name":"b","fixed_window":{"limit":1,"calendar":"day"}}]"#,
            "rules[1].fixed_window.calendar: calendar windows need a policy, expected `window`",
        ),
        ("", "[]", "name: invalid name `` of limits: expected 1 to 128 bytes of `[A-Za-z0-9._-]`"),
        ("a/b", "[]", "name: invalid name `a/b` of limits"),
        (&"n".repeat(129), "[]", "name: invalid name `nnn"),
    ] {
        let said =
            connection.say(&[b"SG.CHECK", name.as_bytes(), b"k", b"RULES", rules.as_bytes()]);
        let said = String::from_utf8(said).unwrap();
        assert!(said.starts_with(&format!("-NOTCHARGED {expected}")), "{rules}: {said}");
        assert!(said.ends_with("\r\n") && said.lines().count() == 1 && said.len() < 700, "{said}");
    }
    for (words, expected) in [
        ([&b"n"[..], b"[\xff]"], "rules: byte 1 is not UTF-8"),
        ([b"\xff", b"[]"], "name: invalid name `\u{fffd}` of limits"),
        ([b"a\nb", b"[]"], "name: invalid name `a\\nb` of limits"),
    ] {
        let said = connection.say(&[b"SG.CHECK", words[0], b"k", b"RULES", words[1]]);
        let said = String::from_utf8(said).unwrap();
        assert!(said.starts_with(&format!("-NOTCHARGED {expected}")), "{said}");
    }
    assert!(connection.line("SG.CHECK n k RULES").starts_with("-NOTCHARGED RULES: missing value"));
    assert!(connection.line("SG.CHECK n k RULES [] rules []").ends_with("is given twice"));
}

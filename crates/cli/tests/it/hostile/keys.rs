//! Keys with bytes that are special elsewhere: they are ordinary keys.

use std::fmt::Write;

use super::{Attacked, post};

const KEYS: [&str; 6] = ["\0", "{", "}", "\\", "\"", "\u{7f}"];

/// `key` as a JSON string.
fn quoted(key: &str) -> String {
    let mut quoted = String::from("\"");
    for char in key.chars() {
        write!(quoted, "\\u{:04x}", u32::from(char)).expect("texts grow");
    }
    quoted + "\""
}

#[test]
fn a_key_of_1_kib_is_one_key_on_every_wire() {
    let attacked = Attacked::start();
    for byte in KEYS {
        let key = byte.repeat(1024);
        let json = quoted(&key);
        let body = format!(r#"{{"policy":"login","key":{json}}}"#);
        let said = attacked.answer("http", &post("/v1/check", &body));
        assert!(said.contains(r#""remaining":4"#), "{byte:?}: {said}");

        let command = format!("*3\r\n$8\r\nSG.CHECK\r\n$5\r\nlogin\r\n$1024\r\n{key}\r\n");
        let said = attacked.answer("resp", command.as_bytes());
        assert!(said.starts_with("*8\r\n:1\r\n:5\r\n:3\r\n"), "{byte:?}: {said}");

        let entries =
            format!(r#"[{{"key":"policy","value":"login"}},{{"key":"key","value":{json}}}]"#);
        let body = format!(r#"{{"domain":"sluicegate","descriptors":[{{"entries":{entries}}}]}}"#);
        let said = attacked.answer("http", &post("/json", &body));
        assert!(said.contains(r#""limitRemaining":2"#), "{byte:?}: {said}");

        let longer = quoted(&byte.repeat(1025));
        let body = format!(r#"{{"policy":"login","key":{longer}}}"#);
        let said = attacked.answer("http", &post("/v1/check", &body));
        assert!(said.starts_with("HTTP/1.1 400 "), "{byte:?}: {said}");
        let command = format!("*3\r\n$8\r\nSG.CHECK\r\n$5\r\nlogin\r\n$1025\r\n{key}{byte}\r\n");
        let said = attacked.answer("resp", command.as_bytes());
        assert!(said.starts_with("-NOTCHARGED "), "{byte:?}: {said}");
    }
    attacked.is_well();
}

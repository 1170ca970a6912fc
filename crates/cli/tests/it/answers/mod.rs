//! The answers of each wire, byte for byte: requests and answers lie side by side in the files of this folder, in the
//! order in which one server gets them.
//!
//! `SLUICEGATE_RECORD=1 cargo test -p sluicegate-cli --test it answers` writes the answers again.
//! Numbers that depend on the time are written as `*`.

mod http;
mod resp;
mod rls;

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use crate::server::Server;

/// Marks before a request, and before its answer.
const ASKED: &str = ">>> ";
const ANSWERED: &str = "<<<\n";

fn server() -> Server {
    let policies = file("policies.yaml");
    Server::start(&format!("[policies]\npath = {:?}\n", policies.to_str().expect("plain text")))
}

fn file(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/it/answers", name].iter().collect()
}

/// Sends all requests of the file `name`, and compares the answers.
fn compare(name: &str, mut answer: impl FnMut(&str) -> String) {
    let text = fs::read_to_string(file(name)).expect("it is there");
    let (head, exchanges) = text.split_once(ASKED).expect("it has a request");
    let mut found = head.to_owned();
    for exchange in exchanges.split(&format!("\n{ASKED}")) {
        let asked = exchange.split(ANSWERED).next().expect("there is a first part").trim_end();
        let answered = answer(asked);
        writeln!(found, "{ASKED}{asked}\n{ANSWERED}{}\n", answered.trim_end()).expect("a string");
    }
    if std::env::var_os("SLUICEGATE_RECORD").is_some() {
        return fs::write(file(name), found.trim_end().to_owned() + "\n").expect("it is a file");
    }
    let lines = |text: &str| text.trim_end().lines().map(str::to_owned).collect::<Vec<_>>();
    let (found, expected) = (lines(&found), lines(&text));
    let same = found.iter().zip(&expected).take_while(|(one, other)| one == other).count();
    let near =
        |lines: &[String]| lines[same.saturating_sub(4)..(same + 2).min(lines.len())].join("\n");
    assert!(
        found == expected,
        "{name}:{}:\n{}\nis now\n{}",
        same + 1,
        near(&expected),
        near(&found)
    );
}

/// `text` with a `*` instead of the digits after each of `names`, unless they are a single 0.
fn without_times(text: &str, names: &[&str]) -> String {
    names.iter().fold(text.to_owned(), |text, name| {
        let mut parts = text.split(name);
        let mut masked = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let digits = part.len()
                - part.trim_start_matches(|it: char| it.is_ascii_digit() || it == '.').len();
            let is_time = digits > 0 && &part[..digits] != "0";
            masked.push_str(name);
            masked.push_str(if is_time { "*" } else { &part[..digits] });
            masked.push_str(&part[digits..]);
        }
        masked
    })
}

//! `docs/wires/http.md` is up to date: its policies are served, and its commands are run.

use std::fs;
use std::process::{Command, Stdio};

use super::Server;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/wires/http.md");

/// The text of the blocks of this language.
fn blocks<'p>(page: &'p str, language: &str) -> Vec<&'p str> {
    let begin = format!("```{language}\n");
    let blocks = page.split(begin.as_str()).skip(1);
    blocks.map(|rest| rest.split("```").next().expect("a split has a first part")).collect()
}

/// Returns whether `printed` equals `shown`, in which every `…` stands for a number.
fn is_as_shown(shown: &str, printed: &str) -> bool {
    let mut rest = printed;
    for (place, part) in shown.split('…').enumerate() {
        if place > 0 {
            let number = rest.trim_start_matches(|char: char| char.is_ascii_digit());
            if number.len() == rest.len() {
                return false;
            }
            rest = number;
        }
        match rest.strip_prefix(part) {
            Some(left) => rest = left,
            None => return false,
        }
    }
    rest.is_empty()
}

#[test]
fn a_number_may_be_left_out_of_what_is_shown_and_nothing_else() {
    assert!(is_as_shown("a …, b …", "a 12, b 0"));
    for printed in ["a , b 0", "a 12, b 0x", "a 12,b 0", "a x, b 0"] {
        assert!(!is_as_shown("a …, b …", printed), "{printed}");
    }
}

#[test]
fn the_page_of_the_wire_shows_what_it_answers() {
    let page = fs::read_to_string(PAGE).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let policies = folder.path().join("policies.yaml");
    fs::write(&policies, blocks(&page, "yaml")[0]).unwrap();
    let server = Server::spawn(policies.to_str().unwrap(), &[], Stdio::inherit());
    let address = server.address.to_string();
    let mut wrong = String::new();
    let mut commands = 0;
    for block in blocks(&page, "console") {
        for shown in block.split("$ ").skip(1) {
            let (command, shown) = shown.split_once('\n').expect("a command is a line");
            let here = command.replace("127.0.0.1:8080", &address);
            let output = Command::new("sh").args(["-c", &here]).output().expect("there is a shell");
            let printed = String::from_utf8(output.stdout).expect("it says text");
            let printed = printed.replace('\r', "");
            if !is_as_shown(shown.trim_end(), printed.trim_end()) {
                wrong.push_str(&format!("$ {command}\n{}\n", printed.trim_end()));
            }
            commands += 1;
        }
    }
    assert!(wrong.is_empty(), "the page shows something else than\n{wrong}");
    assert!(commands >= 10, "only {commands} commands");
}

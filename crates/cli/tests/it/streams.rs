//! Output that cannot be written: a closed pipe ends the program quietly, a full disk is an error,
//! and neither is a panic.

use std::fs::{File, OpenOptions};
use std::io::{Write as _, pipe};
use std::process::{Output, Stdio};

use crate::program::{EXAMPLES, program};

const POLICIES: &str = EXAMPLES;
const LOG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/small.log");
const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");

/// Every command that writes something, and whether it ends with success.
const COMMANDS: [(&[&str], bool); 6] = [
    (&["policies", "schema"], true),
    (&["policies", "check", POLICIES], true),
    (&["policies", "check", MANIFEST], false),
    (&["policies", "check", "/nonexistent"], false),
    (&["replay", "--policies", POLICIES, "--policy", "site", "--bad-max", "25%", LOG], true),
    (
        &["replay", "--policies", POLICIES, "--policy", "site", "--bad-max", "25%", "--json", LOG],
        true,
    ),
];

/// A pipe whose reader is closed.
fn closed() -> Stdio {
    pipe().expect("a pipe can be made").1.into()
}

/// A device that has no space left.
fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").expect("Linux has /dev/full")
}

fn run(arguments: &[&str], stdout: Stdio, stderr: Stdio) -> (Option<i32>, String) {
    let mut command = program();
    command.args(arguments).stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    let Output { status, stdout: _, stderr } = command.output().expect("the program starts");
    (status.code(), String::from_utf8(stderr).expect("what is said is text"))
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    for (arguments, succeeds) in COMMANDS {
        let (code, said) = run(arguments, closed(), Stdio::piped());
        assert_eq!(code == Some(0), succeeds, "{arguments:?}: {said}");
        assert!(!said.contains("panicked") && !said.contains("roken pipe"), "{said}");
    }
}

#[test]
fn a_full_standard_output_is_an_error_that_says_so() {
    for (arguments, succeeds) in COMMANDS {
        let (code, said) = run(arguments, full().into(), Stdio::piped());
        assert_eq!(code, Some(1), "{arguments:?}: {said}");
        assert!(!succeeds || said.contains("No space left on device"), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
    }
}

#[test]
fn what_cannot_be_said_on_standard_error_changes_nothing() {
    for (arguments, succeeds) in COMMANDS {
        for stderr in [full().into(), closed()] {
            let (code, _) = run(arguments, Stdio::null(), stderr);
            assert_eq!(code, Some(i32::from(!succeeds)), "{arguments:?}");
        }
    }
}

#[test]
fn decisions_that_nobody_reads_end_the_replay_and_a_full_disk_is_told() {
    let events = r#"{"at_us":0,"policy":"login"}"#;
    let replay = |stdout: Stdio| {
        let mut command = program();
        command.args(["replay", "--policies", POLICIES, "--decisions", "-", "-"]);
        command.stdin(Stdio::piped()).stdout(stdout).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(events.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(replay(closed()), (Some(1), String::new()));
    let (code, said) = replay(full().into());
    assert!(code == Some(1) && said.contains("--decisions: No space left"), "{said}");
}

//! The files that are written: created before the replay begins, and never one that is read.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::program::program;
use crate::replay::file;

const POLICY: &str = "policies: [{ name: p, rules: [{ token_bucket: { rate: 1/s } }] }]";
const EVENTS: &str = "{\"at_us\":0,\"policy\":\"p\"}\n";

fn text(path: &Path) -> &str {
    path.to_str().expect("paths of tests are text")
}

/// The standard error of a replay with these arguments, and whether it succeeded; `input` is its standard input.
fn said(arguments: &[&str], input: Stdio, output: Stdio) -> (String, bool) {
    let mut command = program();
    command.arg("replay").args(arguments).stdin(input).stdout(output).stderr(Stdio::piped());
    let output = command.output().expect("the program starts");
    (String::from_utf8(output.stderr).expect("it says text"), output.status.success())
}

/// A path without a file.
fn nothing(name: &str) -> PathBuf {
    let path = file(name, "");
    fs::remove_file(&path).expect("it was just made");
    path
}

#[test]
fn a_file_that_is_read_is_never_overwritten() {
    let (policies, events) = (file("p.yaml", POLICY), file("e.jsonl", EVENTS));
    let link = nothing("link.jsonl");
    fs::hard_link(&events, &link).unwrap();
    let (policies_path, input) = (text(&policies), text(&events));
    for (option, output, source, same) in [
        ("--decisions", input, input, "the input"),
        ("--decisions", text(&link), input, "the input"),
        ("--decisions", policies_path, input, "--policies"),
        ("--svg", input, input, "the input"),
        ("--svg", input, "-", "the input"),
        ("--svg", policies_path, input, "--policies"),
    ] {
        let arguments = ["--policies", policies_path, option, output, source];
        let stdin = fs::File::open(&events).unwrap();
        let (said, succeeded) = said(&arguments, stdin.into(), Stdio::null());
        let expected = format!("error: {option}: {output} is the same file as {same}\n");
        assert_eq!((said, succeeded), (expected, false));
    }
    assert_eq!(fs::read_to_string(&events).unwrap(), EVENTS);
    assert_eq!(fs::read_to_string(&policies).unwrap(), POLICY);
}

#[test]
fn decisions_are_not_appended_to_the_input_that_they_come_from() {
    let (policies, events) = (file("p.yaml", POLICY), file("e.jsonl", EVENTS));
    let append = fs::OpenOptions::new().append(true).open(&events).unwrap();
    let arguments = ["--policies", text(&policies), "--decisions", "-", text(&events)];
    let (said, succeeded) = said(&arguments, Stdio::null(), append.into());
    assert_eq!(
        (said.as_str(), succeeded),
        ("error: --decisions: - is the same file as the input\n", false)
    );
    assert_eq!(fs::read_to_string(&events).unwrap(), EVENTS);
}

#[test]
fn the_two_outputs_are_not_one_file_but_may_both_be_nowhere() {
    let (policies, events) = (file("p.yaml", POLICY), file("e.jsonl", EVENTS));
    let both = |path: &Path| {
        let path = text(path);
        let arguments =
            ["--policies", text(&policies), "--decisions", path, "--svg", path, text(&events)];
        said(&arguments, Stdio::null(), Stdio::null())
    };
    let output = nothing("out");
    let (said, succeeded) = both(&output);
    let expected = format!("error: --svg: {} is the same file as --decisions\n", text(&output));
    assert_eq!((said, succeeded), (expected, false));
    let (said, succeeded) = both(Path::new("/dev/null"));
    assert!(succeeded, "{said}");
}

#[test]
fn a_picture_that_cannot_be_written_is_told_before_the_replay_begins() {
    let (policies, decisions) = (file("p.yaml", POLICY), file("d.jsonl", "before"));
    let arguments = ["--policies", text(&policies), "--svg", "/no/such/folder/x.svg"];
    let events = file("e.jsonl", EVENTS);
    let all = [&arguments[..], &["--decisions", text(&decisions), text(&events)]].concat();
    let (said, succeeded) = said(&all, Stdio::null(), Stdio::null());
    assert!(!succeeded && said.starts_with("error: --svg: /no/such/folder/x.svg: "), "{said}");
    assert_eq!(fs::read_to_string(&decisions).unwrap(), "", "nothing was replayed");
}

#[test]
fn a_picture_that_fails_at_the_end_does_not_take_the_summary_with_it() {
    let (policies, events) = (file("p.yaml", POLICY), file("e.jsonl", EVENTS));
    let mut command = program();
    command.args(["replay", "--policies", text(&policies), "--svg", "/dev/full", text(&events)]);
    let output = command.output().unwrap();
    let (printed, said) = (String::from_utf8(output.stdout), String::from_utf8(output.stderr));
    assert!(printed.unwrap().contains("requests                                   1"));
    assert!(said.unwrap().contains("error: --svg: No space left on device"));
    assert_eq!(output.status.code(), Some(1));
}

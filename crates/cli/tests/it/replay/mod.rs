//! `sluicegate replay` from the outside: the real program, files in, decisions out.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail where they stand")]

mod bad_input;
mod choosing;
mod files;
mod gateway;
mod guava;
mod logs;
mod operations;
mod pictures;
mod redis;
mod scripts;
mod streamed;
mod waiting;

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::program::program;

/// The result of a replay.
struct Replayed {
    /// Its standard output.
    stdout: String,
    stderr: String,
    code: i32,
}

/// Replays `input` through standard input against `policies`, with more options.
fn replay(policies: &str, input: impl AsRef<[u8]>, options: &[&str]) -> Replayed {
    let policies = file("policies.yaml", policies);
    let mut command = program();
    command.arg("replay").arg("--policies").arg(&policies).args(options).arg("-");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut stdin, input) = (child.stdin.take().unwrap(), input.as_ref().to_vec());
    let writer = std::thread::spawn(move || {
        // The program may end before it has read everything; the test checks its result.
        let _ = stdin.write_all(&input);
    });
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    Replayed { stdout, stderr, code: status.code().unwrap() }
}

/// The decision lines of `events`, which all must be good.
fn decisions(policies: &str, events: &[String]) -> Vec<Value> {
    let replayed = replay(policies, events.join("\n"), &["--decisions", "-"]);
    assert_eq!(replayed.code, 0, "{}", replayed.stderr);
    lines(&replayed.stdout)
}

/// The decision lines of `events`, some of which are bad.
fn decisions_and_errors(policies: &str, events: &[&str]) -> Vec<Value> {
    let replayed = replay(policies, events.join("\n"), &["--decisions", "-"]);
    assert_eq!(replayed.code, 1, "{}", replayed.stderr);
    lines(&replayed.stdout)
}

/// The summary as JSON.
fn summary(policies: &str, input: impl AsRef<[u8]>, options: &[&str]) -> Value {
    let replayed = replay(policies, input, &[&["--json"], options].concat());
    serde_json::from_str(&replayed.stdout).expect(&replayed.stderr)
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// For each line, `true` if it was allowed.
fn allowed(lines: &[Value]) -> Vec<bool> {
    lines.iter().map(|line| line["allowed"].as_bool().unwrap()).collect()
}

/// The number `name` of each line.
fn numbers(lines: &[Value], name: &str) -> Vec<Option<u64>> {
    lines.iter().map(|line| line[name].as_u64()).collect()
}

/// Writes a file with this content, which no other test uses.
fn file(name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    static FILES: AtomicU32 = AtomicU32::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let name = format!("replay-{}-{number}-{name}", std::process::id());
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).unwrap();
    path
}

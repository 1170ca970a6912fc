//! Names of policies that a shell completes: those of a server, else those of the policy file.

use std::ffi::OsStr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap_complete::engine::CompletionCandidate;
use serde::Deserialize;
use sluicegate_text::documents::DocumentSource;

use crate::client::http;
use crate::client::target::{ADMIN_URL, Target};
use crate::client::tls::TlsRoots;
use crate::serve;

/// Longest wait of a shell for names: a user has pressed the tab key and waits for the line.
const NAMES_WAIT_MAX: Duration = Duration::from_millis(300);

/// Longest wait for the server, so that the file can be read afterwards.
const SERVER_WAIT_MAX: Duration = Duration::from_millis(200);

/// Most names that are completed, more than a terminal shows at once.
const NAMES_MAX: usize = 1_000;

/// Largest answer: the names of ten thousand policies.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// The answer of a server that lists its policies.
#[derive(Deserialize)]
struct PolicyNames {
    policies: Vec<String>,
}

/// The names of policies that begin with `typed`, at most 1,000; none if neither a server nor a policy file
/// answers within 300 ms.
pub(crate) fn candidates(typed: &OsStr) -> Vec<CompletionCandidate> {
    let (send, received) = mpsc::sync_channel(1);
    // A thread that is late ends with the process, which only prints what was found in time.
    thread::spawn(move || send.send(of_server().or_else(of_file)));
    let names = received.recv_timeout(NAMES_WAIT_MAX).ok().flatten().unwrap_or_default();
    let typed = typed.to_string_lossy();
    let fitting = names.into_iter().filter(|name| name.starts_with(&*typed) && is_name(name));
    fitting.take(NAMES_MAX).map(CompletionCandidate::new).collect()
}

/// Returns whether `name` has only characters of policy names. A shell would run other text, and the server that
/// answers is not necessarily trusted.
fn is_name(name: &str) -> bool {
    name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-'))
}

fn of_server() -> Option<Vec<String>> {
    let url = std::env::var(ADMIN_URL).ok();
    let to: Target = url.as_deref().unwrap_or("http://127.0.0.1:8082").parse().ok()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let trust = TlsRoots::default();
    let request = http::get("/v1/policies");
    let answer = http::send_for((&to, &trust), request, SERVER_WAIT_MAX, ANSWER_BYTES_MAX);
    let PolicyNames { policies } =
        serde_json::from_slice(&runtime.block_on(answer).ok()?.body).ok()?;
    Some(policies)
}

fn of_file() -> Option<Vec<String>> {
    let files = DocumentSource::new(serve::policies_path()?).written().ok()?.ok()?;
    let documents = files.iter().flat_map(|(_, documents)| documents);
    let names = documents.filter_map(|document| document["name"].as_str().map(str::to_owned));
    Some(names.collect())
}

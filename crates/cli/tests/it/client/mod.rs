//! The command line as a client of a running server: the real program at both ends.

mod ask;
mod bench;
mod docs;
mod health;
mod mistakes;
mod shell;
mod watch;

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::program::Process;
use crate::program::program;

/// Policies of the tests.
const POLICIES: &str = "
policies:
  - name: login
    rules: [{ name: tries, sliding_log: { limit: 5, window: 10m } }]
  - name: hundred
    rules: [{ fixed_window: { limit: 100, window: 365d } }]
  - name: wide
    rules: [{ token_bucket: { rate: 1000000/s } }]
  - name: shop
    apps: [checkout]
    rules: [{ token_bucket: { rate: 1/h, burst: 2 } }]
  - name: cached
    rules: [{ fixed_window: { limit: 1, window: 365d } }]
    overflow: { degrade: { tag: stale } }
  - name: watched
    rules: [{ fixed_window: { limit: 1, window: 365d } }]
    overflow: shadow
  - name: jobs
    rules: [{ name: running, concurrency: { limit: 2, ttl: 5m } }]
";

/// The program, with all of its wires.
struct Server {
    process: Process,
    http: String,
    resp: String,
    rls: String,
    admin: String,
    /// A Unix socket of the `http` wire.
    unix: String,
    _directory: TempDir,
}

/// Output and exit status of a command.
#[derive(Debug, PartialEq, Eq)]
struct Ran {
    out: String,
    err: String,
    status: Option<i32>,
}

impl Server {
    fn start() -> Self {
        Self::start_with(POLICIES, &[])
    }

    /// Starts a server with these policies, and with more options.
    fn start_with(document: &str, options: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("there is room for files");
        let policies = directory.path().join("policies.yaml");
        std::fs::write(&policies, document).expect("it can be written");
        let socket = directory.path().join("http.sock");
        let mut program = program();
        program
            .args(["serve", "--resp", "127.0.0.1:0", "--rls", "127.0.0.1:0", "--policies"])
            .args([path(&policies), "--listen", &format!("127.0.0.1:0,unix:{}", path(&socket))])
            .args(options)
            .env("SLUICEGATE__ADMIN__LISTEN", "127.0.0.1:0")
            .env("SLUICEGATE__SERVER__DRAIN_DELAY", "60s");
        let process = Process::start(&mut program, 5);
        let mut urls = process.urls();
        let [http, unix, resp, rls, admin] =
            std::array::from_fn(|_| urls.next().expect("five addresses"));
        drop(urls);
        Self { process, http, resp, rls, admin, unix, _directory: directory }
    }

    /// Runs `sluicegate COMMAND` for this server.
    fn ask(&self, command: &str) -> Ran {
        run(&format!("{command} --to {}", self.http))
    }
}

/// `sluicegate COMMAND`, whose words are separated by spaces.
fn sluicegate(command: &str) -> Command {
    let mut program = program();
    program.args(command.split_whitespace()).env_remove("SLUICEGATE_URL");
    program
}

fn run(command: &str) -> Ran {
    finish(sluicegate(command).output())
}

fn finish(output: std::io::Result<std::process::Output>) -> Ran {
    let output = output.expect("the program is built");
    let text = |bytes| String::from_utf8(bytes).expect("it says text");
    Ran { out: text(output.stdout), err: text(output.stderr), status: output.status.code() }
}

/// The result of a command that ends with this status and prints nothing else.
fn ran(status: i32, out: &str) -> Ran {
    Ran { out: format!("{out}\n"), err: String::new(), status: Some(status) }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("directories of tests have plain names")
}

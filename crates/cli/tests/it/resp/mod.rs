//! The wire for Redis clients: the real program, and clients of other projects.
#![expect(clippy::unwrap_used, reason = "what a test builds is known to be right")]

mod flood;
mod hostile;
mod redis_benchmark;
mod redis_cli;
mod redis_py;
mod shared;

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use sluicegate_testkit::Error;

use crate::program::{PATIENCE, Process, program};

/// Budgets that do not refill while a test runs.
const POLICIES: &str = "
policies:
  - { name: hourly, rules: [ { name: all, fixed_window: { limit: 100000, window: 1h, align: first } } ] }
  - { name: login, rules: [ { name: tries, sliding_log: { limit: 5, window: 10m } } ] }
  - { name: jobs, apps: [shop], rules: [ { name: slots, concurrency: { limit: 2, ttl: 10m } } ] }
";

/// A server with [`POLICIES`]. It ends when this is dropped, and its folder is removed.
struct Server {
    process: Process,
    address: SocketAddr,
    folder: PathBuf,
}

impl Server {
    fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with more options.
    fn start_with(options: &[&str]) -> Self {
        let folder = folder();
        let policies = folder.join("policies.yaml");
        fs::write(&policies, POLICIES).unwrap();
        let mut program = program();
        program
            .args(["serve", "--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--policies"])
            .envs([("SLUICEGATE__RLS__LISTEN", "off"), ("SLUICEGATE__ADMIN__LISTEN", "off")])
            .arg(&policies)
            .args(options);
        let process = Process::start(&mut program, 2);
        Self { address: process.address("resp"), process, folder }
    }

    fn port(&self) -> String {
        self.address.port().to_string()
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Returns all bytes after `bytes` were sent, until the server closes the connection.
    fn answer(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        // A server that refuses may close before it has read everything.
        stream.write_all(bytes).ok();
        let mut said = Vec::new();
        stream.read_to_end(&mut said).unwrap();
        said
    }

    /// Like [`answer`](Self::answer), as text, for `lines` and a last one that quits.
    fn lines(&self, lines: &str) -> String {
        String::from_utf8(self.answer(format!("{lines}\nQUIT\n").as_bytes())).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.folder).ok();
    }
}

/// Writes a file that other users cannot read.
fn write_secret(path: &Path, text: &str) {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).expect("it can be written");
}

/// A new folder.
fn folder() -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder =
        std::env::temp_dir().join(format!("sluicegate-resp-{}-{number}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The program `name`, without arguments.
fn tool(name: &str) -> Result<Command, Error> {
    match Command::new(name).arg("--version").output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(Error::Missing(format!("`{name}` is not installed; `make deps` installs it")))
        }
        Err(error) => Err(error.into()),
        Ok(_) => Ok(Command::new(name)),
    }
}

/// The standard output of `command`, which must succeed.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let (said, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{errors}");
    said.into_owned()
}

#[test]
fn a_server_that_is_told_to_stop_answers_what_it_has_read_and_ends_with_success() {
    let mut server = Server::start();
    let mut idle = server.connect();
    let mut client = server.connect();
    client.write_all(b"SG.CHECK login a\nPI").unwrap();
    let mut said = [0; 4];
    client.read_exact(&mut said).unwrap();
    server.process.signal("TERM");
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());
    client.read_to_end(&mut rest).unwrap();
    let said = [&said[..], &rest].concat();
    assert!(said.starts_with(b"*8\r\n:1\r\n") && said.ends_with(b"store\r\n"));
    assert!(server.process.wait().unwrap().success());
}

#[test]
fn a_password_file_that_is_empty_or_not_there_or_everybodys_is_an_error() {
    let folder = folder();
    let file = folder.join("password");
    write_secret(&file, "\n");
    let readable = folder.join("readable");
    fs::write(&readable, "hunter2").unwrap();
    fs::set_permissions(&readable, fs::Permissions::from_mode(0o644)).unwrap();
    for (path, problem) in [
        (file, "is empty"),
        (folder.join("nope"), "cannot read"),
        (readable, "readable: mode 0644 gives all users of this machine access"),
    ] {
        let output = program()
            .args(["serve", "--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0"])
            .envs([("SLUICEGATE__RLS__LISTEN", "off"), ("SLUICEGATE__ADMIN__LISTEN", "off")])
            .arg("--resp-password-file")
            .arg(path)
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && stderr.contains(problem), "{stderr}");
    }
    fs::remove_dir_all(folder).unwrap();
}

//! Nodes of a catalog: the real program, which tests can kill and start again, and clients of it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use sluicegate::{Clock, Micros, MonotonicClock};
use sluicegate_testkit::Error;
use tempfile::TempDir;

use crate::program::{PATIENCE, Process, serve};

/// The account of the first administrator.
pub(crate) const ADMIN: &str = "ada";
pub(crate) const PASSWORD: &str = "correct horse battery staple";

/// A node, and the folder that outlives its process.
pub(crate) struct Node {
    pub(crate) folder: TempDir,
    config: String,
    process: Process,
}

/// A client with header fields that authenticate it.
#[derive(Clone, Default)]
pub(crate) struct Who(String);

impl Node {
    /// Starts a node of the catalog at `url`, in a folder of its own, with `more` of a
    /// configuration.
    pub(crate) fn start(url: &str, more: &str) -> Self {
        Self::start_in(tempfile::tempdir().expect("there is room for files"), url, more)
    }

    fn start_in(folder: TempDir, url: &str, more: &str) -> Self {
        let kept = folder.path().join("kept.json").display().to_string();
        let url = url.replace("DIR", &folder.path().display().to_string());
        let config = format!("[catalog]\nurl = '{url}'\nkept = '{kept}'\n{more}");
        let process = spawn(&folder, &config);
        Self { folder, config, process }
    }

    /// Starts a node whose copy of the catalog is at the default path, unless `more` sets another.
    pub(crate) fn start_with_own_copy(folder: TempDir, url: &str, more: &str) -> Self {
        let config = format!("[catalog]\nurl = '{url}'\n{more}");
        let process = spawn(&folder, &config);
        Self { folder, config, process }
    }

    /// A node of a SQLite catalog whose folder is a file system of its own, of 8 MiB.
    ///
    /// # Errors
    /// [`Error::Missing`] where nothing can be mounted.
    pub(crate) fn start_on_small_disk() -> Result<Self, Error> {
        let folder = tempfile::tempdir().expect("there is room for files");
        let disk = folder.path().join("disk");
        fs::create_dir(&disk).expect("it is new");
        if !on_disk(&disk, &Command::new("true")).status().is_ok_and(|status| status.success()) {
            return Err(Error::Missing("no file system can be mounted here".to_owned()));
        }
        let [kept, database] =
            ["kept.json", "disk/catalog.db"].map(|name| folder.path().join(name));
        let (kept, database) = (kept.display(), database.display());
        let config = format!("[catalog]\nurl = 'sqlite:{database}'\nkept = '{kept}'\n");
        let told = File::create(folder.path().join("told")).expect("it can be written");
        let process = Process::start(on_disk(&disk, &serve(&folder, &config)).stderr(told), 4);
        Ok(Self { folder, config, process })
    }

    /// A file on the small disk of this node, as its process sees it.
    pub(crate) fn on_small_disk(&self, name: &str) -> PathBuf {
        let disk = self.folder.path().join("disk").join(name);
        let inside = disk.strip_prefix("/").expect("it is absolute");
        Path::new("/proc").join(self.process.id().to_string()).join("root").join(inside)
    }

    /// Kills the node and starts it again.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.process = spawn(&self.folder, &self.config);
    }

    /// Stops the node as an operator does, and waits for its end.
    pub(crate) fn end(&mut self) {
        self.process.signal("TERM");
        self.process.wait().expect("it was not waited for");
    }

    /// Starts the node again after its end.
    pub(crate) fn start_again(&mut self) {
        self.process = spawn(&self.folder, &self.config);
    }

    /// Kills the node, at any point of its work, and waits for its end.
    pub(crate) fn kill(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }

    /// Kills the node without waiting, so that requests may be under way.
    pub(crate) fn kill_at_once(&self) {
        let id = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(id, rustix::process::Signal::KILL).expect("it runs");
    }

    /// The address of its listener for `scheme`.
    pub(crate) fn address(&self, scheme: &str) -> SocketAddr {
        self.process.address(scheme)
    }

    /// Its standard error since the last start.
    pub(crate) fn told(&self) -> String {
        fs::read_to_string(self.folder.path().join("told")).expect("it is there")
    }

    /// The setup token that it printed.
    pub(crate) fn setup_token(&self) -> String {
        let told = || {
            self.told()
                .split_whitespace()
                .find(|word| word.starts_with("sgsetup_"))
                .map(str::to_owned)
        };
        until(|| told().is_some());
        told().expect("it was there")
    }

    /// Creates the first administrator, signed in.
    pub(crate) fn set_up(&self) -> Who {
        let token = self.setup_token();
        let body = json!({ "token": token, "account": ADMIN, "password": PASSWORD });
        let (status, made) = self.admin(&Who::default(), "POST", "/setup", &body);
        assert_eq!(status, 201, "{made}");
        self.sign_in()
    }

    /// Signs the first administrator in again.
    pub(crate) fn sign_in(&self) -> Who {
        self.sign_in_as(ADMIN)
    }

    /// Creates an account with these roles, signed in.
    pub(crate) fn join(&self, admin: &Who, name: &str, roles: &[(&str, &str)]) -> Who {
        let new = json!({ "name": name, "password": PASSWORD });
        assert_eq!(self.admin(admin, "POST", "/accounts", &new).0, 201);
        for (app, role) in roles {
            let path = format!("/apps/{app}/members/{name}");
            let (status, reply) = self.admin(admin, "PUT", &path, &json!({ "role": role }));
            assert!(status < 300, "{reply}");
        }
        self.sign_in_as(name)
    }

    fn sign_in_as(&self, account: &str) -> Who {
        let body = json!({ "account": account, "password": PASSWORD }).to_string();
        let path = "/v1/admin/session";
        let reply = ask(self.address("admin"), &Who::default(), "POST", path, &body);
        let (status, head, _) = reply.expect("it answers");
        assert_eq!(status, 200, "{head}");
        let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: "));
        let cookie = cookie.and_then(|cookie| cookie.split(';').next()).expect("a cookie");
        Who(format!("cookie: {cookie}\r\n"))
    }

    /// Returns the status and the body of the admin API's answer.
    pub(crate) fn admin(&self, who: &Who, method: &str, path: &str, body: &Value) -> (u16, Value) {
        self.try_admin(who, method, path, body).expect("it answers")
    }

    /// Like [`admin`](Self::admin), for a node that may be killed meanwhile: `None` if it does not
    /// answer.
    pub(crate) fn try_admin(
        &self,
        who: &Who,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Option<(u16, Value)> {
        let path = format!("/v1/admin{path}");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, _, body) = ask(self.address("admin"), who, method, &path, &body)?;
        Some((status, serde_json::from_str(&body).unwrap_or_default()))
    }

    /// Returns the status and the body of a check of `key`.
    pub(crate) fn check(&self, who: &Who, policy: &str, key: &str) -> (u16, Value) {
        let body = json!({ "policy": policy, "key": key, "app": "shop" }).to_string();
        let reply = ask(self.address("http"), who, "POST", "/v1/check", &body);
        let (status, _, body) = reply.expect("it answers");
        (status, serde_json::from_str(&body).expect("it says JSON"))
    }

    /// Returns the limit that a policy has here; `None` if it is unknown.
    pub(crate) fn limit(&self, policy: &str) -> Option<u64> {
        let body = json!({ "policy": policy, "key": "nobody", "app": "shop" }).to_string();
        let reply = ask(self.address("http"), &Who::default(), "POST", "/v1/peek", &body);
        let body: Value = serde_json::from_str(&reply?.2).ok()?;
        body["limit"].as_u64()
    }
}

impl Who {
    /// A client with this token.
    pub(crate) fn with_token(secret: &str) -> Self {
        Self(format!("authorization: Bearer {secret}\r\n"))
    }

    /// A client with a session of this cookie.
    pub(crate) fn with_cookie(cookie: &str) -> Self {
        Self(format!("cookie: {cookie}\r\n"))
    }

    /// This client, for a change of the item in this version.
    pub(crate) fn of_version(&self, version: i64) -> Self {
        Self(format!("{}if-match: \"{version}\"\r\n", self.0))
    }

    /// The lines of an answer that is streamed.
    pub(crate) fn lines(&self, address: SocketAddr, path: &str) -> impl Iterator<Item = String> {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n{}\r\n", self.0);
        stream.write_all(request.as_bytes()).expect("it takes a request");
        BufReader::new(stream).lines().map(|line| line.expect("it goes on"))
    }

    /// This client behind a proxy that adds these addresses.
    pub(crate) fn forwarded_for(&self, addresses: &str) -> Self {
        Self(format!("{}x-forwarded-for: {addresses}\r\n", self.0))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits until `is_so`.
pub(crate) fn until(is_so: impl Fn() -> bool) {
    let begin = MonotonicClock.now();
    while !is_so() {
        assert!(MonotonicClock.now().get() - begin.get() < Micros::from(PATIENCE).get());
        #[expect(clippy::disallowed_methods, reason = "another process needs its time")]
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// The document of a policy with this limit.
pub(crate) fn policy(name: &str, limit: u64) -> Value {
    json!({ "name": name, "rules": [{ "fixed_window": { "limit": limit, "window": "1d" } }] })
}

/// Starts a node with this configuration, whose standard error goes to the file `told`.
fn spawn(folder: &TempDir, config: &str) -> Process {
    let told = File::create(folder.path().join("told")).expect("it can be written");
    // The admin API may have an address of its own.
    let listens = 4 + usize::from(config.contains("\nlisten = "));
    Process::start(serve(folder, config).stderr(told), listens)
}

/// `program` with a file system of its own at `disk`, which ends with the program.
fn on_disk(disk: &Path, program: &Command) -> Command {
    let mut on_disk = Command::new("unshare");
    let mount = "mount -t tmpfs -o size=8m none \"$0\" && exec \"$@\"";
    on_disk.args(["-rm", "sh", "-c", mount]).arg(disk);
    on_disk.arg(program.get_program()).args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => on_disk.env(name, value),
            None => on_disk.env_remove(name),
        };
    }
    on_disk
}

/// Sends a request, and returns status, head and body; `None`: there was no answer.
pub(crate) fn ask(
    address: SocketAddr,
    Who(who): &Who,
    method: &str,
    path: &str,
    body: &str,
) -> Option<(u16, String, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{who}\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).ok()?;
    answer(&mut stream)
}

/// Sends the head of a `POST` with a body of this type and length; the caller sends the body.
pub(crate) fn begin(
    address: SocketAddr,
    Who(who): &Who,
    path: &str,
    kind: &str,
    length: usize,
) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{who}\
         content-type: {kind}\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("it takes a request");
    stream
}

/// Reads status, head and body; `None`: there was no answer.
pub(crate) fn answer(stream: &mut TcpStream) -> Option<(u16, String, String)> {
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    let (head, body) = reply.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, head.to_owned(), body.to_owned()))
}

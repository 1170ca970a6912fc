//! A node: the server as users start it, and requests to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::Context as _;
use serde_json::{Value, json};
use sluicegate::Clock;
use sluicegate::internals::WallClock;

/// The catalog and the store that nodes are started with.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) catalog: String,
    pub(crate) store: String,
}

/// A node. It stops when this is dropped.
#[derive(Debug)]
pub(crate) struct Node {
    child: Child,
    http: String,
    admin: String,
    kept: PathBuf,
    _said: BufReader<ChildStdout>,
}

impl Program {
    /// Starts a node, which is listening when this returns.
    pub(crate) fn start(&self) -> anyhow::Result<Node> {
        let beside = std::env::current_exe()?.with_file_name("sluicegate");
        let program = std::env::var_os("SLUICEGATE").map_or(beside, PathBuf::from);
        let kept = std::env::temp_dir().join(format!("sluicegate-kept-{}", fastrand::u64(..)));
        let mut command = Command::new(program);
        command.args(["serve", "--catalog", &self.catalog, "--store", &self.store]);
        command.env("SLUICEGATE__CATALOG__KEPT", &kept).env("SLUICEGATE__STORE__NODES", "3");
        for (wire, listen) in
            [("HTTP", "127.0.0.1:0"), ("ADMIN", "127.0.0.1:0"), ("RESP", "off"), ("RLS", "off")]
        {
            command.env(format!("SLUICEGATE__{wire}__LISTEN"), listen);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child =
            command.spawn().context("build it with: cargo build --release -p sluicegate-cli")?;
        let mut said = BufReader::new(child.stdout.take().context("it is piped")?);
        let mut address = |wire: &str| {
            let mut line = String::new();
            said.read_line(&mut line)?;
            let found = line.trim().strip_prefix(&format!("listening on {wire}://"));
            Ok::<_, anyhow::Error>(found.context("it does not say where it listens")?.to_owned())
        };
        let (http, admin) = (address("http")?, address("admin")?);
        Ok(Node { child, http, admin, kept, _said: said })
    }
}

impl Node {
    /// Changes the item at `path`, if it has this version.
    pub(crate) fn admin(
        &self,
        token: &str,
        version: usize,
        path: &str,
        body: &Value,
    ) -> anyhow::Result<(u16, Value)> {
        let head = format!("authorization: Bearer {token}\r\nif-match: \"{version}\"\r\n");
        ask(&self.admin, &format!("PUT {path}"), &head, &body.to_string())
    }

    /// Returns the limit of the edited policy on this node.
    pub(crate) fn limit(&self, token: &str) -> Option<u64> {
        let body = json!({ "policy": "orders", "key": "nobody", "app": "shop" }).to_string();
        let head = format!("authorization: Bearer {token}\r\n");
        ask(&self.http, "POST /v1/peek", &head, &body).ok()?.1["limit"].as_u64()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        std::fs::remove_file(&self.kept).ok();
    }
}

fn ask(address: &str, what: &str, head: &str, body: &str) -> anyhow::Result<(u16, Value)> {
    let mut stream = TcpStream::connect(address)?;
    let length = body.len();
    write!(
        stream,
        "{what} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{head}\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    let (head, body) = reply.split_once("\r\n\r\n").context("no answer")?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok((status, serde_json::from_str(body)?))
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    i64::try_from(WallClock.now().get() / 1_000).unwrap_or(i64::MAX)
}

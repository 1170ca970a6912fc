//! A server bound to one core, and a client bound to another that keeps it busy.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use crate::cases::Case;

/// Connections that the client keeps open.
const CONNECTIONS: usize = 50;

/// Requests that a connection sends before it reads the replies.
const PIPELINED: u64 = 16;

/// A `redis-server` on core 0; this process moves to core 1.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    folder: PathBuf,
    port: String,
    connections: Vec<BufReader<TcpStream>>,
    random: u64,
}

impl Server {
    pub(crate) fn start(options: &[&str]) -> anyhow::Result<Self> {
        if let Some(core) = core_affinity::get_core_ids().unwrap_or_default().get(1) {
            core_affinity::set_for_current(*core);
        }
        let binary = std::env::var("SLUICEGATE_REDIS_SERVER").unwrap_or("redis-server".into());
        let folder = std::env::temp_dir().join(format!("sluicegate-bench-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let child = Command::new("taskset")
            .args(["-c", "0", &binary, "--save", "", "--appendonly", "no", "--port", &port])
            .arg("--dir")
            .arg(&folder)
            .args(options)
            .stdout(Stdio::null())
            .spawn()
            .context("taskset and redis-server must be installed")?;
        let mut server = Self { child, folder, port, connections: Vec::new(), random: 1 };
        for _ in 0..CONNECTIONS {
            let stream = connect(&server.port)?;
            server.connections.push(BufReader::with_capacity(1 << 16, stream));
        }
        Ok(server)
    }

    /// The port on the loopback interface.
    pub(crate) fn port(&self) -> &str {
        &self.port
    }

    /// CPU time that the server has used, in ns.
    pub(crate) fn cpu_ns(&self) -> anyhow::Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.child.id()))?;
        Ok(text.split(' ').next().context("schedstat has three numbers")?.parse()?)
    }

    /// Sends `decisions` requests of `case` for random keys out of `keys`.
    pub(crate) fn run(&mut self, case: &Case, decisions: u64, keys: u64) -> anyhow::Result<()> {
        let mut left = decisions;
        while left > 0 {
            let each = PIPELINED * case.decisions;
            let batches = (left / each).clamp(1, CONNECTIONS as u64);
            let picks = |_| {
                // xorshift64: the same keys in every run.
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                self.random % keys
            };
            let numbers: Vec<_> = (0..batches * each).map(picks).collect();
            self.exchange(case, &numbers)?;
            left = left.saturating_sub(batches * each);
        }
        Ok(())
    }

    /// Sends one request of `case` for each of `keys` keys.
    pub(crate) fn run_in_order(&mut self, case: &Case, keys: u64) -> anyhow::Result<()> {
        let numbers: Vec<_> = (0..keys).collect();
        for some in numbers.chunks(usize::try_from(PIPELINED * case.decisions)? * CONNECTIONS) {
            self.exchange(case, some)?;
        }
        Ok(())
    }

    /// Every connection sends its requests, then every connection reads its replies.
    fn exchange(&mut self, case: &Case, numbers: &[u64]) -> anyhow::Result<()> {
        let each = usize::try_from(PIPELINED * case.decisions)?;
        for (some, connection) in numbers.chunks(each).zip(&mut self.connections) {
            let mut request = Vec::with_capacity(8_192);
            for keys in some.chunks(usize::try_from(case.decisions)?) {
                case.write(keys, &mut request);
            }
            connection.get_mut().write_all(&request)?;
        }
        for (some, connection) in numbers.chunks(each).zip(&mut self.connections) {
            for _ in some.chunks(usize::try_from(case.decisions)?) {
                skip_reply(connection)?;
            }
        }
        Ok(())
    }

    pub(crate) fn load(&mut self, script: &str) -> anyhow::Result<()> {
        self.call(&["SCRIPT", "LOAD", script]).map(drop)
    }

    /// Keeps expired keys in memory until a request names them.
    pub(crate) fn keep_what_has_ended(&mut self) -> anyhow::Result<()> {
        self.call(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]).map(drop)
    }

    pub(crate) fn flush(&mut self) -> anyhow::Result<()> {
        self.call(&["FLUSHALL"]).map(drop)
    }

    pub(crate) fn keys(&mut self) -> anyhow::Result<i64> {
        Ok(self.call(&["DBSIZE"])?.trim_start_matches(':').trim_end().parse()?)
    }

    pub(crate) fn used_memory(&mut self) -> anyhow::Result<i64> {
        let info = self.call(&["INFO", "memory"])?;
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
        Ok(line.context("INFO says how much memory is used")?.trim().parse()?)
    }

    fn call(&mut self, words: &[&str]) -> anyhow::Result<String> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        let connection = &mut self.connections[0];
        connection.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        connection.read_line(&mut line)?;
        if let Some(length) = line.strip_prefix('$') {
            let mut bytes = vec![0; length.trim_end().parse::<usize>()? + 2];
            connection.read_exact(&mut bytes)?;
            return Ok(String::from_utf8(bytes)?);
        }
        ensure!(!line.starts_with('-'), "{line}");
        Ok(line)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn connect(port: &str) -> anyhow::Result<TcpStream> {
    for _ in 0..500 {
        if let Ok(stream) = TcpStream::connect(format!("127.0.0.1:{port}")) {
            stream.set_nodelay(true)?;
            return Ok(stream);
        }
        #[expect(clippy::disallowed_methods, reason = "a benchmark waits for another process")]
        std::thread::park_timeout(Duration::from_millis(10));
    }
    bail!("no server listens on port {port}")
}

fn skip_reply(connection: &mut BufReader<TcpStream>) -> anyhow::Result<()> {
    let mut line = Vec::new();
    connection.read_until(b'\n', &mut line)?;
    let line = std::str::from_utf8(&line)?.trim_end();
    let (kind, rest) = line.split_at(1);
    match kind {
        ":" | "+" => {}
        "$" => {
            let mut bytes = vec![0; rest.parse::<usize>()? + 2];
            connection.read_exact(&mut bytes)?;
            ensure!(bytes[0] < 2, "the script answers {bytes:?}");
        }
        "*" => {
            for _ in 0..rest.parse::<u64>()? {
                skip_reply(connection)?;
            }
        }
        _ => bail!("the server says `{line}`"),
    }
    Ok(())
}

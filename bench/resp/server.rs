//! The servers, and `redis-benchmark` bound to core 1 that keeps them busy.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use sluicegate_bench::served::{Served, on_core};

use crate::fixed;

/// Connections that the client keeps open.
const CONNECTIONS: &str = "50";

/// Keys that decisions are spread over.
const KEYS: &str = "1000000";

/// A limit that is not reached, so that every decision passes and writes.
const LIMIT: [&str; 4] = ["1000000", "1000000", "1", "1"];

/// A server of the measurement. It stops when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    name: &'static str,
    /// The command for a decision.
    command: &'static str,
    served: Served,
}

impl Server {
    /// This program as the server with the fixed reply.
    pub(crate) fn fixed() -> anyhow::Result<Self> {
        let served = Served::this(fixed::CHILD, "resp")?;
        Ok(Self { name: "a fixed reply, tokio current-thread", command: "CL.THROTTLE", served })
    }

    pub(crate) fn sluicegate() -> anyhow::Result<Self> {
        let served = Served::sluicegate("resp", ("--policies", "policies: []"), |_| ())?;
        Ok(Self { name: "sluicegate", command: "CL.THROTTLE", served })
    }

    /// `throttlecrab-server`, if it is installed.
    pub(crate) fn throttlecrab() -> anyhow::Result<Option<Self>> {
        if Command::new("throttlecrab-server").arg("--version").output().is_err() {
            eprintln!("skipped: throttlecrab-server is not installed (cargo install it)");
            return Ok(None);
        }
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = on_core("0", "throttlecrab-server");
        command.args(["--redis", "--redis-host", "127.0.0.1", "--log-level", "error"]);
        command.args(["--redis-port", &port.to_string()]);
        let served = Served::at(port, &mut command)?;
        wait(port)?;
        Ok(Some(Self { name: "throttlecrab-server", command: "THROTTLE", served }))
    }

    /// The name in the table.
    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns its CPU time per decision in µs, and the decisions per second, for this number of
    /// `commands`.
    pub(crate) fn measure(&self, pipelined: u32, commands: u32) -> anyhow::Result<(f64, f64)> {
        let mut rate = 0.0;
        let cpu_us = self.served.cpu_us(|port| {
            let output = on_core("1", "redis-benchmark")
                .args(["-p", &port.to_string(), "-c", CONNECTIONS, "-r", KEYS, "--csv"])
                .args(["-P", &pipelined.to_string(), "-n", &commands.to_string()])
                .args([self.command, "u:__rand_int__"])
                .args(LIMIT)
                .output()
                .context("taskset and redis-benchmark must be installed")?;
            ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let text = String::from_utf8(output.stdout)?;
            let figures = text.lines().last().context("a line of figures")?;
            let column = figures.split("\",\"").nth(1).context("the rate is the second column")?;
            rate = column.trim_matches('"').parse()?;
            Ok(commands.into())
        })?;
        Ok((cpu_us, rate))
    }
}

/// Waits until the server at `port` answers.
fn wait(port: u16) -> anyhow::Result<()> {
    for _ in 0..500 {
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
            stream.write_all(b"*1\r\n$4\r\nPING\r\n")?;
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line)?;
            return Ok(());
        }
        #[expect(clippy::disallowed_methods, reason = "a benchmark waits for another process")]
        std::thread::park_timeout(Duration::from_millis(10));
    }
    bail!("throttlecrab-server does not listen on port {port}")
}

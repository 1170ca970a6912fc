//! Servers bound to core 0, and `redis-benchmark` bound to core 1 that keeps them busy.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use crate::fixed;

/// Connections that the client keeps open.
const CONNECTIONS: &str = "50";

/// Keys that decisions are spread over.
const KEYS: &str = "1000000";

/// A limit that is not reached, so that every decision passes and writes.
const LIMIT: [&str; 4] = ["1000000", "1000000", "1", "1"];

/// A server of the measurement. It ends with this.
#[derive(Debug)]
pub(crate) struct Server {
    name: &'static str,
    /// The command that asks it for a decision.
    command: &'static str,
    port: String,
    child: Child,
    /// What it says must have a reader.
    _said: Option<BufReader<ChildStdout>>,
}

impl Server {
    /// This program as the server with the fixed reply.
    pub(crate) fn fixed() -> anyhow::Result<Self> {
        let this = std::env::current_exe()?;
        Self::that_says_where("a fixed reply, tokio current-thread", &this, &[fixed::CHILD])
    }

    /// The program that `SLUICEGATE` names, or else the one beside this program.
    pub(crate) fn sluicegate() -> anyhow::Result<Self> {
        let beside = std::env::current_exe()?.with_file_name("sluicegate");
        let program = std::env::var_os("SLUICEGATE").map_or(beside, PathBuf::from);
        let listen = ["serve", "--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0"];
        let built = "build it with: cargo build --release -p sluicegate-server";
        Self::that_says_where("sluicegate", &program, &listen).context(built)
    }

    /// `throttlecrab-server`, if it is installed.
    pub(crate) fn throttlecrab() -> anyhow::Result<Option<Self>> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let mut command = on_core("0");
        command.args(["throttlecrab-server", "--redis", "--redis-host", "127.0.0.1"]);
        command.args(["--redis-port", &port, "--log-level", "error"]);
        let installed = Command::new("throttlecrab-server").arg("--version").output().is_ok();
        if !installed {
            eprintln!("skipped: throttlecrab-server is not installed (cargo install it)");
            return Ok(None);
        }
        let child = command.stdout(Stdio::null()).spawn()?;
        let name = "throttlecrab-server";
        let server = Self { name, command: "THROTTLE", port, child, _said: None };
        server.wait()?;
        Ok(Some(server))
    }

    fn that_says_where(
        name: &'static str,
        program: &std::path::Path,
        args: &[&str],
    ) -> anyhow::Result<Self> {
        let mut command = on_core("0");
        command.arg(program).args(args).stdout(Stdio::piped());
        command.envs(["RLS", "ADMIN"].map(|wire| (format!("SLUICEGATE__{wire}__LISTEN"), "off")));
        let mut child = command.spawn()?;
        let mut said = BufReader::new(child.stdout.take().context("it has a pipe")?);
        let port = loop {
            let mut line = String::new();
            ensure!(said.read_line(&mut line)? > 0, "{name} does not say where it listens");
            if let Some(address) = line.trim().strip_prefix("listening on resp://127.0.0.1:") {
                break address.to_owned();
            }
        };
        Ok(Self { name, command: "CL.THROTTLE", port, child, _said: Some(said) })
    }

    /// What it is.
    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    /// Its CPU time per decision in µs, and decisions per second, of so many `commands`.
    pub(crate) fn measure(&self, pipelined: u32, commands: u32) -> anyhow::Result<(f64, f64)> {
        let before = self.cpu_ns()?;
        let output = on_core("1")
            .args(["redis-benchmark", "-p", &self.port, "-c", CONNECTIONS, "-r", KEYS, "--csv"])
            .args(["-P", &pipelined.to_string(), "-n", &commands.to_string()])
            .args([self.command, "u:__rand_int__"])
            .args(LIMIT)
            .output()
            .context("taskset and redis-benchmark must be installed")?;
        let spent = self.cpu_ns()? - before;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout)?;
        let figures = text.lines().last().context("a line of figures")?;
        let rate = figures.split("\",\"").nth(1).context("the rate is the second column")?;
        Ok((spent as f64 / f64::from(commands) / 1_000.0, rate.trim_matches('"').parse()?))
    }

    /// CPU time that its threads have used, in ns.
    fn cpu_ns(&self) -> anyhow::Result<u64> {
        let mut sum = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let text = fs::read_to_string(task?.path().join("schedstat"))?;
            let spent = text.split(' ').next().context("schedstat has three numbers")?;
            sum += spent.parse::<u64>()?;
        }
        Ok(sum)
    }

    /// Waits until it answers.
    fn wait(&self) -> anyhow::Result<()> {
        for _ in 0..500 {
            if let Ok(mut stream) = TcpStream::connect(format!("127.0.0.1:{}", self.port)) {
                stream.write_all(b"*1\r\n$4\r\nPING\r\n")?;
                let mut line = String::new();
                BufReader::new(stream).read_line(&mut line)?;
                return Ok(());
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
        bail!("{} does not listen on port {}", self.name, self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that runs on this core only. `taskset` becomes the program, so its number is the
/// program's.
fn on_core(core: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", core]);
    command
}

//! A server on core 0, in a process of its own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::Context as _;

use crate::ceiling;

/// A limit that is not reached.
const POLICIES: &str = "
policies:
  - { name: bench, rules: [ { token_bucket: { rate: 1000000/s, burst: 1000000 } } ] }
";

#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    port: u16,
    policies: Option<PathBuf>,
    /// What it says must have a reader.
    _said: BufReader<ChildStdout>,
}

impl Server {
    /// The server with a fixed JSON.
    pub(crate) fn ceiling() -> anyhow::Result<Self> {
        let this = std::env::current_exe()?;
        Self::start(Command::new("taskset").args(["-c", "0"]).arg(this).arg(ceiling::CHILD), None)
    }

    /// Sluicegate that tells clients with these header fields: the program that `SLUICEGATE` names,
    /// or else the one beside this program.
    pub(crate) fn sluicegate(headers: &str) -> anyhow::Result<Self> {
        let beside = std::env::current_exe()?.with_file_name("sluicegate");
        let program = std::env::var_os("SLUICEGATE").map_or(beside, PathBuf::from);
        let name = format!("sluicegate-bench-{}-{headers}.yaml", std::process::id());
        let policies = std::env::temp_dir().join(name);
        fs::write(&policies, POLICIES)?;
        let mut command = Command::new("taskset");
        command
            .args(["-c", "0"])
            .arg(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--policies"])
            .arg(&policies)
            .envs(
                ["RESP", "RLS", "ADMIN"].map(|wire| (format!("SLUICEGATE__{wire}__LISTEN"), "off")),
            )
            .env("SLUICEGATE__HTTP__HEADERS", headers);
        Self::start(&mut command, Some(policies))
    }

    fn start(command: &mut Command, policies: Option<PathBuf>) -> anyhow::Result<Self> {
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .context("taskset must be installed, and sluicegate be built beside this program")?;
        let mut said = BufReader::new(child.stdout.take().context("it is piped")?);
        let mut line = String::new();
        said.read_line(&mut line)?;
        let port = line.trim().strip_prefix("listening on http://127.0.0.1:");
        let port = port.context("the server does not say where it listens")?.parse()?;
        Ok(Self { child, port, policies, _said: said })
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// CPU time that the server has used, in ns, with all its threads.
    pub(crate) fn cpu_ns(&self) -> anyhow::Result<u64> {
        let mut spent = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let text = fs::read_to_string(thread?.path().join("schedstat"))?;
            let on_cpu = text.split(' ').next().context("schedstat has three numbers")?;
            spent += on_cpu.parse::<u64>()?;
        }
        Ok(spent)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        if let Some(policies) = &self.policies {
            fs::remove_file(policies).ok();
        }
    }
}

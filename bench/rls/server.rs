//! A server on core 0, in a process of its own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;

use crate::ceiling;

/// A limit that is not reached.
const CONFIG: &str = "
domain: bench
descriptors:
  - { key: user, rate_limit: { unit: year, requests_per_unit: 4294967295 } }
";

#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    port: u16,
    config: Option<PathBuf>,
}

impl Server {
    /// The server with a fixed reply.
    pub(crate) fn ceiling() -> anyhow::Result<Self> {
        let this = std::env::current_exe()?;
        Self::start(Command::new("taskset").args(["-c", "0"]).arg(this).arg(ceiling::CHILD), None)
    }

    /// Sluicegate that tells clients with these header fields, built beside this program, with its
    /// state in that store.
    pub(crate) fn sluicegate(headers: &str, store: &str) -> anyhow::Result<Self> {
        let program = std::env::current_exe()?.with_file_name("sluicegate");
        let kind = if store == "memory" { "memory" } else { "redis" };
        let name = format!("sluicegate-bench-{}-{headers}-{kind}.yaml", std::process::id());
        let config = std::env::temp_dir().join(name);
        fs::write(&config, CONFIG)?;
        let mut command = Command::new("taskset");
        command
            .args(["-c", "0"])
            .arg(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--rls", "127.0.0.1:0", "--envoy-config"])
            .arg(&config)
            .args(["--store", store])
            .envs(["RESP", "ADMIN"].map(|wire| (format!("SLUICEGATE__{wire}__LISTEN"), "off")))
            .env("SLUICEGATE__RLS__HEADERS", headers);
        Self::start(&mut command, Some(config))
    }

    fn start(command: &mut Command, config: Option<PathBuf>) -> anyhow::Result<Self> {
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .context("taskset must be installed, and sluicegate be built beside this program")?;
        let lines = BufReader::new(child.stdout.take().context("it is piped")?).lines();
        let mut server = Self { child, port: 0, config };
        for line in lines {
            let line = line?;
            if let Some(address) = line.strip_prefix("listening on rls://") {
                let (_, port) = address.rsplit_once(':').context("an address has a port")?;
                server.port = port.parse()?;
                return Ok(server);
            }
        }
        anyhow::bail!("the server did not say where it listens")
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
        if let Some(config) = &self.config {
            fs::remove_file(config).ok();
        }
    }
}

//! The load: `wrk` on core 1, one request at a time on each of its connections.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use sluicegate_bench::served::on_core;

/// Connections that are kept open, and seconds of a round.
const CONNECTIONS: &str = "50";
const SECONDS: &str = "2s";

/// A check of one of a million keys.
const SCRIPT: &str = r#"
wrk.method = "POST"
wrk.headers["content-type"] = "application/json"
request = function()
  local body = '{"policy":"bench","key":"u:' .. math.random(1000000) .. '"}'
  return wrk.format(nil, "/v1/check", nil, body)
end
"#;

/// A script of `wrk`. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Load {
    script: PathBuf,
}

impl Load {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let name = format!("sluicegate-bench-{}.lua", std::process::id());
        let script = std::env::temp_dir().join(name);
        fs::write(&script, SCRIPT)?;
        Ok(Self { script })
    }

    /// Keeps the server at `port` busy for a round. Returns the number of requests, all answered with success.
    pub(crate) fn run(&self, port: u16) -> anyhow::Result<u64> {
        let url = format!("http://127.0.0.1:{port}/v1/check");
        let output = on_core("1", "wrk")
            .args(["-t", "1", "-c", CONNECTIONS, "-d", SECONDS, "-s"])
            .arg(&self.script)
            .arg(url)
            .output()
            .context("taskset and wrk must be installed")?;
        let said = String::from_utf8_lossy(&output.stdout);
        let is_whole = !said.contains("Non-2xx") && !said.contains("Socket errors");
        ensure!(output.status.success() && is_whole, "wrk says:\n{said}");
        let line = said.lines().find(|line| line.contains(" requests in "));
        let count = line.and_then(|line| line.trim().split(' ').next());
        Ok(count.context("wrk says how many")?.parse()?)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        fs::remove_file(&self.script).ok();
    }
}

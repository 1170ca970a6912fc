//! A `redis-server` on core 1, beside the load, so that core 0 is only for the server.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};

/// A `redis-server`. It stops when this is dropped.
#[derive(Debug)]
pub(crate) struct Redis {
    child: Child,
    folder: PathBuf,
    port: u16,
}

impl Redis {
    pub(crate) fn start() -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("sluicegate-redis-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = Command::new("taskset")
            .args(["-c", "1", "redis-server", "--save", "", "--appendonly", "no", "--port"])
            .arg(port.to_string())
            .arg("--dir")
            .arg(&folder)
            .stdout(Stdio::null())
            .spawn()
            .context("taskset and redis-server must be installed")?;
        let server = Self { child, folder, port };
        for _ in 0..500 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(server);
            }
            #[expect(clippy::disallowed_methods, reason = "a benchmark waits for another process")]
            std::thread::park_timeout(Duration::from_millis(10));
        }
        bail!("redis-server does not listen on port {port}")
    }

    /// The URL of this store for a server. The deadline is long, since Redis shares its core with
    /// the load.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}?deadline_ms=10000", self.port)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        fs::remove_dir_all(&self.folder).ok();
    }
}

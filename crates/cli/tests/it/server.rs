//! A server with every wire, for tests of what all wires have in common.

use std::fs::{self, File};
use std::net::SocketAddr;

use tempfile::TempDir;

use crate::program::{Process, serve};

/// A server on free ports. It ends with this.
pub(crate) struct Server {
    process: Process,
    folder: TempDir,
}

impl Server {
    /// With this configuration, and the policies of the examples unless it names others.
    pub(crate) fn start(config: &str) -> Self {
        let folder = tempfile::tempdir().expect("there is room for files");
        let told = File::create(folder.path().join("told")).expect("it is new");
        let process = Process::start(serve(&folder, config).stderr(told), 4);
        Self { process, folder }
    }

    /// Where it listens to those who speak this.
    pub(crate) fn address(&self, scheme: &str) -> SocketAddr {
        self.process.address(scheme)
    }

    /// What it has written to standard error so far.
    pub(crate) fn told(&self) -> String {
        fs::read_to_string(self.folder.path().join("told")).expect("it is there")
    }

    /// The lines of it that warn, or log an error.
    pub(crate) fn warnings(&self) -> String {
        self.told().lines().filter(|line| !line.contains("  INFO ")).collect()
    }

    /// Sends it a signal, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// The process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }
}

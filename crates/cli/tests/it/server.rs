//! A server with every wire, for tests of behaviour that all wires have in common.

use std::fs::{self, File};
use std::net::SocketAddr;

use tempfile::TempDir;

use crate::program::{Process, serve};

/// A server on free ports. It ends when this is dropped.
pub(crate) struct Server {
    process: Process,
    folder: TempDir,
}

impl Server {
    /// Starts a server with this configuration, and the policies of the examples unless it names
    /// others.
    pub(crate) fn start(config: &str) -> Self {
        let folder = tempfile::tempdir().expect("there is room for files");
        let told = File::create(folder.path().join("told")).expect("it is new");
        let process = Process::start(serve(&folder, config).stderr(told), 4);
        Self { process, folder }
    }

    /// The address of its listener for `scheme`.
    pub(crate) fn address(&self, scheme: &str) -> SocketAddr {
        self.process.address(scheme)
    }

    /// Its standard error so far.
    pub(crate) fn told(&self) -> String {
        fs::read_to_string(self.folder.path().join("told")).expect("it is there")
    }

    /// The lines of it that are warnings or errors.
    pub(crate) fn warnings(&self) -> String {
        self.told().lines().filter(|line| !line.contains("  INFO ")).collect()
    }

    /// Sends it a signal, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }
}

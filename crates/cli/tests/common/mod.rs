//! The real program with every wire, for tests of what all wires have in common.

mod program;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};

use tempfile::TempDir;

pub(crate) use program::{PATIENCE, program};

/// A server on free ports. It ends with this.
pub(crate) struct Server {
    process: Child,
    folder: TempDir,
    /// What it said of where it listens.
    addresses: Vec<(String, SocketAddr)>,
}

impl Server {
    /// With this configuration, and the policies of the examples unless it says others.
    pub(crate) fn start(config: &str) -> Self {
        let folder = tempfile::tempdir().expect("there is room for files");
        let told = File::create(folder.path().join("told")).expect("it is new");
        let mut process = program(&folder, config)
            .stdout(Stdio::piped())
            .stderr(told)
            .spawn()
            .expect("the program is built");
        let said = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut addresses = Vec::new();
        for line in said.lines().map(|line| line.expect("it says text")).take(4) {
            let address =
                line.strip_prefix("listening on ").and_then(|line| line.split_once("://"));
            let (scheme, address) = address.unwrap_or_else(|| panic!("no address: {line}"));
            addresses.push((scheme.to_owned(), address.parse().expect("an address")));
        }
        Self { process, folder, addresses }
    }

    /// Where it listens to those who speak this.
    pub(crate) fn address(&self, scheme: &str) -> SocketAddr {
        let found = self.addresses.iter().find(|(of, _)| of == scheme);
        found.unwrap_or_else(|| panic!("no {scheme}: {:?}", self.addresses)).1
    }

    /// What it has told people so far.
    pub(crate) fn told(&self) -> String {
        fs::read_to_string(self.folder.path().join("told")).expect("it is there")
    }

    /// The process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

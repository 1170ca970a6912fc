//! The program as users start it; every test here starts servers and commands with this.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

/// Longest time a test waits for the program, which answers in milliseconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The policies of the examples.
pub(crate) const EXAMPLES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/policies.yaml");

/// `sluicegate`, to which arguments can be added. It has no stored login.
pub(crate) fn program() -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
    program.env("XDG_CONFIG_HOME", "/nonexistent");
    program
}

/// `sluicegate serve` with this configuration, which is written to `folder`, the policies of the examples
/// unless it names others, and every wire on a free port.
pub(crate) fn serve(folder: &TempDir, config: &str) -> Command {
    let file = folder.path().join("sluicegate.toml");
    fs::write(&file, config).expect("it can be written");
    let mut serving = program();
    serving.arg("serve").arg("--config").arg(file);
    serving.env_remove("STATE_DIRECTORY").env("XDG_STATE_HOME", folder.path());
    if !config.contains("[policies]") && !config.contains("[catalog]") {
        serving.arg("--policies").arg(EXAMPLES);
    }
    for wire in ["HTTP", "RESP", "RLS", "ADMIN"] {
        serving.env(format!("SLUICEGATE__{wire}__LISTEN"), "127.0.0.1:0");
    }
    serving
}

/// A started server. It is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    /// Schemes and addresses of its listeners, in the order in which they were printed.
    addresses: Vec<(String, String)>,
}

impl Process {
    /// Starts `program`, and waits until it has printed `listens` addresses.
    pub(crate) fn start(program: &mut Command, listens: usize) -> Self {
        let mut child = program.stdout(Stdio::piped()).spawn().expect("the program is built");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let addresses = lines.take(listens).map(|line| {
            let line = line.expect("it prints text");
            let address = line.strip_prefix("listening on ").and_then(|at| at.split_once("://"));
            let (scheme, address) = address.unwrap_or_else(|| panic!("no address: {line}"));
            (scheme.to_owned(), address.to_owned())
        });
        Self { addresses: addresses.collect(), child }
    }

    /// The address for clients of this scheme.
    pub(crate) fn address(&self, scheme: &str) -> SocketAddr {
        let found = self.addresses.iter().find(|(of, _)| of == scheme);
        let (_, address) = found.unwrap_or_else(|| panic!("no {scheme}: {:?}", self.addresses));
        address.parse().expect("an address")
    }

    /// All addresses as URLs, in the order in which they were printed.
    pub(crate) fn urls(&self) -> impl Iterator<Item = String> {
        self.addresses.iter().map(|(scheme, address)| format!("{scheme}://{address}"))
    }

    /// Sends it a signal, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status();
        assert!(sent.expect("there is a `kill`").success());
    }
}

impl Deref for Process {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.child
    }
}

impl DerefMut for Process {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

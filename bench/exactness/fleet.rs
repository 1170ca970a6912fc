//! Servers as users start them: a configuration file, policies, free ports.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sluicegate_testkit::{Launch, Program};

use crate::bound::Limit;
use crate::load::{Load, Pace};
use crate::wire::{POLICY, Wire};

/// A build of the server.
#[derive(Clone, Debug)]
pub(crate) struct Build {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    /// Scenarios of leases take a fifth of the time: to check, not to measure.
    pub(crate) is_quick: bool,
}

impl Build {
    /// The number of repetitions: `times`, or a fifth of it if `is_quick`.
    pub(crate) fn times(&self, times: usize) -> usize {
        if self.is_quick { times.div_ceil(5) } else { times }
    }

    /// The duration: `span`, or a fifth of it if `is_quick`.
    pub(crate) fn span(&self, span: Duration) -> Duration {
        if self.is_quick { span / 5 } else { span }
    }
}

/// The configuration of the servers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup<'a> {
    pub(crate) build: &'a Build,
    pub(crate) limit: Limit,
    /// `store.nodes`.
    pub(crate) nodes: usize,
    /// The policy's `on_store_failure`.
    pub(crate) on_store_failure: &'a str,
    pub(crate) leases: Leases,
}

/// The policy's `leases`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leases {
    Off,
    /// The default.
    Usual,
    /// The most that one server may hold: half of the limit.
    Half,
}

impl From<bool> for Leases {
    fn from(leases: bool) -> Self {
        if leases { Self::Usual } else { Self::Off }
    }
}

/// Servers that enforce one limit. They stop when this is dropped.
#[derive(Debug)]
pub(crate) struct Fleet {
    servers: Vec<Server>,
}

#[derive(Debug)]
struct Server {
    program: Program,
    http: SocketAddr,
    resp: SocketAddr,
}

/// The file of the policies.
const POLICIES: &str = "policies.yaml";

/// Longest wait for a server to listen; it takes 20 ms.
const START_MAX: Duration = Duration::from_secs(20);

impl Setup<'_> {
    /// Starts one server for each store URL. All of them are listening when this returns.
    ///
    /// # Errors
    /// If one does not start.
    pub(crate) async fn start<S: AsRef<str>>(&self, stores: &[S]) -> anyhow::Result<Fleet> {
        let mut servers = Vec::new();
        for store in stores {
            servers.push(self.server(store.as_ref(), (0, 0)).await?);
        }
        Ok(Fleet { servers })
    }

    /// Starts one more server, of another setup.
    ///
    /// # Errors
    /// If it does not start.
    pub(crate) async fn join(&self, fleet: &mut Fleet, store: &str) -> anyhow::Result<()> {
        fleet.servers.push(self.server(store, (0, 0)).await?);
        Ok(())
    }

    /// Kills a server and starts it again at once, at the same addresses.
    ///
    /// # Errors
    /// If it does not start.
    pub(crate) async fn restart(
        &self,
        fleet: &mut Fleet,
        place: usize,
        store: &str,
    ) -> anyhow::Result<()> {
        fleet.kill(place);
        self.start_again(fleet, place, store).await
    }

    /// Starts a killed server again, at the same addresses.
    ///
    /// # Errors
    /// If it does not start.
    pub(crate) async fn start_again(
        &self,
        fleet: &mut Fleet,
        place: usize,
        store: &str,
    ) -> anyhow::Result<()> {
        let server = &mut fleet.servers[place];
        let ports = (server.http.port(), server.resp.port());
        *server = self.server(store, ports).await?;
        Ok(())
    }

    /// Changes the policies of a running server: the rules in `more` follow that of the limit.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn edit(&self, fleet: &Fleet, place: usize, more: &str) -> std::io::Result<()> {
        let path = fleet.servers[place].program.log().with_file_name(POLICIES);
        // A server never reads a half-written file.
        let new = path.with_extension("new");
        std::fs::write(&new, self.policies(more))?;
        std::fs::rename(new, path)
    }

    /// The document: one policy, with the rules in `more` after that of the limit.
    fn policies(&self, more: &str) -> String {
        let Self { limit, on_store_failure, leases, .. } = self;
        let leases = match leases {
            Leases::Off => "    leases: off\n",
            Leases::Usual => "",
            Leases::Half => "    leases: { max_share: 50% }\n",
        };
        let rule = limit.rules();
        format!(
            "policies:\n  - name: {POLICY}\n    on_store_failure: {on_store_failure}\n{leases}    \
             rules: [{rule}{more}]\n"
        )
    }

    async fn server(&self, store: &str, (http, resp): (u16, u16)) -> anyhow::Result<Server> {
        let Self { build, nodes, .. } = self;
        let config = format!(
            "[http]\nlisten = '127.0.0.1:{http}'\n[resp]\nlisten = '127.0.0.1:{resp}'\n\
             [rls]\nlisten = 'off'\n[admin]\nlisten = 'off'\n\
             [policies]\npath = '{{dir}}/{POLICIES}'\n[store]\nurl = '{store}'\nnodes = {nodes}\n"
        );
        let policies = self.policies("");
        let files = [("config.toml", config), (POLICIES, policies)];
        let args = ["serve", "--config", "{dir}/config.toml"];
        let mut program = Program::start(&build.program, &Launch { files: &files, args: &args })?;
        let log = program.log();
        let listens = async || address(&log, "http").is_some() && address(&log, "resp").is_some();
        program.ready(START_MAX, listens).await?;
        let found = |wire| {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            address(&program.log(), wire).ok_or_else(|| anyhow::anyhow!("no {wire}: {log}"))
        };
        Ok(Server { http: found("http")?, resp: found("resp")?, program })
    }
}

impl Fleet {
    /// Load on every server, for one key, over `connections` connections to each.
    pub(crate) fn load(&self, wire: Wire, connections: usize, pace: Pace) -> Load {
        let servers = (0..self.servers.len()).map(|place| self.address(place, wire)).collect();
        Load { servers, connections, pace, keys: 1, reconnects: false }
    }

    /// `per_s` requests a second to each server, over four connections.
    pub(crate) fn steady(&self, per_s: u32) -> Load {
        self.steady_over(per_s, 4)
    }

    /// `per_s` requests a second to each server, over `connections` connections to it.
    pub(crate) fn steady_over(&self, per_s: u32, connections: u16) -> Load {
        let pace = Pace::Open { per_s: f64::from(per_s) / f64::from(connections) };
        self.load(Wire::Resp, usize::from(connections), pace)
    }

    /// Kills a server at once.
    pub(crate) fn kill(&mut self, place: usize) {
        self.servers[place].program.kill();
    }

    /// The process of a server.
    pub(crate) fn program(&self, place: usize) -> &Program {
        &self.servers[place].program
    }

    /// The address of a server for `wire`.
    pub(crate) fn address(&self, place: usize, wire: Wire) -> (Wire, SocketAddr) {
        let server = &self.servers[place];
        match wire {
            Wire::Resp => (wire, server.resp),
            Wire::Http => (wire, server.http),
        }
    }
}

/// The address that a server logs for `wire`.
fn address(log: &Path, wire: &str) -> Option<SocketAddr> {
    let said = std::fs::read_to_string(log).ok()?;
    let start = format!("listening on {wire}://");
    said.lines().find_map(|line| line.trim().strip_prefix(&start)?.parse().ok())
}

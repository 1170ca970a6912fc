//! The settings that the connections of a client have in common, and the first commands on each.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::Notify;

use super::LuaScript;
use super::address::Address;
use super::connection::Connection;
use super::dialer::Dialer;
use super::error::ConnectError;
use super::kind;
use super::stats::Counters;

/// The longest time that a request may go without a reply before the connection counts as dead, unless
/// the deadline of calls is longer: a server that forks pauses for less, and a black hole is still
/// detected well within a second.
const SILENCE_MAX: Duration = Duration::from_millis(500);

/// The target of a lane: a server, or the reason why none is known.
pub(super) type ConnectTarget = Result<Address, ConnectError>;

/// The settings that all lanes of a client have in common.
#[derive(Clone, Debug)]
pub(super) struct ConnectionSetup {
    pub(super) dialer: Dialer,
    pub(super) script: LuaScript,
    /// Decisions that may travel in one script call; 1 where keys live on several servers.
    pub(super) joined_max: usize,
    /// The server must report that it is a master before it is used.
    pub(super) master_only: bool,
    /// Notified when a server turned out to be the wrong one or could not be reached.
    pub(super) suspicion: Arc<Notify>,
    /// Notified when there is a connection again.
    pub(super) reconnected: Arc<Notify>,
    /// The longest time of a call.
    pub(super) deadline: Duration,
    pub(super) silence_max: Duration,
    pub(super) counters: Arc<Counters>,
}

impl ConnectionSetup {
    /// Returns the longest silence of a connection whose calls may take `deadline`.
    pub(super) fn silence_max(deadline: Duration) -> Duration {
        SILENCE_MAX.max(deadline)
    }
}

impl ConnectionSetup {
    /// Prepares a new connection before it serves calls.
    pub(super) async fn prepare(&self, connection: &mut Connection) -> Result<(), ConnectError> {
        if self.master_only {
            let role = connection.ask(Cmd::new().arg("ROLE")).await?;
            let role = first_text(&role).ok_or_else(|| connection.foreign("a role"))?;
            if role != "master" {
                let address = connection.address.clone();
                return Err(ConnectError::NotMaster { address, role: role.into() });
            }
        }
        kind::check_evalsha(connection).await?;
        let sha1 = connection.ask(&load(&self.script)).await?;
        match first_text(&sha1) {
            Some(sha1) if sha1 == self.script.sha1 => Ok(()),
            _ => Err(connection.foreign("the hash of the script")),
        }
    }
}

/// Returns the command that loads the script into the server.
pub(super) fn load(script: &LuaScript) -> Cmd {
    let mut command = redis::cmd("SCRIPT");
    command.arg("LOAD").arg(script.text);
    command
}

/// Returns the text that `value` is or begins with.
fn first_text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        Value::Array(values) => first_text(values.first()?),
        _ => None,
    }
}

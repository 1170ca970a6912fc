//! The kind of server that a URL names, and the kind that answers. `HELLO` gives the mode and the role of a server,
//! so a wrong one is an error of the connection and not of the first decisions.

use redis::{Cmd, Value};

use super::address::{Address, Topology};
use super::config::RedisConfig;
use super::connection::Connection;
use super::error::ConnectError;

/// The hash of no script.
const NO_SCRIPT_SHA1: &str = "0000000000000000000000000000000000000000";

/// The kind of server that a connection is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerKind {
    /// A Redis that accepts writes: neither a node of a cluster nor a replica.
    Single,
    /// A Redis that a Sentinel names; its role is asked for by `ROLE`, which changes with a failover.
    Watched,
    /// A node of a cluster, whatever its role: it redirects where it does not decide.
    ClusterNode,
    /// A Sentinel.
    Sentinel,
}

/// The fields of a reply to `HELLO` that identify a server; those that are missing are empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Hello<'a> {
    server: &'a str,
    mode: &'a str,
    role: &'a str,
}

impl ServerKind {
    /// Returns the kind of the servers that hold data.
    pub(super) fn of_data(config: &RedisConfig) -> Self {
        match config.topology {
            Topology::Standalone(_) => Self::Single,
            Topology::Sentinel { .. } => Self::Watched,
            Topology::Cluster { .. } => Self::ClusterNode,
        }
    }

    /// Returns the scheme of a URL of such a server.
    pub(super) fn scheme(self, tls: bool) -> &'static str {
        match (self, tls) {
            (Self::Single, false) => "redis://",
            (Self::Single, true) => "rediss://",
            (Self::Watched | Self::Sentinel, false) => "redis+sentinel://",
            (Self::Watched | Self::Sentinel, true) => "rediss+sentinel://",
            (Self::ClusterNode, false) => "redis+cluster://",
            (Self::ClusterNode, true) => "rediss+cluster://",
        }
    }

    /// Asks the server at the other end for its kind. A server that does not know `HELLO` (Redis before 6, some
    /// proxies), or replies to it in another shape, passes: its kind stays unknown.
    ///
    /// # Errors
    /// [`ConnectError::WrongServer`] if it is of another kind, [`ConnectError::Foreign`] if its reply is not one of
    /// Redis, and the error that broke the connection.
    pub(super) async fn check(
        self,
        connection: &mut Connection,
        tls: bool,
    ) -> Result<(), ConnectError> {
        let reply = match connection.ask(Cmd::new().arg("HELLO")).await {
            Err(
                error @ (ConnectError::Broken { .. }
                | ConnectError::Io { .. }
                | ConnectError::Foreign { .. }),
            ) => return Err(error),
            Err(ConnectError::Refused { address, refusal }) if refusal.means_no_room() => {
                return Err(ConnectError::Refused { address, refusal });
            }
            Err(_) => return Ok(()),
            Ok(reply) => reply,
        };
        match self.mismatch(Hello::read(&reply), tls) {
            Some((found, advice)) => Err(wrong(&connection.address, found, advice)),
            None => Ok(()),
        }
    }

    /// Returns the kind of the server, if it is another one, and the remedy.
    fn mismatch(self, hello: Hello<'_>, tls: bool) -> Option<(&'static str, String)> {
        let scheme = |kind: Self| kind.scheme(tls);
        match (self, hello) {
            (_, Hello { server: "sluicegate", .. }) => {
                Some(("a Sluicegate, not a Redis", "name the Redis that it uses".to_owned()))
            }
            (Self::Sentinel, Hello { mode: "standalone", .. }) => Some((
                "a Redis, not a Sentinel",
                format!("name the Sentinels, or use {}", scheme(Self::Single)),
            )),
            (Self::Single | Self::Watched | Self::ClusterNode, Hello { mode: "sentinel", .. }) => {
                let scheme = scheme(Self::Sentinel);
                Some(("a Sentinel", format!("use {scheme}, with the master's name as the path")))
            }
            (Self::Single | Self::Watched | Self::Sentinel, Hello { mode: "cluster", .. }) => {
                let scheme = scheme(Self::ClusterNode);
                Some(("a node of a Redis Cluster", format!("use {scheme}")))
            }
            (Self::ClusterNode, Hello { mode: "standalone", .. }) => {
                let scheme = scheme(Self::Single);
                Some(("a Redis whose cluster mode is off", format!("use {scheme}")))
            }
            (Self::Single, Hello { role: "replica" | "slave", .. }) => Some((
                "a replica, which accepts no writes",
                format!("name the master, or use {}", scheme(Self::Sentinel)),
            )),
            _ => None,
        }
    }
}

/// Returns the error that names the kind of the server at `address`, and the remedy.
pub(super) fn wrong(address: &Address, found: &'static str, advice: String) -> ConnectError {
    ConnectError::WrongServer { address: address.clone(), found, advice: advice.into() }
}

/// Checks that the server executes `EVALSHA`, which some configurations rename or deny: without it a connection
/// would be healthy, and every decision fail.
///
/// # Errors
/// [`ConnectError::WrongServer`] or [`ConnectError::NotPermitted`], and the error that broke the connection. Any other
/// reply passes: the script with this hash is never there.
pub(super) async fn check_evalsha(connection: &mut Connection) -> Result<(), ConnectError> {
    match connection.ask(Cmd::new().arg("EVALSHA").arg(NO_SCRIPT_SHA1).arg(0)).await {
        Err(ConnectError::Refused { address, refusal }) if refusal.is_unknown_command() => {
            let found = "a Redis without the command EVALSHA, which every decision needs";
            let advice = "remove `rename-command EVALSHA` from its configuration".to_owned();
            Err(wrong(&address, found, advice))
        }
        Ok(_) | Err(ConnectError::Refused { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

impl<'a> Hello<'a> {
    /// Reads a reply; fields of another shape are empty.
    fn read(reply: &'a Value) -> Self {
        let [server, mode, role] =
            ["server", "mode", "role"].map(|name| field(reply, name).unwrap_or_default());
        Self { server, mode, role }
    }
}

/// The text of the field `name` in a `reply` of names and values in turn, as RESP2 has maps.
pub(super) fn field<'v>(reply: &'v Value, name: &str) -> Option<&'v str> {
    let Value::Array(fields) = reply else { return None };
    let pair = fields.chunks_exact(2).find(|pair| text(&pair[0]) == Some(name))?;
    text(&pair[1])
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(fields: &[&str]) -> Value {
        let bulk = |text: &&str| Value::BulkString(text.as_bytes().to_vec());
        Value::Array(fields.iter().map(bulk).collect())
    }

    #[test]
    fn a_server_that_does_not_say_what_it_is_passes() {
        let silent = [reply(&[]), reply(&["mode"]), Value::Nil, Value::Okay, Value::Int(3)];
        for value in silent {
            assert_eq!(Hello::read(&value), Hello::default(), "{value:?}");
        }
        let kinds = [
            ServerKind::Single,
            ServerKind::Watched,
            ServerKind::ClusterNode,
            ServerKind::Sentinel,
        ];
        for kind in kinds {
            assert_eq!(kind.mismatch(Hello::default(), false), None);
        }
    }

    #[test]
    fn a_replica_is_right_where_a_failover_may_make_it_one() {
        let value = reply(&["server", "redis", "mode", "standalone", "role", "replica"]);
        let hello = Hello::read(&value);
        assert_eq!(hello, Hello { server: "redis", mode: "standalone", role: "replica" });
        assert!(ServerKind::Single.mismatch(hello, false).is_some());
        assert_eq!(ServerKind::Watched.mismatch(hello, false), None);
        let in_cluster = Hello { mode: "cluster", ..hello };
        assert_eq!(ServerKind::ClusterNode.mismatch(in_cluster, true), None);
    }
}

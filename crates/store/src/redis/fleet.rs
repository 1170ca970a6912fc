//! The nodes that share this Redis, and whether it has lost data.
//!
//! Each node notes under one key that it lives, and numbers its notes. The answer contains the number
//! of its note that was there before, and the number of live nodes. A note that was answered and is
//! gone, or is older than that, was lost: by a failover, a restart without its file, or `FLUSHALL`. So
//! were all other writes since.

use redis::Value;
use tokio::time::Instant;

use super::request::RequestKind;
use super::{LuaScript, RedisClient, RedisError};

/// The key of the notes: one for all nodes.
const FLEET_KEY: &str = "sg:{fleet}";

const SCRIPT: LuaScript = LuaScript {
    text: include_str!("fleet.lua"),
    sha1: include_str!(concat!(env!("OUT_DIR"), "/fleet.sha1")),
};

/// The number of a node's last note, when it stops: `LEFT` of the script. Four notes a second do not
/// come so far in thirty years.
const LEFT: u32 = u32::MAX;

/// A node's notes.
#[derive(Debug)]
pub struct FleetPresence {
    node: [u8; 8],
    sent: u32,
    answered: u32,
}

/// The answer to a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fleet {
    /// The number of live nodes, this one included: at least 1, at most 1025.
    pub nodes: u32,
    /// The number of nodes that have [left](super::RedisStore::record_leave) within the last 15 s.
    pub left: u32,
    /// Redis has forgotten something since the note before.
    pub has_forgotten: bool,
}

impl FleetPresence {
    /// Returns a node that has noted nothing yet. Each process is another node: `id` is random.
    pub fn new(id: u64) -> Self {
        Self { node: id.to_be_bytes(), sent: 0, answered: 0 }
    }

    /// Notes once more that this node lives. `now_ms` is the time if the server's clock is not used.
    ///
    /// # Errors
    /// [`RedisError`] if there is no answer by `deadline`.
    pub(super) async fn record_presence(
        &mut self,
        client: &RedisClient,
        now_ms: Option<u64>,
        deadline: Instant,
    ) -> Result<Fleet, RedisError> {
        self.sent = self.sent.wrapping_add(1);
        let (before, nodes, left) = self.note(client, self.sent, now_ms, deadline).await?;
        let has_forgotten = self.answered > 0 && before < i64::from(self.answered);
        self.answered = self.sent;
        let nodes = u32::try_from(nodes.max(1)).map_err(|_| RedisError::Malformed)?;
        let left = u32::try_from(left).map_err(|_| RedisError::Malformed)?;
        Ok(Fleet { nodes, left, has_forgotten })
    }

    /// Notes that this node stops.
    ///
    /// # Errors
    /// [`RedisError`] if there is no answer by `deadline`.
    pub(super) async fn record_leave(
        &self,
        client: &RedisClient,
        now_ms: Option<u64>,
        deadline: Instant,
    ) -> Result<(), RedisError> {
        self.note(client, LEFT, now_ms, deadline).await.map(drop)
    }

    /// Sends a note; returns the number of the one before, and the numbers of nodes that live and that
    /// have left.
    async fn note(
        &self,
        client: &RedisClient,
        number: u32,
        now_ms: Option<u64>,
        deadline: Instant,
    ) -> Result<(i64, i64, i64), RedisError> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(SCRIPT.sha1).arg(1).arg(FLEET_KEY).arg(&self.node[..]).arg(number);
        command.arg(now_ms.map_or_else(String::new, |now| now.to_string()));
        let what = RequestKind::Other(SCRIPT, command);
        let reply = client.command(FLEET_KEY.as_bytes(), what, deadline).await?;
        match reply {
            Value::Array(numbers) => match numbers[..] {
                [Value::Int(before), Value::Int(nodes), Value::Int(left)] => {
                    Ok((before, nodes, left))
                }
                _ => Err(RedisError::Malformed),
            },
            Value::ServerError(error) => Err(RedisError::Refused((&error).into())),
            _ => Err(RedisError::Malformed),
        }
    }
}

//! Policies where programs find them that use this Redis without a server: `spec/redis-protocol.md`.

use std::sync::LazyLock;
use std::time::Duration;

use redis::Value;
use sha1_smol::Sha1;
use tokio::time::Instant;

use super::{RedisClient, RedisError, Refusal};

/// The hash that has the policies.
pub const POLICIES_KEY: &str = "sg:{policies}";

/// The channel on which a new revision is told.
pub const POLICIES_CHANNEL: &str = "sg:policies";

/// The format of what is written.
pub const POLICIES_FORMAT: u32 = 1;

/// How long writing may take: all policies are some megabytes, once.
const WAIT_MAX: Duration = Duration::from_secs(5);

const SCRIPT: &str = include_str!("publish.lua");

static SHA1: LazyLock<String> = LazyLock::new(|| Sha1::from(SCRIPT).digest().to_string());

/// What became of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publication {
    /// It is there now, and was told.
    Done,
    /// What is there is as new, or newer.
    Known,
    /// What is there is not what was changed: all of it is to be written.
    Behind,
}

/// A revision of the policies, or what changed in it.
#[derive(Clone, Copy, Debug)]
pub struct Revision<'r> {
    /// Its number, which grows.
    pub number: i64,
    /// The revision that it changes; 0: it is whole.
    pub since: i64,
    /// Names, and policies as JSON; `None`: it is gone.
    pub policies: &'r [(&'r str, Option<&'r str>)],
}

impl RedisClient {
    /// Writes a revision of the policies, whole or not at all, and tells it.
    ///
    /// # Errors
    /// [`RedisError`] if there is no answer within five seconds.
    pub async fn publish(&self, revision: Revision<'_>) -> Result<Publication, RedisError> {
        let deadline = Instant::now() + WAIT_MAX;
        let mut command = redis::cmd("EVALSHA");
        command.arg(SHA1.as_str()).arg(1).arg(POLICIES_KEY).arg(POLICIES_CHANNEL);
        command.arg(POLICIES_FORMAT).arg(revision.number).arg(revision.since);
        for (name, policy) in revision.policies {
            command.arg(*name).arg(policy.unwrap_or_default());
        }
        let key = POLICIES_KEY.as_bytes();
        let mut reply = self.command(key, command.clone(), deadline).await?;
        if is_noscript(&reply) {
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(SCRIPT);
            self.command(key, load, deadline).await?;
            reply = self.command(key, command, deadline).await?;
        }
        match reply {
            Value::Int(1) => Ok(Publication::Done),
            Value::Int(0) => Ok(Publication::Known),
            Value::Int(-1) => Ok(Publication::Behind),
            Value::ServerError(error) => Err(RedisError::Refused(Refusal::from(&error))),
            _ => Err(RedisError::Malformed),
        }
    }
}

fn is_noscript(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "NOSCRIPT")
}

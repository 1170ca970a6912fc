//! Reads the policies that servers publish: `spec/redis-protocol.md`, Reading.

use std::collections::BTreeMap;

use redis::Value;
use tokio::time::Instant;

use super::codec::ScriptClock;
use super::publish::{CALL_MAX, POLICIES_FORMAT, POLICIES_KEY};
use super::request::RequestKind;
use super::{RedisClient, RedisError, ServerErrorReply};

/// The published policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedPolicies {
    /// The revision. Later ones are larger.
    pub revision: i64,
    /// The clock that servers decide by.
    pub clock: ScriptClock,
    /// Number of nodes that share a limit without Redis, where it is configured.
    pub nodes: Option<u32>,
    /// The text of each policy by its name: a JSON object of `version`, `state`, `app`, `document`.
    /// Empty where only the head was read.
    pub policies: BTreeMap<String, String>,
}

/// Reads the policies that are published in the Redis of `client`; `None`: there are none in a known
/// format.
pub(super) async fn read(client: &RedisClient) -> Result<Option<PublishedPolicies>, RedisError> {
    let mut command = redis::cmd("HGETALL");
    command.arg(POLICIES_KEY);
    let Value::Array(values) = call(client, command).await? else {
        return Err(RedisError::Malformed);
    };
    let fields = values.chunks_exact(2).map(|pair| Some((text(&pair[0])?, text(&pair[1])?)));
    let mut fields = fields.collect::<Option<BTreeMap<_, _>>>().ok_or(RedisError::Malformed)?;
    let mut take = |name: &str| fields.remove(name).unwrap_or_default();
    let head = head([take("#format"), take("#revision"), take("#clock"), take("#nodes")]);
    fields.retain(|name, _| !name.starts_with('#'));
    Ok(head.map(|head| PublishedPolicies { policies: fields, ..head }))
}

/// Reads the published policies without their texts.
pub(super) async fn read_head(
    client: &RedisClient,
) -> Result<Option<PublishedPolicies>, RedisError> {
    let mut command = redis::cmd("HMGET");
    command.arg(POLICIES_KEY).arg(&["#format", "#revision", "#clock", "#nodes"]);
    let Value::Array(values) = call(client, command).await? else {
        return Err(RedisError::Malformed);
    };
    let values: Vec<_> = values.iter().map(|value| text(value).unwrap_or_default()).collect();
    let values: [String; 4] = values.try_into().map_err(|_| RedisError::Malformed)?;
    Ok(head(values))
}

fn head([format, revision, clock, nodes]: [String; 4]) -> Option<PublishedPolicies> {
    let is_known = format.parse() == Ok(POLICIES_FORMAT);
    let revision = revision.parse().ok().filter(|_| is_known)?;
    let clock = if clock == "client" { ScriptClock::Client } else { ScriptClock::Server };
    let nodes = nodes.parse().ok().filter(|nodes| *nodes > 0);
    Some(PublishedPolicies { revision, clock, nodes, policies: BTreeMap::new() })
}

async fn call(client: &RedisClient, command: redis::Cmd) -> Result<Value, RedisError> {
    let deadline = Instant::now() + CALL_MAX;
    let what = RequestKind::Plain(command);
    let reply = client.command(POLICIES_KEY.as_bytes(), what, deadline).await;
    client.account(reply.and_then(|value| match value {
        Value::ServerError(error) => Err(RedisError::Refused(ServerErrorReply::from(&error))),
        // RESP3 has a type of its own for pairs.
        Value::Map(pairs) => Ok(Value::Array(pairs.into_iter().flat_map(<[_; 2]>::from).collect())),
        value => Ok(value),
    }))
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        _ => None,
    }
}

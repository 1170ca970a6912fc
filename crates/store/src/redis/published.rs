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
    read_fields(&values)
}

/// Reads the names and texts of the published fields, which alternate in `values`.
fn read_fields(values: &[Value]) -> Result<Option<PublishedPolicies>, RedisError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(fields: &[(&str, &str)]) -> Result<Option<PublishedPolicies>, RedisError> {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let values = fields.iter().flat_map(|(name, text)| [bulk(name), bulk(text)]);
        read_fields(&values.collect::<Vec<_>>())
    }

    #[test]
    fn a_publication_is_its_head_and_the_text_of_each_policy() {
        let head = [("#format", "1"), ("#revision", "7"), ("#clock", "client"), ("#nodes", "3")];
        let texts = [("a", "{\"version\":1}"), ("b", "{}")];
        let fields = [&head[..], &texts, &[("#later", "x")]].concat();
        let expected = PublishedPolicies {
            revision: 7,
            clock: ScriptClock::Client,
            nodes: Some(3),
            policies: texts.map(|(name, text)| (name.to_owned(), text.to_owned())).into(),
        };
        assert_eq!(read(&fields), Ok(Some(expected)));
    }

    #[test]
    fn a_number_of_nodes_is_at_least_one() {
        for (text, nodes) in [("1", Some(1)), ("0", None), ("-1", None), ("", None)] {
            let fields = [("#format", "1"), ("#revision", "7"), ("#nodes", text)];
            let published = read(&fields).expect("texts").expect("a head");
            assert_eq!(published.nodes, nodes, "`{text}`");
        }
    }
}

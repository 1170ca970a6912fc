//! The clock of a store on Redis.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The clock of a store on Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TimeSource {
    /// The clock of Redis: one clock for all servers.
    Server,
    /// The clock of each server, for a Redis that refuses `TIME`. The state of a key never goes
    /// back in time.
    Client,
}

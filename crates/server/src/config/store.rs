//! The clock of a store on Redis, and the policies that servers publish there.

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

/// Policies that servers publish in Redis, for programs that decide there themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PolicyPublishing {
    /// Policies of the catalog, if there is one.
    Catalog,
    /// Policies of the files. Each server reads its own files; the policies that were read last are published.
    Files,
    /// None.
    Off,
}

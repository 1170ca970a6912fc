//! By whose clock a store goes, and which policies programs find in it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whose clock a store on Redis goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TimeSource {
    /// The clock of Redis: one clock for all servers.
    Server,
    /// The clock of each server, for a Redis that refuses `TIME`. The state of a key never goes
    /// back in time.
    Client,
}

/// Which policies servers publish in Redis, for programs that decide there themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PolicyPublishing {
    /// Those of the catalog, if there is one.
    Catalog,
    /// Those of the files too. Each server reads its own files; those that were read last are
    /// published.
    Files,
    /// None.
    Off,
}

//! By whose clock a store goes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whose clock a store on Redis goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TimeSource {
    /// Redis' own: one clock for all servers.
    Server,
    /// Each server's, where Redis refuses `TIME`. The state of a key never goes back.
    Client,
}

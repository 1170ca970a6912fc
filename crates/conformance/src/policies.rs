//! `spec/vectors/redis-policies.json`: what becomes of policies that are published in Redis, and what
//! a program holds that reads them there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// The fields of the hash: those that begin with `#` are strings, the others are the JSON that their
/// strings are.
pub type HashFields = BTreeMap<String, Json>;

/// What happens to one hash, from none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Life {
    /// What it shows.
    pub name: String,
    /// A sentence or two for whoever sees it fail.
    pub about: String,
    /// What happens, in this order.
    pub steps: Vec<PolicyStep>,
}

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum PolicyStep {
    /// A server publishes.
    Publish {
        /// Which revision.
        revision: i64,
        /// All policies, in any order.
        policies: BTreeMap<String, PublishedSpec>,
        /// The revision since which it knows what changed; absent: it does not know.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<i64>,
        /// What changed since.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        changed: Vec<String>,
        /// The later revision in whose place it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instead_of: Option<i64>,
        /// What comes of it.
        expect: PublishedAs,
        /// What is there then.
        hash: HashFields,
        /// What is said on the channel; absent: nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// Something else happens to Redis: it lost what it had, or somebody else wrote there.
    Found {
        /// What is there then; nothing: there is no hash.
        hash: HashFields,
    },
    /// A program looks at the hash, as it does every ten seconds.
    Look {
        /// What it holds then.
        holds: Holds,
    },
    /// A program hears a message.
    Hear {
        /// What is said.
        message: String,
        /// What it holds then.
        holds: Holds,
    },
}

/// A policy as a server publishes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedSpec {
    /// Counts its changes.
    pub version: i64,
    /// `active` or `shadow`.
    pub state: String,
    /// Whose it is.
    pub app: String,
    /// The policy, as in `policies[]` of a policy document.
    pub document: Json,
}

/// What comes of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PublishedAs {
    /// It was written.
    Written,
    /// It was there.
    Known,
    /// A later one is there, and stays.
    Later,
    /// A later format is there, and stays.
    LaterFormat,
}

/// What a program holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holds {
    /// Which revision; absent: none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// The policies, and which version of each.
    pub policies: BTreeMap<String, i64>,
}

//! `spec/vectors/redis-policies.json`: policies that are published in Redis, and the copies in a program that reads
//! them there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// The fields of the hash: those whose names begin with `#` are strings; the others are JSON.
pub type HashFields = BTreeMap<String, Json>;

/// The life of one hash, from when it does not exist.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Life {
    /// The behaviour that it shows, as a name.
    pub name: String,
    /// A sentence or two for the reader of a failure.
    pub about: String,
    /// The steps, in this order.
    pub steps: Vec<PolicyStep>,
}

/// One event in the life of the hash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum PolicyStep {
    /// A server publishes.
    Publish {
        /// The revision.
        revision: i64,
        /// All policies, in any order.
        policies: BTreeMap<String, PublishedSpec>,
        /// The revision that `changed` starts from; absent: the server does not know the changes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<i64>,
        /// The names of policies that changed after `since`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        changed: Vec<String>,
        /// The later revision that this publication replaces; absent: none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instead_of: Option<i64>,
        /// The expected outcome.
        expect: PublishedAs,
        /// The expected hash after it.
        hash: HashFields,
        /// The expected message on the channel; absent: none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// Redis lost its data, or another program wrote there.
    Found {
        /// The hash after it; empty: there is none.
        hash: HashFields,
    },
    /// A program looks at the hash, as it does every ten seconds.
    Look {
        /// The expected contents of the program after it.
        holds: Holds,
    },
    /// A program receives a message.
    Hear {
        /// The message.
        message: String,
        /// The expected contents of the program after it.
        holds: Holds,
    },
}

/// A policy as a server publishes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedSpec {
    /// The number of its changes.
    pub version: i64,
    /// `active` or `shadow`.
    pub state: String,
    /// The app that owns it.
    pub app: String,
    /// The policy, as in `policies[]` of a policy document.
    pub document: Json,
}

/// The outcome of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PublishedAs {
    /// The revision was written.
    Written,
    /// The revision was already there.
    Known,
    /// A later revision is there, and stays.
    Later,
    /// A later format is there, and stays.
    LaterFormat,
}

/// The policies that a program knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holds {
    /// The revision; absent: none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// The version of each policy, by its name.
    pub policies: BTreeMap<String, i64>,
}

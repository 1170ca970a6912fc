//! The names of stores.

use sluicegate::internals::store::redis::affordable;
use sluicegate::store::redis::{RedisConfig, RedisConfigError};
use sluicegate_kernel::{RangeError, RuleSet};

/// The place where counters are kept: `memory`, or the URL of a Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreName {
    /// In this process.
    Memory,
    /// In Redis or Valkey.
    Redis(Box<RedisConfig>),
}

/// A function that checks whether a store can keep a rule set.
pub type Takes = fn(&RuleSet) -> Result<(), RangeError>;

impl StoreName {
    /// Parses the name of a store. An error does not repeat it, since it may contain a password.
    ///
    /// # Errors
    /// If the URL is invalid.
    pub fn parse(name: &str) -> Result<Self, RedisConfigError> {
        match name {
            "memory" | "memory://" => Ok(Self::Memory),
            url => Ok(Self::Redis(Box::new(url.parse()?))),
        }
    }

    /// Returns the check of rule sets for this store.
    pub fn takes(&self) -> Takes {
        match self {
            Self::Memory => |_| Ok(()),
            Self::Redis(_) => affordable,
        }
    }
}

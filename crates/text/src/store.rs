//! Where state is kept.

use sluicegate::RuleSet;
use sluicegate::store::redis::{RedisConfig, RedisConfigError, affordable};
use sluicegate_kernel::RangeError;

/// Where state is to be kept: `memory`, or the URL of a Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreName {
    /// In this process.
    Memory,
    /// In Redis or Valkey.
    Redis(Box<RedisConfig>),
}

/// Whether a store takes a rule set; if not, what is wrong with it.
pub type Takes = fn(&RuleSet) -> Result<(), RangeError>;

impl StoreName {
    /// The store of this name. An error does not repeat what was given: there may be a password in
    /// it.
    ///
    /// # Errors
    /// What is wrong with the URL.
    pub fn parse(name: &str) -> Result<Self, RedisConfigError> {
        match name {
            "memory" | "memory://" => Ok(Self::Memory),
            url => Ok(Self::Redis(Box::new(url.parse()?))),
        }
    }

    /// What says whether this store takes a rule set.
    pub fn takes(&self) -> Takes {
        match self {
            Self::Memory => |_| Ok(()),
            Self::Redis(_) => affordable,
        }
    }
}

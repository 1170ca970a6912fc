//! A request to a server, as an event of its stream describes it.

use sluicegate::{Patience, Verb};

use super::op::OpName;

/// A request to a server.
#[derive(Clone, Debug)]
pub(crate) struct StreamedRequest {
    pub(crate) policy: String,
    pub(crate) key: Option<String>,
    pub(crate) op: OpName,
    pub(crate) verb: Verb,
    pub(crate) patience: Patience,
    /// The permit, as it is written.
    pub(crate) permit: Option<String>,
    /// The server let it pass without overflow; `None`: it could not decide.
    pub(crate) passed: Option<bool>,
}

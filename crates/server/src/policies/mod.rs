//! The policies in force: where they come from, and when they change.

mod in_force;
mod live;
pub(crate) mod publish;

pub(crate) use in_force::InForce;
pub(crate) use live::{PolicyManager, PolicyStatus};

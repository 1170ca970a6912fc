//! The policies in force, their sources and their changes.

mod in_force;
mod live;
pub(crate) mod publish;

pub(crate) use in_force::InForce;
pub(crate) use live::{PolicyManager, PolicyStatus};

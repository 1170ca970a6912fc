//! The vectors of `spec/`: what every implementation of Sluicegate must answer, as data.
//!
//! A [`Vector`] is a few rules, the steps of one key's life, and the answer expected of each step.
//! Anything that decides can be a [`Subject`]: the kernel, a store, the same rules in Lua, a server.
//!
//! ```
//! use sluicegate_conformance::{Kernel, load, run};
//!
//! for (path, vector) in load()? {
//!     run(&vector, &mut Kernel::default()).map_err(|problem| format!("{path:?}: {problem}"))?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod files;
mod rules;
mod subject;
mod vector;

pub use files::{LoadError, load, load_one, schema, schema_path, to_json, vectors_dir};
pub use subject::{Kernel, Problem, Subject, bless, run};
pub use vector::{
    Answer, Carry, ErrorCode, Expect, Failure, Op, ParamValue, RateSpec, RuleSpec, Step, Vector,
};

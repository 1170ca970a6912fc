//! The vectors of `spec/`: the answers that every implementation of Sluicegate must give, as data.
//!
//! A [`Vector`] is a few rules, the steps of one key's life, and the answer expected of each step.
//! Anything that decides can be a [`Subject`]: the kernel, a store, the same rules in Lua, a server.
//! A [`LeaseVector`] is about permits that are leased, which a [`LeasingSubject`] answers. A [`Life`] is
//! about policies in Redis.
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
mod lease;
mod policies;
mod rules;
mod subject;
mod vector;

pub use files::{
    LoadError, leases_path, leases_to_json, load, load_leases, load_one, load_policies, schema,
    schema_path, to_json, vectors_dir,
};
pub use lease::{
    FoundSpec, HintSpec, LeaseGrantSpec, LeaseReplySpec, LeaseStep, LeaseVector, LeasingSubject,
    LostOp, LostStep, MarkSpec, MessageOp, MessageSpec, MessageStep, SupersededSpec, bless_lease,
    run_lease,
};
pub use policies::{HashFields, Holds, Life, PolicyStep, PublishedAs, PublishedSpec};
pub use subject::{Kernel, Subject, VectorError, answers_of, bless, run};
pub use vector::{
    Answer, Carry, ErrorCode, Expect, Failure, Op, ParamValue, RateSpec, RuleSpec, Step, Vector,
};

//! The arithmetic of limits.
//!
//! Every algorithm of Sluicegate lives here as plain functions of `(rule, state, ask, now)`. There
//! is no clock, no IO, no thread and no randomness in this crate: time comes in as an argument, and
//! what comes out is a value. A refusal is an [`Outcome::Deny`], never an error.
//!
//! Read it in this order:
//!
//! 1. [`num`]: [`Micros`], [`Cost`] and [`Rate`], the numbers that cannot be wrong; [`written`]: how rates are written.
//! 2. [`decision`]: the request to a rule ([`Ask`], [`Moment`]) and its answer ([`Decision`]).
//! 3. [`algorithm`]: one file an algorithm. Each opens with its essay.
//! 4. [`ruleset`]: up to [`limits::RULES_MAX`] rules decided together, all or nothing.
//! 5. [`lease`]: permits that a holder is given in advance, and how they are counted.
//!
//! ```
//! use sluicegate_kernel::{Cost, Micros, Moment, Rate, RuleSet, States, TokenBucket, Verb};
//!
//! let rate = Rate::new(10, Micros::SECOND)?;
//! let rules = RuleSet::single("burst", TokenBucket::new(rate, 2)?);
//! let mut states = States::default();
//! let verb = Verb::Check { cost: Cost::ONE };
//! let start = Moment::new(Micros::ZERO);
//! assert!(rules.decide(&mut states, &verb, &start)?.decision.allowed());
//! assert!(rules.decide(&mut states, &verb, &start)?.decision.allowed());
//! assert!(!rules.decide(&mut states, &verb, &start)?.decision.allowed());
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

#![no_std]

extern crate alloc;

pub mod algorithm;
pub mod decision;
mod held;
pub mod lease;
pub mod limits;
pub mod num;
pub mod param;
mod range;
pub mod ruleset;
mod states;
mod stored;
mod verb;
pub mod written;

pub use algorithm::{
    Algorithm, Concurrency, FixedWindow, LeakyBucket, Rule, SlidingCounter, SlidingLog,
    SlidingWindow, SmoothBursty, SmoothWarmup, State, TokenBucket,
};
pub use decision::{
    Ask, Called, Decision, HeldPermits, Left, ListedPermit, Moment, Outcome, PermitId, ProcessId,
    Retry, Status, Window,
};
pub use lease::{LeaseReply, Leased, LeasingSpan, NotLeasable};
pub use num::{Cost, Micros, Rate};
pub use param::{Params, Value};
pub use range::RangeError;
pub use ruleset::{Carry, NamedRule, RuleSet, RuleSetError, Unsupported, Verdict};
pub use states::States;
pub use verb::Verb;
pub use written::RateError;

//! Policy documents, parsed and compiled: they decide which rules apply to a request.
//!
//! An operator writes a document, YAML or JSON; the request path wants an answer in nanoseconds.
//! Between the two lie two stages. [`Document::parse`] turns text into [`Policy`]s that cannot be
//! wrong, or into every error of the document at once, each with its path. [`PolicySet`] is the
//! compiled whole: immutable, shared, swapped in one piece, so that a request never waits for an
//! operator. There is no clock, no IO, no thread and no randomness in this crate.
//!
//! Read it in this order:
//!
//! 1. [`text`]: `100/s` and `250ms`, read exactly.
//! 2. `node`: a document as written, YAML or JSON, bounded in size and depth.
//! 3. [`document`]: that tree taken apart, field by field, into policies.
//! 4. [`policy`] and [`set`]: the look-ups of the request path.
//! 5. [`calendar`]: where a day or a month begins in a time zone.
//! 6. [`attribute`]: policies and keys for gateways that send attributes instead of names.
//! 7. [`descriptor`]: policies and keys for gateways with Envoy's rate limit protocol, and the import of its
//!    configurations.
//! 8. [`endurance`]: how long rules admit a load that is above their limits.
//! 9. [`schema`]: the JSON Schema of documents, made of the same tables that parse them.
//!
//! ```
//! use sluicegate_kernel::{Cost, Micros, Moment, States, Verb};
//! use sluicegate_policy::{Document, PolicySet};
//!
//! let document = Document::parse(
//!     "
//! policies:
//!   - name: orders.create
//!     rules:
//!       - { name: burst, token_bucket: { rate: 100/s, burst: 200 } }
//!       - { name: daily, fixed_window: { limit: 5000, calendar: day, time_zone: Europe/Berlin } }
//!     overrides: [ { key: batch, rules: [ { token_bucket: { rate: 1/s } } ] } ]
//! ",
//! )?;
//! let policies = PolicySet::new(document);
//!
//! let policy = policies.resolve("orders.create").expect("it is in the document");
//! let now = Micros::from_secs(1_700_000_000);
//! let rules = policy.rules_at(b"alice", now).rules;
//! let windows = rules.windows(now);
//! let moment = Moment::with_windows(now, windows.as_slice());
//! let verb = Verb::Check { cost: Cost::ONE };
//! let verdict = rules.set().decide(&mut States::default(), &verb, &moment)?;
//! assert!(verdict.decision.allowed());
//! assert_eq!(&*rules.set().rules()[verdict.rule].name, "burst");
//!
//! let errors = Document::parse("policies: [ { name: a, rules: [ { gcar: {} } ] } ]").unwrap_err();
//! assert!(errors.to_string().starts_with("policies[0].rules[0]: unknown algorithm `gcar`"));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

#![no_std]

extern crate alloc;

pub mod advice;
pub mod attribute;
pub mod calendar;
pub mod descriptor;
pub mod document;
pub mod endurance;
pub mod error;
pub mod finding;
pub mod leases;
pub mod limits;
mod nearest;
mod node;
pub mod path;
mod pointer;
pub mod policy;
mod quoted;
pub mod schema;
pub mod set;
mod syntax;
pub mod text;

pub use attribute::{
    Attributes, Conditions, HostMatch, KeyAttribute, MatchCase, Matcher, PathMatch,
};
pub use calendar::Windows;
pub use descriptor::DescriptorTree;
pub use document::{Document, WrittenError, WrittenPolicy};
pub use endurance::Endurance;
pub use error::{DocumentError, DocumentErrors};
pub use finding::Finding;
pub use leases::{LeaseBounds, Leases};
pub use nearest::nearest;
pub use node::{Places, TextPlace};
pub use policy::{
    Fallback, KeyOverride, OnKeyQuota, OnOverload, OnStoreFailure, Overflow, Policy, Rules,
    RulesInForce,
};
pub use set::PolicySet;

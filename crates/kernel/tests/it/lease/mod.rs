//! Leases: the store's half of the kernel, against holders, networks and clocks that fail.
//!
//! | module | what it proves |
//! |---|---|
//! | `rules` | the rules R1 to R7 and what each verb does beside leases, one claim a test |
//! | `refutations` | five ways in which earlier protocols let too much pass |
//! | `adversary` | in 10^5 random histories no rule ever lets more pass than without leases |
//! | `lost` | a store that has lost everything lets nothing more pass, if the right holder's message comes first |
//! | `naive` | single steps equal those of a model that knows every permit by itself |
//! | `total` | no message, verb, instant or change of rules leads out of the bounds; without leases nothing changes |
//!
//! `worlds` has the rules and faults, `holder` the other half of the protocol, `judge` the bounds.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod adversary;
mod holder;
mod judge;
mod key;
mod lost;
mod naive;
mod random;
mod refutations;
mod rules;
mod total;
mod worlds;

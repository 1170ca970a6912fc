//! The kernel beside oracles that know no cleverness.
//!
//! Each algorithm is written a second time in big rationals or plain lists of grants (`oracle`), and
//! both are driven through the same random walks (`walk`): every cost, rate and burst that the
//! limits permit, steps of nothing, of one µs, exactly to the retry, of years, and back in time.
//!
//! | module | what it proves |
//! |---|---|
//! | `buckets`, `windows`, `permits`, `smooth` | every answer of every verb equals the oracle's |
//! | `bounds` | in no interval is more admitted than the algorithm promises |
//! | `honest` | a retry is the moment it says; a refusal and a peek change nothing; no panic |
//! | `changes` | what a changed rule takes over |
//! | `packed` | a state of 16 bytes decides as the state does |
//! | `sets` | several rules: all are charged or none |
//! | `stored` | a state that was written is read back; any other bytes do no harm |
//! | `long_run` | after 10^9 permits the rate is the configured one |
//!
//! `walk::BUDGETS` has the number of steps of each walk; together they are more than a million.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bounds;
mod buckets;
mod changes;
mod honest;
mod long_run;
mod oracle;
mod packed;
mod permits;
pub(crate) mod rules;
mod sets;
mod smooth;
mod stored;
mod walk;
mod windows;

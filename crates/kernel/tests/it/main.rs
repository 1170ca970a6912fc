//! The tests of this crate from outside, in one program that is linked once.

mod exact;
mod lease;
mod left;
mod refund;
mod regressions;
mod warmup;

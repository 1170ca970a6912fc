//! The tests of this crate from outside, in one program that is linked once.

mod leases;
mod stated;
mod vectors;

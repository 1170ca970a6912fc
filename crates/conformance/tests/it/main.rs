//! The tests of this crate from outside, in one program that is linked once.

mod stated;
mod vectors;

//! The tests of this crate from outside, in one program that is linked once.

mod api;
mod catalog;
mod node;

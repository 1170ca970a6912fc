//! The tests of this crate from outside, in one program that is linked once.

mod anything;
mod descriptors;
mod endurance;
mod envoy;
mod example;
mod in_force;
mod instead;
mod messages;
mod refused;
mod yaml_v2;

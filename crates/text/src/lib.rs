//! Input and output of Sluicegate's programs for people.
//!
//! | module | what it reads or prints |
//! |---|---|
//! | [`documents`] | policies from a document or a directory of documents |
//! | [`fields`] | one JSON object with known fields: bodies of HTTP requests, events of a replay |
//! | [`files`] | files up to a bound, and what changes when they do |
//! | [`private`] | files with secrets, which other users must not be able to read |
//! | [`store`] | the name of a store: `memory` or the URL of a Redis |
//! | [`terminal`] | lines for a terminal, whose control characters are escaped |
//! | [`human`] | numbers, instants and spans for people |

#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic on a closed stream")]

pub mod documents;
pub mod fields;
pub mod files;
pub mod human;
pub mod private;
pub mod store;
pub mod terminal;

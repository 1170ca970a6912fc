//! Code for TLS, HTTP and files that Sluicegate's crates share.
//!
//! | module | what it does | feature |
//! |---|---|---|
//! | [`mod@file`] | replaces a file as a whole, and keeps it over a power failure | |
//! | [`tls`] | loads certificate authorities and configures TLS as a client | `tls` |
//! | [`headers`] | reads tokens and media types in header fields | `headers` |
//! | [`http`] | sends one request over one connection | `http` |

pub mod file;
#[cfg(feature = "headers")]
pub mod headers;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "tls")]
pub mod tls;

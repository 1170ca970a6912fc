//! The HTTP parts of a limit, for any server: addresses as keys, the address behind proxies,
//! the header fields of a decision, and the body of a refusal.
//!
//! The tower layer is made of these parts; they depend on no server and no framework, so that another
//! one can be made of them too.

pub mod address;
pub mod forwarded;
pub mod headers;
pub mod problem;

pub use address::{AddressKey, V6Prefix};
pub use forwarded::{HOPS_MAX, TrustedProxies, address_at_hop};
pub use headers::HeaderFormat;
pub use ipnet::IpNet;

//! The control plane for operators: the catalog of policies, apps and roles, and its audit.
//!
//! ```text
//! operator ─▶ access::allow ─▶ Catalog ─▶ Change { rows, audit entry, revision } ─▶ database
//!                                 │
//!        nodes ◀── PublishedCatalog ◀────┘   changes since a revision
//! ```
//!
//! Policies live in a database: SQLite, MySQL or MariaDB, PostgreSQL. Every change is one transaction
//! that also writes its actor and reason, so that neither exists without the other. Requests for permits
//! never come here: nodes use what was [published](catalog::PublishedCatalog) to them.

pub mod access;
pub mod api;
pub mod audit;
pub mod catalog;
mod db;
mod error;
pub mod identity;
mod json;
mod limiter_info;
pub mod limits;
pub mod node;
pub mod traffic;

pub use access::{AccessDenied, AccessRule, Action, Actor, Role, Scope, allow};
pub use catalog::{Catalog, ChangeContext};
pub use db::{CatalogAddress, Url, catalog_write_failures_total, is_catalog_writable};
pub use error::{Error, PlacedFinding};
pub use limiter_info::read_limiter_info;

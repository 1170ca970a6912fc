//! The server as a node of a catalog: it holds a copy of the catalog, and serves its admin API.
//!
//! ```text
//! catalog ─▶ sync ─▶ CatalogDelta ─▶ engine, authenticator      requests never come here
//!    ▲ ▲       └─ SyncState ─▶ cache_file: the copy
//!    │ │            ├─▶ publish ─▶ Redis, for programs that decide there, and other nodes
//!    │ ├────────────┴── node_reporter: revision and state of this node, used tokens
//!    │ └─ traffic ◀─ telemetry: counts of each bucket of time
//!    └─ admin API ◀─ admin_api ◀─ wire                  budgets ─▶ engine
//! ```

mod admin_api;
mod budgets;
mod cache_file;
mod health;
mod live_traffic;
mod node_reporter;
mod publish;
mod seed;
mod setup_file;
mod subscribers;
mod sync;
mod sync_state;
mod traffic;
mod whatif;

pub(crate) use admin_api::AdminApi;
pub(crate) use seed::policies as seed_policies;
pub(crate) use setup_file::check_setup_file;
pub(crate) use subscribers::Subscribers;
pub(crate) use sync::{CatalogSync, initial_policies};

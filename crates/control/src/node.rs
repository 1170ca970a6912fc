//! What a node holds of the catalog, so that requests never wait for a database.
//!
//! ```text
//! catalog ─ revision? ─▶ what changed ─▶ CatalogSnapshot ─▶ CatalogDelta { policies, tokens } ─▶ engine
//!    └ not there: what is held stays            └▶ a file, for a start without the catalog
//! ```

mod follower;
mod presence;
mod snapshot;
mod tokens;

pub use follower::Follower;
pub use presence::Presence;
pub use snapshot::{CatalogCopy, CatalogDelta, CatalogSnapshot};
pub use tokens::{CachedToken, SECRET_BYTES_MAX, Tokens};

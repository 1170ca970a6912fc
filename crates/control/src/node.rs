//! The content of the catalog on a node, so that requests never wait for a database.
//!
//! ```text
//! catalog ─ revision? ─▶ what changed ─▶ CatalogSnapshot ─▶ CatalogDelta { policies, tokens } ─▶ engine
//!    └ unavailable: snapshot is kept            └▶ a file, for a start without the catalog
//! ```

mod follower;
mod presence;
mod snapshot;
mod tokens;

pub use follower::Follower;
pub use presence::Presence;
pub use snapshot::{CatalogCopy, CatalogDelta, CatalogSnapshot};
pub use tokens::{CachedToken, SECRET_BYTES_MAX, Tokens};

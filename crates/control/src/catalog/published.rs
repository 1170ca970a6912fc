//! The content of the catalog for nodes, as they read it: everything, or the changes since the revision that they use.

use serde::{Deserialize, Serialize};

use super::Catalog;
use super::policies::PolicyState;
use super::tokens::scopes;
use crate::access::Scope;
use crate::error::Error;

/// Content of the catalog for nodes, or the changes to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedCatalog {
    /// Id of the catalog: revisions of another one are unrelated.
    #[serde(default)]
    pub catalog: String,
    /// Revision of the catalog.
    pub revision: i64,
    /// Policies, by name. Deleted ones are only in changes since an earlier revision.
    pub policies: Vec<PublishedPolicy>,
    /// Tokens. Revoked and long expired ones are only in changes since an earlier revision.
    pub tokens: Vec<PublishedToken>,
}

/// A policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedPolicy {
    /// Unique among all apps.
    pub name: String,
    /// The owning app.
    pub app: String,
    /// The state of the policy.
    pub state: PolicyState,
    /// Version number.
    pub version: i64,
    /// Time of this version, in milliseconds since 1970; 0: not known.
    #[serde(default)]
    pub updated_at: i64,
    /// The policy, as JSON.
    pub document: String,
}

/// A token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedToken {
    /// Identifier; never changes.
    pub id: String,
    /// The owning app.
    pub app: String,
    /// Token name.
    pub name: String,
    /// SHA-256 of its secret, in hex.
    pub hash: String,
    /// The scopes that the token has.
    pub scopes: Vec<Scope>,
    /// Expiry time, in milliseconds since 1970.
    pub expires_at: i64,
    /// `true` if it was revoked.
    pub is_revoked: bool,
}

/// Time for which an expired token is published, in ms: its owner finds it in a log of refusals within it.
const EXPIRED_KEPT_MS: i64 = 30 * 24 * 60 * 60 * 1_000;

impl Catalog {
    /// Returns the current revision of the catalog.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn revision(&self) -> Result<i64, Error> {
        Ok(self.id_and_revision().await?.1)
    }

    /// Returns the id of the catalog: random, created with it, and never changed.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn id(&self) -> Result<String, Error> {
        Ok(self.id_and_revision().await?.0)
    }

    /// Returns the id and the revision at once.
    pub(crate) async fn id_and_revision(&self) -> Result<(String, i64), Error> {
        let row = self.db.row("SELECT id_text, revision FROM head WHERE id = 1", &[]).await?;
        let row = row.ok_or_else(|| Error::Damaged("missing head".to_owned()))?;
        Ok((row.get(0)?, row.get(1)?))
    }

    /// Returns what changed since `revision`; 0 is everything. Changes made meanwhile may be included, and are
    /// returned again the next time. Tokens that expired up to 30 days before `at` are included, so that a node that
    /// starts names the reason why it refuses them.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn published_since(&self, revision: i64, at: i64) -> Result<PublishedCatalog, Error> {
        // Read first, so that no change between the queries is missed.
        let (catalog, now) = self.id_and_revision().await?;
        let sql = "SELECT name, app, state, version, updated_at, document FROM policies \
                   WHERE revision > ? AND (state <> 'deleted' OR ? > 0) ORDER BY name";
        let rows = self.db.rows(sql, &[revision.into(), revision.into()]).await?;
        let policy = |row: &crate::db::Row| {
            Ok(PublishedPolicy {
                name: row.get(0)?,
                app: row.get(1)?,
                state: PolicyState::of(row, 2)?,
                version: row.get(3)?,
                updated_at: row.get(4)?,
                document: row.get(5)?,
            })
        };
        let policies = rows.iter().map(policy).collect::<Result<_, Error>>()?;
        let sql = "SELECT id, app, name, hash, scopes, expires_at, revoked_at FROM tokens \
                   WHERE revision > ? AND ((revoked_at IS NULL AND expires_at > ?) OR ? > 0) \
                   ORDER BY id";
        let ended_since = at - EXPIRED_KEPT_MS;
        let rows =
            self.db.rows(sql, &[revision.into(), ended_since.into(), revision.into()]).await?;
        let token = |row: &crate::db::Row| {
            Ok(PublishedToken {
                id: row.get(0)?,
                app: row.get(1)?,
                name: row.get(2)?,
                hash: row.get(3)?,
                scopes: scopes(row, 4)?,
                expires_at: row.get(5)?,
                is_revoked: row.get::<Option<i64>>(6)?.is_some(),
            })
        };
        let tokens = rows.iter().map(token).collect::<Result<_, Error>>()?;
        Ok(PublishedCatalog { catalog, revision: now, policies, tokens })
    }
}

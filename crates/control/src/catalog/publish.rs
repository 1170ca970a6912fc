//! What nodes are told: everything, or what changed since the revision that they hold.

use serde::{Deserialize, Serialize};

use super::Catalog;
use super::policies::PolicyState;
use super::tokens::scopes;
use crate::access::Scope;
use crate::error::Error;

/// What nodes hold, or what is to change of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedCatalog {
    /// Of which catalog, by its id: revisions of another one say nothing of it.
    #[serde(default)]
    pub catalog: String,
    /// Which revision that is.
    pub revision: i64,
    /// Policies, by name. Deleted ones are told of only to who held an earlier revision.
    pub policies: Vec<PublishedPolicy>,
    /// Tokens, likewise.
    pub tokens: Vec<PublishedToken>,
}

/// A policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedPolicy {
    /// Unique.
    pub name: String,
    /// Whose it is.
    pub app: String,
    /// What it does.
    pub state: PolicyState,
    /// Which version it is.
    pub version: i64,
    /// When it became this version, in milliseconds since 1970; 0: not known.
    #[serde(default)]
    pub updated_at: i64,
    /// The policy, as JSON.
    pub document: String,
}

/// A token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedToken {
    /// Never changes.
    pub id: String,
    /// Whose it is.
    pub app: String,
    /// What it is called.
    pub name: String,
    /// SHA-256 of its secret, in hex.
    pub hash: String,
    /// What it is for.
    pub scopes: Vec<Scope>,
    /// When it ends, in milliseconds since 1970.
    pub expires_at: i64,
    /// Whether it was revoked.
    pub is_revoked: bool,
}

/// How long a token that ended is published: its owner finds it in a log of refusals within this time.
const EXPIRED_KEPT_MS: i64 = 30 * 24 * 60 * 60 * 1_000;

impl Catalog {
    /// The revision that the catalog is at.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn revision(&self) -> Result<i64, Error> {
        Ok(self.id_and_revision().await?.1)
    }

    /// Which catalog this is: random, made with it, and the same as long as it lives.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn id(&self) -> Result<String, Error> {
        Ok(self.id_and_revision().await?.0)
    }

    /// The two at once.
    pub(crate) async fn id_and_revision(&self) -> Result<(String, i64), Error> {
        let row = self.db.row("SELECT id_text, revision FROM head WHERE id = 1", &[]).await?;
        let row = row.ok_or_else(|| Error::Damaged("missing head".to_owned()))?;
        Ok((row.get(0)?, row.get(1)?))
    }

    /// What changed since `revision`; 0 is everything. Changes made meanwhile may be in it, and are told
    /// again the next time. Tokens that ended up to 30 days before `at` are in it, so that a node that starts names
    /// the reason why it refuses them.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn published_since(&self, revision: i64, at: i64) -> Result<PublishedCatalog, Error> {
        // First, so that nothing is missed that is changed between the two.
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

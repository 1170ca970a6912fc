//! Summaries of apps, and search by a part of a name.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use super::{App, Catalog, Page, containing};
use crate::access::{Account, Role};
use crate::error::Error;

/// Maximum number of results of a search: what a person looks at.
const HITS_MAX: i64 = 20;

/// Maximum number of owners in the summary of an app.
const OWNERS_SHOWN_MAX: usize = 5;

/// Summary of an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct AppSummary {
    /// App name.
    pub name: String,
    /// A description for people.
    pub description: String,
    /// Your role; null: none, as an administrator.
    pub role: Option<Role>,
    /// Policies that are enforced.
    pub active: i64,
    /// Policies in shadow mode.
    pub shadow: i64,
    /// Time of the latest change of a policy that is not deleted, in milliseconds since 1970; null: it has none.
    pub updated_at: Option<i64>,
    /// Names of its owners, at most 5.
    pub owners: Vec<String>,
}

/// An app or a policy that a search found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Hit {
    /// The app, or the app of the policy.
    pub app: String,
    /// The policy; null: it is the app.
    pub policy: Option<String>,
}

/// Maximum number of names that a misspelt one is compared with.
const KNOWN_NAMES_MAX: i64 = 1_000;

/// A kind of names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KnownNames<'a> {
    /// Names of all apps.
    Apps,
    /// Names of all accounts.
    Accounts,
    /// Names of the policies of this app.
    Policies(&'a str),
}

impl Catalog {
    /// Returns summaries of apps by name: all for an administrator, else those in which `account` has a role.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn app_summaries(
        &self,
        account: &Account,
        page: &Page,
    ) -> Result<Vec<AppSummary>, Error> {
        let of = (!account.is_admin).then_some(account.id.as_str());
        let apps = self.apps(of, page).await?;
        let (Some(first), Some(last)) = (apps.first(), apps.last()) else { return Ok(Vec::new()) };
        let between = [first.name.as_str().into(), last.name.as_str().into()];
        let sql = "SELECT app, state, COUNT(*), MAX(updated_at) FROM policies \
                   WHERE app >= ? AND app <= ? AND state <> 'deleted' GROUP BY app, state";
        let mut counts: BTreeMap<(String, String), (i64, i64)> = BTreeMap::new();
        for row in self.db.rows(sql, &between).await? {
            counts.insert((row.get(0)?, row.get(1)?), (row.get(2)?, row.get(3)?));
        }
        let sql = "SELECT m.app, a.name FROM members m JOIN accounts a ON a.id = m.account \
                   WHERE m.app >= ? AND m.app <= ? AND m.role = 'owner' ORDER BY m.app, a.name";
        let mut owners: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for row in self.db.rows(sql, &between).await? {
            let owners = owners.entry(row.get(0)?).or_default();
            if owners.len() < OWNERS_SHOWN_MAX {
                owners.push(row.get(1)?);
            }
        }
        let summary = |App { name, description, .. }: App| {
            let mut count = |state: &str| counts.remove(&(name.clone(), state.to_owned()));
            let (active, shadow) = (count("active"), count("shadow"));
            AppSummary {
                role: account.roles.get(&name).copied(),
                active: active.map_or(0, |(count, _)| count),
                shadow: shadow.map_or(0, |(count, _)| count),
                updated_at: active.max(shadow).map(|_| {
                    let of = |counted: Option<(i64, i64)>| counted.map_or(0, |(_, at)| at);
                    of(active).max(of(shadow))
                }),
                owners: owners.remove(&name).unwrap_or_default(),
                name,
                description,
            }
        };
        Ok(apps.into_iter().map(summary).collect())
    }

    /// Returns names of accounts that contain `text` and may sign in: of those that share an app with `account`,
    /// or of all for an administrator.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn people(&self, account: &Account, text: &str) -> Result<Vec<String>, Error> {
        let (like, all) = (containing(text), i64::from(account.is_admin));
        let values =
            [like.as_str().into(), all.into(), account.id.as_str().into(), HITS_MAX.into()];
        let sql = "SELECT a.name FROM accounts a WHERE LOWER(a.name) LIKE ? ESCAPE '!' AND a.is_disabled = 0 \
                   AND (? = 1 OR EXISTS (SELECT 1 FROM members m JOIN members own ON own.app = m.app \
                   WHERE m.account = a.id AND own.account = ?)) ORDER BY a.name LIMIT ?";
        self.db.rows(sql, &values).await?.iter().map(|row| row.get(0)).collect()
    }

    /// Returns the first names of one kind, for an error about a name that was not found: a thousand at most.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) async fn known_names(&self, of: KnownNames<'_>) -> Result<Vec<String>, Error> {
        let limit = KNOWN_NAMES_MAX.into();
        let rows = match of {
            KnownNames::Apps => {
                self.db.rows("SELECT name FROM apps ORDER BY name LIMIT ?", &[limit]).await?
            }
            KnownNames::Accounts => {
                self.db.rows("SELECT name FROM accounts ORDER BY name LIMIT ?", &[limit]).await?
            }
            KnownNames::Policies(app) => {
                let sql = "SELECT name FROM policies WHERE app = ? AND state <> 'deleted' \
                           ORDER BY name LIMIT ?";
                self.db.rows(sql, &[app.into(), limit]).await?
            }
        };
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Returns apps and policies whose name contains `text`, apps first, of all that `account` may see.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn search(&self, account: &Account, text: &str) -> Result<Vec<Hit>, Error> {
        let (like, all) = (containing(text), i64::from(account.is_admin));
        let values =
            [like.as_str().into(), all.into(), account.id.as_str().into(), HITS_MAX.into()];
        let sql = "SELECT name FROM apps WHERE name LIKE ? ESCAPE '!' AND (? = 1 OR EXISTS \
                   (SELECT 1 FROM members m WHERE m.app = name AND m.account = ?)) \
                   ORDER BY name LIMIT ?";
        let mut hits = Vec::new();
        for row in self.db.rows(sql, &values).await? {
            hits.push(Hit { app: row.get(0)?, policy: None });
        }
        let sql = "SELECT p.app, p.name FROM policies p WHERE p.name LIKE ? ESCAPE '!' \
                   AND p.state <> 'deleted' AND (? = 1 OR EXISTS \
                   (SELECT 1 FROM members m WHERE m.app = p.app AND m.account = ?)) \
                   ORDER BY p.name LIMIT ?";
        for row in self.db.rows(sql, &values).await? {
            hits.push(Hit { app: row.get(0)?, policy: Some(row.get(1)?) });
        }
        hits.truncate(usize::try_from(HITS_MAX).unwrap_or(usize::MAX));
        Ok(hits)
    }
}

//! Summaries of policies, for lists: filtered by name and state, ordered, counted.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use utoipa::ToSchema;

use super::{Catalog, PolicyState, json};
use crate::catalog::{Page, containing};
use crate::db::{Row, SqlValue};
use crate::error::Error;
use sluicegate_policy::finding;

/// The fields of a document that outline a policy.
const OUTLINE: [&str; 5] = ["apps", "match", "key", "rules", "overflow"];

/// Filter and order of the policies of an app.
#[derive(Clone, Debug, Default)]
pub struct PolicyFilter {
    /// Text that the name contains.
    pub name: String,
    /// State of the policies; none: all but deleted ones.
    pub state: Option<PolicyState>,
    /// The order.
    pub sort: PolicySort,
}

/// The order of policies in a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicySort {
    /// By name.
    #[default]
    Name,
    /// The latest change first.
    Updated,
}

/// Summary of a policy.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PolicySummary {
    /// Unique among all apps.
    pub name: String,
    /// The state of the policy.
    pub state: PolicyState,
    /// Number of the latest change, from 1.
    pub version: i64,
    /// `apps`, `match`, `key`, `rules` and `overflow` of the policy's document, as far as it has them.
    #[schema(value_type = Object)]
    pub outline: Json,
    /// Number of keys that have their own rules.
    pub overrides: usize,
    /// Time of the latest change, in milliseconds since 1970.
    pub updated_at: i64,
    /// Author of the latest change.
    pub updated_by: String,
}

/// A page of summaries, and the number of all.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicySummaries {
    /// The policies.
    pub items: Vec<PolicySummary>,
    /// Number of policies that the filter finds, on all pages.
    pub total: i64,
    /// Cursor for the next page, to send as `after`; none: these are the last.
    pub next: Option<String>,
}

impl Catalog {
    /// Returns summaries of policies of `app`.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Invalid`] if `after` is not a cursor of this order.
    pub async fn policy_summaries(
        &self,
        app: &str,
        filter: &PolicyFilter,
        page: &Page,
    ) -> Result<PolicySummaries, Error> {
        self.app(app).await?;
        let like = containing(&filter.name);
        let states = match filter.state {
            None => [PolicyState::Active, PolicyState::Shadow],
            Some(state) => [state, state],
        };
        let [one, other] = states.map(|state| state.name().into());
        let of: [SqlValue<'_>; 4] = [app.into(), one, other, like.as_str().into()];
        let sql = "SELECT COUNT(*) FROM policies \
                   WHERE app = ? AND state IN (?, ?) AND name LIKE ? ESCAPE '!'";
        let total = self.db.row(sql, &of).await?.map_or(Ok(0), |row| row.get(0))?;
        let limit = page.limit();
        let rows = match filter.sort {
            PolicySort::Name => {
                let sql = "SELECT name, state, version, document, updated_at, updated_by FROM policies \
                           WHERE app = ? AND state IN (?, ?) AND name LIKE ? ESCAPE '!' \
                           AND name > ? ORDER BY name LIMIT ?";
                let values = [of.as_slice(), &[page.after().into(), limit.into()]].concat();
                self.db.rows(sql, &values).await?
            }
            PolicySort::Updated => {
                let sql = "SELECT name, state, version, document, updated_at, updated_by FROM policies \
                           WHERE app = ? AND state IN (?, ?) AND name LIKE ? ESCAPE '!' \
                           AND (updated_at < ? OR updated_at = ? AND name > ?) \
                           ORDER BY updated_at DESC, name LIMIT ?";
                let (at, name) = before(page)?;
                let behind = [at.into(), at.into(), name.into(), limit.into()];
                self.db.rows(sql, &[of.as_slice(), &behind].concat()).await?
            }
        };
        let items = rows.iter().map(PolicySummary::of).collect::<Result<Vec<_>, _>>()?;
        let is_full = i64::try_from(items.len()).is_ok_and(|len| len == limit);
        let next = items.last().filter(|_| is_full).map(|last| match filter.sort {
            PolicySort::Name => last.name.clone(),
            PolicySort::Updated => format!("{}:{}", last.updated_at, last.name),
        });
        Ok(PolicySummaries { items, total, next })
    }
}

/// Parses the cursor of a page by time: the change behind which it begins.
fn before(page: &Page) -> Result<(i64, &str), Error> {
    let Some(after) = page.after.as_deref() else { return Ok((i64::MAX, "")) };
    let parts = after.split_once(':').and_then(|(at, name)| Some((at.parse().ok()?, name)));
    parts.ok_or_else(|| Error::invalid("/after", finding!("bad_cursor", "invalid cursor")))
}

impl PolicySummary {
    fn of(row: &Row) -> Result<Self, Error> {
        let mut document = json(row, 3)?;
        let overrides = document["overrides"].as_array().map_or(0, Vec::len);
        let outline = OUTLINE.iter().filter_map(|name| {
            let value = document.get_mut(*name)?.take();
            Some(((*name).to_owned(), value))
        });
        Ok(Self {
            name: row.get(0)?,
            state: PolicyState::of(row, 1)?,
            version: row.get(2)?,
            outline: Json::Object(outline.collect()),
            overrides,
            updated_at: row.get(4)?,
            updated_by: row.get(5)?,
        })
    }
}

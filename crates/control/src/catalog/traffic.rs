//! Counts of nodes, in rows that are deleted by age. Changes of the catalog do not wait for them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tokio::time::timeout;
use utoipa::ToSchema;

use super::{Catalog, PolicyState};
use crate::access::Account;
use crate::db::{Row, SqlValue};
use crate::error::Error;
use crate::traffic::{Bucket, Counts, PolicyCounts, Step, is_run_of, pack, run_name, unpack};

/// Longest wait for a row to be written or old ones to be deleted: the next row comes ten seconds later.
const WRITE_WAIT_MAX: Duration = Duration::from_secs(2);

/// Maximum number of rows that are read at a time, and for one answer: an hour of a hundred nodes.
const PAGE_ROWS_MAX: usize = 100;
const ROWS_READ_MAX: usize = 36_000;

/// Maximum number of changes of policies that are shown in a chart.
const MARKS_MAX: i64 = 200;

/// Age of the rows of removed nodes at which they are deleted, in milliseconds: the longest that any row is kept.
const OLD_MS: i64 = Step::Coarse.kept_ms() + Step::Coarse.ms();

/// Counts of one node in one bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeBucket {
    /// The name of the node.
    pub node: String,
    /// The bucket with the counts.
    pub bucket: Bucket,
}

/// A change of a policy of an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct PolicyChange {
    /// The owning app.
    pub app: String,
    /// The state before; null: the policy is new, or the version before is not kept.
    pub state_before: Option<PolicyState>,
    /// The change.
    #[serde(flatten)]
    pub mark: Mark,
}

/// A change of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Mark {
    /// Time of the change, in milliseconds since 1970.
    pub at: i64,
    /// The policy.
    pub policy: String,
    /// The version that the change made.
    pub version: i64,
    /// The state from this version on.
    pub state: PolicyState,
    /// Author of the change.
    pub author: String,
    /// The reason given.
    pub reason: String,
}

impl Catalog {
    /// Records the counts of `node` in `bucket`. A bucket that is there already stays as it is.
    ///
    /// # Errors
    /// Those of the database, and [`Error::Database`] if it took longer than two seconds.
    pub async fn record_traffic(
        &self,
        node: &str,
        step: Step,
        bucket: &Bucket,
    ) -> Result<(), Error> {
        let body = pack(&bucket.policies);
        let sql = "INSERT INTO traffic (step, at, node, body) VALUES (?, ?, ?, ?)";
        let values =
            [step.ms().into(), bucket.at.into(), node.into(), SqlValue::Bytes(body.as_slice())];
        match in_time(self.db.run(sql, &values)).await {
            Ok(_) | Err(Error::Taken) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Adds to the buckets of five minutes the counts that `node` has in buckets of ten seconds only: it was killed
    /// before they were over, and starts again at `at`.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn complete_traffic(&self, node: &str, at: i64) -> Result<(), Error> {
        let since = Step::Coarse.floor(at - Step::Fine.kept_ms()) + Step::Coarse.ms();
        let mut missing: BTreeMap<i64, BTreeMap<String, Counts>> = BTreeMap::new();
        let of_fine = |NodeBucket { node: of, bucket }: NodeBucket| {
            if !is_run_of(&of, node) {
                return;
            }
            let counts = missing.entry(Step::Coarse.floor(bucket.at)).or_default();
            for of in bucket.policies {
                counts.entry(of.policy).or_default().add(&of.counts);
            }
        };
        self.visit_traffic(Step::Fine, since, of_fine).await?;
        let of_coarse = |NodeBucket { node: of, bucket }: NodeBucket| {
            if of == node {
                // The node ran until the end of this bucket.
                missing.remove(&bucket.at);
            } else if let Some(counts) =
                missing.get_mut(&bucket.at).filter(|_| is_run_of(&of, node))
            {
                for of in bucket.policies {
                    let left = counts.entry(of.policy).or_default();
                    *left = left.less(&of.counts);
                }
            }
        };
        self.visit_traffic(Step::Coarse, since, of_coarse).await?;
        for (begin, counts) in missing {
            let policies = counts.into_iter().filter(|(_, counts)| !counts.is_zero());
            let policies = policies
                .map(|(policy, counts)| PolicyCounts { policy, counts, top: Vec::new() })
                .collect::<Vec<_>>();
            if !policies.is_empty() {
                let bucket = Bucket { at: begin, policies };
                self.record_traffic(&run_name(node, at), Step::Coarse, &bucket).await?;
            }
        }
        Ok(())
    }

    /// Deletes what is too old at `at`: rows of `node`, and of any node that is gone for a day.
    ///
    /// # Errors
    /// Those of the database, and [`Error::Database`] if it took longer than two seconds.
    pub async fn forget_traffic(&self, node: &str, at: i64) -> Result<(), Error> {
        for step in Step::ALL {
            let own = "DELETE FROM traffic WHERE step = ? AND at < ? AND node = ?";
            let before = step.floor(at) - step.kept_ms();
            let values = [step.ms().into(), before.into(), node.into()];
            in_time(self.db.run(own, &values)).await?;
            let old = "DELETE FROM traffic WHERE step = ? AND at < ?";
            in_time(self.db.run(old, &[step.ms().into(), (at - OLD_MS).into()])).await?;
        }
        Ok(())
    }

    /// Calls `visit` with the counts of all nodes in buckets that begin at `since` or later, the latest first.
    ///
    /// # Errors
    /// Those of the database. A row that cannot be read is left out: a later version may have written it.
    pub async fn visit_traffic(
        &self,
        step: Step,
        since: i64,
        mut visit: impl FnMut(NodeBucket) + Send,
    ) -> Result<(), Error> {
        let sql = "SELECT node, at, body FROM traffic WHERE step = ? AND at >= ? \
                   AND (at < ? OR (at = ? AND node < ?)) ORDER BY at DESC, node DESC LIMIT ?";
        let limit = i64::try_from(PAGE_ROWS_MAX).expect("it is small");
        let (mut before, mut before_node) = (i64::MAX, String::new());
        for _ in 0..ROWS_READ_MAX / PAGE_ROWS_MAX {
            let before_node_at = before_node.clone();
            let values = [
                step.ms().into(),
                since.into(),
                before.into(),
                before.into(),
                (&before_node_at).into(),
                limit.into(),
            ];
            let rows = self.db.rows(sql, &values).await?;
            for row in &rows {
                (before_node, before) = (row.get(0)?, row.get(1)?);
                if let Some(policies) = unpack(&row.get::<Vec<u8>>(2)?) {
                    let bucket = Bucket { at: before, policies };
                    visit(NodeBucket { node: before_node.clone(), bucket });
                }
            }
            if rows.len() < PAGE_ROWS_MAX {
                break;
            }
        }
        Ok(())
    }

    /// Returns the names of all policies with their apps, deleted or not: of one app, or of all.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn policy_owners(&self, app: Option<&str>) -> Result<Vec<(String, String)>, Error> {
        let rows = match app {
            Some(app) => {
                let sql = "SELECT name, app FROM policies WHERE app = ? ORDER BY name";
                self.db.rows(sql, &[app.into()]).await?
            }
            None => self.db.rows("SELECT name, app FROM policies ORDER BY name", &[]).await?,
        };
        rows.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
    }

    /// Returns changes of the policies of `app` since then, the latest of them, in the order of time.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn marks(&self, app: &str, since: i64) -> Result<Vec<Mark>, Error> {
        let sql = "SELECT v.at, v.policy, v.version, v.state, v.author, v.reason \
                   FROM policies p JOIN policy_versions v ON v.policy = p.name \
                   WHERE p.app = ? AND p.updated_at >= ? AND v.at >= ? \
                   ORDER BY v.at DESC, v.policy, v.version DESC LIMIT ?";
        let values = [app.into(), since.into(), since.into(), MARKS_MAX.into()];
        self.db.rows(sql, &values).await?.iter().rev().map(Mark::of).collect()
    }

    /// Returns the latest changes of policies, the newest first, `count` of them at most: of all apps for an
    /// administrator, else of those in which `account` has a role.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn latest_changes(
        &self,
        account: &Account,
        count: i64,
    ) -> Result<Vec<PolicyChange>, Error> {
        // The latest changes are changes of the policies that were changed last.
        let sql = "SELECT v.at, v.policy, v.version, v.state, v.author, v.reason, p.app, b.state \
                   FROM (SELECT name, app FROM policies WHERE ? = 1 OR EXISTS \
                   (SELECT 1 FROM members m WHERE m.app = policies.app AND m.account = ?) \
                   ORDER BY updated_at DESC, name LIMIT ?) p \
                   JOIN policy_versions v ON v.policy = p.name \
                   LEFT JOIN policy_versions b ON b.policy = v.policy AND b.version = v.version - 1 \
                   ORDER BY v.at DESC, v.policy, v.version DESC LIMIT ?";
        let all = i64::from(account.is_admin);
        let values = [all.into(), account.id.as_str().into(), count.into(), count.into()];
        let rows = self.db.rows(sql, &values).await?;
        let change = |row: &Row| {
            let before: Option<String> = row.get(7)?;
            Ok(PolicyChange {
                app: row.get(6)?,
                state_before: before.map(|_| PolicyState::of(row, 7)).transpose()?,
                mark: Mark::of(row)?,
            })
        };
        rows.iter().map(change).collect()
    }

    /// Returns the time when a policy of an app went into shadow mode; none: it is not in shadow mode.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn in_shadow_since(&self, app: &str, policy: &str) -> Result<Option<i64>, Error> {
        let view = self.policy(app, policy).await?;
        if view.state != PolicyState::Shadow {
            return Ok(None);
        }
        let sql = "SELECT MIN(at) FROM policy_versions WHERE policy = ? AND version > \
                   (SELECT COALESCE(MAX(version), 0) FROM policy_versions \
                   WHERE policy = ? AND state <> 'shadow')";
        let row = self.db.row(sql, &[policy.into(), policy.into()]).await?;
        let since: Option<i64> = row.map(|row| row.get(0)).transpose()?.flatten();
        Ok(Some(since.unwrap_or(view.updated_at)))
    }
}

impl Mark {
    fn of(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            at: row.get(0)?,
            policy: row.get(1)?,
            version: row.get(2)?,
            state: PolicyState::of(row, 3)?,
            author: row.get(4)?,
            reason: row.get(5)?,
        })
    }
}

async fn in_time(writing: impl Future<Output = Result<u64, Error>>) -> Result<u64, Error> {
    let slow = || Error::Database(format!("no answer within {} s", WRITE_WAIT_MAX.as_secs()));
    timeout(WRITE_WAIT_MAX, writing).await.map_err(|_| slow())?
}

//! The table `rate_limiter_info`, in which another rate limiter on Redis stores its token buckets: read
//! from its database for an import.
//!
//! | column | |
//! |---|---|
//! | `name` | of the bucket, unique |
//! | `apps` | which applications may use it |
//! | `max_permits` | most tokens in it |
//! | `rate` | tokens added a second |
//! | `created_by`, `updated_by` | who is responsible for it |

use sluicegate_import::limiter_info::LimiterInfo;
use sluicegate_policy::limits::POLICIES_MAX;

use crate::db::{Db, Row, Url};
use crate::error::Error;

/// Returns the rows of the table in the database at `url`, which is of MySQL or MariaDB, by name. Changes
/// nothing there.
///
/// # Errors
/// [`Error::Database`] if there is no such database or table, [`Error::TooMany`] rows for a catalog.
pub async fn read_limiter_info(url: &Url) -> Result<Vec<LimiterInfo>, Error> {
    if url.kind() != "mysql" {
        let problem = format!("expected `mysql://…`, found `{}:…`", url.kind());
        return Err(Error::Database(problem));
    }
    let db = Db::open_read_only(url).await?;
    let sql = "SELECT CAST(name AS CHAR), CAST(apps AS CHAR), CAST(max_permits AS CHAR), \
               CAST(rate AS CHAR), CAST(created_by AS CHAR), CAST(updated_by AS CHAR) \
               FROM rate_limiter_info ORDER BY name LIMIT ?";
    let most = i64::try_from(POLICIES_MAX).expect("the most policies are few thousand");
    let rows = db.rows(sql, &[(most + 1).into()]).await;
    db.close().await;
    let rows = rows?;
    if rows.len() > POLICIES_MAX {
        return Err(Error::TooMany(format!("{POLICIES_MAX} policies")));
    }
    rows.iter().map(limiter_info).collect()
}

fn limiter_info(row: &Row) -> Result<LimiterInfo, Error> {
    Ok(LimiterInfo {
        name: row.get(0)?,
        apps: row.get(1)?,
        max_permits: row.get(2)?,
        rate: row.get(3)?,
        created_by: row.get(4)?,
        updated_by: row.get(5)?,
    })
}

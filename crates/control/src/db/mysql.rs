//! Migration on MySQL and MariaDB: the lock of the tables, and steps that were broken off.

use std::time::Duration;

use sqlx::{MySql, MySqlConnection, Pool};
use tokio::time::timeout;

use super::STATEMENT_WAIT_MAX;
use super::terms::{DialectTerms, MARIADB, MYSQL};
use crate::error::Error;

/// Maximum time that one node waits for another that creates the tables.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(60);

/// Returns a connection that has the right to create tables in its database, until it ends, and the terms of the
/// server. A step that was broken off is forgotten.
pub(super) async fn lock_tables(
    pool: &Pool<MySql>,
) -> Result<(MySqlConnection, DialectTerms), Error> {
    let mut lock = lock(pool).await?;
    let words = words(&mut lock).await?;
    forget_broken_off(&mut lock).await?;
    Ok((lock, words))
}

/// Returns the terms of the server, which is MySQL or MariaDB.
async fn words(connection: &mut MySqlConnection) -> Result<DialectTerms, Error> {
    let query = sqlx::query_scalar("SELECT VERSION()").fetch_one(connection);
    let version: String = timeout(STATEMENT_WAIT_MAX, query).await??;
    Ok(if version.contains("MariaDB") { MARIADB } else { MYSQL })
}

/// Forgets a step that began and did not end: no other node runs it, since this one has the lock. Its
/// statements can be repeated.
async fn forget_broken_off(connection: &mut MySqlConnection) -> Result<(), Error> {
    let sql = "SELECT COUNT(*) FROM information_schema.tables \
               WHERE table_schema = DATABASE() AND table_name = '_sqlx_migrations'";
    let query = sqlx::query_scalar(sql).fetch_one(&mut *connection);
    let tables: i64 = timeout(STATEMENT_WAIT_MAX, query).await??;
    if tables > 0 {
        let forget = sqlx::query("DELETE FROM _sqlx_migrations WHERE success = FALSE");
        timeout(STATEMENT_WAIT_MAX, forget.execute(connection)).await??;
    }
    Ok(())
}

/// Returns a connection that has the right to create tables in its database, until it ends.
async fn lock(pool: &Pool<MySql>) -> Result<MySqlConnection, Error> {
    let mut connection = pool.acquire().await?.detach();
    let sql = "SELECT GET_LOCK(CONCAT('sluicegate-', LEFT(MD5(DATABASE()), 16)), ?)";
    let wait = i64::try_from(LOCK_WAIT_MAX.as_secs()).expect("it is a minute");
    let query = sqlx::query_scalar(sql).bind(wait).fetch_one(&mut connection);
    let has: Option<i64> = timeout(LOCK_WAIT_MAX + STATEMENT_WAIT_MAX, query).await??;
    if has == Some(1) {
        return Ok(connection);
    }
    Err(Error::Database("tables: another node has been creating them for a minute".to_owned()))
}

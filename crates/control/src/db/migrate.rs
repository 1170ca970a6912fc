//! Makes the tables what this version knows: forward only, each step once, one node at a time.

use std::time::Duration;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{AssertSqlSafe, Connection as _, MySql, MySqlConnection, Pool, SqlSafeStr};
use tokio::time::sleep;

use super::Db;
use crate::error::Error;

/// The steps, in their order. What has been released does not change.
const STEPS: [(&str, &str); 1] = [("catalog", include_str!("../../migrations/0001_catalog.sql"))];

/// How often, and how soon again: others take some milliseconds for all steps.
const TRIES_MAX: u32 = 20;
const TRY_AFTER: Duration = Duration::from_millis(50);

/// How long one node waits for another that makes the tables.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(60);

impl Db {
    /// Makes the tables what this version knows. The servers see to it that one node does so at a time;
    /// with a file, another that does at the same time gets in the way, and then it is tried again.
    pub(super) async fn migrate(&self) -> Result<(), Error> {
        let mut tries = 1;
        loop {
            match self.migrate_to(STEPS.len()).await {
                Err(_) if matches!(self, Self::Sqlite(_)) && tries < TRIES_MAX => tries += 1,
                done => return done,
            }
            sleep(TRY_AFTER).await;
        }
    }

    /// Makes the first `count` steps.
    async fn migrate_to(&self, count: usize) -> Result<(), Error> {
        let (long, options) = match self {
            Self::Sqlite(_) | Self::Postgres(_) => ("TEXT", ""),
            // Names and tokens that differ in case are not the same, here as elsewhere.
            Self::MySql(_) => {
                ("MEDIUMTEXT", "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin")
            }
        };
        let step = |(place, (name, text)): (usize, &(&'static str, &str))| {
            let text = text.replace("{long}", long).replace("{options}", options);
            let number = i64::try_from(place + 1).expect("there are few steps");
            let text = AssertSqlSafe(text).into_sql_str();
            Migration::new(number, (*name).into(), MigrationType::Simple, text, false)
        };
        let steps = STEPS[..count].iter().enumerate().map(step).collect();
        let mut migrator = Migrator::with_migrations(steps);
        let done = match self {
            Self::Sqlite(pool) => migrator.run(pool).await,
            Self::MySql(pool) => {
                // The library's own lock does not wait on MariaDB, which takes its -1 for no time.
                let lock = lock(pool).await?;
                let done = migrator.set_locking(false).run(pool).await;
                lock.close().await?;
                done
            }
            Self::Postgres(pool) => migrator.run(pool).await,
        };
        done.map_err(|error| Error::Database(format!("tables: {error}")))
    }
}

/// A connection that has the right to make tables in its database, until it ends.
async fn lock(pool: &Pool<MySql>) -> Result<MySqlConnection, Error> {
    let mut connection = pool.acquire().await?.detach();
    let sql = "SELECT GET_LOCK(CONCAT('sluicegate-', LEFT(MD5(DATABASE()), 16)), ?)";
    let wait = i64::try_from(LOCK_WAIT_MAX.as_secs()).expect("it is a minute");
    let has: Option<i64> = sqlx::query_scalar(sql).bind(wait).fetch_one(&mut connection).await?;
    if has == Some(1) {
        return Ok(connection);
    }
    Err(Error::Database("tables: another node has been making them for a minute".to_owned()))
}

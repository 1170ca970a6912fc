//! Makes the tables what this version knows: forward only, each step once, one node at a time.

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{AssertSqlSafe, SqlSafeStr};

use super::Db;
use crate::error::Error;

/// The steps, in their order. What has been released does not change.
const STEPS: [(&str, &str); 1] = [("catalog", include_str!("../../migrations/0001_catalog.sql"))];

impl Db {
    pub(super) async fn migrate(&self) -> Result<(), Error> {
        self.migrate_to(STEPS.len()).await
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
        let migrator = Migrator::with_migrations(steps);
        let done = match self {
            Self::Sqlite(pool) => migrator.run(pool).await,
            Self::MySql(pool) => migrator.run(pool).await,
            Self::Postgres(pool) => migrator.run(pool).await,
        };
        done.map_err(|error| Error::Database(format!("tables: {error}")))
    }
}

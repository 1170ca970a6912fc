//! Migration of the tables to this version: forward only, each step once, one node at a time.
//!
//! MySQL keeps the done part of a step that was interrupted, when its node was killed; the next node repeats
//! the step. With the other databases a step is done whole or not at all.

use std::time::Duration;

#[cfg(feature = "mysql")]
use sqlx::Connection as _;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::{AssertSqlSafe, SqlSafeStr};
use tokio::time::sleep;

use super::dialect::problem;
#[cfg(feature = "mysql")]
use super::mysql;
#[cfg(feature = "postgres")]
use super::terms::POSTGRES;
use super::terms::{DialectTerms, SQLITE};
use super::{Db, DbPool, Url};
use crate::error::Error;

/// The steps, in their order. Released steps do not change.
const STEPS: [(&str, &str); 3] = [
    ("catalog", include_str!("../../migrations/0001_catalog.sql")),
    ("policy_apps", include_str!("../../migrations/0002_policy_apps.sql")),
    ("traffic", include_str!("../../migrations/0003_traffic.sql")),
];

/// Maximum number of tries, and the time between them: others take some milliseconds for all steps.
const TRIES_MAX: u32 = 20;
const TRY_AFTER: Duration = Duration::from_millis(50);

impl Db {
    /// Connects, and migrates the tables to this version. The servers make one node do so at a time. SQLite
    /// refuses at once where another node creates the same file at the same moment, whatever the wait for it:
    /// then both are tried again.
    pub(super) async fn with_tables(url: &Url) -> Result<Self, Error> {
        let mut tries = 1;
        loop {
            let made = async {
                let db = Self::connect(url).await?;
                db.migrate_to(STEPS.len()).await?;
                Ok(db)
            };
            match made.await {
                Err(_) if url.sqlite().is_some() && tries < TRIES_MAX => tries += 1,
                done => return done,
            }
            sleep(TRY_AFTER).await;
        }
    }

    /// Runs the first `count` steps.
    pub(crate) async fn migrate_to(&self, count: usize) -> Result<(), Error> {
        let migrator = |words| {
            let steps = STEPS[..count].iter().enumerate();
            Migrator::with_migrations(
                steps.map(|(place, (name, text))| migration(place, name, text, words)).collect(),
            )
        };
        let done = match &self.pool {
            DbPool::Sqlite(pool) => migrator(SQLITE).run(pool).await,
            #[cfg(feature = "postgres")]
            DbPool::Postgres(pool) => migrator(POSTGRES).run(pool).await,
            #[cfg(feature = "mysql")]
            DbPool::MySql(pool) => {
                // The library's own lock does not wait on MariaDB, which reads its -1 as no time.
                let (lock, words) = mysql::lock_tables(pool).await?;
                let done = migrator(words).set_locking(false).run(pool).await;
                lock.close().await.ok();
                done
            }
        };
        done.map_err(|error| {
            let problem = match &error {
                MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
                    problem(error)
                }
                other => other.to_string(),
            };
            Error::Database(format!("tables: {problem}"))
        })
    }
}

/// Returns a step in the terms of a database. Its checksum does not depend on them.
fn migration(
    place: usize,
    name: &'static str,
    text: &'static str,
    words: DialectTerms,
) -> Migration {
    let number = i64::try_from(place + 1).expect("there are few steps");
    let of = |text: String| {
        let text = AssertSqlSafe(text).into_sql_str();
        Migration::new(number, name.into(), MigrationType::Simple, text, false)
    };
    let checksum = of(text.to_owned()).checksum;
    Migration { checksum, ..of(in_terms(text, words)) }
}

/// Returns the text of a step in the terms of a database. An index is created with its table where that may
/// exist already, and else behind it.
fn in_terms(text: &str, words: DialectTerms) -> String {
    let DialectTerms { long, bytes, options, is_repeated } = words;
    let (mut sql, mut table, mut behind) = (String::new(), "", String::new());
    for line in text.lines() {
        let index = line.trim().strip_prefix("{index ").and_then(|rest| rest.strip_suffix('}'));
        if let Some((name, columns)) = index.and_then(|index| index.split_once(' ')) {
            if is_repeated {
                sql.push_str(&format!(", INDEX {name} {columns}\n"));
            } else {
                behind.push_str(&format!("CREATE INDEX {name} ON {table} {columns};\n"));
            }
            continue;
        }
        if let Some(rest) = line.strip_prefix("CREATE TABLE ") {
            table = rest.split(' ').next().unwrap_or_default();
            sql.push_str("CREATE TABLE ");
            sql.push_str(if is_repeated { "IF NOT EXISTS " } else { "" });
            sql.push_str(rest);
        } else {
            sql.push_str(line);
        }
        sql.push('\n');
        if line.ends_with(';') {
            sql.push_str(&std::mem::take(&mut behind));
        }
    }
    sql.replace("{long}", long).replace("{bytes}", bytes).replace("{options}", options)
}

//! Migration of the tables to this version: forward only, each step once, one node at a time.
//!
//! MySQL keeps the done part of a step that was interrupted, when its node was killed; the next node repeats
//! the step. With the other databases a step is done whole or not at all.

use std::time::Duration;

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::{AssertSqlSafe, Connection as _, MySql, MySqlConnection, Pool, SqlSafeStr};
use tokio::time::{sleep, timeout};

use super::dialect::problem;
use super::{Db, DbPool, STATEMENT_WAIT_MAX, Url};
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

/// Maximum time that one node waits for another that creates the tables.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(60);

/// Differences between the databases.
#[derive(Clone, Copy)]
struct DialectTerms {
    /// The type of long texts.
    long: &'static str,
    /// The type of bytes, at least 64 KiB of them.
    bytes: &'static str,
    /// The text at the end of a table.
    options: &'static str,
    /// A table may exist already, and its indexes are created with it.
    is_repeated: bool,
}

/// Terms of SQLite.
const SQLITE: DialectTerms =
    DialectTerms { long: "TEXT", bytes: "BLOB", options: "", is_repeated: false };

/// Terms of PostgreSQL.
const POSTGRES: DialectTerms = DialectTerms { bytes: "BYTEA", ..SQLITE };

/// Terms of MariaDB and of MySQL. Names and tokens that differ in case, or in spaces at their ends, are
/// not the same, here as elsewhere.
const MARIADB: DialectTerms = DialectTerms {
    long: "MEDIUMTEXT",
    bytes: "BLOB",
    options: "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin",
    is_repeated: true,
};
const MYSQL: DialectTerms = DialectTerms {
    options: "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin",
    ..MARIADB
};

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
                Err(_) if matches!(url, Url::Sqlite(_)) && tries < TRIES_MAX => tries += 1,
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
                steps.map(|(place, step)| migration(place, step, words)).collect(),
            )
        };
        let done = match &self.pool {
            DbPool::Sqlite(pool) => migrator(SQLITE).run(pool).await,
            DbPool::Postgres(pool) => migrator(POSTGRES).run(pool).await,
            DbPool::MySql(pool) => {
                // The library's own lock does not wait on MariaDB, which reads its -1 as no time.
                let mut lock = lock(pool).await?;
                let words = words(&mut lock).await?;
                forget_broken_off(&mut lock).await?;
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
    (name, text): &(&'static str, &'static str),
    words: DialectTerms,
) -> Migration {
    let number = i64::try_from(place + 1).expect("there are few steps");
    let of = |text: String| {
        let text = AssertSqlSafe(text).into_sql_str();
        Migration::new(number, (*name).into(), MigrationType::Simple, text, false)
    };
    let checksum = of((*text).to_owned()).checksum;
    Migration { checksum, ..of(said(text, words)) }
}

/// Returns the text of a step in the terms of a database. An index is created with its table where that may
/// exist already, and else behind it.
fn said(text: &str, words: DialectTerms) -> String {
    let DialectTerms { long, bytes, options, is_repeated } = words;
    let (mut said, mut table, mut behind) = (String::new(), "", String::new());
    for line in text.lines() {
        let index = line.trim().strip_prefix("{index ").and_then(|rest| rest.strip_suffix('}'));
        if let Some((name, columns)) = index.and_then(|index| index.split_once(' ')) {
            if is_repeated {
                said.push_str(&format!(", INDEX {name} {columns}\n"));
            } else {
                behind.push_str(&format!("CREATE INDEX {name} ON {table} {columns};\n"));
            }
            continue;
        }
        if let Some(rest) = line.strip_prefix("CREATE TABLE ") {
            table = rest.split(' ').next().unwrap_or_default();
            said.push_str("CREATE TABLE ");
            said.push_str(if is_repeated { "IF NOT EXISTS " } else { "" });
            said.push_str(rest);
        } else {
            said.push_str(line);
        }
        said.push('\n');
        if line.ends_with(';') {
            said.push_str(&std::mem::take(&mut behind));
        }
    }
    said.replace("{long}", long).replace("{bytes}", bytes).replace("{options}", options)
}

/// Returns the terms of the server, which is MySQL or MariaDB.
async fn words(connection: &mut MySqlConnection) -> Result<DialectTerms, Error> {
    let asked = sqlx::query_scalar("SELECT VERSION()").fetch_one(connection);
    let version: String = timeout(STATEMENT_WAIT_MAX, asked).await??;
    Ok(if version.contains("MariaDB") { MARIADB } else { MYSQL })
}

/// Forgets a step that began and did not end: no other node runs it, since this one has the lock. Its
/// statements can be repeated.
async fn forget_broken_off(connection: &mut MySqlConnection) -> Result<(), Error> {
    let sql = "SELECT COUNT(*) FROM information_schema.tables \
               WHERE table_schema = DATABASE() AND table_name = '_sqlx_migrations'";
    let asked = sqlx::query_scalar(sql).fetch_one(&mut *connection);
    let tables: i64 = timeout(STATEMENT_WAIT_MAX, asked).await??;
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
    let asked = sqlx::query_scalar(sql).bind(wait).fetch_one(&mut connection);
    let has: Option<i64> = timeout(LOCK_WAIT_MAX + STATEMENT_WAIT_MAX, asked).await??;
    if has == Some(1) {
        return Ok(connection);
    }
    Err(Error::Database("tables: another node has been creating them for a minute".to_owned()))
}

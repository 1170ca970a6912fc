//! The one place that knows of databases: three of them, by one text of SQL.
//!
//! Statements are written with `?` for what is bound and use what all three have: whole numbers, texts,
//! no `RETURNING`. What differs is in this folder.

mod address;
mod connection;
mod dialect;
mod migrate;
mod open_file;
#[cfg(test)]
mod tests;
mod url;
mod writes;

use std::time::Duration;

use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{ConnectOptions, MySql, Pool, Postgres, Sqlite};
use tokio::time::timeout;

use crate::error::Error;
pub use address::CatalogAddress;
use connection::Borrowed;
pub(crate) use dialect::{Row, SqlValue};
use open_file::OpenFile;
pub use url::Url;
pub use writes::{catalog_write_failures_total, is_catalog_writable};
use writes::{committed, written};

/// Longest wait for a connection, and for a statement: who changes a rule waits for it, and a database
/// that takes longer is not there.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(3);
const STATEMENT_WAIT_MAX: Duration = Duration::from_secs(10);

/// Longest time that the tables may take: others may be at it, and there may be much in them.
const MIGRATE_WAIT_MAX: Duration = Duration::from_secs(5 * 60);

/// Most connections of the admin API, and as many of what follows the catalog: people change rules, and
/// one of them waits for the others anyway.
const CONNECTIONS_MAX: u32 = 8;

/// A database.
#[derive(Clone, Debug)]
pub(crate) struct Db {
    pool: DbPool,
    /// The file of SQLite.
    file: Option<OpenFile>,
}

/// The connections to a database.
#[derive(Clone, Debug)]
enum DbPool {
    Sqlite(Pool<Sqlite>),
    MySql(Pool<MySql>),
    Postgres(Pool<Postgres>),
}

/// Statements that happen all or not at all: not, if it is dropped.
pub(crate) enum Transaction {
    Sqlite(Borrowed<Sqlite>),
    MySql(Borrowed<MySql>),
    Postgres(Borrowed<Postgres>),
}

/// Does the same with whichever database it is.
macro_rules! each {
    ($type:ident, $of:expr, $inner:ident => $do:expr) => {
        match $of {
            $type::Sqlite($inner) => $do,
            $type::MySql($inner) => $do,
            $type::Postgres($inner) => $do,
        }
    };
}

impl Db {
    /// Connects, and makes the tables what this version knows.
    ///
    /// # Errors
    /// [`Error::Database`] if there is no such database, or it is of a later version.
    pub(crate) async fn open(url: &Url) -> Result<Self, Error> {
        if url.is_missing() {
            let path = url.file().unwrap_or_default();
            return written(Err(Error::Database(url::missing(&path))));
        }
        written(match timeout(MIGRATE_WAIT_MAX, Self::with_tables(url)).await {
            Ok(opened) => opened,
            Err(elapsed) => Err(elapsed.into()),
        })
    }

    /// Connects to what is there, and leaves it as it is.
    ///
    /// # Errors
    /// [`Error::Database`] if there is no such database.
    pub(crate) async fn open_read_only(url: &Url) -> Result<Self, Error> {
        Self::connect(&url.to_look()).await
    }

    /// Connects; the tables are what they are.
    ///
    /// # Errors
    /// [`Error::Database`] if there is no such database.
    pub(crate) async fn connect(url: &Url) -> Result<Self, Error> {
        let pool = Self::pool(url).await?;
        Ok(Self { pool, file: OpenFile::of(url)? })
    }

    async fn pool(url: &Url) -> Result<DbPool, Error> {
        Ok(match url {
            Url::Sqlite(options) => {
                let pool = SqlitePoolOptions::new()
                    .max_connections(CONNECTIONS_MAX)
                    .acquire_timeout(CONNECT_WAIT_MAX);
                let pool = connected(pool.connect_with(options.clone()).await, options).await;
                DbPool::Sqlite(pool.map_err(|error| url::explained(url, error))?)
            }
            Url::MySql(options) => {
                let pool = MySqlPoolOptions::new()
                    .max_connections(CONNECTIONS_MAX)
                    .acquire_timeout(CONNECT_WAIT_MAX);
                DbPool::MySql(connected(pool.connect_with(options.clone()).await, options).await?)
            }
            Url::Postgres(options) => {
                let pool = PgPoolOptions::new()
                    .max_connections(CONNECTIONS_MAX)
                    .acquire_timeout(CONNECT_WAIT_MAX);
                DbPool::Postgres(
                    connected(pool.connect_with(options.clone()).await, options).await?,
                )
            }
        })
    }

    /// Begins a transaction, in which something is changed.
    pub(crate) async fn begin(&self) -> Result<Transaction, Error> {
        written(self.check_file())?;
        written(match &self.pool {
            DbPool::Sqlite(pool) => Borrowed::begin(pool).await.map(Transaction::Sqlite),
            DbPool::MySql(pool) => Borrowed::begin(pool).await.map(Transaction::MySql),
            DbPool::Postgres(pool) => Borrowed::begin(pool).await.map(Transaction::Postgres),
        })
    }

    /// Checks that the file of SQLite is still where it was opened: what is written to one that was moved is lost with it.
    fn check_file(&self) -> Result<(), Error> {
        self.file.as_ref().map_or(Ok(()), OpenFile::check)
    }

    /// The rows that `sql` finds.
    pub(crate) async fn rows(
        &self,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<Vec<Row>, Error> {
        self.check_file()?;
        each!(DbPool, &self.pool, pool => Borrowed::of(pool).await?.rows(sql, values).await)
    }

    /// The one row that `sql` finds, if there is one.
    pub(crate) async fn row(
        &self,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<Option<Row>, Error> {
        Ok(self.rows(sql, values).await?.pop())
    }

    /// Does what `sql` says, on its own; how many rows it met.
    pub(crate) async fn run(
        &self,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<u64, Error> {
        written(self.check_file())?;
        written(each!(DbPool, &self.pool, pool => match Borrowed::of(pool).await {
            Ok(mut borrowed) => borrowed.run(sql, values).await,
            Err(error) => Err(error),
        }))
    }

    /// Ends all connections.
    pub(crate) async fn close(&self) {
        each!(DbPool, &self.pool, pool => pool.close().await);
    }
}

/// The pool, or why there is none: a pool tries again until its time is over, and does not name the reason.
async fn connected<P, O: ConnectOptions<Connection: Sized>>(
    pool: Result<P, sqlx::Error>,
    options: &O,
) -> Result<P, Error> {
    match pool {
        Err(sqlx::Error::PoolTimedOut) => {
            drop(timeout(CONNECT_WAIT_MAX, options.connect()).await??);
            Err(sqlx::Error::PoolTimedOut.into())
        }
        pool => Ok(pool?),
    }
}

impl Transaction {
    /// The rows that `sql` finds.
    pub(crate) async fn rows(
        &mut self,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<Vec<Row>, Error> {
        written(each!(Self, self, inner => inner.rows(sql, values).await))
    }

    /// The one row that `sql` finds, if there is one.
    pub(crate) async fn row(
        &mut self,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<Option<Row>, Error> {
        Ok(self.rows(sql, values).await?.pop())
    }

    /// Does what `sql` says; how many rows it met.
    pub(crate) async fn run(
        &mut self,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<u64, Error> {
        written(each!(Self, self, inner => inner.run(sql, values).await))
    }

    /// Makes it so.
    ///
    /// # Errors
    /// [`Error::Unknown`]: the database did not say whether it did.
    pub(crate) async fn commit(self) -> Result<(), Error> {
        committed(each!(Self, self, inner => inner.commit().await))
    }

    /// Leaves everything as it was.
    pub(crate) async fn roll_back(self) -> Result<(), Error> {
        each!(Self, self, inner => inner.roll_back().await)
    }
}

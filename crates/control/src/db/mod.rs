//! The one module that knows databases: three of them, by one text of SQL.
//!
//! Statements are written with `?` for what is bound and use what all three have: whole numbers, texts,
//! no `RETURNING`. The differences are in this folder. SQLite is in each build, the others are features.

mod address;
mod connection;
mod dialect;
mod migrate;
#[cfg(feature = "mysql")]
mod mysql;
mod open_file;
mod terms;
#[cfg(test)]
mod tests;
mod url;
mod writes;

use std::time::Duration;

#[cfg(feature = "mysql")]
use sqlx::MySql;
#[cfg(feature = "postgres")]
use sqlx::Postgres;
#[cfg(feature = "mysql")]
use sqlx::mysql::MySqlPoolOptions;
#[cfg(feature = "postgres")]
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{ConnectOptions, Pool, Sqlite};
use tokio::time::timeout;

use crate::error::Error;
pub use address::CatalogAddress;
use connection::Borrowed;
pub(crate) use dialect::{Row, SqlValue};
use open_file::OpenFile;
pub use url::Url;
pub use writes::{catalog_write_failures_total, is_catalog_writable};
use writes::{committed, written};

/// Maximum wait for a connection, and for a statement: a person who changes a rule waits for it, and a
/// database that takes longer counts as unavailable.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(3);
const STATEMENT_WAIT_MAX: Duration = Duration::from_secs(10);

/// Maximum time to migrate the tables: another node may be doing it, and they may contain much.
const MIGRATE_WAIT_MAX: Duration = Duration::from_secs(5 * 60);

/// Maximum number of connections of the admin API, and as many of the follower: people change rules, and
/// each change waits for the others anyway.
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
    #[cfg(feature = "mysql")]
    MySql(Pool<MySql>),
    #[cfg(feature = "postgres")]
    Postgres(Pool<Postgres>),
}

/// Statements that are committed together, or rolled back if this is dropped.
pub(crate) enum Transaction {
    Sqlite(Borrowed<Sqlite>),
    #[cfg(feature = "mysql")]
    MySql(Borrowed<MySql>),
    #[cfg(feature = "postgres")]
    Postgres(Borrowed<Postgres>),
}

/// Evaluates the same expression for each kind of database.
macro_rules! each {
    ($type:ident, $of:expr, $inner:ident => $do:expr) => {
        match $of {
            $type::Sqlite($inner) => $do,
            #[cfg(feature = "mysql")]
            $type::MySql($inner) => $do,
            #[cfg(feature = "postgres")]
            $type::Postgres($inner) => $do,
        }
    };
}

impl Db {
    /// Connects, and migrates the tables to this version.
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

    /// Connects to an existing database, which stays as it is.
    ///
    /// # Errors
    /// [`Error::Database`] if there is no such database.
    pub(crate) async fn open_read_only(url: &Url) -> Result<Self, Error> {
        Self::connect(&url.to_look()).await
    }

    /// Connects, without a change to the tables.
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
            #[cfg(feature = "mysql")]
            Url::MySql(options) => {
                let pool = MySqlPoolOptions::new()
                    .max_connections(CONNECTIONS_MAX)
                    .acquire_timeout(CONNECT_WAIT_MAX);
                DbPool::MySql(connected(pool.connect_with(options.clone()).await, options).await?)
            }
            #[cfg(feature = "postgres")]
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
            #[cfg(feature = "mysql")]
            DbPool::MySql(pool) => Borrowed::begin(pool).await.map(Transaction::MySql),
            #[cfg(feature = "postgres")]
            DbPool::Postgres(pool) => Borrowed::begin(pool).await.map(Transaction::Postgres),
        })
    }

    /// Checks that the file of SQLite is still where it was opened: what is written to one that was moved is lost with it.
    fn check_file(&self) -> Result<(), Error> {
        self.file.as_ref().map_or(Ok(()), OpenFile::check)
    }

    /// Returns the rows that `sql` finds.
    pub(crate) async fn rows(
        &self,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<Vec<Row>, Error> {
        self.check_file()?;
        each!(DbPool, &self.pool, pool => Borrowed::of(pool).await?.rows(sql, values).await)
    }

    /// Returns the one row that `sql` finds, if there is one.
    pub(crate) async fn row(
        &self,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<Option<Row>, Error> {
        Ok(self.rows(sql, values).await?.pop())
    }

    /// Runs `sql` on its own; returns the number of rows that it changed.
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

/// Returns the pool, or the reason for the failure: a pool tries until its time is over, and does not name it.
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
    /// Returns the rows that `sql` finds.
    pub(crate) async fn rows(
        &mut self,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<Vec<Row>, Error> {
        written(each!(Self, self, inner => inner.rows(sql, values).await))
    }

    /// Returns the one row that `sql` finds, if there is one.
    pub(crate) async fn row(
        &mut self,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<Option<Row>, Error> {
        Ok(self.rows(sql, values).await?.pop())
    }

    /// Runs `sql`; returns the number of rows that it changed.
    pub(crate) async fn run(
        &mut self,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<u64, Error> {
        written(each!(Self, self, inner => inner.run(sql, values).await))
    }

    /// Commits the transaction.
    ///
    /// # Errors
    /// [`Error::Database`] if it is not committed, [`Error::Unknown`] if it may be.
    pub(crate) async fn commit(self) -> Result<(), Error> {
        committed(each!(Self, self, inner => inner.commit().await))
    }

    /// Rolls the transaction back.
    pub(crate) async fn roll_back(self) -> Result<(), Error> {
        each!(Self, self, inner => inner.roll_back().await)
    }
}

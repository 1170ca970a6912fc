//! A connection that is borrowed from the pool, and the conditions for its return.
//!
//! The pool lends a connection again as it was returned. One that is still inside a transaction refuses the
//! next `BEGIN` (SQLite), or takes later statements into a transaction that nothing commits (PostgreSQL,
//! MySQL). So one rule holds for all databases: a connection goes back when its last statement was answered
//! and no transaction is open. Every other connection is closed, whatever the reason: a full disk, a killed
//! server, a timeout, a request that was dropped between two statements.
//!
//! `BEGIN`, `COMMIT` and `ROLLBACK` are plain statements here. The library counts the depth of transactions
//! itself and keeps its count when `ROLLBACK` fails, as it does where the database has ended the transaction
//! by itself: SQLite does so when the disk is full.

use std::mem;

use sqlx::Pool;
use sqlx::error::DatabaseError;
use sqlx::pool::PoolConnection;
use tokio::time::timeout;

use super::dialect::Dialect;
use super::{Row, STATEMENT_WAIT_MAX, SqlValue};
use crate::error::Error;

/// A connection of a pool. It returns to the pool when it is dropped, if it is as it was before.
pub(crate) struct Borrowed<D: Dialect> {
    /// The connection; none only while it is dropped.
    connection: Option<PoolConnection<D>>,
    state: State,
}

/// SQLite's code of a full disk.
const SQLITE_FULL: &str = "13";

/// The state of a borrowed connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No transaction is open, and no statement is under way.
    Idle,
    /// A transaction is open, and all its statements were answered well.
    InTransaction,
    /// A statement is under way, was never answered, or failed.
    Uncertain,
}

impl<D: Dialect> Borrowed<D> {
    /// Takes a connection of `pool`, with no transaction open.
    ///
    /// # Errors
    /// [`Error::Database`] if there is none in time.
    pub(super) async fn of(pool: &Pool<D>) -> Result<Self, Error> {
        Ok(Self { connection: Some(pool.acquire().await?), state: State::Idle })
    }

    /// Takes a connection of `pool`, and begins a transaction. SQLite has one writer at a time, and waits for it
    /// here: later the statement would be refused.
    pub(super) async fn begin(pool: &Pool<D>) -> Result<Self, Error> {
        let mut borrowed = Self::of(pool).await?;
        borrowed.control(D::BEGIN, State::InTransaction).await?;
        Ok(borrowed)
    }

    /// Returns the rows that `sql` finds.
    pub(super) async fn rows(
        &mut self,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<Vec<Row>, Error> {
        let before = self.take_state()?;
        let found = D::rows(self.connection(), sql, values).await;
        self.restore_state(before, found)
    }

    /// Runs `sql`; returns the number of rows that it changed.
    pub(super) async fn run(
        &mut self,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<u64, Error> {
        let before = self.take_state()?;
        let done = D::run(self.connection(), sql, values).await;
        self.restore_state(before, done)
    }

    /// Commits the transaction.
    ///
    /// # Errors
    /// [`Error::Database`] if it is not committed, [`Error::Unknown`] if it may be.
    pub(super) async fn commit(mut self) -> Result<(), Error> {
        self.take_state()?;
        match timeout(STATEMENT_WAIT_MAX, D::control(self.connection(), "COMMIT")).await {
            Ok(Ok(())) => {
                self.state = State::Idle;
                Ok(())
            }
            Ok(Err(error)) if is_full(&error) => Err(error.into()),
            Ok(Err(error)) => Err(Error::Unknown(error.to_string())),
            Err(elapsed) => Err(Error::Unknown(Error::from(elapsed).to_string())),
        }
    }

    /// Rolls the transaction back.
    pub(super) async fn roll_back(mut self) -> Result<(), Error> {
        self.control("ROLLBACK", State::Idle).await
    }

    /// Runs a statement about transactions, behind which the connection is in the state `after`.
    async fn control(&mut self, sql: &'static str, after: State) -> Result<(), Error> {
        self.state = State::Uncertain;
        timeout(STATEMENT_WAIT_MAX, D::control(self.connection(), sql)).await??;
        self.state = after;
        Ok(())
    }

    /// Returns the state, and makes it uncertain until a statement was answered.
    ///
    /// # Errors
    /// [`Error::Database`] behind a statement that failed: some databases have ended the transaction by then,
    /// and the next statement would stand alone; PostgreSQL answers its `COMMIT` well and keeps nothing.
    fn take_state(&mut self) -> Result<State, Error> {
        match mem::replace(&mut self.state, State::Uncertain) {
            State::Uncertain => {
                Err(Error::Database("a statement of this transaction failed before".to_owned()))
            }
            state => Ok(state),
        }
    }

    fn restore_state<T>(&mut self, before: State, done: Result<T, Error>) -> Result<T, Error> {
        let is_whole = match (&done, before) {
            (Ok(_), _) => true,
            // A statement of its own that broke a unique key has changed nothing.
            (Err(Error::Taken), State::Idle) => true,
            (Err(_), _) => false,
        };
        if is_whole {
            self.state = before;
        }
        done
    }

    fn connection(&mut self) -> &mut D::Connection {
        self.connection.as_mut().expect("it is taken when this is dropped")
    }
}

/// Returns whether SQLite found the disk full: then nothing is committed. Codes of the other databases are longer.
fn is_full(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(DatabaseError::code).is_some_and(|code| code == SQLITE_FULL)
}

impl<D: Dialect> Drop for Borrowed<D> {
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        match self.state {
            State::Idle => {}
            State::Uncertain => connection.close_on_drop(),
            // A refused change is nothing special, and a new connection may cost a handshake.
            State::InTransaction => {
                let connection = Some(connection);
                let mut left = Self { connection, state: State::Uncertain };
                tokio::spawn(async move { left.control("ROLLBACK", State::Idle).await });
            }
        }
    }
}

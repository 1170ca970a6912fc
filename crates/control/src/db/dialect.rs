//! Values that are bound to statements, and rows that they find, for each of the databases.

use sqlx::error::ErrorKind;
#[cfg(feature = "mysql")]
use sqlx::mysql::{MySql, MySqlArguments, MySqlDatabaseError, MySqlRow};
#[cfg(feature = "postgres")]
use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{
    Arguments, Database, Executor, IntoArguments, Row as _, SqlSafeStr, SqlStr, Sqlite, raw_sql,
};
use tokio::time::timeout;

use super::STATEMENT_WAIT_MAX;
use crate::error::Error;

/// A value that is bound to a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SqlValue<'v> {
    Int(i64),
    Text(&'v str),
    Bytes(&'v [u8]),
    NoInt,
    NoText,
}

/// A row that was found, with its columns by position.
pub(crate) enum Row {
    Sqlite(SqliteRow),
    #[cfg(feature = "mysql")]
    MySql(MySqlRow),
    #[cfg(feature = "postgres")]
    Postgres(PgRow),
}

/// A type of columns in all of the databases.
pub(crate) trait Column: Sized {
    /// Returns the column at `place` of `row`, counted from 0.
    fn of(row: &Row, place: usize) -> Result<Self, sqlx::Error>;
}

/// Implements [`Column`] for each type.
macro_rules! columns {
    ($($type:ty),+) => {
        $(impl Column for $type {
            fn of(row: &Row, place: usize) -> Result<Self, sqlx::Error> {
                match row {
                    Row::Sqlite(row) => row.try_get(place),
                    #[cfg(feature = "mysql")]
                    Row::MySql(row) => row.try_get(place),
                    #[cfg(feature = "postgres")]
                    Row::Postgres(row) => row.try_get(place),
                }
            }
        })+
    };
}

columns!(i64, String, Vec<u8>, Option<i64>, Option<String>);

/// A database, with its differences from the others.
pub(crate) trait Dialect: Database {
    /// Begins a transaction in which something is changed.
    const BEGIN: &'static str;

    fn row(row: Self::Row) -> Row;
    fn sql(sql: &'static str) -> SqlStr;
    fn met(done: &Self::QueryResult) -> u64;
    fn bind(values: &[SqlValue<'_>]) -> Result<Self::Arguments, Error>;

    /// Runs a statement about transactions.
    fn control(
        connection: &mut Self::Connection,
        sql: &'static str,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Returns the rows that `sql` finds.
    fn rows(
        connection: &mut Self::Connection,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> impl Future<Output = Result<Vec<Row>, Error>> + Send;

    /// Runs `sql`; returns the number of rows that it changed.
    fn run(
        connection: &mut Self::Connection,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> impl Future<Output = Result<u64, Error>> + Send;
}

/// Implements [`Dialect`] for a database: the code is the same for each of them, the types are not.
macro_rules! dialect {
    ($db:ident, $arguments:ty, $begin:literal, $sql:expr) => {
        impl Dialect for $db {
            const BEGIN: &'static str = $begin;

            fn row(row: Self::Row) -> Row {
                Row::$db(row)
            }

            fn sql(sql: &'static str) -> SqlStr {
                $sql(sql)
            }

            fn met(done: &Self::QueryResult) -> u64 {
                done.rows_affected()
            }

            fn bind(values: &[SqlValue<'_>]) -> Result<$arguments, Error> {
                let mut arguments = <$arguments>::default();
                for value in values {
                    let bound = match value {
                        SqlValue::Int(int) => arguments.add(*int),
                        SqlValue::Text(text) => arguments.add((*text).to_owned()),
                        SqlValue::Bytes(bytes) => arguments.add(bytes.to_vec()),
                        SqlValue::NoInt => arguments.add(None::<i64>),
                        SqlValue::NoText => arguments.add(None::<String>),
                    };
                    bound.map_err(|error| Error::Database(error.to_string()))?;
                }
                Ok(arguments)
            }

            async fn control(
                connection: &mut Self::Connection,
                sql: &'static str,
            ) -> Result<(), sqlx::Error> {
                raw_sql(sql).execute(connection).await.map(drop)
            }

            async fn rows(
                connection: &mut Self::Connection,
                sql: &'static str,
                values: &[SqlValue<'_>],
            ) -> Result<Vec<Row>, Error> {
                rows(connection, sql, values).await
            }

            async fn run(
                connection: &mut Self::Connection,
                sql: &'static str,
                values: &[SqlValue<'_>],
            ) -> Result<u64, Error> {
                run(connection, sql, values).await
            }
        }
    };
}

dialect!(Sqlite, SqliteArguments, "BEGIN IMMEDIATE", SqlSafeStr::into_sql_str);
#[cfg(feature = "mysql")]
dialect!(MySql, MySqlArguments, "BEGIN", SqlSafeStr::into_sql_str);
#[cfg(feature = "postgres")]
dialect!(Postgres, PgArguments, "BEGIN", numbered);

/// Returns `sql` with numbered placeholders, as PostgreSQL needs them. No statement of ours has a `?` in a text.
#[cfg(feature = "postgres")]
fn numbered(sql: &'static str) -> SqlStr {
    let mut parts = sql.split('?');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for (place, part) in parts.enumerate() {
        text.push_str(&format!("${}", place + 1));
        text.push_str(part);
    }
    sqlx::AssertSqlSafe(text).into_sql_str()
}

async fn rows<'e, D>(
    executor: impl Executor<'e, Database = D>,
    sql: &'static str,
    values: &[SqlValue<'_>],
) -> Result<Vec<Row>, Error>
where
    D: Dialect,
    D::Arguments: IntoArguments<D>,
{
    // PostgreSQL cannot store such texts, and does not accept them as values.
    if values.iter().any(|value| matches!(value, SqlValue::Text(text) if text.contains('\0'))) {
        return Ok(Vec::new());
    }
    let query = sqlx::query_with(D::sql(sql), D::bind(values)?);
    let found = timeout(STATEMENT_WAIT_MAX, query.fetch_all(executor)).await??;
    Ok(found.into_iter().map(D::row).collect())
}

async fn run<'e, D>(
    executor: impl Executor<'e, Database = D>,
    sql: &'static str,
    values: &[SqlValue<'_>],
) -> Result<u64, Error>
where
    D: Dialect,
    D::Arguments: IntoArguments<D>,
{
    let query = sqlx::query_with(D::sql(sql), D::bind(values)?);
    let done = timeout(STATEMENT_WAIT_MAX, query.execute(executor)).await??;
    Ok(D::met(&done))
}

impl Row {
    /// Returns the column at `place`, counted from 0.
    pub(crate) fn get<T: Column>(&self, place: usize) -> Result<T, Error> {
        Ok(T::of(self, place)?)
    }

    /// Returns the column at `place` as a truth value.
    pub(crate) fn is(&self, place: usize) -> Result<bool, Error> {
        Ok(self.get::<i64>(place)? != 0)
    }
}

impl From<i64> for SqlValue<'_> {
    fn from(int: i64) -> Self {
        Self::Int(int)
    }
}

impl From<bool> for SqlValue<'_> {
    fn from(is: bool) -> Self {
        Self::Int(is.into())
    }
}

impl<'v> From<&'v str> for SqlValue<'v> {
    fn from(text: &'v str) -> Self {
        Self::Text(text)
    }
}

impl<'v> From<&'v String> for SqlValue<'v> {
    fn from(text: &'v String) -> Self {
        Self::Text(text)
    }
}

impl From<Option<i64>> for SqlValue<'_> {
    fn from(int: Option<i64>) -> Self {
        int.map_or(Self::NoInt, Self::Int)
    }
}

impl<'v> From<Option<&'v str>> for SqlValue<'v> {
    fn from(text: Option<&'v str>) -> Self {
        text.map_or(Self::NoText, Self::Text)
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        let kind = error.as_database_error().map(sqlx::error::DatabaseError::kind);
        match (kind, &error) {
            (Some(ErrorKind::UniqueViolation), _) => Self::Taken,
            // A column has a value of another type than was written.
            (_, sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_)) => {
                Self::Damaged(error.to_string())
            }
            _ => Self::Database(problem(&error)),
        }
    }
}

/// Returns the message of a database, with advice where a remedy is known. Its codes add nothing to the message,
/// and PostgreSQL names lines of its own source.
pub(super) fn problem(error: &sqlx::Error) -> String {
    let Some(known) = error.as_database_error() else { return error.to_string() };
    let code = number(known).unwrap_or_else(|| known.code().unwrap_or_default().into_owned());
    let advice = match &*code {
        "42501" => {
            "; give the user the rights: `GRANT ALL ON SCHEMA public TO USER`, or make it the owner of the database"
        }
        "3D000" | "1049" => "; create it: `CREATE DATABASE NAME`",
        "1044" | "1142" | "1227" => "; give the user the rights: `GRANT ALL ON DATABASE.* TO USER`",
        "28P01" | "28000" | "1045" => {
            "; expected the user and the password of the database in the URL"
        }
        _ => "",
    };
    format!("{}{advice}", known.message())
}

/// The number of an error of MySQL, whose code is that of a whole class.
#[cfg(feature = "mysql")]
fn number(known: &dyn sqlx::error::DatabaseError) -> Option<String> {
    known.try_downcast_ref::<MySqlDatabaseError>().map(|error| error.number().to_string())
}

/// None, as no error is MySQL's.
#[cfg(not(feature = "mysql"))]
fn number(_: &dyn sqlx::error::DatabaseError) -> Option<String> {
    None
}

impl From<tokio::time::error::Elapsed> for Error {
    fn from(_: tokio::time::error::Elapsed) -> Self {
        Self::Database(format!("no answer within {} s", STATEMENT_WAIT_MAX.as_secs()))
    }
}

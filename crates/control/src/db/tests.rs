//! A connection never returns to the pool inside a transaction, on each of the databases.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use sluicegate_testkit::{SqlKind, SqlServer, need};
use tempfile::TempDir;
use tokio::task::{JoinSet, yield_now};

use super::*;
use crate::Catalog;

/// Number of changes that use each connection of the pool at least once.
const CHANGES: i64 = 4 * CONNECTIONS_MAX as i64;

const CHANGE: &str = "UPDATE head SET revision = revision + 1 WHERE id = 1";

const MARK: &str = "UPDATE head SET audit_seq = ? WHERE id = 1";

/// A database with the tables of a catalog.
struct Stage {
    db: Db,
    /// Another pool of the same database, which sees what is committed only.
    beside: Db,
    _folder: TempDir,
}

async fn stage(kind: Option<SqlKind>) -> Result<Stage, sluicegate_testkit::Error> {
    let folder = TempDir::new()?;
    let url = match kind {
        None => format!("sqlite:{}", folder.path().join("catalog.db").display()),
        Some(kind) => SqlServer::shared(kind).await?.database()?,
    };
    let url: Url = url.parse().expect("it is a URL");
    let catalog = Catalog::open(&url).await.expect("the tables can be made");
    let beside = Db::connect(&url).await.expect("it is there");
    Ok(Stage { db: catalog.db.clone(), beside, _folder: folder })
}

impl Stage {
    /// Asserts that every connection takes changes, in transactions and alone, and keeps none of them back.
    async fn assert_whole(&self) {
        let before = self.revision().await;
        let mut changes = JoinSet::new();
        for number in 0..CHANGES {
            let db = self.db.clone();
            changes.spawn(async move {
                if number % 2 == 0 {
                    return db.run(CHANGE, &[]).await.map(drop);
                }
                let mut rows = db.begin().await?;
                rows.run(CHANGE, &[]).await?;
                rows.commit().await
            });
        }
        for done in changes.join_all().await {
            done.expect("the database takes changes");
        }
        assert_eq!(self.revision().await, before + CHANGES);
    }

    async fn revision(&self) -> i64 {
        let head = self.beside.row("SELECT revision FROM head WHERE id = 1", &[]).await.unwrap();
        head.unwrap().get(0).unwrap()
    }
}

/// Ends each connection's transaction with `sql`, which the code that began it does not notice.
async fn end_behind(stage: &Stage, sql: &'static str) {
    let mut open = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        // SQLite has one writer at a time.
        if matches!(stage.db.pool, DbPool::Sqlite(_)) {
            open.clear();
        }
        let mut rows = stage.db.begin().await.unwrap();
        // A killed connection may answer before it ends.
        rows.run(sql, &[]).await.ok();
        open.push(rows);
    }
    drop(open);
    stage.assert_whole().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_sqlite_ends_by_itself_leaves_no_connection_behind() {
    // SQLite does this when the disk is full.
    end_behind(&need!(stage(None).await), "ROLLBACK").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_a_server_ends_by_itself_leaves_no_connection_behind() {
    end_behind(&need!(stage(Some(SqlKind::Postgres)).await), "ROLLBACK").await;
    end_behind(&need!(stage(Some(SqlKind::MariaDb)).await), "ROLLBACK").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_killed_in_a_transaction_is_replaced() {
    let kill = "SELECT pg_terminate_backend(pg_backend_pid())";
    end_behind(&need!(stage(Some(SqlKind::Postgres)).await), kill).await;
    let kill = "KILL CONNECTION_ID()";
    end_behind(&need!(stage(Some(SqlKind::MariaDb)).await), kill).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_fails_or_is_dropped_changes_nothing_and_holds_nothing() {
    for kind in [None, Some(SqlKind::Postgres), Some(SqlKind::MariaDb)] {
        let stage = need!(stage(kind).await);
        let before = stage.revision().await;
        for _ in 0..3 * CONNECTIONS_MAX {
            let mut rows = stage.db.begin().await.unwrap();
            rows.run(CHANGE, &[]).await.unwrap();
            drop(rows);
            let mut rows = stage.db.begin().await.unwrap();
            rows.run(CHANGE, &[]).await.unwrap();
            rows.run("UPDATE no_such_table SET x = 1", &[]).await.unwrap_err();
            // PostgreSQL would answer the commit well, and keep nothing.
            rows.commit().await.unwrap_err();
        }
        assert_eq!(stage.revision().await, before);
        stage.assert_whole().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_is_cut_off_at_any_moment_leaves_no_transaction_open() {
    for kind in [None, Some(SqlKind::Postgres), Some(SqlKind::MariaDb)] {
        let stage = need!(stage(kind).await);
        for polls in 0..300 {
            let change = async {
                let mut rows = stage.db.begin().await?;
                rows.run(CHANGE, &[]).await?;
                rows.commit().await
            };
            cut_off(change, polls * 4).await;
            // A connection that is still inside a transaction would keep this to itself.
            stage.db.run(MARK, &[i64::try_from(polls).unwrap().into()]).await.unwrap();
            let head = stage.beside.row("SELECT audit_seq FROM head WHERE id = 1", &[]).await;
            let mark: i64 = head.unwrap().unwrap().get(0).unwrap();
            assert_eq!(usize::try_from(mark), Ok(polls), "{kind:?}");
        }
        stage.assert_whole().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_that_wait_for_a_lock_and_are_cut_off_take_no_connection_with_them() {
    for kind in [SqlKind::Postgres, SqlKind::MariaDb] {
        let stage = need!(stage(Some(kind)).await);
        let mut holder = stage.beside.begin().await.unwrap();
        holder.run(CHANGE, &[]).await.unwrap();
        for _ in 0..CONNECTIONS_MAX / 2 {
            let mut rows = stage.db.begin().await.unwrap();
            timeout(Duration::from_millis(20), rows.run(CHANGE, &[])).await.unwrap_err();
        }
        holder.commit().await.unwrap();
        stage.assert_whole().await;
    }
}

/// Polls `future` at most this many times, and drops it.
async fn cut_off<F: Future>(future: F, polls: usize) {
    let mut future = pin!(future);
    for _ in 0..polls {
        let step = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready()));
        if step.await {
            return;
        }
        yield_now().await;
    }
}

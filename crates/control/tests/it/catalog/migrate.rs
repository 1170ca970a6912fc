//! Tables that are made by a node which is killed, or does not wait.

use std::time::Duration;

use sluicegate_control::node::{CatalogCopy, Follower};
use sluicegate_control::{Catalog, Error, Url};
use sluicegate_testkit::{SqlKind, SqlServer, need, until};
use sqlx::{ConnectOptions as _, Executor as _};

use crate::catalog::stage::by;

/// Statements that remove the tables behind the first, the last one first.
const TABLES: [&str; 14] = [
    "DROP TABLE node_reports",
    "DROP TABLE traffic",
    "DROP TABLE backfills",
    "DROP TABLE policy_apps",
    "DROP TABLE audit",
    "DROP TABLE nodes",
    "DROP TABLE answers",
    "DROP TABLE sessions",
    "DROP TABLE tokens",
    "DROP TABLE policy_versions",
    "DROP TABLE policies",
    "DROP TABLE members",
    "DROP TABLE apps",
    "DROP TABLE accounts",
];

#[tokio::test]
async fn tables_that_were_made_in_part_are_made_whole() {
    let server = need!(SqlServer::shared(SqlKind::MariaDb).await);
    for count in [0, 1, 2, 3, 4, 5, 9, 13, 14, 15] {
        let url: Url = server.database().unwrap().parse().unwrap();
        Catalog::open(&url).await.unwrap();
        let Url::MySql(options) = &url else { panic!("it is MariaDB") };
        let mut connection = options.connect().await.unwrap();
        // The state after a node was killed that had created some of them.
        connection.execute("UPDATE _sqlx_migrations SET success = FALSE").await.unwrap();
        for drop in TABLES.iter().take(count) {
            connection.execute(*drop).await.unwrap();
        }
        if count > TABLES.len() {
            connection.execute("DELETE FROM head").await.unwrap();
        }
        let catalog = Catalog::open(&url).await.unwrap_or_else(|error| panic!("{count}: {error}"));
        catalog.create_app(&by(), "shop", "", &[]).await.unwrap();
        assert_eq!(catalog.verify_audit().await.unwrap().entries, 1);
        assert!(Catalog::open(&url).await.is_ok(), "and nothing is left to make");
    }
}

#[tokio::test]
async fn who_does_not_wait_for_the_tables_does_not_break_them_off() {
    let server = need!(SqlServer::shared(SqlKind::MariaDb).await);
    for wait in [1, 5, 20, 40] {
        let url: Url = server.database().unwrap().parse().unwrap();
        let mut follower = Follower::new(url.clone(), CatalogCopy::new("none".into(), &url));
        let looked = tokio::time::timeout(Duration::from_millis(wait), follower.poll(1)).await;
        if looked.is_err() {
            // It had not begun, or goes on by itself.
            let Url::MySql(options) = &url else { panic!("it is MariaDB") };
            let mut connection = options.connect().await.unwrap();
            let begun = connection.execute("SELECT version FROM _sqlx_migrations").await.is_ok();
            let is_there = async || Catalog::open_read_only(&url).await.ok();
            if begun {
                until("the tables were made", Duration::from_secs(30), is_there).await.unwrap();
            }
        }
        Catalog::open(&url).await.unwrap();
    }
}

#[tokio::test]
async fn names_that_end_with_a_space_are_others() {
    let server = need!(SqlServer::shared(SqlKind::MariaDb).await);
    let url: Url = server.database().unwrap().parse().unwrap();
    let catalog = Catalog::open(&url).await.unwrap();
    catalog.create_app(&by(), "shop", "", &[]).await.unwrap();
    for name in ["shop ", "Shop", " shop", "shop\t"] {
        let found = catalog.app(name).await;
        assert!(matches!(found, Err(Error::NotFound("app"))), "{name:?}: {found:?}");
    }
}

//! Rows that are read from the table of another rate limiter.

use sluicegate_control::{Error, Url, read_limiter_info};
use sluicegate_import::limiter_info::LimiterInfo;
use sluicegate_testkit::{SqlKind, SqlServer, need};
use sqlx::{ConnectOptions as _, Executor as _};

/// A database with what these statements make.
async fn database(server: &SqlServer, statements: &[&'static str]) -> Url {
    let url: Url = server.database().unwrap().parse().unwrap();
    let Url::MySql(options) = &url else { panic!("it is MariaDB") };
    let mut connection = options.connect().await.unwrap();
    for statement in statements {
        connection.execute(*statement).await.unwrap();
    }
    url
}

#[tokio::test]
async fn rows_are_read_whatever_the_types_of_the_columns() {
    let server = need!(SqlServer::shared(SqlKind::MariaDb).await);
    for columns in [
        "CREATE TABLE rate_limiter_info (id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(64), \
         apps TEXT, max_permits INT, rate INT, created_by VARCHAR(32), updated_by VARCHAR(32)) \
         DEFAULT CHARSET utf8mb4",
        "CREATE TABLE rate_limiter_info (name VARCHAR(64) PRIMARY KEY, apps VARCHAR(255), \
         max_permits VARCHAR(20), rate VARCHAR(20), created_by TEXT, updated_by TEXT, remark TEXT) \
         DEFAULT CHARSET gbk",
    ] {
        let rows = "INSERT INTO rate_limiter_info \
                    (name, apps, max_permits, rate, created_by, updated_by) VALUES \
                    ('pay', 'shop,bank', 20, 5, '张三', NULL), ('login', NULL, NULL, 1, '', 'bob')";
        let url = database(server, &[columns, rows]).await;
        let text = |text: &str| Some(text.to_owned());
        let login = LimiterInfo {
            name: text("login"),
            rate: text("1"),
            created_by: text(""),
            updated_by: text("bob"),
            ..LimiterInfo::default()
        };
        let pay = LimiterInfo {
            name: text("pay"),
            apps: text("shop,bank"),
            max_permits: text("20"),
            rate: text("5"),
            created_by: text("张三"),
            updated_by: None,
        };
        assert_eq!(read_limiter_info(&url).await.unwrap(), [login, pay]);
    }
}

#[tokio::test]
async fn a_rate_with_decimals_keeps_them() {
    let server = need!(SqlServer::shared(SqlKind::MariaDb).await);
    for (table, expected) in [
        (
            "CREATE TABLE rate_limiter_info (name TEXT, apps TEXT, max_permits DOUBLE, \
             rate DOUBLE, created_by TEXT, updated_by TEXT)",
            ("20", "0.5"),
        ),
        (
            "CREATE TABLE rate_limiter_info (name TEXT, apps TEXT, max_permits DECIMAL(10, 2), \
             rate DECIMAL(10, 2), created_by TEXT, updated_by TEXT)",
            ("20.00", "0.50"),
        ),
    ] {
        let row = "INSERT INTO rate_limiter_info VALUES ('a', 'b', 20, 0.5, '', '')";
        let rows = read_limiter_info(&database(server, &[table, row]).await).await.unwrap();
        let read = (rows[0].max_permits.as_deref(), rows[0].rate.as_deref());
        assert_eq!(read, (Some(expected.0), Some(expected.1)), "{table}");
    }
}

#[tokio::test]
async fn what_is_no_such_table_is_told() {
    let server = need!(SqlServer::shared(SqlKind::MariaDb).await);
    let url = database(server, &[]).await;
    let told = read_limiter_info(&url).await.unwrap_err().to_string();
    assert!(told.contains("rate_limiter_info"), "{told}");
    let other: Url = "sqlite:none.db".parse().unwrap();
    assert!(matches!(read_limiter_info(&other).await, Err(Error::Database(_))));
}

//! The table `policy_apps`, which has the apps that each policy names in its `apps`.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value as Json;

use super::change::LOCK_HEAD;
use super::name;
use crate::db::{Db, Transaction};
use crate::error::Error;

/// Maximum number of documents in memory while the table is filled: with the longest documents, a few
/// MiB.
const FILL_STEP_MAX: i64 = 100;

/// Returns the first policy that names `app` in its `apps`, if there is one.
pub(super) async fn policy_naming(
    rows: &mut Transaction,
    app: &str,
) -> Result<Option<String>, Error> {
    let sql = "SELECT policy FROM policy_apps WHERE app = ? ORDER BY policy LIMIT 1";
    rows.row(sql, &[app.into()]).await?.map(|row| row.get(0)).transpose()
}

/// Sets the apps of a policy in the table.
pub(super) async fn write_apps(
    rows: &mut Transaction,
    policy: &str,
    apps: &BTreeSet<String>,
) -> Result<(), Error> {
    let sql = "SELECT app FROM policy_apps WHERE policy = ?";
    let before = rows.rows(sql, &[policy.into()]).await?;
    let before: BTreeSet<String> = before.iter().map(|row| row.get(0)).collect::<Result<_, _>>()?;
    // Only differences: most changes leave the apps of a policy as they are.
    for app in before.difference(apps) {
        let sql = "DELETE FROM policy_apps WHERE policy = ? AND app = ?";
        rows.run(sql, &[policy.into(), app.into()]).await?;
    }
    for app in apps.difference(&before) {
        let sql = "INSERT INTO policy_apps (policy, app) VALUES (?, ?)";
        rows.run(sql, &[policy.into(), app.into()]).await?;
    }
    Ok(())
}

/// Fills the table in a catalog that is older than the table: all of it or nothing, by one node.
pub(super) async fn fill_policy_apps(db: &Db) -> Result<(), Error> {
    let sql = "SELECT name FROM backfills WHERE name = 'policy_apps'";
    if db.row(sql, &[]).await?.is_none() {
        return Ok(());
    }
    let mut rows = db.begin().await?;
    rows.run(LOCK_HEAD, &[]).await?;
    let sql = "DELETE FROM backfills WHERE name = 'policy_apps'";
    if rows.run(sql, &[]).await? == 0 {
        // Another node has filled it meanwhile.
        return Ok(());
    }
    let sql = "SELECT name, document FROM policies \
               WHERE state <> 'deleted' AND name > ? ORDER BY name LIMIT ?";
    let mut after = String::new();
    loop {
        let found = rows.rows(sql, &[(&after).into(), FILL_STEP_MAX.into()]).await?;
        if found.is_empty() {
            return rows.commit().await;
        }
        for row in &found {
            after = row.get(0)?;
            // A document that cannot be read names no app.
            let document = serde_json::from_str(&row.get::<String>(1)?).unwrap_or_default();
            let apps = named_apps(&document);
            if !apps.is_empty() {
                write_apps(&mut rows, &after, &apps).await?;
            }
        }
    }
}

/// Returns the apps that a document names, without `*` and other texts that cannot be the name of an app.
pub(super) fn named_apps(document: &Json) -> BTreeSet<String> {
    let DocumentApps { apps } = DocumentApps::deserialize(document).unwrap_or_default();
    apps.into_iter().filter(|app| name(app, "").is_ok()).collect()
}

/// The apps that may use a policy, in its document.
#[derive(Default, Deserialize)]
#[serde(default)]
struct DocumentApps {
    apps: Vec<String>,
}

#[cfg(test)]
mod tests {
    use sluicegate_testkit::{SqlKind, SqlServer, need};

    use super::*;
    use crate::db::Url;
    use crate::{Catalog, ChangeContext};

    /// Number of policies that name `bank` in an old catalog: more than are read at once.
    const NAMING_BANK: i64 = 2 * FILL_STEP_MAX + 2;

    /// Creates a catalog with the tables of the first version, and these policies.
    async fn old_catalog(url: &Url, policies: &[(&str, &str, &str)]) {
        url.create().unwrap();
        let db = Db::connect(url).await.unwrap();
        db.migrate_to(1).await.unwrap();
        for app in ["shop", "bank", "farm", "mill"] {
            let sql = "INSERT INTO apps (name, description, version, created_at) \
                       VALUES (?, '', 1, 0)";
            db.run(sql, &[app.into()]).await.unwrap();
        }
        let mut rows = db.begin().await.unwrap();
        for (name, state, document) in policies {
            let sql = "INSERT INTO policies (name, app, state, version, revision, document, \
                       created_at, created_by, updated_at, updated_by) \
                       VALUES (?, 'shop', ?, 1, 1, ?, 0, 'operator', 0, 'operator')";
            let values = [(*name).into(), (*state).into(), (*document).into()];
            rows.run(sql, &values).await.unwrap();
        }
        rows.commit().await.unwrap();
        db.close().await;
    }

    /// Creates an old catalog, in which many policies name `bank` and none names `farm` or `mill`.
    async fn old_catalog_naming_bank(url: &Url) {
        let names: Vec<_> = (2..NAMING_BANK).map(|place| format!("p{place}")).collect();
        let mut policies = vec![
            ("orders", "active", r#"{"apps":["shop","bank"],"name":"orders"}"#),
            ("every", "shadow", r#"{"apps":["*","bank","bank"],"name":"every"}"#),
            ("gone", "deleted", r#"{"apps":["farm"],"name":"gone"}"#),
            ("odd", "active", r#"{"apps":["farm",1],"name":"odd"}"#),
            ("cut", "active", r#"{"apps":["farm""#),
            ("said", "active", r#"{"description":"\"apps\":[\"mill\"]","name":"said"}"#),
        ];
        policies.extend(names.iter().map(|name| (name.as_str(), "active", r#"{"apps":["bank"]}"#)));
        old_catalog(url, &policies).await;
    }

    async fn apps_in_the_table(catalog: &Catalog) -> i64 {
        let sql = "SELECT COUNT(*) FROM policy_apps";
        catalog.db.row(sql, &[]).await.unwrap().unwrap().get(0).unwrap()
    }

    async fn policies_of_an_old_catalog_are_found_by_app(url: &Url) {
        old_catalog_naming_bank(url).await;
        let catalog = Catalog::open(url).await.unwrap();
        let by = ChangeContext::operator("because", 1);
        let named = catalog.delete_app(&by, "bank", 1).await;
        let Err(Error::Conflict(problem)) = named else { panic!("{named:?}") };
        assert_eq!(problem.text(), "the policy `every` lists the app in `apps`");
        for app in ["farm", "mill"] {
            catalog.delete_app(&by, app, 1).await.unwrap_or_else(|error| panic!("{app}: {error}"));
        }
        // `orders` names two.
        assert_eq!(apps_in_the_table(&catalog).await, NAMING_BANK + 1);
    }

    async fn an_old_catalog_that_nodes_open_at_once_is_filled_once(url: &Url) {
        old_catalog_naming_bank(url).await;
        let open = || {
            let url = url.clone();
            tokio::spawn(async move {
                let catalog = Catalog::open(&url).await?;
                Ok::<_, Error>(apps_in_the_table(&catalog).await)
            })
        };
        for opened in [open(), open(), open(), open()] {
            // Every node that opens it finds it filled.
            assert_eq!(opened.await.unwrap().unwrap(), NAMING_BANK + 1);
        }
    }

    /// Runs each case on each database.
    macro_rules! on_every_database {
        ($($case:ident,)+) => {
            mod sqlite {
                $(#[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    let folder = tempfile::tempdir().unwrap();
                    let url = format!("sqlite:{}", folder.path().join("catalog.db").display());
                    super::$case(&url.parse().unwrap()).await;
                })+
            }
            on_every_database!(postgres Postgres: $($case,)+);
            on_every_database!(mariadb MariaDb: $($case,)+);
        };
        ($module:ident $kind:ident: $($case:ident,)+) => {
            mod $module {
                $(#[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    use super::{SqlKind, SqlServer, need};
                    let server = need!(SqlServer::shared(SqlKind::$kind).await);
                    super::$case(&server.database().unwrap().parse().unwrap()).await;
                })+
            }
        };
    }

    on_every_database! {
        policies_of_an_old_catalog_are_found_by_app,
        an_old_catalog_that_nodes_open_at_once_is_filled_once,
    }
}

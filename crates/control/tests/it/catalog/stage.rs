//! A new catalog for each test, and what tests do with it.

use serde_json::{Value as Json, json};
use sluicegate_control::access::Account;
use sluicegate_control::catalog::{AccountView, NewAccount, PolicyState};
use sluicegate_control::{Actor, Catalog, ChangeContext, Url};
use sluicegate_testkit::{Error, SqlKind, SqlServer};
use tempfile::TempDir;

/// The time at which tests begin.
pub(crate) const NOW: i64 = 1_800_000_000_000;

/// A new catalog, and the URL of its database.
pub(crate) struct Stage {
    pub(crate) catalog: Catalog,
    pub(crate) url: Url,
    _dir: Option<TempDir>,
}

pub(crate) async fn sqlite() -> Result<Stage, Error> {
    let dir = TempDir::with_prefix("sluicegate-catalog-")?;
    let url = format!("sqlite:{}", dir.path().join("catalog.db").display());
    Ok(Stage::at(&url, Some(dir)).await)
}

pub(crate) async fn postgres() -> Result<Stage, Error> {
    Ok(Stage::at(&SqlServer::shared(SqlKind::Postgres).await?.database()?, None).await)
}

pub(crate) async fn mariadb() -> Result<Stage, Error> {
    Ok(Stage::at(&SqlServer::shared(SqlKind::MariaDb).await?.database()?, None).await)
}

impl Stage {
    async fn at(url: &str, dir: Option<TempDir>) -> Self {
        let url: Url = url.parse().expect("it is a URL");
        let catalog = Catalog::open(&url).await.expect("the database takes the tables");
        Self { catalog, url, _dir: dir }
    }

    pub(crate) async fn account(&self, name: &str) -> AccountView {
        let new =
            NewAccount { name, password_hash: Some("$argon2id$x"), subject: None, is_admin: false };
        self.catalog.create_account(&by(), new).await.expect("an account can be made")
    }

    pub(crate) async fn app(&self, name: &str, owners: &[&str]) {
        let owners: Vec<_> = owners.iter().map(|owner| (*owner).to_owned()).collect();
        self.catalog.create_app(&by(), name, "", &owners).await.expect("an app can be made");
    }

    pub(crate) async fn policy(&self, app: &str, name: &str, rate: &str) {
        let document = document(name, rate);
        let made = self.catalog.create_policy(&by(), app, &document, PolicyState::Active).await;
        made.expect("a policy can be made");
    }
}

/// Returns the context of a change by the operator, now.
pub(crate) fn by() -> ChangeContext {
    ChangeContext::operator("because", NOW)
}

/// Returns the context of a change by an account, now.
pub(crate) fn by_account(name: &str) -> ChangeContext {
    let account =
        Account { id: "id".to_owned(), name: name.to_owned(), is_admin: false, roles: [].into() };
    ChangeContext::new(Actor::Account(account), "192.0.2.1", "because", NOW)
}

pub(crate) fn document(name: &str, rate: &str) -> Json {
    json!({ "name": name, "rules": [{ "token_bucket": { "rate": rate } }] })
}

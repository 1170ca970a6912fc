//! The audit and its chain.

use sluicegate_control::audit::{AuditFilter, AuditTarget};
use sluicegate_control::catalog::Page;
use sluicegate_control::{Action, Catalog, ChangeContext, Error, Url};
use sqlx::Executor as _;

use crate::catalog::stage::{Stage, by, by_account};

pub(crate) async fn the_chain_holds_and_breaks_where_something_was_changed(stage: &Stage) {
    let catalog = &stage.catalog;
    assert_eq!(catalog.verify_audit().await.unwrap().entries, 0);
    stage.app("shop", &[]).await;
    for place in 0..5 {
        stage.policy("shop", &format!("p{place}"), "1/s").await;
    }
    let verified = catalog.verify_audit().await.unwrap();
    assert_eq!(verified.entries, 6);
    assert_eq!(verified.head.len(), 64);
    for (harm, where_) in [
        ("UPDATE audit SET reason = 'another' WHERE seq = 3", "entry 3 of the audit was changed"),
        ("DELETE FROM audit WHERE seq = 3", "entry 3 of the audit is missing"),
        ("DELETE FROM audit WHERE seq >= 5", "entry 3 of the audit is missing"),
        ("DELETE FROM audit", "entry 6 of the audit is missing"),
    ] {
        harm_database(stage, harm).await;
        let broken = catalog.verify_audit().await.unwrap_err().to_string();
        assert!(broken.contains(where_), "{harm}: {broken}");
    }
}

pub(crate) async fn every_kind_of_forgery_is_found_and_looking_for_it_ends(stage: &Stage) {
    stage.app("shop", &[]).await;
    for place in 0..5 {
        stage.policy("shop", &format!("p{place}"), "1/s").await;
    }
    let mut harms = vec![
        (
            "UPDATE audit SET seq = seq + 1000 WHERE seq = 6",
            "UPDATE audit SET seq = 6 WHERE seq = 1006",
            "entry 6 of the audit is missing",
        ),
        (
            "UPDATE audit SET seq = seq + 1000 WHERE seq = 3",
            "UPDATE audit SET seq = 3 WHERE seq = 1003",
            "entry 3 of the audit is missing",
        ),
        (
            "UPDATE audit SET seq = seq - 1000 WHERE seq = 1",
            "UPDATE audit SET seq = 1 WHERE seq = -999",
            "entry 1 of the audit is missing",
        ),
        (
            "UPDATE audit SET app = NULL WHERE seq = 4",
            "UPDATE audit SET app = 'shop' WHERE seq = 4",
            "entry 4 of the audit was changed",
        ),
        (
            "UPDATE audit SET before_change = '' WHERE seq = 4",
            "UPDATE audit SET before_change = NULL WHERE seq = 4",
            "entry 4 of the audit was changed",
        ),
        (
            "UPDATE head SET audit_seq = 5",
            "UPDATE head SET audit_seq = 6",
            // The hash of the head is that of another entry.
            "entry 5 of the audit is missing",
        ),
        (
            "UPDATE head SET audit_seq = 7",
            "UPDATE head SET audit_seq = 6",
            "entry 7 of the audit is missing",
        ),
        (FORGE, "DELETE FROM audit WHERE seq = 7", "entry 7 of the audit is beyond the head"),
    ];
    if matches!(stage.url, Url::Sqlite(_)) {
        // The others have columns of one type.
        harms.push((
            "UPDATE audit SET at = at + 0.5 WHERE seq = 2",
            "UPDATE audit SET at = CAST(at - 0.5 AS INTEGER) WHERE seq = 2",
            "after entry 0 of the audit",
        ));
        harms.push((
            "UPDATE audit SET actor = CAST(actor AS BLOB) WHERE seq = 2",
            "UPDATE audit SET actor = CAST(actor AS TEXT) WHERE seq = 2",
            "after entry 0 of the audit",
        ));
    }
    for (harm, mend, found) in harms {
        harm_database(stage, harm).await;
        let verified = stage.catalog.verify_audit().await;
        assert!(matches!(verified, Err(Error::Damaged(_))), "{harm}: {verified:?}");
        let broken = verified.unwrap_err().to_string();
        assert!(broken.contains(found), "{harm}: {broken}");
        harm_database(stage, mend).await;
        assert_eq!(stage.catalog.verify_audit().await.unwrap().entries, 6, "{mend}");
    }
}

/// Writes an entry behind the head.
const FORGE: &str = "INSERT INTO audit SELECT seq + 1, at, actor, source, action, app, target, outcome, \
                     reason, before_change, after_change, hash FROM audit WHERE seq = 6";

pub(crate) async fn an_entry_behind_the_head_is_damage_and_is_shown_to_nobody(stage: &Stage) {
    stage.app("shop", &[]).await;
    for place in 0..5 {
        stage.policy("shop", &format!("p{place}"), "1/s").await;
    }
    harm_database(stage, FORGE).await;
    let catalog = &stage.catalog;
    let made = catalog.create_app(&by(), "bank", "", &[]).await;
    let Err(Error::Damaged(problem)) = made else { panic!("{made:?}") };
    assert_eq!(
        problem,
        "entry 7 of the audit is beyond the head: it was not written by the catalog"
    );
    assert!(matches!(catalog.app("bank").await, Err(Error::NotFound(_))));
    let shown = catalog.audit(&AuditFilter::default(), &Page::default()).await.unwrap();
    assert_eq!((shown[0].seq, catalog.audit_since(5).await.unwrap().len()), (6, 1));
    harm_database(stage, "DELETE FROM audit WHERE seq = 7").await;
    catalog.create_app(&by(), "bank", "", &[]).await.unwrap();
    assert_eq!(catalog.verify_audit().await.unwrap().entries, 7);
}

pub(crate) async fn looking_changes_nothing_and_sees_what_is_there(stage: &Stage) {
    stage.app("shop", &[]).await;
    let catalog = Catalog::open_read_only(&stage.url).await.unwrap();
    let mut seen = Vec::new();
    let verified = catalog.verify_audit_with(|entry| seen.push(entry.action.clone())).await;
    assert_eq!((verified.unwrap().entries, seen), (1, vec!["app.create".to_owned()]));
    // Others go on meanwhile.
    stage.app("bank", &[]).await;
    assert_eq!(catalog.verify_audit().await.unwrap().entries, 2);
    if matches!(stage.url, Url::Sqlite(_)) {
        let made = catalog.create_app(&by(), "more", "", &[]).await;
        assert!(matches!(made, Err(Error::Database(_))), "{made:?}");
    }
}

#[tokio::test]
async fn who_looks_for_a_catalog_that_is_not_there_makes_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("none.db");
    let url: Url = format!("sqlite:{}", path.display()).parse().unwrap();
    assert!(matches!(Catalog::open_read_only(&url).await, Err(Error::Database(_))));
    assert!(!path.exists());
    std::fs::write(&path, "").unwrap();
    let empty = Catalog::open_read_only(&url).await.unwrap_err().to_string();
    assert!(empty.contains("no catalog in the database"), "{empty}");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
}

/// Changes the database directly, as a person with access to it can.
pub(crate) async fn harm_database(stage: &Stage, sql: &'static str) {
    use sluicegate_control::Url;
    use sqlx::ConnectOptions as _;
    let met = match &stage.url {
        Url::Sqlite(options) => {
            options.connect().await.unwrap().execute(sql).await.unwrap().rows_affected()
        }
        Url::MySql(options) => {
            options.connect().await.unwrap().execute(sql).await.unwrap().rows_affected()
        }
        Url::Postgres(options) => {
            options.connect().await.unwrap().execute(sql).await.unwrap().rows_affected()
        }
    };
    assert!(met > 0, "{sql}");
}

pub(crate) async fn who_was_denied_is_noted(stage: &Stage) {
    let catalog = &stage.catalog;
    let by = by_account("eve");
    catalog
        .audit_denied(&by, Action::DeletePolicy, AuditTarget::of("shop", "orders"))
        .await
        .unwrap();
    let entries = catalog.audit(&AuditFilter::default(), &Page::default()).await.unwrap();
    let entry = &entries[0];
    assert_eq!((entry.seq, entry.outcome.as_str()), (1, "denied"));
    assert_eq!((entry.actor.as_str(), entry.source.as_str()), ("account:eve", "192.0.2.1"));
    assert_eq!((entry.action.as_str(), entry.target.as_str()), ("policy.delete", "orders"));
    assert_eq!(catalog.verify_audit().await.unwrap().entries, 1);
}

pub(crate) async fn who_says_too_much_is_noted_all_the_same(stage: &Stage) {
    let catalog = &stage.catalog;
    let long = "x".repeat(5_000);
    let reasons = [long.as_str(), "a\0b\u{1b}[31m"];
    for reason in reasons {
        let by =
            ChangeContext { reason: reason.to_owned(), source: long.clone(), ..by_account("eve") };
        let app = Some(long.as_str());
        let target = format!("\0{long}");
        let target = AuditTarget::new(app, &target);
        catalog.audit_denied(&by, Action::DeletePolicy, target).await.unwrap();
    }
    let entries = catalog.audit(&AuditFilter::default(), &Page::default()).await.unwrap();
    assert_eq!((entries[0].reason.as_str(), entries[0].app.as_deref()), ("ab[31m", None));
    assert_eq!((entries[1].reason.len(), entries[1].target.len()), (1_000, 300));
    assert_eq!(catalog.verify_audit().await.unwrap().entries, 2);
}

pub(crate) async fn entries_are_read_page_by_page(stage: &Stage) {
    let catalog = &stage.catalog;
    for app in ["a", "b"] {
        stage.app(app, &[]).await;
    }
    for place in 0..4 {
        stage.policy(["a", "b"][place % 2], &format!("p{place}"), "1/s").await;
    }
    let seqs = async |app: Option<&str>, after: Option<&str>, limit| -> Vec<i64> {
        let filter = AuditFilter { app: app.map(str::to_owned), ..AuditFilter::default() };
        let page = Page { after: after.map(str::to_owned), limit: Some(limit) };
        let entries = catalog.audit(&filter, &page).await.unwrap();
        entries.iter().map(|entry| entry.seq).collect()
    };
    assert_eq!(seqs(None, None, 4).await, [6, 5, 4, 3]);
    assert_eq!(seqs(None, Some("3"), 4).await, [2, 1]);
    assert_eq!(seqs(Some("a"), None, 10).await, [5, 3, 1]);
    let page = Page { after: Some("x".to_owned()), limit: None };
    let wrong = catalog.audit(&AuditFilter::default(), &page).await;
    assert!(matches!(wrong, Err(Error::Invalid(_))), "{wrong:?}");
}

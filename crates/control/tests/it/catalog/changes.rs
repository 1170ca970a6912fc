//! Changes of whatever kind: once, whole, one after the other.

use std::time::Duration;

use sluicegate_control::access::Account;
use sluicegate_control::audit::AuditFilter;
use sluicegate_control::catalog::{Page, PolicyAt, PolicyState, Repeatable};
use sluicegate_control::{Actor, ChangeContext, Error, Url};
use sluicegate_testkit::need;
use sqlx::{ConnectOptions as _, Executor as _};
use tokio::time::timeout;

use crate::catalog::stage::{Stage, by, document};

pub(crate) async fn a_change_asked_for_again_is_made_once(stage: &Stage) {
    let catalog = &stage.catalog;
    stage.app("shop", &[]).await;
    let request =
        |question: &str| Repeatable { name: "k1".to_owned(), question: question.to_owned() };
    let by = ChangeContext { request: Some(request("q")), ..by() };
    let document = document("orders", "1/s");
    let first = catalog.create_policy(&by, "shop", &document, PolicyState::Active).await.unwrap();
    let again = catalog.create_policy(&by, "shop", &document, PolicyState::Active).await.unwrap();
    assert_eq!(first, again);
    let other = ChangeContext { request: Some(request("another")), ..by.clone() };
    let refused = catalog.create_policy(&other, "shop", &document, PolicyState::Active).await;
    assert!(matches!(refused, Err(Error::KeyReused)), "{refused:?}");
    let entries = catalog.audit(&AuditFilter::default(), &Page::default()).await.unwrap();
    assert_eq!(entries.len(), 2);
    // A day later it is a new request.
    let later = ChangeContext { at: by.at + 25 * 60 * 60 * 1_000, request: None, ..by.clone() };
    catalog
        .create_app(
            &ChangeContext { request: Some(request("x")), ..later.clone() },
            "bank",
            "",
            &[],
        )
        .await
        .unwrap_err();
    let sweeps = Repeatable { name: "k2".to_owned(), question: "x".to_owned() };
    catalog
        .create_app(&ChangeContext { request: Some(sweeps), ..later.clone() }, "bank", "", &[])
        .await
        .unwrap();
    catalog
        .create_app(&ChangeContext { request: Some(request("x")), ..later }, "farm", "", &[])
        .await
        .unwrap();
}

pub(crate) async fn an_account_of_the_same_name_inherits_no_answers(stage: &Stage) {
    let catalog = &stage.catalog;
    let as_account = |id: &str| {
        let (id, name) = (id.to_owned(), "ann".to_owned());
        let account = Account { id, name, is_admin: true, roles: [].into() };
        let request = Repeatable { name: "k1".to_owned(), question: "q".to_owned() };
        ChangeContext { actor: Actor::Account(account), request: Some(request), ..by() }
    };
    catalog.create_app(&as_account("one"), "shop", "", &[]).await.unwrap();
    catalog.create_app(&as_account("one"), "shop", "", &[]).await.unwrap();
    let other = catalog.create_app(&as_account("other"), "shop", "", &[]).await;
    assert!(matches!(other, Err(Error::Taken)), "{other:?}");
}

pub(crate) async fn a_change_for_show_changes_nothing(stage: &Stage) {
    let catalog = &stage.catalog;
    stage.app("shop", &[]).await;
    let show = ChangeContext { dry_run: true, ..by() };
    let (revision, head) =
        (catalog.revision().await.unwrap(), catalog.verify_audit().await.unwrap());
    let shown =
        catalog.create_policy(&show, "shop", &document("p", "1/s"), PolicyState::Active).await;
    assert_eq!(shown.unwrap().version, 1);
    assert!(matches!(catalog.policy("shop", "p").await, Err(Error::NotFound(_))));
    assert_eq!(catalog.revision().await.unwrap(), revision);
    assert_eq!(catalog.verify_audit().await.unwrap(), head);
}

pub(crate) async fn of_two_who_change_the_same_one_is_told(stage: &Stage) {
    let catalog = &stage.catalog;
    stage.app("shop", &[]).await;
    stage.policy("shop", "p", "10/s").await;
    let change = |rate: &'static str| {
        let catalog = catalog.clone();
        let changed = async move {
            catalog.change_policy(&by(), &PolicyAt::new("shop", "p", 1), &document("p", rate)).await
        };
        tokio::spawn(changed)
    };
    let both = [change("11/s"), change("12/s")];
    let mut stale = 0;
    for changed in both {
        match changed.await.unwrap() {
            Ok(view) => assert_eq!(view.version, 2),
            Err(Error::Stale(2)) => stale += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(stale, 1);
}

pub(crate) async fn changes_at_once_come_one_after_the_other(stage: &Stage) {
    let catalog = &stage.catalog;
    stage.app("shop", &[]).await;
    let changes = (0..20).map(|place| {
        let catalog = catalog.clone();
        tokio::spawn(async move {
            let document = document(&format!("p{place}"), "1/s");
            catalog.create_policy(&by(), "shop", &document, PolicyState::Active).await.map(drop)
        })
    });
    for change in changes.collect::<Vec<_>>() {
        change.await.unwrap().unwrap();
    }
    assert_eq!(catalog.revision().await.unwrap(), 20);
    assert_eq!(catalog.verify_audit().await.unwrap().entries, 21);
}

pub(crate) async fn text_is_kept_as_it_is_and_is_never_sql(stage: &Stage) {
    let catalog = &stage.catalog;
    stage.app("shop", &[]).await;
    let evil = "'; DROP TABLE apps; -- \" \\ ? $1 %s 水闸 🚰";
    let by = ChangeContext { reason: evil.to_owned(), source: "::1".to_owned(), ..by() };
    let app = catalog.change_app(&by, "shop", 1, evil).await.unwrap();
    assert_eq!(app.description, evil);
    assert_eq!(catalog.app("shop").await.unwrap().description, evil);
    let entries = catalog.audit(&AuditFilter::default(), &Page::default()).await.unwrap();
    assert_eq!((entries[0].reason.as_str(), entries[0].after.as_deref()), (evil, Some(evil)));
    assert!(matches!(catalog.app(evil).await, Err(Error::NotFound(_))));
    for text in ["a\0b", "a\u{1b}[31m", &"x".repeat(1_001)] {
        let wrong = catalog.change_app(&by, "shop", 2, text).await;
        assert!(matches!(wrong, Err(Error::Invalid(_))), "{wrong:?}");
        let wrong = catalog
            .change_app(&ChangeContext { reason: text.to_owned(), ..by.clone() }, "shop", 2, "")
            .await;
        assert!(matches!(wrong, Err(Error::Invalid(_))), "{wrong:?}");
    }
    catalog.verify_audit().await.unwrap();
}

#[tokio::test]
async fn a_database_that_does_not_end_a_change_is_not_waited_for() {
    let stage = need!(crate::catalog::stage::postgres().await);
    let Url::Postgres(options) = &stage.url else { panic!("it is PostgreSQL") };
    let mut database = options.connect().await.unwrap();
    // It takes a minute when it is to make the change, and not before.
    for sql in [
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql \
         AS 'BEGIN PERFORM pg_sleep(60); RETURN NULL; END'",
        "CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON apps DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW EXECUTE FUNCTION wait()",
    ] {
        database.execute(sql).await.unwrap();
    }
    let by = by();
    let made = stage.catalog.create_app(&by, "shop", "", &[]);
    let made = timeout(Duration::from_secs(30), made).await.expect("it ends by itself");
    assert!(matches!(made, Err(Error::Unknown(_))), "{made:?}");
}

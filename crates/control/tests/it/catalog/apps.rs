//! Apps and their members.

use serde_json::Value as Json;
use sluicegate_control::catalog::{Page, PolicyAt, PolicyState, Wanted};
use sluicegate_control::{ChangeContext, Error, Role};

use crate::catalog::stage::{NOW, Stage, by, document};

pub(crate) async fn who_has_a_role_sees_the_app(stage: &Stage) {
    let catalog = &stage.catalog;
    let (ann, bob) = (stage.account("ann").await, stage.account("bob").await);
    for app in ["shop", "bank", "farm"] {
        stage.app(app, &["ann"]).await;
    }
    catalog.set_member(&by(), "shop", "bob", Some(Role::Viewer)).await.unwrap();
    let names = async |account: Option<&str>, page: Page| -> Vec<String> {
        let apps = catalog.apps(account, &page).await.unwrap();
        apps.into_iter().map(|app| app.name).collect()
    };
    assert_eq!(names(None, Page::default()).await, ["bank", "farm", "shop"]);
    assert_eq!(names(Some(&ann.id), Page::default()).await, ["bank", "farm", "shop"]);
    assert_eq!(names(Some(&bob.id), Page::default()).await, ["shop"]);
    let page = Page { after: Some("bank".to_owned()), limit: Some(1) };
    assert_eq!(names(None, page).await, ["farm"]);

    catalog.set_member(&by(), "shop", "bob", Some(Role::Owner)).await.unwrap();
    let roles = catalog.actor(&bob.id).await.unwrap().unwrap().roles;
    assert_eq!(roles, [("shop".to_owned(), Role::Owner)].into());
    catalog.set_member(&by(), "shop", "bob", None).await.unwrap();
    assert!(catalog.actor(&bob.id).await.unwrap().unwrap().roles.is_empty());
    let again = catalog.set_member(&by(), "shop", "bob", None).await;
    assert!(matches!(again, Err(Error::NotFound("member"))), "{again:?}");
    let nobody = catalog.set_member(&by(), "shop", "eve", Some(Role::Viewer)).await;
    assert!(matches!(nobody, Err(Error::Invalid(_))), "{nobody:?}");
    let members = catalog.members("shop", &Page::default()).await.unwrap();
    assert_eq!(members.len(), 1);
    assert!(matches!(catalog.members("none", &Page::default()).await, Err(Error::NotFound("app"))));
}

pub(crate) async fn an_app_with_policies_stays(stage: &Stage) {
    let catalog = &stage.catalog;
    stage.app("shop", &[]).await;
    stage.policy("shop", "orders", "10/s").await;
    let refused = catalog.delete_app(&by(), "shop", 1).await;
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    stage.app("bank", &[]).await;
    let changed = catalog.change_app(&by(), "bank", 1, "Money").await.unwrap();
    assert_eq!((changed.version, changed.description.as_str()), (2, "Money"));
    assert!(matches!(catalog.delete_app(&by(), "bank", 1).await, Err(Error::Stale(2))));
    catalog.delete_app(&by(), "bank", 2).await.unwrap();
    assert!(matches!(catalog.app("bank").await, Err(Error::NotFound("app"))));
}

pub(crate) async fn names_differ_by_case_and_are_unique(stage: &Stage) {
    let catalog = &stage.catalog;
    stage.app("shop", &[]).await;
    let taken = catalog.create_app(&by(), "shop", "", &[]).await;
    assert!(matches!(taken, Err(Error::Taken)), "{taken:?}");
    for name in ["", "Shop", "a b", "a/b", "é", &"a".repeat(129)] {
        let wrong = catalog.create_app(&by(), name, "", &[]).await;
        assert!(matches!(wrong, Err(Error::Invalid(_))), "{name}: {wrong:?}");
    }
    // Accounts may have capitals, and are different accounts then.
    let (lower, upper) = (stage.account("ann").await, stage.account("Ann").await);
    assert_ne!(lower.id, upper.id);
    assert_eq!(catalog.account("Ann").await.unwrap().id, upper.id);
    let document = crate::catalog::stage::document("orders", "1/s");
    catalog.create_policy(&by(), "shop", &document, PolicyState::Shadow).await.unwrap();
    assert_eq!(catalog.policy("shop", "orders").await.unwrap().created_at, NOW);
    assert!(matches!(catalog.policy("shop", "Orders").await, Err(Error::NotFound("policy"))));
}

pub(crate) async fn an_app_that_a_policy_names_stays_and_a_policy_is_deleted_whatever_it_names(
    stage: &Stage,
) {
    let catalog = &stage.catalog;
    for app in ["shop", "a_b", "axb"] {
        stage.app(app, &[]).await;
    }
    let mut document = crate::catalog::stage::document("orders", "1/s");
    document["apps"] = serde_json::json!(["shop", "a_b"]);
    catalog.create_policy(&by(), "shop", &document, PolicyState::Active).await.unwrap();
    let named = catalog.delete_app(&by(), "a_b", 1).await;
    assert!(matches!(named, Err(Error::Conflict(_))), "{named:?}");
    catalog.delete_app(&by(), "axb", 1).await.unwrap();
    // As a person with access to the database can do, or an earlier version of this program did.
    crate::catalog::audit::harm_database(stage, "DELETE FROM apps WHERE name = 'a_b'").await;
    let at = |version| PolicyAt::new("shop", "orders", version);
    let changed = catalog.change_policy(&by(), &at(1), &document).await;
    assert!(matches!(changed, Err(Error::Invalid(_))), "{changed:?}");
    catalog.set_policy_state(&by(), &at(1), PolicyState::Shadow).await.unwrap();
    catalog.delete_policy(&by(), &at(2)).await.unwrap();
}

pub(crate) async fn an_app_is_named_by_what_its_policies_say_now(stage: &Stage) {
    let catalog = &stage.catalog;
    for app in ["shop", "bank"] {
        stage.app(app, &[]).await;
    }
    // An app that could be deleted is made again for the next step.
    let is_named = async |policy: &str| match catalog.delete_app(&by(), "bank", 1).await {
        Ok(()) => {
            stage.app("bank", &[]).await;
            false
        }
        Err(Error::Conflict(problem)) => {
            assert_eq!(problem.text(), format!("the policy `{policy}` lists the app in `apps`"));
            true
        }
        Err(error) => panic!("{error}"),
    };
    let plain = crate::catalog::stage::document("orders", "1/s");
    let naming = with_apps(plain.clone(), &["*", "bank", "shop"]);
    let at = |version| PolicyAt::new("shop", "orders", version);
    let force = ChangeContext { force: true, ..by() };
    catalog.create_policy(&force, "shop", &naming, PolicyState::Shadow).await.unwrap();
    assert!(is_named("orders").await);
    catalog.change_policy(&force, &at(1), &plain).await.unwrap();
    assert!(!is_named("orders").await);
    catalog.roll_back_policy(&force, &at(2), 1).await.unwrap();
    assert!(is_named("orders").await);
    catalog.set_policy_state(&force, &at(3), PolicyState::Active).await.unwrap();
    assert!(is_named("orders").await);
    catalog.delete_policy(&by(), &at(4)).await.unwrap();
    assert!(!is_named("orders").await);
    catalog.create_policy(&force, "shop", &naming, PolicyState::Shadow).await.unwrap();
    assert!(is_named("orders").await);
    let other = crate::catalog::stage::document("others", "1/s");
    let other = Wanted { document: with_apps(other, &["shop", "bank"]), state: None };
    let show = ChangeContext { dry_run: true, ..force.clone() };
    catalog.apply(&show, "shop", &[], None).await.unwrap();
    assert!(is_named("orders").await, "nothing was applied");
    catalog.apply(&force, "shop", &[other], None).await.unwrap();
    assert!(is_named("others").await);
    catalog.apply(&force, "shop", &[], None).await.unwrap();
    assert!(!is_named("others").await);
}

fn with_apps(mut document: Json, apps: &[&str]) -> Json {
    document["apps"] = apps.into();
    document
}

pub(crate) async fn a_new_catalog_begins_with_an_app_and_no_other_does(stage: &Stage) {
    let catalog = &stage.catalog;
    let seed = |policies: Vec<Json>| async move {
        catalog.seed(&by(), "demo", "To try.", &policies).await
    };
    let wrong = vec![document("one", "1/s"), document("two", "none")];
    assert!(matches!(seed(wrong).await, Err(Error::Invalid(_))));
    assert!(catalog.apps(None, &Page::default()).await.unwrap().is_empty(), "all or nothing");

    assert!(seed(vec![document("one", "1/s"), document("two", "2/s")]).await.unwrap());
    assert!(!seed(vec![document("three", "3/s")]).await.unwrap(), "it has an app");
    let policies = catalog.policies("demo", None, &Page::default()).await.unwrap();
    let found: Vec<_> = policies.iter().map(|one| (one.name.as_str(), one.state)).collect();
    assert_eq!(found, [("one", PolicyState::Active), ("two", PolicyState::Active)]);
    assert!(catalog.verify_audit().await.is_ok());
}

pub(crate) async fn a_catalog_with_an_account_is_not_new(stage: &Stage) {
    stage.account("ada").await;
    let seeded = stage.catalog.seed(&by(), "demo", "To try.", &[document("one", "1/s")]).await;
    assert!(!seeded.unwrap());
    assert!(stage.catalog.apps(None, &Page::default()).await.unwrap().is_empty());
}

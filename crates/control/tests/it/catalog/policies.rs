//! Policies and their versions.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use serde_json::{Value as Json, json};
use sluicegate_control::catalog::{Page, PolicyAt, PolicyState, Wanted};
use sluicegate_control::limits::POLICIES_OF_APP_MAX;
use sluicegate_control::{ChangeContext, Error, Url};
use sluicegate_policy::limits::POLICIES_MAX;
use sluicegate_testkit::need;
use sqlx::{ConnectOptions as _, Executor as _};
use tokio::time::timeout;

use crate::catalog::audit::harm_database;
use crate::catalog::stage::{Stage, by, document};

pub(crate) async fn a_policy_lives_and_its_versions_stay(stage: &Stage) {
    let catalog = &stage.catalog;
    stage.app("shop", &[]).await;
    let at = |version| PolicyAt::new("shop", "orders", version);
    let v1 = document("orders", "10/s");
    let made = catalog.create_policy(&by(), "shop", &v1, PolicyState::Shadow).await.unwrap();
    assert_eq!((made.version, made.state), (1, PolicyState::Shadow));
    let active = catalog.set_policy_state(&by(), &at(1), PolicyState::Active).await.unwrap();
    assert_eq!((active.version, active.state), (2, PolicyState::Active));
    let v3 = document("orders", "20/s");
    catalog.change_policy(&by(), &at(2), &v3).await.unwrap();
    let back = catalog.roll_back_policy(&by(), &at(3), 1).await.unwrap();
    assert_eq!((back.version, back.state, &back.document), (4, PolicyState::Active, &v1));
    assert_eq!(catalog.policy("shop", "orders").await.unwrap(), back);

    let unknown = catalog.roll_back_policy(&by(), &at(4), 9).await;
    assert!(matches!(unknown, Err(Error::NotFound("version"))), "{unknown:?}");
    catalog.delete_policy(&by(), &at(4)).await.unwrap();
    assert!(matches!(catalog.policy("shop", "orders").await, Err(Error::NotFound("policy"))));
    assert!(catalog.policies("shop", None, &Page::default()).await.unwrap().is_empty());
    let versions = catalog.policy_versions("shop", "orders", &Page::default()).await.unwrap();
    let told: Vec<_> = versions.iter().map(|v| (v.version, v.state)).collect();
    assert_eq!(
        told,
        [
            (5, PolicyState::Deleted),
            (4, PolicyState::Active),
            (3, PolicyState::Active),
            (2, PolicyState::Active),
            (1, PolicyState::Shadow)
        ]
    );
    assert_eq!(catalog.policy_version("shop", "orders", 3).await.unwrap().document, v3);
    // A new policy of this name goes on counting.
    let anew = catalog.create_policy(&by(), "shop", &v3, PolicyState::Active).await.unwrap();
    assert_eq!(anew.version, 6);
    let taken = catalog.create_policy(&by(), "shop", &v3, PolicyState::Active).await;
    assert!(matches!(taken, Err(Error::Taken)), "{taken:?}");
}

pub(crate) async fn the_latest_versions_stay_and_the_audit_knows_the_others_by_their_hash(
    stage: &Stage,
) {
    stage.app("shop", &[]).await;
    let catalog = stage.catalog.clone().keeping_versions(NonZeroU32::new(3).unwrap());
    stage.policy("shop", "orders", "10/s").await;
    stage.policy("shop", "other", "10/s").await;
    for version in 1..6 {
        let document = document("orders", &format!("{}/s", 10 + version));
        catalog
            .change_policy(&by(), &PolicyAt::new("shop", "orders", version), &document)
            .await
            .unwrap();
    }
    let versions = async |policy| {
        let versions = catalog.policy_versions("shop", policy, &Page::default()).await.unwrap();
        versions.iter().map(|version| version.version).collect::<Vec<_>>()
    };
    assert_eq!((versions("orders").await, versions("other").await), (vec![6, 5, 4], vec![1]));
    let gone = catalog.roll_back_policy(&by(), &PolicyAt::new("shop", "orders", 6), 3).await;
    assert!(matches!(gone, Err(Error::NotFound("version"))), "{gone:?}");
    let entries = catalog.audit_since(3).await.unwrap();
    let told = |text: &Option<String>| -> Json {
        serde_json::from_str(text.as_deref().expect("the text is there")).expect("it is JSON")
    };
    for (place, entry) in entries.iter().enumerate() {
        let (before, after) = (told(&entry.before), told(&entry.after));
        assert_eq!((&before["version"], &after["version"]), (&json!(place + 1), &json!(place + 2)));
        assert_eq!(after["sha256"].as_str().map(str::len), Some(64));
        if let Some(next) = entries.get(place + 1) {
            assert_eq!(told(&next.before), after);
        }
    }
}

pub(crate) async fn that_every_app_may_use_a_policy_is_warned_of_once(stage: &Stage) {
    let catalog = &stage.catalog;
    stage.app("shop", &[]).await;
    let open = |rate: &str| {
        let mut document = document("all", rate);
        document["apps"] = json!(["*"]);
        document
    };
    let warnings = catalog.judge_policy("shop", &open("1/s"), None).await.unwrap().1;
    assert_eq!((warnings.len(), warnings[0].finding.code()), (1, "every_app"));
    let own = catalog.judge_policy("shop", &document("own", "1/s"), None).await.unwrap().1;
    assert!(own.is_empty(), "{own:?}");
    let made = catalog.create_policy(&by(), "shop", &open("1/s"), PolicyState::Shadow).await;
    assert!(made.is_ok(), "{made:?}");
    let at = |version| PolicyAt::new("shop", "all", version);
    let active = catalog.set_policy_state(&by(), &at(1), PolicyState::Active).await;
    assert!(matches!(active, Err(Error::Warned(_))), "{active:?}");
    let forced = ChangeContext { force: true, ..by() };
    catalog.set_policy_state(&forced, &at(1), PolicyState::Active).await.unwrap();
    catalog.change_policy(&by(), &at(2), &open("2/s")).await.unwrap();
}

pub(crate) async fn what_makes_no_sense_changes_nothing(stage: &Stage) {
    let catalog = &stage.catalog;
    stage.app("shop", &[]).await;
    stage.policy("shop", "orders", "10/s").await;
    let before = catalog.policy("shop", "orders").await.unwrap();
    let pointers = |error: Error| match error {
        Error::Invalid(wrong) => wrong.into_iter().map(|w| w.pointer).collect::<Vec<_>>(),
        other => panic!("{other}"),
    };
    for (bad, pointer) in [
        (json!({ "name": "orders", "rules": [] }), "/document/rules"),
        (
            json!({ "name": "orders", "rules": [{ "token_bucket": { "rate": "NaN/s" } }] }),
            "/document/rules/0/token_bucket/rate",
        ),
        (
            json!({ "name": "orders", "apps": ["none"], "rules": [{ "token_bucket": { "rate": "1/s" } }] }),
            "/document/apps/0",
        ),
        (document("other", "1/s"), "/document/name"),
        (json!(7), "/document"),
    ] {
        let error = catalog
            .change_policy(&by(), &PolicyAt::new("shop", "orders", 1), &bad)
            .await
            .unwrap_err();
        assert_eq!(pointers(error), [pointer], "{bad}");
    }
    let long = json!({ "name": "orders", "x": "y".repeat(70_000) });
    let error = catalog.create_policy(&by(), "shop", &long, PolicyState::Active).await.unwrap_err();
    assert_eq!(pointers(error), ["/document"]);
    assert_eq!(catalog.policy("shop", "orders").await.unwrap(), before);
    assert_eq!(catalog.revision().await.unwrap(), 1);
    let nowhere =
        catalog.create_policy(&by(), "none", &document("p", "1/s"), PolicyState::Active).await;
    assert!(matches!(nowhere, Err(Error::NotFound("app"))), "{nowhere:?}");
}

pub(crate) async fn who_would_be_locked_out_is_warned_of(stage: &Stage) {
    let catalog = &stage.catalog;
    stage.app("shop", &[]).await;
    stage.app("bank", &[]).await;
    stage.policy("shop", "orders", "1000/s").await;
    let others =
        json!({ "name": "o", "apps": ["bank"], "rules": [{ "token_bucket": { "rate": "1/s" } }] });
    let warned = catalog.create_policy(&by(), "shop", &others, PolicyState::Active).await;
    assert!(matches!(&warned, Err(Error::Warned(w)) if w.len() == 1), "{warned:?}");
    // A policy in shadow mode locks nobody out.
    catalog.create_policy(&by(), "shop", &others, PolicyState::Shadow).await.unwrap();
    let warned =
        catalog.set_policy_state(&by(), &PolicyAt::new("shop", "o", 1), PolicyState::Active).await;
    assert!(matches!(warned, Err(Error::Warned(_))), "{warned:?}");
    let forced = ChangeContext { force: true, ..by() };
    catalog
        .set_policy_state(&forced, &PolicyAt::new("shop", "o", 1), PolicyState::Active)
        .await
        .unwrap();

    let less = document("orders", "100/s");
    let warned =
        catalog.change_policy(&by(), &PolicyAt::new("shop", "orders", 1), &less).await.unwrap_err();
    assert_eq!(warned.to_string(), "the limit drops from 1000 to 100; set `force` to do it anyway");
    catalog
        .change_policy(&by(), &PolicyAt::new("shop", "orders", 1), &document("orders", "101/s"))
        .await
        .unwrap();
    let version = catalog.policy("shop", "orders").await.unwrap().version;
    let in_a_day = document("orders", "101/d");
    let warned =
        catalog.change_policy(&by(), &PolicyAt::new("shop", "orders", version), &in_a_day).await;
    let told = warned.unwrap_err().to_string();
    assert!(told.contains("it allows 101 a day instead of 8726400"), "{told}");
    let all = json!({ "name": "all", "match": { "path": { "prefix": "/" } }, "rules": [{ "token_bucket": { "rate": "1/s" } }] });
    let warned = catalog.create_policy(&by(), "shop", &all, PolicyState::Active).await;
    assert!(matches!(warned, Err(Error::Warned(_))), "{warned:?}");
}

pub(crate) async fn a_key_whose_own_limit_drops_is_warned_of(stage: &Stage) {
    let catalog = &stage.catalog;
    stage.app("shop", &[]).await;
    let with = |own: &[(&str, &str, Option<&str>)]| {
        let own = own.iter().map(|(key, rate, until)| {
            let mut own = json!({ "key": key, "rules": [{ "token_bucket": { "rate": rate } }] });
            if let Some(until) = until {
                own["until"] = json!(until);
            }
            own
        });
        let rules = json!([{ "token_bucket": { "rate": "100/s" } }]);
        json!({ "name": "orders", "rules": rules, "overrides": own.collect::<Vec<_>>() })
    };
    let until = Some("2099-01-01T00:00:00Z");
    let first = with(&[("ann", "1000/s", None), ("bob", "1000/s", until)]);
    catalog.create_policy(&by(), "shop", &first, PolicyState::Active).await.unwrap();
    let warnings = async |document: serde_json::Value| {
        let (_, warnings) = catalog.judge_policy("shop", &document, None).await.unwrap();
        warnings.into_iter().map(|warning| warning.finding.text().to_owned()).collect::<Vec<_>>()
    };
    let drops =
        |key: &str, after: u64| format!("the limit of key `{key}` drops from 1000 to {after}");
    assert_eq!(warnings(with(&[("ann", "1/h", None)])).await, [drops("ann", 1)]);
    assert_eq!(warnings(with(&[("bob", "1000/s", None)])).await, [drops("ann", 100)], "it is gone");
    // What ends by itself is compared with what would follow it.
    assert_eq!(warnings(with(&[("ann", "1000/s", None), ("bob", "11/s", until)])).await, [""; 0]);
    let ten = ["the limit of key `bob` drops from 100 to 10"];
    assert_eq!(warnings(with(&[("ann", "1000/s", None), ("bob", "10/s", until)])).await, ten);
    let a_day = ["key `cho` is allowed 2400 a day instead of 8640000"];
    assert_eq!(warnings(with(&[("ann", "1000/s", None), ("cho", "100/h", None)])).await, a_day);
    let many: Vec<_> = (0..9).map(|n| format!("k{n}")).collect();
    let many: Vec<_> = many.iter().map(|key| (key.as_str(), "1/s", None)).collect();
    assert_eq!(warnings(with(&many)).await.len(), 3, "the first of them");
}

pub(crate) async fn a_name_with_a_nul_is_that_of_nothing(stage: &Stage) {
    stage.app("shop", &[]).await;
    let found = stage.catalog.policy("shop", "a\0b").await;
    assert!(matches!(found, Err(Error::NotFound("policy"))), "{found:?}");
    let found = stage.catalog.app("a\0").await;
    assert!(matches!(found, Err(Error::NotFound("app"))), "{found:?}");
    let page = Page { after: Some("\0".to_owned()), limit: None };
    assert!(stage.catalog.policies("shop", None, &page).await.unwrap().is_empty());
}

pub(crate) async fn a_document_is_applied_all_or_not_at_all(stage: &Stage) {
    let catalog = &stage.catalog;
    stage.app("shop", &[]).await;
    for name in ["keep", "change", "drop"] {
        stage.policy("shop", name, "10/s").await;
    }
    let wanted = |documents: Vec<serde_json::Value>| -> Vec<Wanted> {
        documents.into_iter().map(|document| Wanted { document, state: None }).collect()
    };
    let good =
        wanted(vec![document("keep", "10/s"), document("change", "20/s"), document("new", "1/s")]);
    let told = |applied: Vec<sluicegate_control::catalog::Applied>| -> Vec<(String, String)> {
        applied.into_iter().map(|one| (one.policy, one.action)).collect()
    };
    let expected = [("change", "update"), ("drop", "delete"), ("keep", "keep"), ("new", "create")]
        .map(|(policy, action)| (policy.to_owned(), action.to_owned()));
    let shown =
        catalog.apply(&ChangeContext { dry_run: true, ..by() }, "shop", &good, None).await.unwrap();
    let version = shown.version;
    assert_eq!(told(shown.policies), expected);
    assert!(matches!(catalog.policy("shop", "new").await, Err(Error::NotFound(_))));

    let mut bad = good.clone();
    bad.push(Wanted { document: json!({ "name": "bad", "rules": 1 }), state: None });
    bad.push(Wanted { document: document("keep", "1/s"), state: Some(PolicyState::Deleted) });
    let Err(Error::Invalid(wrong)) = catalog.apply(&by(), "shop", &bad, None).await else {
        panic!()
    };
    let pointers: Vec<_> = wrong.iter().map(|wrong| wrong.pointer.as_str()).collect();
    assert_eq!(
        pointers,
        ["/policies/3/document/rules", "/policies/4/state", "/policies/4/document/name"]
    );
    assert_eq!(catalog.policy("shop", "change").await.unwrap().version, 1);

    let revision = catalog.revision().await.unwrap();
    let applied = catalog.apply(&by(), "shop", &good, Some(version)).await.unwrap();
    assert_eq!(applied.version, revision + 1);
    assert_eq!(told(applied.policies), expected);
    assert_eq!(catalog.revision().await.unwrap(), revision + 1, "one change for nodes");
    let names: Vec<_> = catalog.policies("shop", None, &Page::default()).await.unwrap();
    let names: Vec<_> = names.iter().map(|view| view.name.as_str()).collect();
    assert_eq!(names, ["change", "keep", "new"]);
    let again = catalog.apply(&by(), "shop", &good, None).await.unwrap();
    assert!(again.policies.iter().all(|one| one.action == "keep"), "{again:?}");
    assert_eq!(again.version, revision + 1);
}

pub(crate) async fn what_was_changed_meanwhile_is_not_applied_over(stage: &Stage) {
    let catalog = &stage.catalog;
    for app in ["shop", "bank"] {
        stage.app(app, &[]).await;
        stage.policy(app, &format!("{app}.one"), "10/s").await;
    }
    let wanted = |document| [Wanted { document, state: None }];
    let none = wanted(document("shop.new", "1/s"));
    let show = ChangeContext { dry_run: true, ..by() };
    let shown = catalog.apply(&show, "shop", &none, None).await.unwrap();
    // Changes of another app do not matter.
    catalog.delete_policy(&by(), &PolicyAt::new("bank", "bank.one", 1)).await.unwrap();
    let same = catalog.apply(&show, "shop", &none, Some(shown.version)).await.unwrap();
    assert_eq!(same, shown);
    for step in 0..2 {
        match step {
            0 => stage.policy("shop", "shop.two", "1/s").await,
            _ => catalog.delete_policy(&by(), &PolicyAt::new("shop", "shop.two", 1)).await.unwrap(),
        }
        let stale = catalog.apply(&by(), "shop", &none, Some(shown.version)).await;
        assert!(matches!(stale, Err(Error::Stale(_))), "{stale:?}");
    }
    assert!(catalog.policy("shop", "shop.one").await.is_ok(), "nothing was applied");
}

pub(crate) async fn all_that_is_wrong_with_what_is_applied_is_told_with_its_place(stage: &Stage) {
    let catalog = &stage.catalog;
    for app in ["shop", "bank"] {
        stage.app(app, &[]).await;
        stage.policy(app, app, "100/s").await;
    }
    let mut unknown = document("a", "1/s");
    unknown["apps"] = json!(["shop", "shpo"]);
    let wanted = [document("b", "1/s"), document("bank", "1/s"), unknown];
    let wanted = wanted.map(|document| Wanted { document, state: None });
    let refused = catalog.apply(&by(), "shop", &wanted, None).await;
    let Err(Error::Invalid(wrong)) = refused else { panic!("{refused:?}") };
    let pointers: Vec<_> = wrong.iter().map(|wrong| wrong.pointer.as_str()).collect();
    assert_eq!(pointers, ["/policies/2/document/apps/1", "/policies/1/document/name"]);
    let mut locked_out = document("a", "1/s");
    locked_out["apps"] = json!(["bank"]);
    let wanted = [document("shop", "1/s"), locked_out];
    let wanted = wanted.map(|document| Wanted { document, state: None });
    let warned = catalog.apply(&by(), "shop", &wanted, None).await;
    let Err(Error::Warned(warnings)) = warned else { panic!("{warned:?}") };
    let of: Vec<_> = warnings.iter().map(|warning| warning.pointer.as_str()).collect();
    assert_eq!(of, ["/policies/1/document/apps", "/policies/0/document/rules"]);
}

pub(crate) async fn another_apps_policy_is_not_there(stage: &Stage) {
    let catalog = &stage.catalog;
    stage.app("shop", &[]).await;
    stage.app("bank", &[]).await;
    stage.policy("shop", "orders", "10/s").await;
    let at = |version| PolicyAt::new("bank", "orders", version);
    assert!(matches!(catalog.policy("bank", "orders").await, Err(Error::NotFound(_))));
    let versions = catalog.policy_versions("bank", "orders", &Page::default()).await;
    assert!(matches!(versions, Err(Error::NotFound(_))));
    assert!(matches!(catalog.delete_policy(&by(), &at(1)).await, Err(Error::NotFound(_))));
    let changed = catalog.change_policy(&by(), &at(1), &document("orders", "1/s")).await;
    assert!(matches!(changed, Err(Error::NotFound(_))));
    let taken =
        catalog.create_policy(&by(), "bank", &document("orders", "1/s"), PolicyState::Active).await;
    assert!(matches!(taken, Err(Error::Taken)), "{taken:?}");
    // Nor is the name of a deleted one.
    catalog.delete_policy(&by(), &PolicyAt::new("shop", "orders", 1)).await.unwrap();
    let taken =
        catalog.create_policy(&by(), "bank", &document("orders", "1/s"), PolicyState::Active).await;
    assert!(matches!(taken, Err(Error::Taken)), "{taken:?}");
}

pub(crate) async fn an_app_has_so_many_policies_and_no_more(stage: &Stage) {
    let catalog = &stage.catalog;
    stage.app("shop", &[]).await;
    let wanted = |begin: usize, count: usize| -> Vec<Wanted> {
        let documents = (begin..begin + count).map(|place| document(&format!("p{place}"), "1/s"));
        documents.map(|document| Wanted { document, state: None }).collect()
    };
    let most = POLICIES_OF_APP_MAX;
    let more = catalog.apply(&by(), "shop", &wanted(0, most + 1), None).await;
    assert!(matches!(more, Err(Error::TooMany(_))), "{more:?}");
    catalog.apply(&by(), "shop", &wanted(0, most), None).await.unwrap();
    // They are returned a hundred at a time, whatever the request's limit.
    let page = Page { after: Some("p9".to_owned()), limit: Some(1_000) };
    assert_eq!(catalog.policies("shop", None, &page).await.unwrap().len(), 100);
    let (mut all, mut page) = (BTreeSet::new(), Page { limit: Some(1_000), after: None });
    loop {
        let policies = catalog.policies("shop", None, &page).await.unwrap();
        let Some(last) = policies.last() else { break };
        page.after = Some(last.name.clone());
        all.extend(policies.into_iter().map(|policy| policy.name));
    }
    assert_eq!(all.len(), most);
    // A deleted one that is made anew takes a place like any other.
    catalog.delete_policy(&by(), &PolicyAt::new("shop", "p0", 1)).await.unwrap();
    let create = async |name| {
        catalog.create_policy(&by(), "shop", &document(name, "1/s"), PolicyState::Active).await
    };
    create("other").await.unwrap();
    for name in ["p0", "another"] {
        let more = create(name).await;
        assert!(matches!(more, Err(Error::TooMany(_))), "{name}: {more:?}");
    }
    // Deleted policies make room for new ones.
    catalog.apply(&by(), "shop", &wanted(most, most), None).await.unwrap();
}

/// Ten thousand policies of an app but one, as it would take minutes to make them.
macro_rules! nearly_all {
    ($($place:literal)+) => {
        concat!(
            "INSERT INTO policies (name, app, state, version, revision, document, created_at, ",
            "created_by, updated_at, updated_by) SELECT CONCAT('bulk', p1.d, p2.d, p3.d, p4.d), ",
            "'bulk', 'active', 1, 1, '{}', 0, 'operator', 0, 'operator' FROM ",
            "(SELECT 0 AS d) AS p0 ",
            $("CROSS JOIN (SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 ",
            "UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 ",
            "UNION ALL SELECT 8 UNION ALL SELECT 9) AS p", $place, " ",)+
            "WHERE p1.d + p2.d + p3.d + p4.d < 36"
        )
    };
}

pub(crate) async fn all_apps_have_so_many_policies_and_no_more(stage: &Stage) {
    let catalog = &stage.catalog;
    assert_eq!(POLICIES_MAX, 10_000);
    for app in ["bulk", "shop"] {
        stage.app(app, &[]).await;
    }
    harm_database(stage, nearly_all!(1 2 3 4)).await;
    stage.policy("shop", "one", "1/s").await;
    let create = async |name| {
        catalog.create_policy(&by(), "shop", &document(name, "1/s"), PolicyState::Active).await
    };
    let more = create("two").await;
    assert!(matches!(more, Err(Error::TooMany(_))), "{more:?}");
    catalog.delete_policy(&by(), &PolicyAt::new("shop", "one", 1)).await.unwrap();
    create("two").await.unwrap();
    // Also one that was there before takes a place.
    let anew = create("one").await;
    assert!(matches!(anew, Err(Error::TooMany(_))), "{anew:?}");
    let wanted = |names: &[&str]| -> Vec<Wanted> {
        let documents = names.iter().map(|name| document(name, "1/s"));
        documents.map(|document| Wanted { document, state: None }).collect()
    };
    let more = catalog.apply(&by(), "shop", &wanted(&["one", "two"]), None).await;
    assert!(matches!(more, Err(Error::TooMany(_))), "{more:?}");
    // Deleted policies make room for new ones.
    catalog.apply(&by(), "shop", &wanted(&["one"]), None).await.unwrap();
    assert_eq!(catalog.published_since(0, 0).await.unwrap().policies.len(), POLICIES_MAX);
}

#[tokio::test]
async fn who_only_judges_a_policy_waits_for_nobody() {
    let stage = need!(crate::catalog::stage::postgres().await);
    stage.app("shop", &[]).await;
    stage.policy("shop", "orders", "100/s").await;
    let Url::Postgres(options) = &stage.url else { panic!("it is PostgreSQL") };
    let mut other = options.connect().await.unwrap();
    for sql in ["BEGIN", "UPDATE head SET audit_seq = audit_seq"] {
        other.execute(sql).await.unwrap();
    }
    let less = document("orders", "1/s");
    let (before, warnings) = stage.catalog.judge_policy("shop", &less, None).await.unwrap();
    assert_eq!(before.unwrap().version, 1);
    assert_eq!(warnings[0].finding.text(), "the limit drops from 100 to 1");
    let by = ChangeContext { force: true, ..by() };
    let at = PolicyAt::new("shop", "orders", 1);
    let change = stage.catalog.change_policy(&by, &at, &less);
    assert!(timeout(Duration::from_millis(200), change).await.is_err(), "somebody changes others");
    other.execute("ROLLBACK").await.unwrap();
    stage.catalog.change_policy(&by, &at, &less).await.unwrap();
}

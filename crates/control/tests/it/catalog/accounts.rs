//! Accounts and sessions.

use std::collections::BTreeMap;

use sluicegate_control::access::Account;
use sluicegate_control::catalog::{
    AccountChange, NewAccount, NewSession, PasswordChange, SessionSpans,
};
use sluicegate_control::{ChangeContext, Error};

use crate::catalog::stage::{NOW, Stage, by, by_account};

const ADMIN: NewAccount<'_> =
    NewAccount { name: "ada", password_hash: Some("h"), subject: None, is_admin: false };

pub(crate) async fn the_first_account_is_made_once(stage: &Stage) {
    assert!(!stage.catalog.has_accounts().await.unwrap());
    let made = stage.catalog.set_up(&by(), ADMIN).await.unwrap();
    assert!(made.is_admin && made.has_password);
    assert!(stage.catalog.has_accounts().await.unwrap());
    let again = stage.catalog.set_up(&by(), NewAccount { name: "eve", ..ADMIN }).await;
    assert!(matches!(again, Err(Error::Conflict(_))), "{again:?}");
    let taken = stage.catalog.create_account(&by(), ADMIN).await;
    assert!(matches!(taken, Err(Error::Taken)), "{taken:?}");
    for name in ["", "a b", "a\n", "é", &"a".repeat(129)] {
        let wrong = stage.catalog.create_account(&by(), NewAccount { name, ..ADMIN }).await;
        assert!(matches!(wrong, Err(Error::Invalid(_))), "{name}: {wrong:?}");
    }
}

pub(crate) async fn an_account_is_found_whatever_the_case_of_its_name(stage: &Stage) {
    let found = stage.account("Ann.Lee@example.org").await;
    let roles = BTreeMap::new();
    let account = Account { id: found.id, name: found.name, is_admin: true, roles };
    for text in ["ann", "ANN.", "lee@EX"] {
        let people = stage.catalog.people(&account, text).await.unwrap();
        assert_eq!(people, ["Ann.Lee@example.org"], "{text}");
    }
}

pub(crate) async fn who_changes_a_password_ends_all_sessions(stage: &Stage) {
    let catalog = &stage.catalog;
    let account = stage.account("ann").await;
    let spans = SessionSpans::default();
    for hash in ["s1", "s2"] {
        begin(stage, hash, NOW, spans).await;
    }
    let live = catalog.use_session("s1", NOW, spans, false).await.unwrap().unwrap();
    assert_eq!(live.account, account.id);
    let version = account.version;
    let of = PasswordChange { account: "ann", version, hash: "new", session: "s3" };
    catalog.change_password(&by_account("ann"), &of).await.unwrap();
    assert!(catalog.use_session("s3", NOW, spans, false).await.unwrap().is_some());
    for hash in ["s1", "s2"] {
        assert_eq!(catalog.use_session(hash, NOW, spans, false).await.unwrap(), None);
    }
    let kept = catalog.password("ann").await.unwrap().unwrap();
    assert_eq!((kept.account.as_str(), kept.hash.as_str()), (account.id.as_str(), "new"));
    for none in ["nobody", "ann ", "Ann", "ann\0", ""] {
        assert_eq!(catalog.password(none).await.unwrap(), None, "{none:?}");
    }
}

pub(crate) async fn who_signs_in_by_a_password_that_is_changed_meanwhile_does_not(stage: &Stage) {
    let catalog = &stage.catalog;
    stage.account("ann").await;
    let (by, spans) = (by_account("ann"), SessionSpans::default());
    let kept = catalog.password("ann").await.unwrap().unwrap();
    catalog.sign_in(&by, &kept, session("s1", spans)).await.unwrap();
    let version = kept.version;
    let to = |hash, session| PasswordChange { account: "ann", version, hash, session };
    catalog.change_password(&by, &to("new", "s2")).await.unwrap();
    let late = catalog.sign_in(&by, &kept, session("s3", spans)).await;
    assert!(matches!(late, Err(Error::Denied(_))), "{late:?}");
    let again = catalog.change_password(&by, &to("newer", "s4")).await;
    assert!(matches!(again, Err(Error::Stale(2))), "{again:?}");
    let goes_on =
        async |hash| catalog.use_session(hash, NOW, spans, false).await.unwrap().is_some();
    assert!(goes_on("s2").await);
    for ended in ["s1", "s3", "s4"] {
        assert!(!goes_on(ended).await, "{ended}");
    }
}

pub(crate) async fn the_last_administrator_stays(stage: &Stage) {
    let catalog = &stage.catalog;
    let ada = catalog.set_up(&by(), ADMIN).await.unwrap();
    let demoted = AccountChange { is_admin: Some(false), ..AccountChange::default() };
    let disabled = AccountChange { is_disabled: Some(true), ..AccountChange::default() };
    for wanted in [demoted, disabled] {
        let refused = catalog.change_account(&by(), "ada", ada.version, wanted).await;
        assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    }
    let refused = catalog.delete_account(&by(), "ada", ada.version).await;
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    catalog
        .create_account(&by(), NewAccount { name: "bob", is_admin: true, ..ADMIN })
        .await
        .unwrap();
    let stale = catalog.change_account(&by(), "ada", 7, demoted).await;
    assert!(matches!(stale, Err(Error::Stale(1))), "{stale:?}");
    let after = catalog.change_account(&by(), "ada", 1, disabled).await.unwrap();
    assert_eq!((after.version, after.is_disabled), (2, true));
    // A disabled account cannot sign in, and is not an actor.
    assert_eq!(catalog.password("ada").await.unwrap(), None);
    assert_eq!(catalog.actor(&ada.id).await.unwrap(), None);
    catalog.delete_account(&by(), "ada", 2).await.unwrap();
    assert!(matches!(catalog.account("ada").await, Err(Error::NotFound("account"))));
}

pub(crate) async fn sessions_end_by_themselves(stage: &Stage) {
    let catalog = &stage.catalog;
    let account = stage.account("ann").await;
    let spans = SessionSpans { idle_ms: 100_000, absolute_ms: 250_000 };
    begin(stage, "s", NOW, spans).await;
    let mut at = NOW;
    for _ in 0..3 {
        at += 80_000;
        assert!(
            catalog.use_session("s", at, spans, false).await.unwrap().is_some(),
            "it is in use"
        );
    }
    assert_eq!(
        catalog.use_session("s", at + 20_000, spans, false).await.unwrap(),
        None,
        "it is too old"
    );
    begin(stage, "t", at, spans).await;
    assert_eq!(
        catalog.use_session("t", at + 100_000, spans, false).await.unwrap(),
        None,
        "it was idle"
    );
    begin(stage, "u", at, spans).await;
    catalog.sign_out(&by_account("ann"), &account.id, "ann", Some("u")).await.unwrap();
    assert_eq!(catalog.use_session("u", at, spans, false).await.unwrap(), None);
}

/// Signs the account `ann` in at the time `at`.
async fn begin(stage: &Stage, hash: &str, at: i64, spans: SessionSpans) {
    let by = ChangeContext { at, ..by_account("ann") };
    let kept = stage.catalog.password("ann").await.unwrap().unwrap();
    stage.catalog.sign_in(&by, &kept, session(hash, spans)).await.unwrap();
}

const fn session(hash: &str, spans: SessionSpans) -> NewSession<'_> {
    NewSession { hash, spans, instead_of: &[] }
}

//! Rights that groups give and take away.

use std::sync::Arc;

use serde_json::{Value, json};
use sluicegate_control::Role;
use sluicegate_control::identity::{GroupGrant, Oidc, OidcProviderConfig};

use super::provider::Provider;
use super::{SUB, Stage, config, session};
use crate::api::client::{Client, PASSWORD, Served};

fn gives(config: &mut OidcProviderConfig) {
    let give = |group: &str, app: &str, role| {
        let (group, app) = (group.to_owned(), app.to_owned());
        GroupGrant { group, app, role }
    };
    config.admin_group = Some("admins".to_owned());
    config.roles = vec![
        give("shop-owners", "shop", Role::Owner),
        give("staff", "shop", Role::Viewer),
        give("staff", "none", Role::Viewer),
    ];
}

/// Starts a stage with the apps `shop` and `bank`, and an account of the provider's person.
async fn stage() -> Stage {
    let stage = Stage::start(gives).await;
    for app in ["shop", "bank"] {
        let made = stage.served.ask(&stage.ada, "POST /apps", Some(json!({ "name": app }))).await;
        assert_eq!(made.status, 201);
    }
    stage.account("grace").await;
    stage
}

async fn me(stage: &Stage, groups: &Value) -> (Value, Value) {
    stage.provider.inner().claims = json!({ "groups": groups });
    let client = stage.signed_in().await;
    let me = stage.served.ask(&client, "GET /session", None).await;
    (me.body["is_admin"].clone(), me.body["roles"].clone())
}

#[tokio::test]
async fn groups_give_roles_and_take_them_away_and_each_is_audited() {
    let stage = stage().await;
    let put = "PUT /apps/bank/members/grace";
    let bank = stage.served.ask(&stage.ada, put, Some(json!({ "role": "viewer" }))).await;
    assert_eq!(bank.status, 204);
    let signed_in = "provider session.oidc grace done";
    let shop = "provider member.update shop/grace done";
    let account = "provider account.update grace done";
    for (groups, is_admin, roles, audited) in [
        (json!([]), false, json!({ "bank": "viewer" }), vec![signed_in]),
        // A role in an app that does not exist locks nobody out.
        (
            json!(["staff", "x"]),
            false,
            json!({ "bank": "viewer", "shop": "viewer" }),
            vec![shop, signed_in],
        ),
        (
            json!(["shop-owners", "staff"]),
            false,
            json!({ "bank": "viewer", "shop": "owner" }),
            vec![shop, signed_in],
        ),
        (
            json!(["shop-owners", "admins"]),
            true,
            json!({ "bank": "viewer", "shop": "owner" }),
            vec![account, signed_in],
        ),
        // Without the claim, there are no groups.
        (json!(null), false, json!({ "bank": "viewer" }), vec![account, shop, signed_in]),
        (
            json!("staff"),
            false,
            json!({ "bank": "viewer", "shop": "viewer" }),
            vec![shop, signed_in],
        ),
    ] {
        let before = stage.entries().await;
        assert_eq!(me(&stage, &groups).await, (json!(is_admin), roles), "{groups}");
        assert_eq!(stage.audit(before).await, audited, "{groups}");
    }
}

#[tokio::test]
async fn what_a_group_took_away_is_gone_in_sessions_that_are_there() {
    let stage = stage().await;
    stage.provider.inner().claims = json!({ "groups": ["admins"] });
    let early = stage.signed_in().await;
    assert_eq!(stage.served.ask(&early, "GET /accounts", None).await.status, 200);
    me(&stage, &json!([])).await;
    assert_eq!(stage.served.ask(&early, "GET /accounts", None).await.status, 403);
}

#[tokio::test]
async fn what_is_not_configured_no_claim_gives() {
    let stage = Stage::start(|_| {}).await;
    stage.account("grace").await;
    stage.provider.inner().claims = json!({
        "groups": ["admins", "admin", ""], "is_admin": true, "admin": true,
        "roles": { "shop": "owner" }, "scope": "admin",
    });
    let grace = stage.signed_in().await;
    let me = stage.served.ask(&grace, "GET /session", None).await;
    assert_eq!((&me.body["is_admin"], &me.body["roles"]), (&json!(false), &json!({})));
    assert_eq!(stage.served.ask(&grace, "GET /accounts", None).await.status, 403);
}

#[tokio::test]
async fn the_last_administrator_stays_one() {
    let stage = stage().await;
    let (is_admin, _) = me(&stage, &json!(["admins"])).await;
    assert_eq!(is_admin, true);
    let gone = stage.served.ask(&stage.ada.at_version(1), "DELETE /accounts/ada", None).await;
    assert_eq!(gone.status, 204, "{gone:?}");
    let (is_admin, _) = me(&stage, &json!([])).await;
    assert_eq!(is_admin, true);
}

#[tokio::test]
async fn the_first_account_of_all_is_an_administrators() {
    let provider = Provider::start().await;
    let mut config = config(&provider.issuer);
    gives(&mut config);
    config.create_accounts = true;
    let oidc = Arc::new(Oidc::new(config).unwrap());
    let served = Served::start_with(|api| api.with_oidc(oidc)).await;
    let stage = Stage { served, ada: Client::default(), provider };
    stage.provider.inner().claims = json!({ "preferred_username": "grace", "groups": ["staff"] });
    let early = stage.sign_in().await;
    assert_eq!((early.status.as_u16(), session(&early)), (409, None), "{early:?}");
    assert!(!stage.served.catalog.has_accounts().await.unwrap());
    stage.provider.inner().claims = json!({ "preferred_username": "grace", "groups": ["admins"] });
    let grace = stage.signed_in().await;
    assert_eq!(stage.served.ask(&grace, "GET /accounts", None).await.status, 200);
    // The setup token is useless then.
    let body = json!({
        "token": stage.served.setup_token, "account": "ada", "password": PASSWORD,
    });
    let late = stage.served.ask(&Client::default(), "POST /setup", Some(body)).await;
    assert_eq!(late.status, 409);
}

#[tokio::test]
async fn who_has_a_password_and_no_subject_has_nothing_from_groups() {
    let stage = stage().await;
    let body = json!({ "name": SUB, "password": PASSWORD });
    assert_eq!(stage.served.ask(&stage.ada, "POST /accounts", Some(body)).await.status, 201);
    me(&stage, &json!(["admins", "staff"])).await;
    let account = stage.served.ask(&stage.ada, &format!("GET /accounts/{SUB}"), None).await;
    assert_eq!(account.body["is_admin"], false);
    let ada = stage.served.ask(&stage.ada, "GET /session", None).await;
    assert_eq!((&ada.body["is_admin"], &ada.body["roles"]), (&json!(true), &json!({})));
}

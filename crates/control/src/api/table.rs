//! The table of routes: paths, actions, handlers and schemas.

use std::fmt::Write;
use std::pin::Pin;

use axum::http::Method;

use super::handlers::{
    accounts, apps, audit, import, keys, meta, oidc, permits, policies, refused, sessions, stream,
    tokens, traffic, whatif,
};
use super::problem::ApiProblem;
use super::request::{ApiRequest, ApiResponse};
use super::route::Route;
use crate::access::{Account, Action, Actor, Role, Scope, Token, allow};

/// The future that a handler returns.
pub(super) type Handled = Pin<Box<dyn Future<Output = Result<ApiResponse, ApiProblem>> + Send>>;

/// The handler of a route.
pub(super) type Handler = fn(ApiRequest) -> Handled;

/// `METHOD path Action handler status [asks Schema] [answers Schema] [versioned yes] [called_back yes]`
macro_rules! routes {
    ($($method:ident $path:literal $action:ident $module:ident::$handler:ident $status:literal
       $(asks $asks:ident)? $(answers $answers:ident)? $(versioned $versioned:ident)?
       $(called_back $called_back:ident)?;)+) => {
        pub(super) static ROUTES: &[(Route, Handler)] = &[$((Route {
            method: Method::$method,
            path: $path,
            action: Action::$action,
            status: $status,
            asks: routes!(@name $($asks)?),
            answers: routes!(@name $($answers)?),
            is_versioned: routes!(@is $($versioned)?),
            is_called_back: routes!(@is $($called_back)?),
        }, |ask| Box::pin($module::$handler(ask)))),+];
    };
    (@name) => { None };
    (@name $name:ident) => { Some(stringify!($name)) };
    (@is) => { false };
    (@is yes) => { true };
}

routes! {
    GET "/openapi.json" Describe meta::openapi 200;
    GET "/meta" SeeMeta meta::meta 200 answers Meta;
    GET "/schema/policy.json" Describe meta::policy_schema 200;
    POST "/setup" SetUp sessions::set_up 201 asks SetUp answers Account;
    POST "/session" SignIn sessions::sign_in 200 asks SignIn answers Me;
    GET "/session" SeeSession sessions::me 200 answers Me;
    DELETE "/session" SignOut sessions::sign_out 204;
    DELETE "/sessions" SignOut sessions::sign_out_everywhere 204;
    PUT "/session/password" ChangePassword sessions::change_password 204 asks NewPassword;
    GET "/oidc/login" SignInElsewhere oidc::login 303;
    GET "/oidc/callback" SignInElsewhere oidc::callback 303 called_back yes;
    GET "/oidc/problem" SignInElsewhere oidc::problem 200 answers SignInFailure;
    GET "/sessions" SeeSession sessions::list 200 answers Sessions;
    GET "/people" FindPeople accounts::people 200 answers People;
    GET "/accounts" SeeAccounts accounts::list 200 answers Accounts;
    POST "/accounts" CreateAccount accounts::create 201 asks NewAccount answers Account;
    GET "/accounts/{account}" SeeAccounts accounts::get 200 answers Account;
    PATCH "/accounts/{account}" ChangeAccount accounts::change 200
        asks AccountChange answers Account versioned yes;
    DELETE "/accounts/{account}" DeleteAccount accounts::delete 204 versioned yes;
    GET "/accounts/{account}/sessions" SeeAccounts accounts::sessions 200 answers Sessions;
    DELETE "/accounts/{account}/sessions" EndSessions accounts::end_sessions 204;
    GET "/apps" ListApps apps::list 200 answers Apps;
    GET "/app-summaries" ListApps apps::summaries 200 answers AppSummaries;
    GET "/search" Search apps::search 200 answers Hits;
    GET "/changes" SeeChanges policies::latest 200 answers Changes;
    GET "/tokens" SeeEndingTokens tokens::ending 200 answers EndingTokens;
    POST "/apps" CreateApp apps::create 201 asks NewApp answers App;
    GET "/apps/{app}" SeeApp apps::get 200 answers App;
    PATCH "/apps/{app}" ChangeApp apps::change 200 asks AppChange answers App versioned yes;
    DELETE "/apps/{app}" DeleteApp apps::delete 204 versioned yes;
    GET "/apps/{app}/members" SeeMembers apps::members 200 answers Members;
    PUT "/apps/{app}/members/{account}" ChangeMembers apps::set_member 204 asks MemberRole;
    DELETE "/apps/{app}/members/{account}" ChangeMembers apps::remove_member 204;
    GET "/apps/{app}/policies" SeePolicies policies::list 200 answers Policies;
    GET "/apps/{app}/policy-summaries" SeePolicies policies::summaries 200
        answers PolicySummaries;
    POST "/apps/{app}/policies" CreatePolicy policies::create 201 asks NewPolicy answers Policy;
    PUT "/apps/{app}/policies" ApplyPolicies policies::apply 200 asks WantedPolicies answers Applied;
    POST "/apps/{app}/validate" ValidatePolicy policies::validate 200
        asks NewPolicy answers Validated;
    GET "/apps/{app}/policies/{policy}" SeePolicies policies::get 200 answers Policy;
    PUT "/apps/{app}/policies/{policy}" ChangePolicy policies::change 200
        asks PolicyDocument answers Policy versioned yes;
    DELETE "/apps/{app}/policies/{policy}" DeletePolicy policies::delete 204 versioned yes;
    POST "/apps/{app}/policies/{policy}/activate" ActivatePolicy policies::activate 200
        answers Policy versioned yes;
    POST "/apps/{app}/policies/{policy}/shadow" ShadowPolicy policies::shadow 200
        answers Policy versioned yes;
    POST "/apps/{app}/policies/{policy}/rollback" RollBackPolicy policies::roll_back 200
        asks RollBack answers Policy versioned yes;
    POST "/apps/{app}/policies/{policy}/restore" RestorePolicy policies::restore 200
        asks Restore answers Policy;
    GET "/apps/{app}/policies/{policy}/versions" SeePolicies policies::versions 200
        answers Versions;
    GET "/apps/{app}/policies/{policy}/versions/{version}" SeePolicies policies::version 200
        answers Version;
    GET "/apps/{app}/policies/{policy}/diff" SeePolicies policies::diff 200 answers Diffs;
    POST "/apps/{app}/policies/{policy}/keys/peek" SeeKey keys::peek 200 asks Key answers Budget;
    POST "/apps/{app}/policies/{policy}/keys/explain" ExplainKey keys::explain 200
        asks Explain answers ExplainedKey;
    POST "/apps/{app}/explain" ExplainKey keys::explain_request 200
        asks Explain answers ExplainedKey;
    POST "/apps/{app}/import" ImportPolicies import::preview 200
        asks ImportText answers ImportPreview;
    POST "/apps/{app}/whatif" WhatIf whatif::compare 200 asks WhatIf answers Compared;
    POST "/apps/{app}/policies/{policy}/keys/try" TryKey keys::try_one 200
        asks Explain answers ExplainedKey;
    POST "/apps/{app}/policies/{policy}/keys/reset" ResetKey keys::reset 200 asks Key answers Budget;
    POST "/apps/{app}/policies/{policy}/keys/grant" GrantKey keys::grant 200
        asks Grant answers Budget;
    POST "/apps/{app}/policies/{policy}/keys/permits" SeePermits permits::list 200
        asks Key answers HeldPermits;
    POST "/apps/{app}/policies/{policy}/keys/release" ReleasePermit permits::release 200
        asks Release answers HeldPermits;
    POST "/apps/{app}/policies/{policy}/keys/boost" BoostKey policies::boost 200
        asks Boost answers Policy;
    GET "/apps/{app}/tokens" SeeTokens tokens::list 200 answers Tokens;
    POST "/apps/{app}/tokens" CreateToken tokens::create 201 asks NewToken answers TokenMade;
    DELETE "/apps/{app}/tokens/{token}" RevokeToken tokens::revoke 204;
    GET "/apps/{app}/audit" SeeAppAudit audit::of_app 200 answers Entries;
    GET "/audit" SeeAudit audit::list 200 answers Entries;
    GET "/audit/verified" SeeAudit audit::verify 200 answers Verified;
    GET "/audit/export" SeeAudit audit::export 200;
    GET "/apps/{app}/traffic" SeeTraffic traffic::of_app 200 answers Traffic;
    GET "/apps/{app}/stream" Watch stream::stream 200;
    GET "/apps/{app}/policies/{policy}/top" SeeTraffic refused::top 200 answers RefusedKeys;
    GET "/apps/{app}/policies/{policy}/rollout" SeeTraffic refused::rollout 200 answers Rollout;
    GET "/traffic" SeeOverview traffic::of_all 200 answers TrafficOverview;
    GET "/fleet" SeeFleet meta::fleet 200 answers Fleet;
    GET "/nodes" SeeNodes meta::nodes 200 answers Nodes;
    GET "/settings" SeeSettings meta::settings 200 answers Settings;
}

/// The actors in the columns of the table.
fn actors() -> Vec<(&'static str, Actor)> {
    let account = |app: &str, role: Option<Role>, is_admin| {
        let (id, name) = ("id".to_owned(), "name".to_owned());
        let roles = role.map(|role| (app.to_owned(), role)).into_iter().collect();
        Actor::Account(Account { id, name, is_admin, roles })
    };
    let token = |scope| {
        let (id, name) = ("id".to_owned(), "name".to_owned());
        Actor::Token(Token { id, name, app: "app".to_owned(), scopes: vec![scope] })
    };
    let mut actors = vec![
        ("nobody", Actor::Nobody),
        ("other app's owner", account("other", Some(Role::Owner), false)),
        ("viewer", account("app", Some(Role::Viewer), false)),
        ("owner", account("app", Some(Role::Owner), false)),
        ("admin", account("app", None, true)),
    ];
    actors.extend(Scope::ALL.map(|scope| (scope.name(), token(scope))));
    actors
}

/// Returns the permissions as a table in Markdown: every route with every role and scope, by the function that
/// decides requests.
pub fn access_table() -> String {
    let actors = actors();
    let mut table = String::from("| method | path | action |");
    for (name, _) in &actors {
        write!(table, " {name} |").expect("a String takes all text");
    }
    table.push_str("\n|---|---|---|");
    table.push_str(&":-:|".repeat(actors.len()));
    table.push('\n');
    for (Route { method, path, action, .. }, _) in ROUTES {
        write!(table, "| {method} | `{path}` | {} |", action.name())
            .expect("a String takes all text");
        for (_, actor) in &actors {
            let app = path.contains("{app}").then_some("app");
            let may = allow(actor, *action, app).is_ok();
            table.push_str(if may { " ✓ |" } else { " – |" });
        }
        table.push('\n');
    }
    table
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::access::AccessRule;

    #[test]
    fn every_action_has_a_route_and_what_is_done_in_an_app_says_in_which() {
        let routed: BTreeSet<_> = ROUTES.iter().map(|(route, _)| route.action).collect();
        assert_eq!(routed, Action::ALL.iter().copied().collect());
        for (route, _) in ROUTES {
            let in_app = matches!(route.action.rule(), AccessRule::InApp(..));
            assert!(!in_app || route.path.contains("{app}"), "{}", route.path);
        }
    }

    #[test]
    fn routes_that_get_change_nothing() {
        for (route, _) in ROUTES {
            let reads = route.method == Method::GET || route.path.ends_with("/validate");
            let reads = reads || route.path.ends_with("/peek") || route.path.ends_with("/explain");
            let reads = reads
                || ["/whatif", "/import", "/permits"].iter().any(|end| route.path.ends_with(end));
            assert_eq!(!reads, route.action.writes(), "{} {}", route.method, route.path);
            assert!(!route.is_versioned || route.action.writes(), "{}", route.path);
        }
    }

    #[test]
    fn viewers_write_nothing_and_owners_of_others_see_nothing() {
        let actors = actors();
        let of = |name| &actors.iter().find(|(own, _)| *own == name).expect("it is one of them").1;
        for (route, _) in ROUTES.iter().filter(|(route, _)| route.path.contains("{app}")) {
            let (app, action) = (Some("app"), route.action);
            assert!(allow(of("other app's owner"), action, app).is_err(), "{}", route.path);
            assert_eq!(
                allow(of("viewer"), action, app).is_err(),
                action.writes(),
                "{}",
                route.path
            );
            for scope in ["check", "refund"] {
                assert!(allow(of(scope), action, app).is_err(), "{}", route.path);
            }
        }
    }
}

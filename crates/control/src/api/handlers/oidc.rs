//! Sign-in with OpenID Connect: the redirect to the provider, and its callback.

use axum::http::StatusCode;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use super::{SignInFailure, oidc_of};
use crate::access::{AccessDenied, Action, Actor};
use crate::api::Api;
use crate::api::problem::ApiProblem;
use crate::api::request::{ApiRequest, ApiResponse};
use crate::audit::AuditTarget;
use crate::catalog::{ChangeContext, ExternalIdentity, NewSession, Repeatable};
use crate::error::Error;
use crate::identity::{CallbackParams, CompletedLogin, Oidc, Secret, SecretKind, SignInError};
use sluicegate_policy::finding;

/// The cookie of a sign-in. It comes back with the browser that the provider sends back, so it cannot be
/// as strict as the one of a session.
const COOKIE: &str = "__Host-sluicegate-login";
const ATTRIBUTES: &str = "Path=/; Secure; HttpOnly; SameSite=Lax";

/// Page to which everybody is sent after sign-in: no request can choose another.
const HOME: &str = "/";

/// Page of the console to which people are sent whose sign-in failed, and the cookie that has the reason, so
/// that no link of another site can make the page show one.
const SIGN_IN: &str = "/sign-in";
const PROBLEM: &str = "__Host-sluicegate-problem";

/// Lifetime of the reason, in seconds: enough for the page to fetch it.
const PROBLEM_S: u32 = 60;

/// Maximum size of a reason, in bytes, so that browsers keep the cookie: they accept 4 KiB.
const PROBLEM_BYTES_MAX: usize = 2_800;

pub(in crate::api) async fn login(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let answered = begin(&ask).await;
    on_page(&ask, answered)
}

pub(in crate::api) async fn callback(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let answered = end(&ask).await;
    on_page(&ask, answered)
}

pub(in crate::api) async fn problem(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let kept = ask.cookie(PROBLEM).and_then(|kept| BASE64_URL_SAFE_NO_PAD.decode(kept).ok());
    let problem = kept.and_then(|kept| serde_json::from_slice(&kept).ok());
    let forget = format!("{PROBLEM}=; Max-Age=0; {ATTRIBUTES}");
    Ok(ApiResponse::ok(&SignInFailure { problem }).set_cookie(&forget))
}

/// Sends a browser whose sign-in failed to the console, where there is one.
fn on_page(
    ask: &ApiRequest,
    answered: Result<ApiResponse, ApiProblem>,
) -> Result<ApiResponse, ApiProblem> {
    let problem = match answered {
        Err(problem) if ask.api.has_console && ask.wants_page() => problem,
        answered => return answered,
    };
    let body = problem.body();
    let kept = if body.len() > PROBLEM_BYTES_MAX { &b"{}"[..] } else { &body };
    let kept = BASE64_URL_SAFE_NO_PAD.encode(kept);
    let page = ApiResponse::see(SIGN_IN).expect("a path is plain text");
    Ok(page.set_cookie(&format!("{PROBLEM}={kept}; Max-Age={PROBLEM_S}; {ATTRIBUTES}")))
}

async fn begin(ask: &ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let (api, oidc) = (&ask.api, oidc_of(&ask.api)?);
    api.attempts.begin(&ask.by.source)?;
    let begun = oidc.begin(ask.session.as_deref(), ask.by.at).await.map_err(problem_of)?;
    let no_location =
        || problem_of(SignInError::Unbelievable("invalid authorization URL".to_owned()));
    let reply = ApiResponse::see(&begun.location).ok_or_else(no_location)?;
    let span = Oidc::cookie_s();
    Ok(reply.set_cookie(&format!("{COOKIE}={}; Max-Age={span}; {ATTRIBUTES}", begun.cookie)))
}

async fn end(ask: &ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let (api, oidc) = (&ask.api, oidc_of(&ask.api)?);
    let attempt = api.attempts.of_source(&ask.by.source)?;
    let called: CallbackParams = ask.called_back()?;
    let cookie = ask.cookie(COOKIE).unwrap_or_default();
    let ended = match oidc.end(cookie, &called, ask.by.at).await {
        Ok(ended) => ended,
        Err(refused) => {
            attempt.failed();
            return Err(problem_of(refused));
        }
    };
    let (secret, spans) = (Secret::new(SecretKind::Session), api.spans);
    // The new session replaces those of this browser.
    let old: Vec<_> = ended.session.iter().chain(&ask.session).map(String::as_str).collect();
    let session = NewSession { hash: &secret.hash(), spans, instead_of: &old };
    sign_in(api, oidc, &ended, session, &ask.by).await?;
    let reply = ApiResponse::see(HOME).expect("a path is plain text").cookie(Some(secret.expose()));
    Ok(reply.set_cookie(&format!("{COOKIE}=; Max-Age=0; {ATTRIBUTES}")))
}

/// Signs a person in. A refusal is audited, since the provider has identified the person.
async fn sign_in(
    api: &Api,
    oidc: &Oidc,
    ended: &CompletedLogin,
    session: NewSession<'_>,
    by: &ChangeContext,
) -> Result<(), ApiProblem> {
    let (config, person) = (oidc.config(), &ended.person);
    let subject = format!("{}|{}", config.issuer, person.sub);
    let by = ChangeContext {
        actor: Actor::Provider,
        reason: format!("as claimed by {}", config.issuer),
        request: Some(Repeatable { name: ended.id.clone(), question: "oidc".to_owned() }),
        ..by.clone()
    };
    let (is_admin, roles) = (config.is_admin(&person.groups), config.roles_of(&person.groups));
    let name = person.name.as_deref().filter(|_| config.create_accounts);
    let who = ExternalIdentity { subject: &subject, name, is_admin, roles: &roles };
    let denied = match api.catalog.sign_in_elsewhere(&by, who, session).await {
        Ok(()) => return Ok(()),
        Err(error) => denied(error, &subject, config.create_accounts)?,
    };
    if let Some(unnoted) = api.refused.suppressed(&subject) {
        let target = AuditTarget::alone(&person.sub);
        api.catalog.audit_denied_after(&by, Action::SignInElsewhere, target, unnoted).await?;
    }
    Err(denied)
}

/// Returns the problem of a person whom the provider has identified, but who is not admitted.
///
/// # Errors
/// Errors that do not depend on the person.
fn denied(error: Error, subject: &str, creates: bool) -> Result<ApiProblem, ApiProblem> {
    let detail = match &error {
        Error::NotFound(_) if creates => finding!(
            "no_name_from_provider",
            "no account was created: the provider sends neither a verified e-mail address nor a \
             user name; ask an administrator to create one with the subject `{subject}`",
            subject
        ),
        Error::NotFound(_) => finding!(
            "no_account",
            "account not found; ask an administrator to create one with the subject `{subject}`",
            subject
        ),
        Error::Denied(AccessDenied::Forbidden) => finding!("account_disabled", "account disabled"),
        Error::Taken => finding!(
            "name_of_other_account",
            "your name already belongs to another account; ask an administrator to create one with the \
             subject `{subject}`",
            subject
        ),
        Error::Invalid(_) => finding!(
            "name_unusable",
            "your name is not a valid account name; ask an administrator to create one with the subject \
             `{subject}`",
            subject
        ),
        _ => return Err(error.into()),
    };
    Ok(ApiProblem::new(StatusCode::FORBIDDEN, detail))
}

/// Returns the problem of a sign-in that was not completed; the reason that it does not show is logged.
fn problem_of(refused: SignInError) -> ApiProblem {
    let detail = finding!("oidc_failed", "{problem}", problem = refused);
    match refused {
        SignInError::Foreign => ApiProblem::new(StatusCode::BAD_REQUEST, detail),
        SignInError::Told(_) => ApiProblem::new(StatusCode::FORBIDDEN, detail),
        SignInError::Code(reason) | SignInError::Unbelievable(reason) => {
            tracing::warn!("oidc sign-in failed: {detail}: {reason}");
            ApiProblem::new(StatusCode::FORBIDDEN, detail)
        }
        SignInError::Away(reason) => {
            tracing::warn!("oidc sign-in failed: {detail}: {reason}");
            ApiProblem::unavailable(detail)
        }
        SignInError::Busy => ApiProblem::unavailable(detail),
    }
}

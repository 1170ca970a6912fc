//! The IO of forward-auth.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use axum::http::request::Parts;
use axum::routing::any;
use sluicegate::internals::gateway::{self, GUARDING_MAX, Guarding, PolicyDecision};
use sluicegate::{DecideError, PermitId};
use sluicegate_control::Scope;
use sluicegate_net::headers;
use sluicegate_policy::PolicySet;

use super::codec::{
    AuthError, GatewayRequest, HeldBy, Query, TOKEN, TrustedPeers, encode, encode_held,
};
use crate::authenticator::{CallerError, ListenerAuth};
use crate::engine::ServerEngine;
use crate::log_pace::LogPace;
use crate::protocol::Peer;
use crate::protocol::Wire;
use crate::verbs::VerbName;
use crate::wire::headers::BudgetHeaders;
use crate::wire::http::codec::Problem;
use crate::wire::http::response::problem;
use crate::wire::http::unnamed::{self, new_id};

/// The path where all policies that guard the request decide.
pub(in crate::wire::http) const AUTH: &str = "/v1/auth";

/// The path where one policy decides.
pub(in crate::wire::http) const AUTH_POLICY: &str = "/v1/auth/{policy}";

/// Answers gateways.
#[derive(Debug)]
struct AuthHandler {
    engine: Arc<ServerEngine>,
    listener_auth: ListenerAuth,
    trusted: Arc<TrustedPeers>,
    headers: BudgetHeaders,
    /// The log has the first request without an app, and the first for which policies were left out.
    told_no_app: AtomicBool,
    told_left_out: AtomicBool,
    /// Requests that passed because no policy has `match`, or those that match are for other apps.
    unguarded: LogPace,
}

/// The routes for gateways. Requests must carry their peer: see [`knowing`].
pub(in crate::wire::http) fn routes(
    engine: &Arc<ServerEngine>,
    listener_auth: &ListenerAuth,
    trusted: Arc<TrustedPeers>,
    headers: BudgetHeaders,
) -> Router {
    let answer = async |State(handler): State<Arc<AuthHandler>>, request: Request| {
        // The body is the client's and not needed here; its first bytes may be there all the same.
        let (head, _body) = request.into_parts();
        let answer = handler.answer(&head).await;
        answer.unwrap_or_else(|error| problem(&Problem::from(error)).map(Body::new))
    };
    let handler = AuthHandler {
        engine: Arc::clone(engine),
        listener_auth: listener_auth.clone(),
        trusted,
        headers,
        told_no_app: AtomicBool::new(false),
        told_left_out: AtomicBool::new(false),
        unguarded: LogPace::default(),
    };
    Router::new()
        .route(AUTH, any(answer))
        .route(AUTH_POLICY, any(answer))
        .with_state(Arc::new(handler))
}

/// Adds `peer` to `request`, if it is of forward-auth.
pub(in crate::wire::http) fn knowing<B>(peer: Peer, mut request: Request<B>) -> Request<B> {
    if request.uri().path().starts_with(AUTH) {
        request.extensions_mut().insert(peer);
    }
    request
}

/// Returns whether any policy has `match`.
fn has_match(policies: &PolicySet) -> bool {
    policies.policies().iter().any(|policy| policy.matcher().is_some())
}

impl AuthHandler {
    async fn answer(&self, head: &Parts) -> Result<Response<Body>, AuthError> {
        let parent = self.engine.parent(&head.headers);
        let Query { deny, app } = Query::decode(head.uri.query().unwrap_or_default())?;
        let turn = self.engine.turn(Wire::Http);
        let caller =
            self.listener_auth.authenticate(headers::only(&head.headers, &TOKEN), || turn.now());
        let caller = caller.and_then(|caller| {
            caller.permits(VerbName::Check)?;
            caller.may(Scope::Check)?;
            Ok(caller)
        });
        let refuse = |refused| match self.listener_auth.count_refused(refused) {
            verb @ CallerError::Verb(_) => AuthError::NotPermitted(verb),
            other => AuthError::Refused(other),
        };
        let caller = caller.map_err(refuse)?;
        let app = caller.app(app).map_err(refuse)?;
        if app.is_none() && self.listener_auth.has_tokens() {
            return Err(self.no_app());
        }
        let peer = head.extensions.get().expect("connections say who asks");
        let guarded = GatewayRequest::decode(&head.headers, *peer, &self.trusted)?;
        let budgets =
            match head.uri.path().strip_prefix(AUTH).and_then(|path| path.strip_prefix('/')) {
                None => {
                    let Guarding { budgets, left_out, of_others } =
                        guarded.guarding(turn.policies(), app)?;
                    self.leave_out(left_out);
                    if budgets.is_empty() && of_others > 0 && app.is_none() {
                        self.log_of_others();
                    } else if budgets.is_empty() && !has_match(turn.policies()) {
                        self.log_unguarded();
                    }
                    budgets
                }
                Some(name) => match turn.policies().resolve(name) {
                    Some(policy) => vec![guarded.budget(policy)?],
                    None => {
                        let near = self.engine.near_policy(name, |policy| policy.admits(app));
                        let error = DecideError::UnknownPolicy(name.to_owned());
                        return Err(AuthError::NoPolicy { error, near });
                    }
                },
            };
        if let [budget] = &*budgets
            && budget.policy.hands_out_permits()
        {
            caller.permits(VerbName::Acquire).map_err(refuse)?;
            let id = new_id();
            let request = budget.acquire(app, PermitId::named(&id));
            let admission = unnamed::acquire(&self.engine, &request, parent).await?;
            let decided = PolicyDecision {
                policy: Arc::clone(&budget.policy),
                key: budget.key.clone(),
                admission,
            };
            return Ok(encode_held(decided, HeldBy { app, id: &id }, deny, self.headers));
        }
        let decided = parent.over(gateway::decide(&turn, &budgets, app)).await?;
        Ok(encode(&decided, deny, self.headers))
    }

    /// Counts a request without an app, and logs the first.
    #[cold]
    fn no_app(&self) -> AuthError {
        self.listener_auth.count_refused(CallerError::NoApp);
        if !self.told_no_app.swap(true, Ordering::Relaxed) {
            tracing::warn!("forward-auth: gateway request failed: {}", AuthError::NoApp);
        }
        AuthError::NoApp
    }

    /// Logs a request that passed because no policy can apply to it.
    #[cold]
    #[expect(clippy::disallowed_methods, reason = "the log is paced, nothing is decided by it")]
    fn log_unguarded(&self) {
        if let Some(count) = self.unguarded.count(Instant::now()) {
            tracing::warn!(
                "forward-auth: a request passed because no policy has `match` ({count} such requests since the last \
                 line); give policies `match`, or ask for one by {AUTH}/NAME"
            );
        }
    }

    /// Logs a request without an app that passed because the policies that match it are for apps.
    #[cold]
    #[expect(clippy::disallowed_methods, reason = "the log is paced, nothing is decided by it")]
    fn log_of_others(&self) {
        if let Some(count) = self.unguarded.count(Instant::now()) {
            tracing::warn!(
                "forward-auth: a request without an app passed, because each policy that matches it has `apps` \
                 ({count} such requests since the last line); set `http.app`, or ask for {AUTH}?app=NAME"
            );
        }
    }

    /// Counts policies that are not decided because too many guard one request, and logs the first.
    fn leave_out(&self, policies: usize) {
        if policies == 0 {
            return;
        }
        self.engine.telemetry().leave_out(policies);
        if !self.told_left_out.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "forward-auth: more than {GUARDING_MAX} policies match a request; {policies} skipped"
            );
        }
    }
}

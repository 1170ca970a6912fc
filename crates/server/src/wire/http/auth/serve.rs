//! The IO of forward-auth.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use axum::http::request::Parts;
use axum::routing::any;
use sluicegate::DecideError;
use sluicegate_control::Scope;

use super::codec::{AuthError, Guarded, Query, TOKEN, TrustedPeers, encode};
use super::several;
use crate::callers::Door;
use crate::gate::Gate;
use crate::wire::accept::Peer;
use crate::wire::headers::Headers;
use crate::wire::http::codec::Problem;
use crate::wire::http::serve::problem;
use crate::wire::token;

/// Where all policies are asked that guard the request.
pub(in crate::wire::http) const AUTH: &str = "/v1/auth";

/// Where one is.
pub(in crate::wire::http) const AUTH_POLICY: &str = "/v1/auth/{policy}";

/// Who answers gateways.
#[derive(Debug)]
struct Desk {
    gate: Arc<Gate>,
    door: Door,
    trusted: Arc<TrustedPeers>,
    headers: Headers,
}

/// What a router of HTTP takes to answer gateways. It must be told who asks: [`knowing`].
pub(in crate::wire::http) fn routes(
    (gate, door): (&Arc<Gate>, &Door),
    trusted: Arc<TrustedPeers>,
    headers: Headers,
) -> Router {
    let answer = async |State(desk): State<Arc<Desk>>, request: Request| {
        // What the client sends is not for here; its first bytes may be there all the same.
        let (head, _body) = request.into_parts();
        let answer = desk.answer(&head).await;
        answer.unwrap_or_else(|error| problem(&Problem::from(error)).map(Body::new))
    };
    Router::new()
        .route(AUTH, any(answer))
        .route(AUTH_POLICY, any(answer))
        .with_state(Arc::new(Desk { gate: Arc::clone(gate), door: door.clone(), trusted, headers }))
}

/// `request`, told that `peer` asks where that matters.
pub(in crate::wire::http) fn knowing<B>(peer: Peer, mut request: Request<B>) -> Request<B> {
    if request.uri().path().starts_with(AUTH) {
        request.extensions_mut().insert(peer);
    }
    request
}

impl Desk {
    async fn answer(&self, head: &Parts) -> Result<Response<Body>, AuthError> {
        let parent = self.gate.parent(&head.headers);
        let Query { deny, app } = Query::decode(head.uri.query().unwrap_or_default())?;
        let caller =
            self.door.admit(token::only(&head.headers, &TOKEN), || self.gate.engine().now());
        let caller = caller.and_then(|caller| caller.may(Scope::Check).map(|()| caller));
        let refuse = |refused| AuthError::Refused(self.door.note(refused));
        let caller = caller.map_err(refuse)?;
        let app = caller.app(app).map_err(refuse)?;
        let peer = head.extensions.get().expect("connections say who asks");
        let guarded = Guarded::decode(&head.headers, *peer, &self.trusted)?;
        let policies = self.gate.engine().policies();
        let budgets =
            match head.uri.path().strip_prefix(AUTH).and_then(|path| path.strip_prefix('/')) {
                None => guarded.matching(&policies, app)?,
                Some(name) => match policies.resolve(name) {
                    Some(policy) => vec![guarded.budget(policy)?],
                    None => return Err(DecideError::UnknownPolicy(name.to_owned()).into()),
                },
            };
        let decided = parent.over(several::pass(&self.gate, budgets, app)).await?;
        Ok(encode(&decided, deny, self.headers))
    }
}

//! A layer by policies: each request is decided by an engine, on its store.

use std::fmt;
use std::sync::Arc;

use ::http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use ::http::request::Parts;
use ::http::{Extensions, HeaderName, HeaderValue, Response, StatusCode};
use sluicegate_kernel::{Cost, Micros, Verb};
use sluicegate_policy::Fallback;
use sluicegate_store::Store;

use super::limiter::{Decided, Deciding, Hold, LayerLimiter, LayerRequest, Ruling, Undecided, Way};
use crate::engine::{
    Admission, DecideError, Disposition, Engine, Mode, Observer, Patience, Request,
};

/// Longest delay of a request under [`Hold::AsTold`]: clients and proxies give up before a minute is over
/// unless they are configured for more. A request that would take longer is refused.
const HOLD_MAX: Micros = Micros::from_secs(60);

/// Finds the name of the policy that guards a request.
pub(super) enum PolicyName {
    Fixed(Arc<str>),
    Of(Box<dyn for<'r> Fn(&'r Parts) -> &'r str + Send + Sync>),
}

/// The limits of policies, as a limiter of a layer.
pub(super) struct PolicyLimiter<S, O: Observer> {
    engine: Arc<Engine<S, O>>,
    name: PolicyName,
}

/// A request that owns its data, for use after the call of the layer.
struct DetachedRequest {
    policy: String,
    key: Option<Vec<u8>>,
    app: Option<Arc<str>>,
    verb: Verb,
    patience: Patience,
}

impl<S, O: Observer> PolicyLimiter<S, O> {
    pub(super) fn new(engine: Arc<Engine<S, O>>, name: PolicyName) -> Self {
        Self { engine, name }
    }
}

impl<S: Store + fmt::Debug + 'static, O: Observer<Label: Default>> LayerLimiter
    for PolicyLimiter<S, O>
{
    fn decide(&self, request: &LayerRequest<'_>) -> Deciding {
        let detached = DetachedRequest::new(self.name.of(request.parts), request);
        if request.keeps {
            return self.hold(&detached, request);
        }
        let turn = self.engine.turn_for(O::Label::default());
        if let Some(decided) = turn.try_decide(&detached.request()) {
            return Deciding::Made(ruling(decided));
        }
        let engine = Arc::clone(&self.engine);
        Deciding::Awaited(Box::pin(async move {
            let turn = engine.turn_for(O::Label::default());
            ruling(turn.decide(&detached.request()).await)
        }))
    }
}

impl<S: Store + 'static, O: Observer<Label: Default>> PolicyLimiter<S, O> {
    /// Acquires the permits of a request that holds them for its time.
    fn hold(&self, detached: &DetachedRequest, request: &LayerRequest<'_>) -> Deciding {
        let patience = match request.hold {
            Hold::Never => Patience::None,
            Hold::AsTold => Patience::Gateway(HOLD_MAX),
            Hold::UpTo(max) => Patience::Permit(max),
        };
        let asked = detached.request().with_patience(patience);
        let holding = self.engine.hold(O::Label::default(), &asked, request.cost);
        let Some(holding) = holding else {
            return Deciding::Made(Err(Undecided::SetUp("there is no tokio runtime".to_owned())));
        };
        Deciding::Awaited(Box::pin(async move {
            let (admission, held) = holding.await.map_err(undecided)?;
            Ok(Ruling { held, ..ruling(Ok(admission))? })
        }))
    }
}

impl PolicyName {
    fn of<'a>(&'a self, request: &'a Parts) -> &'a str {
        match self {
            Self::Fixed(name) => name,
            Self::Of(name_of) => name_of(request),
        }
    }
}

impl DetachedRequest {
    fn new(policy: &str, request: &LayerRequest<'_>) -> Self {
        let LayerRequest { key, app, cost, hold, .. } = request;
        let (verb, patience) = ask(*cost, *hold);
        let key = match key.as_bytes() {
            [] => None,
            key => Some(key.to_vec()),
        };
        Self { policy: policy.to_owned(), key, app: app.cloned(), verb, patience }
    }

    fn request(&self) -> Request<'_> {
        let request = Request::new(&self.policy, self.key.as_deref(), self.verb.clone());
        Request { app: self.app.as_deref(), ..request.with_patience(self.patience) }
    }
}

/// Returns the verb and patience of a layer, which is a gateway: it lets a request go on or not, and the
/// client does not wait by itself.
fn ask(cost: Cost, hold: Hold) -> (Verb, Patience) {
    match hold {
        Hold::Never => (Verb::Reserve { cost, max_wait: Micros::ZERO }, Patience::None),
        Hold::AsTold => (Verb::Check { cost }, Patience::Gateway(HOLD_MAX)),
        Hold::UpTo(max) => (Verb::Check { cost }, Patience::Gateway(max)),
    }
}

/// Returns the layer's ruling after the engine's decision.
fn ruling(decided: Result<Admission, DecideError>) -> Decided {
    let Admission { answer, way, held } = decided.map_err(undecided)?;
    let mode = answer.mode;
    let way = match &way {
        Disposition::Allowed | Disposition::Shadowed => Way::Pass,
        Disposition::Refused if matches!(mode, Mode::Deny | Mode::Shed) => Way::Unavailable,
        Disposition::Refused => Way::Refuse,
        Disposition::Degraded(_) | Disposition::Diverted(_) => match way.fallback() {
            Some(Fallback::Response { status, body, headers }) => {
                let headers = headers.iter().map(|(name, value)| (&**name, &**value));
                Way::Serve(fallback(*status, body, headers))
            }
            _ => Way::Mark(marked(way)),
        },
    };
    let (decision, rules) = (answer.decision, Arc::clone(answer.rules()));
    let (rule, wait) = (answer.rule_place(), decision.wait().since(held));
    let mode = mode.name_without_store();
    Ok(Ruling { decision, rules, rule, wait, way, mode, held: None })
}

/// Returns the reason for which the layer has no decision.
fn undecided(error: DecideError) -> Undecided {
    match error {
        DecideError::Store(error) => Undecided::Unavailable(format!("store: {error}")),
        error => Undecided::SetUp(error.to_string()),
    }
}

/// Returns the response of a policy that degrades.
fn fallback<'a>(
    status: u16,
    body: &str,
    fields: impl Iterator<Item = (&'a str, &'a str)>,
) -> Response<String> {
    let mut response = Response::new(body.to_owned());
    *response.status_mut() = StatusCode::from_u16(status).expect("policies have 200 to 599");
    for (name, value) in fields {
        let field = (HeaderName::try_from(name), HeaderValue::from_bytes(value.as_bytes()));
        // The server determines the length of the body, and the way in which it is sent.
        if let (Ok(name), Ok(value)) = field
            && ![CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING].contains(&name)
        {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

fn marked(way: Disposition) -> Extensions {
    let mut extensions = Extensions::new();
    extensions.insert(way);
    extensions
}

impl<S, O: Observer> fmt::Debug for PolicyLimiter<S, O>
where
    Engine<S, O>: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { engine, name: _ } = self;
        f.debug_struct("PolicyLimiter").field("engine", engine).finish_non_exhaustive()
    }
}

//! Live traffic, as `text/event-stream`: counts of each second, new revisions, decisions.
//!
//! ```text
//! event: tick      {"at":…,"node":"a","counts":{"orders":{"allowed":7,…}}}
//! event: revision  {"revision":12}
//! event: decision  as `/v1/events` has it; at most 20 a second
//! event: end       {"reason":"…"}
//! ```
//!
//! The seconds are those of the node that answers. Every ten seconds, the permission is checked again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use futures_util::stream;
use serde_json::{Value as Json, json};
use sluicegate_policy::finding;
use tokio::time::{Instant, sleep_until};

use crate::access::{Action, Actor, allow};
use crate::api::Api;
use crate::api::problem::ApiProblem;
use crate::api::request::{ApiRequest, ApiResponse};
use crate::traffic::{Counts, EVENT_RESULTS, LiveEvent, LiveStream, RESULTS, StreamFilter};

/// Most streams of a node, and of one account.
const STREAMS_MAX: usize = 32;
const STREAMS_OF_ACCOUNT_MAX: usize = 2;

/// Most policies of a stream: all streams watch as many as a node counts by the second.
const POLICIES_MAX: usize = 50;

/// Most decisions in a second: more cannot be read.
const DECISIONS_MAX: u32 = 20;

/// Interval at which the permission is checked again.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Longest silence before a comment is sent: proxies give up after 30 s.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// Open streams of a node, each as the id of its account.
#[derive(Debug, Default)]
pub(in crate::api) struct Streams(Mutex<Vec<String>>);

/// A place among the open streams, freed when it is dropped.
struct OpenStream {
    streams: Arc<Streams>,
    account: String,
}

/// State of one stream.
struct Watching {
    api: Api,
    app: String,
    /// The hash of the session.
    session: String,
    policies: Vec<String>,
    live: Box<dyn LiveStream>,
    revision: i64,
    /// Decisions sent since the last tick.
    decisions: u32,
    look_at: Instant,
    is_over: bool,
    _open: OpenStream,
}

pub(in crate::api) async fn stream(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let app = ask.param("app").to_owned();
    ask.api.catalog.app(&app).await?;
    let owned = ask.api.catalog.policy_owners(Some(&app)).await?;
    let query = ask.query();
    let mut policies: Vec<_> =
        query.policy.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    policies.sort_unstable();
    policies.dedup();
    let is_owned = |policy: &&String| owned.iter().any(|(owned, _)| owned == *policy);
    if let Some(unknown) = policies.iter().chain(&query.tail).find(|policy| !is_owned(policy)) {
        let names = owned.iter().map(|(name, _)| name.as_str());
        return Err(ApiProblem::not_found("policy", unknown, names));
    }
    if policies.len() > POLICIES_MAX {
        let problem = finding!(
            "too_many_policies_asked",
            "policy: expected at most {max} names, got {count}",
            max = POLICIES_MAX,
            count = policies.len(),
        );
        return Err(ApiProblem::new(StatusCode::BAD_REQUEST, problem));
    }
    if let Some(result) =
        query.result.as_ref().filter(|result| !EVENT_RESULTS.contains(&result.as_str()))
    {
        let problem = finding!(
            "unknown_result",
            "result: `{result}` is not one of {results}",
            results = EVENT_RESULTS.join(", "),
        );
        return Err(ApiProblem::new(StatusCode::BAD_REQUEST, problem));
    }
    let (Actor::Account(account), Some(session)) = (&ask.by.actor, &ask.session) else {
        let problem = finding!("stream_without_session", "streams require a session");
        return Err(ApiProblem::new(StatusCode::FORBIDDEN, problem));
    };
    let open = Streams::enter(&ask.api.streams, &account.id).ok_or_else(too_many)?;
    let filter = StreamFilter {
        policies: policies.clone(),
        tail: query.tail.clone(),
        result: query.result.clone(),
    };
    let live = ask.api.traffic.watch(filter).ok_or_else(too_many)?;
    let watching = Watching {
        app,
        session: session.clone(),
        policies,
        live,
        revision: 0,
        decisions: 0,
        look_at: Instant::now() + LOOK_EVERY,
        is_over: false,
        _open: open,
        api: ask.api,
    };
    let events = stream::unfold(watching, |mut watching| async {
        let event = watching.next().await?;
        Some((Ok::<_, std::convert::Infallible>(event), watching))
    });
    Ok(ApiResponse::events(Body::from_stream(events)))
}

fn too_many() -> ApiProblem {
    let problem = finding!("too_many_streams", "too many streams; close another one");
    ApiProblem::new(StatusCode::TOO_MANY_REQUESTS, problem)
}

impl Watching {
    /// Returns the next event; none: the stream is over.
    async fn next(&mut self) -> Option<String> {
        let silent_at = Instant::now() + SILENCE_MAX;
        while !self.is_over {
            let revision = self.api.traffic.revision();
            if revision != self.revision {
                self.revision = revision;
                return Some(event("revision", &json!({ "revision": revision })));
            }
            tokio::select! {
                () = sleep_until(self.look_at) => {
                    self.look_at = Instant::now() + LOOK_EVERY;
                    if !may_watch(&self.api, &self.session, &self.app).await {
                        return Some(self.end("signed out, or no role in the app"));
                    }
                }
                live = self.live.next() => match live {
                    None => return Some(self.end("the server stops")),
                    Some(LiveEvent::Tick { at, counts }) => return Some(self.tick(at, &counts)),
                    Some(LiveEvent::Decision(json)) if self.decisions < DECISIONS_MAX => {
                        self.decisions += 1;
                        return Some(format!("event: decision\ndata: {json}\n\n"));
                    }
                    Some(LiveEvent::Decision(_)) => {}
                },
                () = sleep_until(silent_at) => return Some(": nothing\n\n".to_owned()),
            }
        }
        None
    }

    fn tick(&mut self, at: i64, counts: &[Counts]) -> String {
        self.decisions = 0;
        let named = counts.iter().map(|counts| RESULTS.into_iter().zip(counts.0).collect::<Json>());
        let counts: Json = self.policies.iter().cloned().zip(named).collect();
        event("tick", &json!({ "at": at, "node": self.api.traffic.node(), "counts": counts }))
    }

    fn end(&mut self, reason: &str) -> String {
        self.is_over = true;
        event("end", &json!({ "reason": reason }))
    }
}

/// Returns whether the account of this session may still watch `app`; `false` if the catalog does not answer.
async fn may_watch(api: &Api, session: &str, app: &str) -> bool {
    let live = api.catalog.use_session(session, api.now(), api.spans, true).await;
    let Ok(Some(live)) = live else { return false };
    let Ok(Some(account)) = api.catalog.actor(&live.account).await else { return false };
    allow(&Actor::Account(account), Action::Watch, Some(app)).is_ok()
}

impl Streams {
    /// Opens a stream of this account; none: there are too many.
    fn enter(streams: &Arc<Self>, account: &str) -> Option<OpenStream> {
        let mut accounts = streams.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = accounts.iter().filter(|of| *of == account).count();
        if accounts.len() >= STREAMS_MAX || own >= STREAMS_OF_ACCOUNT_MAX {
            return None;
        }
        accounts.push(account.to_owned());
        Some(OpenStream { streams: Arc::clone(streams), account: account.to_owned() })
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut accounts = self.streams.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = accounts.iter().position(|of| *of == self.account) {
            accounts.swap_remove(place);
        }
    }
}

fn event(name: &str, data: &Json) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

//! JSON over HTTP/1, with keep-alive.

use anyhow::{Context, Result};
use axum::body::{self, Body};
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::time::Instant;

use super::super::plan::{self, Plan};
use super::super::tally::Outcome;
use super::KEY;
use crate::client::ask::Question;
use crate::client::http::ANSWER_BYTES_MAX;
use crate::client::target::Stream;
use crate::client::told;

/// A connection, and what is the same in all of its requests.
#[derive(Debug)]
pub(crate) struct HttpLine {
    sender: SendRequest<String>,
    headers: HeaderMap,
    policy: String,
    app: Option<String>,
    cost: u64,
}

/// The part of a decision that is counted.
#[derive(Deserialize)]
struct Verdict {
    allowed: bool,
}

impl HttpLine {
    /// A connection on `stream`.
    pub(super) async fn new(stream: Stream, plan: &Plan) -> Result<Self> {
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // Its errors are those of the requests on it; it ends with the sender.
        tokio::spawn(connection);
        let host = plan.to.authority().parse().context("--to: invalid host name")?;
        let json = HeaderValue::from_static("application/json");
        let headers = [(header::HOST, host), (header::CONTENT_TYPE, json)].into_iter().collect();
        let plan::Question { policy, app, cost } = &plan.question;
        let (policy, app, cost) = (policy.clone(), app.clone(), u64::from(*cost));
        Ok(Self { sender, headers, policy, app, cost })
    }

    /// See [`Line::ask`](super::Line::ask).
    pub(super) async fn ask(
        &mut self,
        keys: &[u64],
        mut answered: impl FnMut(usize, Instant, Outcome),
    ) -> Result<()> {
        for (place, number) in keys.iter().enumerate() {
            self.sender.ready().await?;
            let answer = self.sender.send_request(self.request(*number)).await?;
            let status = answer.status();
            let body = body::to_bytes(Body::new(answer.into_body()), ANSWER_BYTES_MAX).await?;
            answered(place, Instant::now(), outcome(status, &body));
        }
        Ok(())
    }

    fn request(&self, number: u64) -> Request<String> {
        let key = format!("{KEY}{number}");
        let question = Question {
            policy: &self.policy,
            key: Some(&key),
            app: self.app.as_deref(),
            cost: (self.cost > 1).then_some(self.cost),
            max_wait_ms: None,
        };
        let mut request = Request::new(question.json());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_static("/v1/check");
        request.headers_mut().clone_from(&self.headers);
        request
    }
}

fn outcome(status: StatusCode, body: &[u8]) -> Outcome {
    match serde_json::from_slice(body) {
        Ok(Verdict { allowed: true }) if status.is_success() => Outcome::Passed,
        Ok(Verdict { allowed: false }) if status.is_success() => Outcome::Refused,
        _ if status == StatusCode::TOO_MANY_REQUESTS => Outcome::Refused,
        _ => Outcome::Failed(told::problem(status, body)),
    }
}

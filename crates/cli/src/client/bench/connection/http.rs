//! JSON over HTTP/1, with keep-alive.

use anyhow::{Context, Result};
use axum::body::{self, Body};
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::time::Instant;

use super::super::plan::{self, BenchPlan};
use super::super::tally::BenchOutcome;
use super::KEY;
use crate::client::ask::QuestionBody;
use crate::client::http::ANSWER_BYTES_MAX;
use crate::client::reply;
use crate::client::target::ServerStream;

/// A connection, and the parts that all of its requests share.
#[derive(Debug)]
pub(crate) struct HttpConnection {
    sender: SendRequest<String>,
    headers: HeaderMap,
    policy: String,
    app: Option<String>,
    cost: u64,
}

/// The part of a decision that is counted.
#[derive(Deserialize)]
struct CountedDecision {
    allowed: bool,
}

impl HttpConnection {
    /// A connection on `stream`.
    pub(super) async fn new(stream: ServerStream, plan: &BenchPlan) -> Result<Self> {
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // Requests report the errors of the connection; it ends with the sender.
        tokio::spawn(connection);
        let host = plan.to.authority().parse().context("--to: invalid host name")?;
        let json = HeaderValue::from_static("application/json");
        let mut headers: HeaderMap =
            [(header::HOST, host), (header::CONTENT_TYPE, json)].into_iter().collect();
        if let Some(bearer) = &plan.bearer {
            headers.insert(header::AUTHORIZATION, bearer.clone());
        }
        let plan::BenchRequest { policy, app, cost } = &plan.question;
        let (policy, app, cost) = (policy.clone(), app.clone(), u64::from(*cost));
        Ok(Self { sender, headers, policy, app, cost })
    }

    /// See [`BenchConnection::ask`](super::BenchConnection::ask).
    pub(super) async fn ask(
        &mut self,
        keys: &[u64],
        mut answered: impl FnMut(usize, Instant, BenchOutcome),
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
        let question = QuestionBody {
            policy: &self.policy,
            key: Some(&key),
            app: self.app.as_deref(),
            cost: (self.cost > 1).then_some(self.cost),
            ..QuestionBody::default()
        };
        let mut request = Request::new(question.json());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_static("/v1/check");
        request.headers_mut().clone_from(&self.headers);
        request
    }
}

fn outcome(status: StatusCode, body: &[u8]) -> BenchOutcome {
    match serde_json::from_slice(body) {
        Ok(CountedDecision { allowed: true }) if status.is_success() => BenchOutcome::Passed,
        Ok(CountedDecision { allowed: false }) if status.is_success() => BenchOutcome::Refused,
        _ if status == StatusCode::TOO_MANY_REQUESTS => BenchOutcome::Refused,
        _ if reply::is_no_problem(status, body) => BenchOutcome::Failed(
            "no /v1/check here: `--to` is the HTTP address, such as http://127.0.0.1:8080"
                .to_owned(),
        ),
        _ => BenchOutcome::Failed(reply::problem(status, body)),
    }
}

//! Errors as problem+json (RFC 9457).

use axum::http::StatusCode;
use serde::Serialize;
use sluicegate::internals::SettleError;
use sluicegate::internals::http::problem::{
    QUOTA_EXCEEDED, REDUCED_CAPACITY, REDUCED_CAPACITY_TITLE, acquisition_detail, refusal_detail,
};
use sluicegate::{Admission, Charged, DecideError, Mode};
use sluicegate_text::fields::FieldError;
use sluicegate_text::terminal;
use utoipa::ToSchema;

use super::reply::{DecisionBody, decided, json};
use crate::authenticator::CallerError;

/// A request that was not answered with a decision.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    kind: &'static str,
    title: Option<&'static str>,
    detail: String,
    code: Option<i8>,
    charged: Charged,
    challenge: Option<&'static str>,
}

/// An error (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemDocument<'a> {
    /// Type of the error; `about:blank` if the status is specific enough.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    kind: &'a str,
    /// Title of the error type.
    #[schema(value_type = String)]
    title: &'a str,
    /// Status of the response; in a batch, the status that the item alone would have.
    status: u16,
    /// The problem, with the name of the field and what is permitted.
    #[schema(value_type = String)]
    detail: &'a str,
    /// 0: the policy is unknown, or not available to this app.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    code: Option<i8>,
    /// Effect of the request on its budget. `no`: it took none, and may be sent again. `yes`: members of an atomic
    /// batch stay charged. `unknown`: the store may have executed it; sent again, it may be charged twice.
    #[schema(value_type = ChargedName)]
    charged: &'static str,
}

/// The values of `charged`.
#[derive(ToSchema)]
#[schema(as = Charged, rename_all = "lowercase")]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum ChargedName {
    No,
    Yes,
    Unknown,
}

/// A refusal as a problem, together with the decision.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Refusal)]
pub(crate) struct RefusalProblem<'a> {
    /// `https://iana.org/assignments/http-problem-types#quota-exceeded`, or
    /// `...#temporary-reduced-capacity` if the store is unavailable and the policy says `deny`, or if the
    /// store did not decide in time.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    kind: &'a str,
    /// Title of the error type.
    #[schema(value_type = String)]
    title: &'a str,
    /// Status of the response.
    status: u16,
    /// Time of a retry, or the reason why the request can never pass.
    #[schema(value_type = String)]
    detail: String,
    /// Name of the rule that refused, as in the `RateLimit` header.
    #[serde(rename = "violated-policies", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<String>, required = false)]
    violated: Option<[&'a str; 1]>,
    #[serde(flatten)]
    decided: DecisionBody<'a>,
}

impl Problem {
    /// A problem of this status, of a request that was not charged.
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let (kind, detail, charged) = ("about:blank", detail.into(), Charged::No);
        Self { status, kind, title: None, detail, code: None, charged, challenge: None }
    }

    /// The problem of an invalid request.
    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// An error of the server while it decided: the request may have been charged by then.
    pub(crate) fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error").charged(Charged::Unknown)
    }

    /// Sets a kind, by which programs distinguish the problem from others of its status.
    fn of_kind(self, kind: &'static str, title: &'static str) -> Self {
        Self { kind, title: Some(title), ..self }
    }

    /// Adds the `place` of the batch's member that has the problem.
    pub(crate) fn at(self, place: usize) -> Self {
        Self { detail: format!("checks[{place}]: {}", self.detail), ..self }
    }

    /// Adds a sentence.
    pub(crate) fn and(self, more: &str) -> Self {
        Self { detail: format!("{}; {more}", self.detail), ..self }
    }

    /// Sets the charge of the request.
    pub(crate) fn charged(self, charged: Charged) -> Self {
        Self { charged, ..self }
    }

    /// Replaces the sentence.
    pub(crate) fn instead(self, detail: &str) -> Self {
        Self { detail: detail.to_owned(), ..self }
    }

    /// The status of the response.
    pub(crate) const fn status(&self) -> StatusCode {
        self.status
    }

    /// The value of `WWW-Authenticate`, if the client has to send a token (RFC 6750, section 3).
    pub(crate) const fn challenge(&self) -> Option<&'static str> {
        self.challenge
    }

    /// The sentence for people.
    #[cfg(test)]
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// The document.
    pub(crate) fn document(&self) -> ProblemDocument<'_> {
        let Self { status, kind, title, detail, code, charged, challenge: _ } = self;
        let title = title.or_else(|| status.canonical_reason()).unwrap_or("Error");
        let (status, charged) = (status.as_u16(), charged.name());
        ProblemDocument { kind, title, status, detail, code: *code, charged }
    }

    /// The document as bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        json(&self.document())
    }
}

/// A refusal as a response that is not a success: its status and its body. The caller asked for the status `deny`; with
/// 429 it learns by 503 that the store did not decide.
pub(crate) fn refusal(
    deny: StatusCode,
    admission: &Admission,
    id: Option<&str>,
) -> (StatusCode, Vec<u8>) {
    let status = match admission.answer.mode {
        Mode::Deny | Mode::Shed if deny == StatusCode::TOO_MANY_REQUESTS => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        _ => deny,
    };
    (status, refusal_as(status, admission, id))
}

/// The body of a refusal whose response has this status.
pub(crate) fn refusal_as(status: StatusCode, admission: &Admission, id: Option<&str>) -> Vec<u8> {
    let answer = &admission.answer;
    // Only a permit that is acquired has an id here.
    let detail = match id {
        Some(_) => acquisition_detail(&answer.decision),
        None => refusal_detail(&answer.decision),
    };
    let nobody = matches!(answer.mode, Mode::Deny | Mode::Shed);
    let (kind, title) = if nobody {
        (REDUCED_CAPACITY, REDUCED_CAPACITY_TITLE)
    } else {
        (QUOTA_EXCEEDED, "Request cannot be satisfied as assigned quota has been exceeded")
    };
    let violated = (!nobody).then(|| [answer.rule()]);
    let decided = decided(admission, id);
    json(&RefusalProblem { kind, title, status: status.as_u16(), detail, violated, decided })
}

impl From<FieldError> for Problem {
    fn from(error: FieldError) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl From<DecideError> for Problem {
    fn from(error: DecideError) -> Self {
        let detail = terminal::decide_error(&error);
        let problem = |status| Self::new(status, detail).charged(error.charged());
        match &error {
            DecideError::UnknownPolicy(_) => {
                Self { code: Some(0), ..problem(StatusCode::NOT_FOUND) }
                    .of_kind("urn:sluicegate:problem:unknown-policy", "Unknown policy")
            }
            DecideError::Unconfigured { .. } => {
                Self { code: Some(0), ..problem(StatusCode::FORBIDDEN) }.of_kind(
                    "urn:sluicegate:problem:not-configured",
                    "Policy not available to this app",
                )
            }
            DecideError::Store(_) => problem(StatusCode::SERVICE_UNAVAILABLE)
                .of_kind("urn:sluicegate:problem:no-store", "Store unavailable"),
            _ => problem(StatusCode::BAD_REQUEST),
        }
    }
}

impl From<CallerError> for Problem {
    fn from(refused: CallerError) -> Self {
        let (status, kind, title, challenge) = match refused {
            CallerError::Missing => (
                StatusCode::UNAUTHORIZED,
                "urn:sluicegate:problem:no-token",
                "Missing token",
                "Bearer",
            ),
            CallerError::Unknown | CallerError::Expired => (
                StatusCode::UNAUTHORIZED,
                "urn:sluicegate:problem:bad-token",
                "Invalid token",
                r#"Bearer error="invalid_token""#,
            ),
            CallerError::Scope(_) => (
                StatusCode::FORBIDDEN,
                "urn:sluicegate:problem:scope",
                "Insufficient scope",
                r#"Bearer error="insufficient_scope""#,
            ),
            CallerError::Verb(_) => {
                return Self::new(StatusCode::FORBIDDEN, refused.to_string())
                    .of_kind("urn:sluicegate:problem:verb", "Verb not permitted");
            }
            CallerError::App => {
                return Self::new(StatusCode::FORBIDDEN, format!("app: {refused}"))
                    .of_kind("urn:sluicegate:problem:other-app", "Token of another app");
            }
            CallerError::NoApp => {
                return Self::new(StatusCode::FORBIDDEN, format!("app: {refused}"))
                    .of_kind("urn:sluicegate:problem:no-app", "Missing app");
            }
        };
        let detail = match refused {
            CallerError::Missing => {
                format!("authorization: {refused}, expected `Authorization: Bearer TOKEN`")
            }
            _ => format!("authorization: {refused}"),
        };
        let problem = Self::new(status, detail).of_kind(kind, title);
        Self { challenge: Some(challenge), ..problem }
    }
}

impl From<SettleError> for Problem {
    fn from(error: SettleError) -> Self {
        let (detail, charged) = (error.to_string(), error.charged());
        match error {
            SettleError::Decide(error) => error.into(),
            SettleError::Settled => Self::new(StatusCode::CONFLICT, detail)
                .of_kind("urn:sluicegate:problem:settled", "Already settled"),
            SettleError::Undone(_) | SettleError::Unclaimed(_) | SettleError::Unknown(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
                    .of_kind("urn:sluicegate:problem:no-store", "Store unavailable")
                    .charged(charged)
            }
            _ => Self::bad_request(detail),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluicegate::DecideError::Store;
    use sluicegate::internals::store::Executed;
    use sluicegate::store::StoreError;

    use super::*;

    fn unavailable(executed: Executed) -> StoreError {
        StoreError::Unavailable { reason: "Redis does not answer".to_owned(), executed }
    }

    #[test]
    fn each_problem_says_whether_the_request_was_charged() {
        let (no, perhaps) = (Executed::No, Executed::Perhaps);
        let unknown_policy = DecideError::UnknownPolicy("none".to_owned());
        let app = DecideError::Unconfigured { policy: "import".to_owned(), app: None };
        let problems = [
            Problem::bad_request("cost: `0` is outside 1..=2147483648"),
            unknown_policy.into(),
            app.into(),
            CallerError::Missing.into(),
            CallerError::Unknown.into(),
            CallerError::App.into(),
            Store(unavailable(no)).into(),
            Store(unavailable(perhaps)).into(),
            Store(StoreError::Overloaded { executed: no }).into(),
            Store(StoreError::Overloaded { executed: perhaps }).into(),
            Store(StoreError::Contended { executed: perhaps }).into(),
            Store(StoreError::Unreadable { reason: "no state".to_owned() }).into(),
            SettleError::Settled.into(),
            SettleError::Undone(unavailable(no)).into(),
            SettleError::Unclaimed(unavailable(perhaps)).into(),
            SettleError::Unknown(unavailable(perhaps)).into(),
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "checks 0, 2 remain charged")
                .charged(Charged::Yes),
            Problem::internal(),
        ];
        let entries = problems.iter().map(|problem| {
            let (status, body) = (problem.status.as_u16(), String::from_utf8(problem.encode()));
            let body = body.expect("JSON is text");
            json!({ "status": status, "body": body, "charged": problem.charged.name() })
        });
        // Answers of servers without `charged`, and of proxies in between.
        let others = [
            (
                503,
                r#"{"type":"urn:sluicegate:problem:no-store","status":503,"detail":"store: no"}"#,
            ),
            (503, r#"{"type":"about:blank","status":503,"charged":"maybe"}"#),
            (503, r#"{"type":"about:blank","status":503,"charged":false}"#),
            (502, "<html>Bad Gateway</html>"),
            (500, ""),
        ];
        let others = others
            .map(|(status, body)| json!({ "status": status, "body": body, "charged": "unknown" }));
        let entries: Vec<_> = entries.chain(others).map(|entry| entry.to_string()).collect();
        let about = "Answers over HTTP that are no decisions, and whether the request was charged: see the page \
                     of the protocol, Problems.";
        sluicegate_testkit::wire_vectors("problems", about, &entries);
    }
}

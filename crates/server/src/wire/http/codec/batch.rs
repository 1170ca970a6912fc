//! Many checks in one body.

use serde_json::value::RawValue;
use sluicegate::{Admission, Verb};
use sluicegate_text::fields::{Field, FieldError};
use sluicegate_text::terminal::one_line;

use super::operation::Operation;
use super::problem::Problem;
use super::reply::encode;
use super::request::{OperationRequest, fields, text};

/// Maximum number of checks in one batch: a body has room for 650 bytes each, and they take a
/// worker less than a millisecond.
pub(crate) const CHECKS_MAX: usize = 100;

/// A batch of checks.
#[derive(Debug)]
pub(crate) enum Batch<'a> {
    /// Each is decided on its own; an invalid one is a problem on its own.
    Each(Vec<Result<OperationRequest<'a>, Problem>>),
    /// All are charged, or none is.
    Atomic(Vec<OperationRequest<'a>>),
}

impl<'a> Batch<'a> {
    /// Reads the body.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, Problem> {
        let fields = fields(Operation::Batch, text(bytes)?)?;
        let checks = fields.checks.ok_or(FieldError::Missing(Field::Checks))?;
        let Ok(checks) = serde_json::from_str::<Vec<&RawValue>>(checks.get()) else {
            let given = one_line(checks.get());
            return Err(FieldError::Kind { field: Field::Checks, given }.into());
        };
        if !(1..=CHECKS_MAX).contains(&checks.len()) {
            let detail = format!("checks: `{}` items are outside 1..={CHECKS_MAX}", checks.len());
            return Err(Problem::bad_request(detail));
        }
        let asks = checks.into_iter().enumerate().map(|(place, check)| {
            OperationRequest::read(Operation::Check, check.get(), String::new)
                .map_err(|error| error.at(place))
        });
        if fields.atomic != Some(true) {
            return Ok(Self::Each(asks.collect()));
        }
        let asks: Vec<_> = asks.collect::<Result<_, _>>()?;
        for (place, ask) in asks.iter().enumerate() {
            if let Verb::Reserve { .. } = ask.request().verb {
                let problem = Problem::bad_request("max_wait_ms: cannot be combined with `atomic`");
                return Err(problem.at(place));
            }
        }
        Ok(Self::Atomic(asks))
    }
}

/// The answers of checks that were decided each on its own, in their order.
pub(crate) fn encode_each<'a>(
    answers: impl IntoIterator<Item = &'a Result<Admission, Problem>>,
) -> Vec<u8> {
    let answers = answers.into_iter().map(|answer| match answer {
        Ok(admission) => encode(admission, None),
        Err(problem) => problem.encode(),
    });
    list(Vec::from(br#"{"answers":["#), answers)
}

/// The answers of checks that all passed.
pub(crate) fn encode_all(admissions: &[Admission]) -> Vec<u8> {
    let answers = admissions.iter().map(|admission| encode(admission, None));
    list(Vec::from(br#"{"allowed":true,"code":1,"answers":["#), answers)
}

/// The answer of a batch that was refused for its check at `place`: nothing is charged.
pub(crate) fn encode_none(place: usize, refused: &Admission) -> Vec<u8> {
    let start = format!(r#"{{"allowed":false,"code":-1,"refused":{place},"answers":["#);
    list(start.into_bytes(), [encode(refused, None)])
}

fn list(mut body: Vec<u8>, members: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    for (place, member) in members.into_iter().enumerate() {
        if place > 0 {
            body.push(b',');
        }
        body.extend_from_slice(&member);
    }
    body.extend_from_slice(b"]}");
    body
}

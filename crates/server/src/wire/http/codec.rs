//! Bodies of the HTTP wire: bytes to a request, an answer to bytes. No IO.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sluicegate::{Answer, Cost, Micros, Request, Verb};

use super::problem::Problem;

/// What is done with the budget; the last part of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Check,
    Peek,
    Refund,
    Reset,
}

/// A request's body.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Body<'a> {
    #[serde(borrow)]
    policy: Cow<'a, str>,
    #[serde(borrow, default)]
    key: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    app: Option<Cow<'a, str>>,
    /// As written, so that an error can show it.
    #[serde(borrow, default)]
    cost: Option<&'a RawValue>,
}

/// A decision's body.
#[derive(Debug, Serialize)]
struct Decided<'a> {
    allowed: bool,
    granted: u64,
    wait_us: u64,
    limit: u64,
    remaining: u64,
    /// `null`: this cost can never pass.
    retry_after_us: Option<u64>,
    reset_after_us: u64,
    rule: &'a str,
}

impl<'a> Body<'a> {
    /// Reads a body.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, Problem> {
        serde_json::from_slice(bytes).map_err(|error| Problem::bad_request(error.to_string()))
    }

    /// The request that the body makes under `operation`.
    pub(super) fn request(&self, operation: Operation) -> Result<Request<'_>, Problem> {
        let cost = self.cost.map_or(Ok(Cost::ONE), cost)?;
        let verb = match operation {
            Operation::Check => Verb::Check { cost },
            Operation::Peek => Verb::Peek { cost },
            Operation::Refund => Verb::Refund { cost },
            Operation::Reset if self.cost.is_some() => {
                return Err(Problem::bad_field("cost", "does not go with `reset`"));
            }
            Operation::Reset => Verb::Reset,
        };
        let key = self.key.as_ref().map(|key| key.as_bytes());
        Ok(Request { policy: &self.policy, key, app: self.app.as_deref(), verb })
    }
}

fn cost(raw: &RawValue) -> Result<Cost, Problem> {
    let written = raw.get();
    let permits = written.parse().map_err(|_| {
        let detail = format!("`{written}` is no whole number of 1..=2147483648");
        Problem::bad_field("cost", &detail)
    })?;
    Cost::new(permits).map_err(|error| Problem::bad_field("cost", error.problem()))
}

/// Writes an answer.
pub(super) fn encode(answer: &Answer) -> Vec<u8> {
    let decision = &answer.decision;
    let decided = Decided {
        allowed: decision.allowed(),
        granted: decision.granted(),
        wait_us: decision.wait().get(),
        limit: decision.limit,
        remaining: decision.remaining,
        retry_after_us: decision.retry_after().map(Micros::get),
        reset_after_us: decision.reset_after.get(),
        rule: answer.rule(),
    };
    serde_json::to_vec(&decided).expect("numbers and a name are always JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detail(body: &str) -> String {
        let decoded = Body::decode(body.as_bytes());
        let request = decoded.and_then(|body| body.request(Operation::Check).map(drop));
        request.unwrap_err().detail().to_owned()
    }

    #[test]
    fn a_plain_body_is_a_check_of_one_permit() {
        let body = Body::decode(br#"{"policy":"p","key":"k\u00e9"}"#).unwrap();
        let request = body.request(Operation::Check).unwrap();
        assert_eq!(request.policy, "p");
        assert_eq!(request.key, Some("ké".as_bytes()));
        assert_eq!(request.verb, Verb::Check { cost: Cost::ONE });
    }

    #[test]
    fn bad_costs_are_named_with_the_range() {
        for (written, problem) in [
            ("0", "cost: `0` is outside 1..=2147483648"),
            ("2147483649", "cost: `2147483649` is outside 1..=2147483648"),
            ("-1", "cost: `-1` is no whole number of 1..=2147483648"),
            ("1.5", "cost: `1.5` is no whole number of 1..=2147483648"),
            ("1e400", "cost: `1e400` is no whole number of 1..=2147483648"),
            ("9223372036854775808", "cost: `9223372036854775808` is outside 1..=2147483648"),
            ("\"1\"", "cost: `\"1\"` is no whole number of 1..=2147483648"),
        ] {
            assert_eq!(detail(&format!(r#"{{"policy":"p","cost":{written}}}"#)), problem);
        }
    }

    #[test]
    fn unknown_fields_and_other_shapes_are_refused_with_their_place() {
        assert!(detail(r#"{"policy":"p","kee":"k"}"#).starts_with("unknown field `kee`"));
        assert!(detail(r#"{"key":"k"}"#).starts_with("missing field `policy`"));
        assert!(detail("[1").contains("line 1 column"));
        assert!(detail(r#"{"policy":"p","cost":NaN}"#).contains("line 1 column"));
    }
}

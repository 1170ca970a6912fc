//! Bodies of the HTTP wire: bytes to a request, an answer to bytes. No IO.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use sluicegate::policy::Fallback;
use sluicegate::{Cost, Micros, Mode, Passage, Request, Verb, Way};

use super::problem::Problem;
use crate::fields::{Field, FieldError, Fields, Form};

/// The fields of a body. `null` as `key` is the budget that all share, as `app` nobody in
/// particular: both as if they were left out.
static FORM: Form = Form {
    fields: &[Field::Policy, Field::Key, Field::App, Field::Cost],
    example: r#"{"policy":"p","key":"k"}"#,
};

/// What is done with the budget; the last part of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Check,
    Peek,
    Refund,
    Reset,
}

/// A request's body.
#[derive(Debug)]
pub(super) struct Body<'a> {
    policy: Cow<'a, str>,
    key: Option<Cow<'a, str>>,
    app: Option<Cow<'a, str>>,
    cost: Option<Cost>,
}

/// Whether `bytes` are a body, and requests can be made of it, for the fuzzer.
#[must_use]
pub fn requests_in(bytes: &[u8]) -> bool {
    let all = [Operation::Check, Operation::Peek, Operation::Refund, Operation::Reset];
    Body::decode(bytes)
        .is_ok_and(|body| all.into_iter().all(|operation| body.request(operation).is_ok()))
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
    /// Left out where the store decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'static str>,
    /// How long the request was held back here; left out if it was not.
    #[serde(skip_serializing_if = "is_zero")]
    held_us: u64,
    /// What the policy says of a request over the limit that is not just refused.
    #[serde(flatten)]
    over: Option<Over<'a>>,
}

/// What is done with a request over the limit.
#[derive(Debug, Serialize)]
#[serde(tag = "overflow", rename_all = "lowercase")]
enum Over<'a> {
    /// It passes, and is counted.
    Shadow,
    /// It is not `allowed`: whoever knows of fallbacks serves this one instead.
    Degrade(Served<'a>),
    /// It is not `allowed` here: whoever can sends it there.
    Divert { target: &'a str },
}

/// The fallback: a tag that the caller knows, or a response.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Served<'a> {
    Tag(&'a str),
    Response { status: u16, headers: BTreeMap<&'a str, &'a str>, body: &'a str },
}

impl<'a> Body<'a> {
    /// Reads a body.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, Problem> {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            Problem::bad_request(format!("byte {} of the body is not UTF-8", error.valid_up_to()))
        })?;
        let mut fields = Fields::new(&FORM);
        fields.read(text)?;
        let Fields { policy, key, app, cost, .. } = fields;
        let policy = policy.ok_or(FieldError::Missing(Field::Policy))?;
        let cost = cost.map(Cost::new).transpose();
        let cost = cost.map_err(|error| Problem::bad_request(error.to_string()))?;
        Ok(Self { policy, key, app, cost })
    }

    /// The request that the body makes under `operation`.
    pub(super) fn request(&self, operation: Operation) -> Result<Request<'_>, Problem> {
        let cost = self.cost.unwrap_or(Cost::ONE);
        let verb = match operation {
            Operation::Check => Verb::Check { cost },
            Operation::Peek => Verb::Peek { cost },
            Operation::Refund => Verb::Refund { cost },
            Operation::Reset if self.cost.is_some() => {
                return Err(Problem::bad_request("cost: does not go with `reset`"));
            }
            Operation::Reset => Verb::Reset,
        };
        let key = self.key.as_ref().map(|key| key.as_bytes());
        Ok(Request { policy: &self.policy, key, app: self.app.as_deref(), verb })
    }
}

/// Writes what became of a request.
///
/// `allowed` is whether the caller may go on as it wanted to: so one that knows nothing of overflow
/// passes in the shadow, and never to what is protected when the policy says degrade or divert.
pub(super) fn encode(passage: &Passage) -> Vec<u8> {
    let Passage { answer, way, held } = passage;
    let decision = &answer.decision;
    let decided = Decided {
        allowed: way.passes(),
        granted: decision.granted(),
        wait_us: decision.wait().get().saturating_sub(held.get()),
        limit: decision.limit,
        remaining: decision.remaining,
        retry_after_us: decision.retry_after().map(Micros::get),
        reset_after_us: decision.reset_after.get(),
        rule: answer.rule(),
        mode: without_store(answer.mode),
        held_us: held.get(),
        over: over(way),
    };
    serde_json::to_vec(&decided).expect("numbers and a name are always JSON")
}

fn over(way: &Way) -> Option<Over<'_>> {
    match way {
        Way::Through | Way::Refused => None,
        Way::Shadowed => Some(Over::Shadow),
        Way::Diverted(_) => way.target().map(|target| Over::Divert { target }),
        Way::Marked(_) => way.fallback().map(|fallback| {
            Over::Degrade(match fallback {
                Fallback::Tag(tag) => Served::Tag(tag),
                Fallback::Response { status, body, headers } => Served::Response {
                    status: *status,
                    headers: headers.iter().map(|(name, value)| (&**name, &**value)).collect(),
                    body,
                },
            })
        }),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// How it was decided, where the store did not.
fn without_store(mode: Mode) -> Option<&'static str> {
    match mode {
        Mode::Store | Mode::Remembered => None,
        Mode::Local => Some("local"),
        Mode::Allow => Some("allow"),
        Mode::Deny => Some("deny"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
    fn a_value_of_the_wrong_kind_is_named_with_its_field_and_what_is_permitted() {
        let whole = "is not a whole number 1..=2147483648";
        let string = "is not a string of 1..=1024 bytes";
        for (field, given, problem) in [
            ("cost", "0", "`0` is outside 1..=2147483648".to_owned()),
            ("cost", "2147483649", "`2147483649` is outside 1..=2147483648".to_owned()),
            (
                "cost",
                "9223372036854775808",
                "`9223372036854775808` is outside 1..=2147483648".to_owned(),
            ),
            ("cost", "-1", format!("`-1` {whole}")),
            ("cost", "1.5", format!("`1.5` {whole}")),
            ("cost", "null", format!("`null` {whole}")),
            ("cost", r#""1""#, format!(r#"`"1"` {whole}"#)),
            ("cost", "[1]", format!("`[..]` {whole}")),
            ("key", "5", format!("`5` {string}")),
            ("key", "true", format!("`true` {string}")),
            ("key", r#"{"a":1}"#, format!("`{{..}}` {string}")),
            ("app", "[]", "`[..]` is not the name of an application, a string".to_owned()),
        ] {
            let body = format!(r#"{{"policy":"p","{field}":{given}}}"#);
            assert_eq!(detail(&body), format!("{field}: {problem}"));
        }
        assert_eq!(detail(r#"{"policy":5}"#), "policy: `5` is not the name of a policy, a string");
        for (given, problem) in [
            ("NaN", "expected value at column 22"),
            ("Infinity", "expected value at column 22"),
            ("1e400", "number out of range at column 26"),
        ] {
            assert_eq!(
                detail(&format!(r#"{{"policy":"p","cost":{given}}}"#)),
                format!("cost: not JSON ({problem}), expected a whole number 1..=2147483648")
            );
        }
    }

    #[test]
    fn only_an_object_of_known_fields_is_a_request() {
        let known = "expected one of `policy`, `key`, `app`, `cost`";
        let example = r#"expected an object such as `{"policy":"p","key":"k"}`, found"#;
        for (body, problem) in [
            (r#"["tb","k"]"#, format!(r#"{example} `["tb","k"]`"#)),
            (r#""tb""#, format!(r#"{example} `"tb"`"#)),
            ("null", format!("{example} `null`")),
            ("", format!("{example} nothing")),
            (r#"{"policy":"p","kee":"k"}"#, format!("unknown field `kee`, {known}")),
            (r#"{"policy":"p","op":"reset"}"#, format!("unknown field `op`, {known}")),
            (r#"{"policy":"p","policy":"q"}"#, "policy: is given twice".to_owned()),
            (
                r#"{"key":"k"}"#,
                "policy: is missing, expected the name of a policy, a string".to_owned(),
            ),
            ("{", "not JSON: EOF while parsing an object at column 1".to_owned()),
            ("{\n}}", "not JSON: trailing characters at line 2 column 2".to_owned()),
        ] {
            assert_eq!(detail(body), problem);
        }
    }

    #[test]
    fn null_is_the_budget_that_all_share_and_nobody_in_particular() {
        let body = Body::decode(br#"{"policy":"p","key":null,"app":null}"#).unwrap();
        let request = body.request(Operation::Check).unwrap();
        assert_eq!((request.key, request.app), (None, None));
    }

    #[test]
    fn a_reset_takes_no_cost() {
        let body = Body::decode(br#"{"policy":"p","cost":1}"#).unwrap();
        let problem = body.request(Operation::Reset).unwrap_err();
        assert_eq!(problem.detail(), "cost: does not go with `reset`");
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Body::decode(&bytes).map(drop);
        }
    }
}

//! The `jsonl` format: one event a line, as written in a script or by a program.
//!
//! ```json
//! {"at_us":0,"policy":"p","key":"k","cost":1,"op":"check"}
//! ```
//!
//! Pure: a line in, an [`ReplayEvent`] or an [`EventError`] out. Values are borrowed from the line
//! unless they use escapes, so an ordinary event allocates nothing.
//!
//! `op` is `check` unless given; `cost` is 1 unless given (and is ignored by operations that
//! take none); without `key`, or with `null`, it is the budget that all share. `max_wait_us` goes
//! with `reserve` alone, `id` with `acquire`, `release` and `renew`, `document` with `configure`.
//! The permit of an `acquire` without `id` is called `p1`, `p2`, .. in turn; a script that mixes both
//! should choose other names. `configure` may leave `policy` out, for its document has the name.

mod event;

use std::borrow::Cow;

use serde_json::value::RawValue;
use sluicegate::{Cost, Micros};
use sluicegate_kernel::limits::SPAN_MAX_US;
use sluicegate_text::fields::{Field, FieldError, Form, RequestFields};

use super::error::EventError;
use super::op::OpName;

/// The fields of an event.
pub(crate) static FORM: Form = Form {
    fields: &[
        Field::AtUs,
        Field::Policy,
        Field::Key,
        Field::Cost,
        Field::Op,
        Field::MaxWaitUs,
        Field::Id,
        Field::Document,
    ],
    example: r#"{"at_us":0,"policy":"p","key":"k"}"#,
};

/// A field that decisions of `/v1/events` have, and events do not.
const STREAMED_FIELD: &str = "wire";

/// The beginning of a line of `/v1/events`, which `sluicegate events` removes.
const STREAMED_PREFIX: &str = "data: {";

/// One event, parsed.
#[derive(Debug)]
pub struct ReplayEvent<'a> {
    /// The instant, in virtual time.
    pub at: Micros,
    /// The policy's name; `None`: a default of the replay.
    pub policy: Option<Cow<'a, str>>,
    /// The key of the budget; `None` is the budget that all share.
    pub key: Option<Cow<'a, str>>,
    /// The operation.
    pub act: Act<'a>,
}

/// The operation of an event.
#[derive(Debug)]
pub enum Act<'a> {
    /// Pass now or be refused.
    Check(Cost),
    /// Return the answer that a check would get.
    Peek(Cost),
    /// Give permits back.
    Refund(Cost),
    /// Forget the key's usage.
    Reset,
    /// Pass within a span.
    Reserve {
        /// Permits it takes.
        cost: Cost,
        /// Longest acceptable wait.
        max_wait: Micros,
    },
    /// Take the permits that are left, up to a cost.
    AtMost(Cost),
    /// Hold a permit.
    Acquire {
        /// Permits it takes.
        cost: Cost,
        /// The name of the permit; `None`: the replay chooses one.
        id: Option<Cow<'a, str>>,
    },
    /// Give the permit of this name back.
    Release(Cow<'a, str>),
    /// Hold the permit of this name for another ttl.
    Renew(Cow<'a, str>),
    /// Put a new version of a policy in force.
    Configure(&'a RawValue),
}

/// The error of a line that is not an event, with its `at_us`, if that could be read.
#[derive(Debug)]
pub struct BadEvent {
    /// The instant, if it could be read.
    pub at: Option<Micros>,
    /// The error.
    pub error: EventError,
}

/// Parses one line.
///
/// # Errors
/// [`BadEvent`], which names the field and what is permitted there.
pub fn parse(line: &[u8]) -> Result<ReplayEvent<'_>, BadEvent> {
    let mut fields = RequestFields::new(&FORM);
    read(line, &mut fields).and_then(|()| event::event(&mut fields)).map_err(|error| {
        let at = fields.at_us.filter(|at| *at <= SPAN_MAX_US).map(Micros::new);
        BadEvent { at, error }
    })
}

fn read<'a>(line: &'a [u8], fields: &mut RequestFields<'a>) -> Result<(), EventError> {
    let line = std::str::from_utf8(line).map_err(|error| EventError::Utf8(error.valid_up_to()))?;
    match fields.read(line) {
        Err(FieldError::Unknown { name, .. }) if name == STREAMED_FIELD => {
            Err(EventError::StreamedDecision { example: FORM.example })
        }
        Err(FieldError::NoObject { .. }) if line.starts_with(STREAMED_PREFIX) => {
            Err(EventError::StreamedDecision { example: FORM.example })
        }
        read => Ok(read?),
    }
}

impl Act<'_> {
    /// The name of the operation.
    pub fn op(&self) -> OpName {
        match self {
            Self::Check(_) => OpName::Check,
            Self::Peek(_) => OpName::Peek,
            Self::Refund(_) => OpName::Refund,
            Self::Reset => OpName::Reset,
            Self::Reserve { .. } => OpName::Reserve,
            Self::AtMost(_) => OpName::AtMost,
            Self::Acquire { .. } => OpName::Acquire,
            Self::Release(_) => OpName::Release,
            Self::Renew(_) => OpName::Renew,
            Self::Configure(_) => OpName::Configure,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the error of `fields` in an event that is right otherwise.
    fn error(fields: &str) -> String {
        let line = format!(r#"{{"at_us":5,"policy":"p",{fields}}}"#);
        let BadEvent { at, error } = parse(line.as_bytes()).expect_err(fields);
        assert_eq!(at, Some(Micros::new(5)), "{fields}");
        error.to_string()
    }

    fn whole_error(line: &[u8]) -> (Option<u64>, String) {
        let BadEvent { at, error } = parse(line).unwrap_err();
        (at.map(Micros::get), error.to_string())
    }

    #[test]
    fn an_event_is_a_check_of_one_permit_unless_it_says_otherwise() {
        let event = parse(br#" {"at_us":7,"policy":"p"} "#).unwrap();
        assert_eq!((event.at.get(), event.policy.as_deref(), event.key), (7, Some("p"), None));
        assert!(matches!(event.act, Act::Check(Cost::ONE)));
        let event = parse(br#"{"key":null,"at_us":9007199254740991,"op":"reserve"}"#).unwrap();
        assert!(event.key.is_none() && event.policy.is_none());
        let Act::Reserve { max_wait, .. } = event.act else { panic!("{event:?}") };
        assert_eq!(max_wait, Micros::new(SPAN_MAX_US));
    }

    #[test]
    fn what_an_event_says_is_borrowed_unless_it_is_escaped() {
        let event = parse(br#"{"at_us":0,"policy":"p","key":"caf\u00e9"}"#).unwrap();
        assert!(matches!(event.policy, Some(Cow::Borrowed("p"))));
        assert_eq!(event.key.as_deref(), Some("café"));
    }

    #[test]
    fn numbers_outside_their_range_are_named_with_it() {
        let range = "is outside 1..=2147483648";
        let whole = "is not a whole number 1..=2147483648";
        for (cost, problem) in [
            ("0", format!("cost: `0` {range}")),
            ("2147483649", format!("cost: `2147483649` {range}")),
            ("9223372036854775808", format!("cost: `9223372036854775808` {range}")),
            ("-1", format!("cost: `-1` {whole}")),
            ("1.5", format!("cost: `1.5` {whole}")),
            ("1e300", format!("cost: `1e300` {whole}")),
            ("\"1\"", format!("cost: `\"1\"` {whole}")),
            ("null", format!("cost: `null` {whole}")),
            ("true", format!("cost: `true` {whole}")),
            ("[1]", format!("cost: `[..]` {whole}")),
            ("{\"a\":1}", format!("cost: `{{..}}` {whole}")),
            ("18446744073709551616", format!("cost: `1.8446744073709552e19` {whole}")),
        ] {
            assert_eq!(error(&format!("\"cost\":{cost}")), problem);
        }
        assert_eq!(
            error(r#""op":"reserve","max_wait_us":9007199254740992"#),
            "max_wait_us: `9007199254740992` is outside 0..=9007199254740991"
        );
        assert_eq!(
            whole_error(br#"{"at_us":9007199254740992}"#),
            (None, "at_us: `9007199254740992` is outside 0..=9007199254740991".to_owned())
        );
    }

    #[test]
    fn what_is_not_json_is_named_with_the_field_it_stands_in() {
        let error = |cost: &str| error(&format!("\"cost\":{cost}"));
        let expected = "expected a whole number 1..=2147483648";
        for (cost, problem) in [
            ("NaN", "expected value at column 32"),
            ("inf", "expected value at column 32"),
            ("1e400", "number out of range at column 36"),
        ] {
            assert_eq!(error(cost), format!("cost: not JSON ({problem}), {expected}"));
        }
        assert!(error("0x10").starts_with("not JSON: expected `,` or `}` at column "));
        assert!(whole_error(b"{5:1}").1.starts_with("not JSON: key must be a string at column "));
        assert_eq!(whole_error(b"{}x").1, "not JSON: trailing characters at column 3");
        assert_eq!(
            whole_error(b"{\"at_us\":3,\"key\":\"\xff\"}"),
            (None, "byte 18 of the line is not UTF-8".into())
        );
    }

    #[test]
    fn only_an_object_is_an_event() {
        let example = r#"expected an object such as `{"at_us":0,"policy":"p","key":"k"}`, found"#;
        for line in [r#"[0,"p"]"#, r#""p""#, "5", "null", "this is no event"] {
            assert_eq!(whole_error(line.as_bytes()), (None, format!("{example} `{line}`")));
        }
        assert_eq!(whole_error(b"  "), (None, format!("{example} nothing")));
    }

    #[test]
    fn a_decision_that_a_server_streams_is_no_event() {
        let decision = r#"{"at_us":7,"wire":"http","policy":"p","verb":"check","result":"allowed","weight":1}"#;
        let (at, error) = whole_error(decision.as_bytes());
        assert_eq!(at, Some(7));
        assert!(error.starts_with("the line is a decision of `/v1/events`; choose"), "{error}");
        let (_, streamed) = whole_error(format!("data: {decision}").as_bytes());
        assert_eq!(streamed, error);
    }

    #[test]
    fn fields_are_known_and_come_once_and_go_with_their_operation() {
        let known = "`at_us`, `policy`, `key`, `cost`, `op`, `max_wait_us`, `id`, `document`";
        for (fields, problem) in [
            (r#""kost":1"#, format!("unknown field `kost`, expected one of {known}")),
            (r#""key":"a","key":"b""#, "key: is given twice".to_owned()),
            (r#""key":5"#, "key: `5` is not a string of 1..=1024 bytes".to_owned()),
            (r#""max_wait_us":5"#, "max_wait_us: cannot be combined with `check`".to_owned()),
            (
                r#""op":"acquire","max_wait_us":5"#,
                "max_wait_us: cannot be combined with `acquire`".to_owned(),
            ),
            (r#""id":"x""#, "id: cannot be combined with `check`".to_owned()),
            (r#""op":"peek","document":{}"#, "document: cannot be combined with `peek`".to_owned()),
            (r#""op":"acquire","id":"""#, "id: `0` bytes are outside 1..=1024".to_owned()),
        ] {
            assert_eq!(error(fields), problem);
        }
        assert_eq!(
            error(r#""op":"chekc""#),
            "op: unknown op `chekc`, expected one of `check`, `peek`, `refund`, `reset`, `reserve`, \
             `at_most`, `acquire`, `release`, `renew`, `configure`"
        );
        for (op, field) in [("release", "id"), ("renew", "id"), ("configure", "document")] {
            let error = error(&format!("\"op\":\"{op}\""));
            assert!(error.starts_with(&format!("{field}: is missing, `{op}` needs ")), "{error}");
        }
        let (at, error) = whole_error(br#"{"policy":"p"}"#);
        assert!(
            at.is_none() && error.starts_with("at_us: is missing, `check` needs a whole number")
        );
    }

    #[test]
    fn the_instant_of_a_bad_event_is_known_wherever_it_stands() {
        assert_eq!(whole_error(br#"{"cost":0,"at_us":3}"#).0, Some(3));
        assert_eq!(whole_error(br#"{"x":1,"at_us":3}"#).0, Some(3));
        assert_eq!(whole_error(br#"{"at_us":3,"#).0, Some(3));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn no_mixture_of_fields_makes_the_parser_panic(
            fields in proptest::collection::vec(
                (0..FORM.fields.len(), 0_usize..16, any::<u64>(), "\\PC{0,9}"), 0..9,
            ),
        ) {
            let value = |kind, number: u64, text: &str| match kind {
                0..4 => number.to_string(),
                4..7 => serde_json::to_string(text).unwrap(),
                7..15 => format!("\"{}\"", OpName::ALL[kind - 7].name()),
                _ => text.to_owned(),
            };
            let fields: Vec<_> = fields
                .iter()
                .map(|(field, kind, number, text)| {
                    format!("\"{}\":{}", FORM.fields[*field].name(), value(*kind, *number, text))
                })
                .collect();
            let _ = parse(format!("{{{}}}", fields.join(",")).as_bytes());
        }
    }
}

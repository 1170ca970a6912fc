//! Bodies and header fields of the HTTP wire: bytes to a request, an answer to bytes. No IO.

mod batch;
mod explain;
mod headers;
mod operation;
mod problem;
mod reply;
mod request;
mod settled;

pub(super) use batch::{Batch, CHECKS_MAX, encode_all, encode_each, encode_none};
pub(super) use explain::{Explained, encode as encode_explanation};
pub(super) use operation::Operation;
pub(super) use problem::{Problem, ProblemDocument, RefusalProblem, refusal, refusal_as};
pub(super) use reply::{DecisionBody, encode};
pub(super) use request::{OperationRequest, Settle};
pub(super) use settled::{SettledBody, encode as encode_settled};

/// Returns whether `bytes` are the body of any operation, for the fuzzer.
#[must_use]
pub fn requests_in(bytes: &[u8]) -> bool {
    let is_body = |operation| match operation {
        Operation::Batch => Batch::decode(bytes).is_ok(),
        Operation::Settle => Settle::decode(bytes).is_ok(),
        _ => OperationRequest::decode(operation, bytes, String::new).is_ok(),
    };
    // Each is tried, also when one of them is found.
    Operation::ALL.into_iter().filter(|operation| is_body(*operation)).count() > 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sluicegate::internals::Settlement;
    use sluicegate::{Cost, Micros, PermitId, Verb};

    use super::*;

    fn ask(operation: Operation, body: &str) -> Result<OperationRequest<'_>, Problem> {
        OperationRequest::decode(operation, body.as_bytes(), || "new".to_owned())
    }

    fn problem(operation: Operation, body: &str) -> String {
        ask(operation, body).expect_err(body).detail().to_owned()
    }

    fn detail(body: &str) -> String {
        problem(Operation::Check, body)
    }

    #[test]
    fn a_whole_number_may_be_written_with_a_point() {
        for cost in ["5", "5.0", "5.000", "5e0", "0.5e1"] {
            let body = format!(r#"{{"policy":"p","cost":{cost},"max_wait_ms":{cost}}}"#);
            let ask = ask(Operation::Check, &body).unwrap();
            let (cost, max_wait) = (Cost::new(5).unwrap(), Micros::from_millis(5));
            assert_eq!(ask.request().verb, Verb::Reserve { cost, max_wait });
        }
    }

    #[test]
    fn a_plain_body_is_a_check_of_one_permit() {
        let ask = ask(Operation::Check, r#"{"policy":"p","key":"k\u00e9"}"#).unwrap();
        let request = ask.request();
        assert_eq!(request.limits.name(), "p");
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
            ("app", r#""""#, r#"`""` is not an app name (string of 1 byte or more)"#.to_owned()),
            ("app", "[]", "`[..]` is not an app name (string of 1 byte or more)".to_owned()),
        ] {
            let body = format!(r#"{{"policy":"p","{field}":{given}}}"#);
            assert_eq!(detail(&body), format!("{field}: {problem}"));
        }
        assert_eq!(detail(r#"{"policy":5}"#), "policy: `5` is not a policy name (string)");
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
        let known = "expected one of `policy`, `key`, `app`, `cost`, `max_wait_ms`";
        let example = r#"expected an object such as `{"policy":"p","key":"k"}`, found"#;
        for (body, problem) in [
            (r#"["tb","k"]"#, format!(r#"{example} `["tb","k"]`"#)),
            (r#""tb""#, format!(r#"{example} `"tb"`"#)),
            ("null", format!("{example} `null`")),
            ("", format!("{example} nothing")),
            (r#"{"policy":"p","kee":"k"}"#, format!("unknown field `kee`, {known}")),
            (r#"{"policy":"p","op":"reset"}"#, format!("unknown field `op`, {known}")),
            (r#"{"policy":"p","policy":"q"}"#, "policy: is given twice".to_owned()),
            (r#"{"key":"k"}"#, "policy: is missing, expected a policy name (string)".to_owned()),
            ("{", "not JSON: EOF while parsing an object at column 1".to_owned()),
            ("{\n}}", "not JSON: trailing characters at line 2 column 2".to_owned()),
        ] {
            assert_eq!(detail(body), problem);
        }
    }

    #[test]
    fn null_is_the_budget_that_all_share_and_nobody_in_particular() {
        let ask = ask(Operation::Check, r#"{"policy":"p","key":null,"app":null}"#).unwrap();
        let request = ask.request();
        assert_eq!((request.key, request.app), (None, None));
    }

    #[test]
    fn each_path_is_a_verb() {
        let permit = PermitId::named("i");
        let (cost, max_wait) = (Cost::new(2).unwrap(), Micros::from_millis(250));
        for (operation, fields, verb) in [
            (Operation::Check, r#","cost":2"#, Verb::Check { cost }),
            (Operation::Check, r#","cost":2,"max_wait_ms":250"#, Verb::Reserve { cost, max_wait }),
            (Operation::AtMost, r#","cost":2"#, Verb::AtMost { cost }),
            (Operation::Peek, r#","cost":2"#, Verb::Peek { cost }),
            (Operation::Explain, r#","cost":2"#, Verb::Peek { cost }),
            (Operation::Refund, r#","cost":2"#, Verb::Refund { cost }),
            (Operation::Reset, "", Verb::Reset),
            (Operation::Acquire, r#","cost":2,"id":"i""#, Verb::Acquire { cost, permit }),
            (Operation::Renew, r#","id":"i""#, Verb::Renew { permit }),
            (Operation::Release, r#","id":"i""#, Verb::Release { permit }),
        ] {
            let body = format!(r#"{{"policy":"p"{fields}}}"#);
            assert_eq!(ask(operation, &body).unwrap().request().verb, verb);
        }
    }

    #[test]
    fn a_permit_without_a_name_gets_one() {
        let acquire = ask(Operation::Acquire, r#"{"policy":"p"}"#).unwrap();
        assert_eq!(acquire.id.as_deref(), Some("new"));
        let verb = Verb::Acquire { cost: Cost::ONE, permit: PermitId::named("new") };
        assert_eq!(acquire.request().verb, verb);
    }

    #[test]
    fn a_field_goes_with_the_paths_that_know_it_and_is_in_its_range() {
        use Operation::*;
        let key = "expected one of `policy`, `key`, `app`";
        for (operation, fields, expected) in [
            (Reset, r#","cost":1"#, format!("unknown field `cost`, {key}")),
            (Peek, r#","max_wait_ms":1"#, format!("unknown field `max_wait_ms`, {key}, `cost`")),
            (Release, "", "id: is missing, expected a string of 1..=1024 bytes".to_owned()),
            (Release, r#","id":"""#, "id: `0` bytes are outside 1..=1024".to_owned()),
            (Acquire, r#","id":7"#, "id: `7` is not a string of 1..=1024 bytes".to_owned()),
            (
                Check,
                r#","max_wait_ms":9007199254741"#,
                "max_wait_ms: `9007199254741` is outside 0..=9007199254740".to_owned(),
            ),
            (
                Check,
                r#","max_wait_ms":-1"#,
                "max_wait_ms: `-1` is not a whole number of milliseconds 0..=9007199254740"
                    .to_owned(),
            ),
        ] {
            assert_eq!(problem(operation, &format!(r#"{{"policy":"p"{fields}}}"#)), expected);
        }
    }

    #[test]
    fn a_settlement_names_what_was_charged_and_what_it_cost() {
        let body = r#"{"policy":"p","key":"k","id":"i","charged":1000,"cost":0}"#;
        let settle = Settle::decode(body.as_bytes()).unwrap();
        let Settlement { key, id, charged, cost, .. } = settle.settlement();
        assert_eq!((key, id), (Some(&b"k"[..]), &b"i"[..]));
        assert_eq!((charged.get(), cost), (1000, 0));
        for (fields, expected) in [
            (r#""charged":1"#, "cost: is missing, expected a whole number 0..=2147483648"),
            (r#""cost":1"#, "charged: is missing, expected a whole number 1..=2147483648"),
            (r#""cost":1,"charged":0"#, "charged: `0` is outside 1..=2147483648"),
            (r#""cost":2147483649,"charged":1"#, "cost: `2147483649` is outside 0..=2147483648"),
            (r#""cost":null,"charged":1"#, "cost: `null` is not a whole number 0..=2147483648"),
        ] {
            let body = format!(r#"{{"policy":"p","id":"i",{fields}}}"#);
            assert_eq!(Settle::decode(body.as_bytes()).expect_err(&body).detail(), expected);
        }
    }

    #[test]
    fn a_batch_is_1_to_100_checks_each_with_its_own_problem() {
        let decode = |body: &str| {
            Batch::decode(body.as_bytes()).map(drop).expect_err(body).detail().to_owned()
        };
        let many =
            |count| format!(r#"{{"checks":[{}]}}"#, vec![r#"{"policy":"p"}"#; count].join(","));
        assert!(Batch::decode(many(100).as_bytes()).is_ok());
        assert_eq!(decode(&many(101)), "checks: `101` items are outside 1..=100");
        assert_eq!(decode(&many(0)), "checks: `0` items are outside 1..=100");
        for (body, expected) in [
            ("{}", "checks: is missing, expected a list of 1..=100 objects"),
            (r#"{"checks":{"a":1}}"#, r#"checks: `{"a":1}` is not a list of 1..=100 objects"#),
            (r#"{"checks":[],"atomic":1}"#, "atomic: `1` is not `true` or `false`"),
            (
                r#"{"checks":[{"policy":"p"},{"policy":"p","cost":0}],"atomic":true}"#,
                "checks[1]: cost: `0` is outside 1..=2147483648",
            ),
            (
                r#"{"checks":[{"policy":"p","max_wait_ms":5}],"atomic":true}"#,
                "checks[0]: max_wait_ms: cannot be combined with `atomic`",
            ),
        ] {
            assert_eq!(decode(body), expected);
        }
        let body = br#"{"checks":[{"policy":"p"},7,{"policy":"p","cost":0}]}"#;
        let Batch::Each(asks) = Batch::decode(body).unwrap() else { panic!("it is not atomic") };
        let details = asks.iter().map(|ask| ask.as_ref().err().map(Problem::detail));
        let seven =
            r#"checks[1]: expected an object such as `{"policy":"p","key":"k"}`, found `7`"#;
        let cost = "checks[2]: cost: `0` is outside 1..=2147483648";
        assert_eq!(details.collect::<Vec<_>>(), [None, Some(seven), Some(cost)]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for operation in [Operation::Check, Operation::Acquire, Operation::Release] {
                let _ = OperationRequest::decode(operation, &bytes, String::new);
            }
            let _ = Batch::decode(&bytes);
            let _ = Settle::decode(&bytes);
        }
    }
}

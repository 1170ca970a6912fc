//! Errors of commands that are invalid or not permitted.

use std::borrow::Cow;
use std::fmt::Display;

use sluicegate::{Charged, RangeError};
use sluicegate_text::terminal::one_line;

use crate::authenticator::CallerError;

/// An error reply without its leading `-`: a code in capitals, by which clients distinguish errors,
/// and words for people, on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ErrorReply(Cow<'static, str>);

impl ErrorReply {
    /// The code and the words, as they are sent.
    pub(super) const fn new(line: &'static str) -> Self {
        Self(Cow::Borrowed(line))
    }

    /// An error without a code of its own. Input that `problem` repeats must be on one line.
    pub(crate) fn err(problem: impl Display) -> Self {
        Self(format!("ERR {problem}").into())
    }

    /// An error of a request for a decision: its code says whether the request was charged nevertheless.
    pub(crate) fn of(charged: Charged, problem: impl Display) -> Self {
        let code = match charged {
            Charged::No => "NOTCHARGED",
            Charged::Yes => "CHARGED",
            Charged::Unknown => "MAYBECHARGED",
        };
        Self(format!("{code} {problem}").into())
    }

    /// An error of an invalid request for a decision.
    pub(super) fn bad_request(problem: impl Display) -> Self {
        Self::of(Charged::No, problem)
    }

    /// An error in the words of redis-cell.
    pub(super) fn cell(problem: impl Display) -> Self {
        Self(format!("Cell error: {problem}").into())
    }

    /// A command without the words it needs, or with too many.
    pub(super) fn wrong_arity(command: &str) -> Self {
        Self::err(format_args!("wrong number of arguments for '{command}' command"))
    }

    /// The line that is sent.
    pub(super) fn line(&self) -> &str {
        &self.0
    }
}

/// The error of a command whose caller is refused. A login that fails has the errors of Redis instead.
impl From<CallerError> for ErrorReply {
    fn from(refused: CallerError) -> Self {
        match refused {
            CallerError::Missing => Self::new("NOAUTH Authentication required."),
            CallerError::Unknown | CallerError::Expired => {
                Self(format!("NOAUTH Authentication required: {refused}").into())
            }
            CallerError::Scope(_)
            | CallerError::App
            | CallerError::NoApp
            | CallerError::Verb(_) => Self(format!("NOPERM {refused}").into()),
        }
    }
}

impl From<RangeError> for ErrorReply {
    fn from(error: RangeError) -> Self {
        Self::bad_request(error)
    }
}

/// The input, as a message repeats it.
pub(super) fn shown(word: &[u8]) -> String {
    one_line(&String::from_utf8_lossy(word))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluicegate::DecideError::{Store, Unsupported};
    use sluicegate::internals::store::Executed;
    use sluicegate::store::StoreError;
    use sluicegate::{Micros, Rate, TokenBucket, Verb};
    use sluicegate_kernel::RuleSet;
    use sluicegate_text::terminal;

    use super::*;

    #[test]
    fn the_first_word_of_an_error_says_whether_the_request_was_charged() {
        let of = |error| {
            let error: sluicegate::DecideError = error;
            (ErrorReply::of(error.charged(), terminal::decide_error(&error)), error.charged())
        };
        let unavailable = |executed| {
            let reason = "Redis does not answer".to_owned();
            Store(StoreError::Unavailable { reason, executed })
        };
        let bucket = TokenBucket::new(Rate::new(1, Micros::SECOND).expect("a rate"), 1);
        let rules = RuleSet::single("bucket", bucket.expect("a burst"));
        let unsupported = rules.supports(&Verb::Renew { permit: sluicegate::PermitId(1) });
        let replies = [
            of(Unsupported(unsupported.expect_err("nothing is held"))),
            of(unavailable(Executed::No)),
            of(unavailable(Executed::Perhaps)),
            of(Store(StoreError::Overloaded { executed: Executed::Perhaps })),
            (ErrorReply::bad_request("cost: `0` is outside 1..=2147483648"), Charged::No),
            (CallerError::Missing.into(), Charged::No),
            (CallerError::Expired.into(), Charged::No),
            (CallerError::App.into(), Charged::No),
        ];
        let entry = |line: &str, charged: Charged| {
            json!({ "reply": format!("-{line}\r\n"), "charged": charged.name() }).to_string()
        };
        let entries = replies.iter().map(|(reply, charged)| entry(reply.line(), *charged));
        // Lines of servers without these codes, and of other programs.
        let others = ["ERR store: Redis does not answer", "ERR", "NOTCHARGEDX", "LOADING", ""];
        let others = others.map(|line| entry(line, Charged::Unknown));
        let about = "Errors over RESP, and whether the request was charged: see the page of the protocol, Errors.";
        let entries: Vec<_> = entries.chain(others).collect();
        sluicegate_testkit::wire_vectors("error-replies", about, &entries);
    }
}

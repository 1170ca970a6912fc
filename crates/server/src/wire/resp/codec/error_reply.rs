//! Commands that make no sense, or may not be given: what the client is told.

use std::borrow::Cow;
use std::fmt::Display;

use sluicegate::RangeError;
use sluicegate_text::terminal::one_line;

use crate::authenticator::CallerError;

/// An error reply without its leading `-`: a code in capitals, by which clients tell errors apart,
/// and words for people, on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ErrorReply(Cow<'static, str>);

impl ErrorReply {
    /// The code and the words, as they are sent.
    pub(super) const fn new(line: &'static str) -> Self {
        Self(Cow::Borrowed(line))
    }

    /// An error without a code of its own. What `problem` repeats of the input must be on one line.
    pub(crate) fn err(problem: impl Display) -> Self {
        Self(format!("ERR {problem}").into())
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

/// What the caller of a command is told who is not answered. Who logs in is told as Redis tells them.
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
        Self::err(error)
    }
}

/// What was given, as a message repeats it.
pub(super) fn shown(word: &[u8]) -> String {
    one_line(&String::from_utf8_lossy(word))
}

//! Words to commands.

use super::decision_request::DecisionRequest;
use super::error_reply::{ErrorReply, shown};
use super::policy::PolicyCommand;
use super::throttle;

/// Longest name of a command: `CL.THROTTLE`.
const NAME_BYTES_MAX: usize = 11;

/// Maximum number of bytes of an unknown command's words that are repeated, as in Redis.
const REPEATED_BYTES_MAX: usize = 128;

/// A command, as it was read.
#[derive(Debug)]
pub(crate) enum Command<'a> {
    /// A request for a decision.
    Decide(DecisionRequest<'a>),
    /// A command about the connection itself.
    Talk(SessionCommand<'a>),
}

/// Commands other than requests for decisions; clients send many of them when they connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SessionCommand<'a> {
    Ping(Option<&'a [u8]>),
    Echo(&'a [u8]),
    Hello(Hello<'a>),
    Auth(LoginCredentials<'a>),
    Client(Vec<&'a [u8]>),
    Command(Vec<&'a [u8]>),
    Select(&'a [u8]),
    Info(Vec<&'a [u8]>),
    Multi,
    Exec,
    Discard,
    Quit,
    Reset,
}

/// `HELLO [version [AUTH user password] [SETNAME name]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hello<'a> {
    pub(super) version: Option<&'a [u8]>,
    pub(super) login: Option<LoginCredentials<'a>>,
    pub(super) name: Option<&'a [u8]>,
}

/// The login of a client; without a user, of the default one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoginCredentials<'a> {
    pub(super) user: Option<&'a [u8]>,
    pub(super) password: &'a [u8],
}

impl<'a> Command<'a> {
    /// Reads the words of a command, at least one.
    pub(crate) fn decode(words: &[&'a [u8]]) -> Result<Self, ErrorReply> {
        let (name, rest) = words.split_first().ok_or(ErrorReply::new("ERR empty command"))?;
        let mut upper = [0; NAME_BYTES_MAX];
        let Some(upper) = upper.get_mut(..name.len()) else { return Err(unknown(name, rest)) };
        upper.copy_from_slice(name);
        upper.make_ascii_uppercase();
        // One call for all of them, so that a request is made in its place and not copied there.
        let operation = match &*upper {
            b"CL.THROTTLE" => return Ok(Self::Decide(throttle::decode(rest)?)),
            b"SG.CHECK" => PolicyCommand::Check,
            b"SG.PEEK" => PolicyCommand::Peek,
            b"SG.REFUND" => PolicyCommand::Refund,
            b"SG.RESET" => PolicyCommand::Reset,
            b"SG.ACQUIRE" => PolicyCommand::Acquire,
            b"SG.RENEW" => PolicyCommand::Renew,
            b"SG.RELEASE" => PolicyCommand::Release,
            _ => {
                let command = SessionCommand::decode(upper, rest)?;
                return command.map(Self::Talk).ok_or_else(|| unknown(name, rest));
            }
        };
        Ok(Self::Decide(operation.decode(rest)?))
    }
}

impl<'a> SessionCommand<'a> {
    /// Reads the words behind `name`, which is in upper case; `None` if there is no such command.
    fn decode(name: &[u8], rest: &[&'a [u8]]) -> Result<Option<Self>, ErrorReply> {
        Ok(Some(match (name, rest) {
            (b"PING", []) => Self::Ping(None),
            (b"PING", [message]) => Self::Ping(Some(message)),
            (b"ECHO", [message]) => Self::Echo(message),
            (b"HELLO", words) => Self::Hello(Hello::decode(words)?),
            (b"AUTH", [password]) => Self::Auth(LoginCredentials { user: None, password }),
            (b"AUTH", [user, password]) => {
                Self::Auth(LoginCredentials { user: Some(user), password })
            }
            (b"CLIENT", words @ [_, ..]) => Self::Client(words.to_vec()),
            (b"COMMAND", words) => Self::Command(words.to_vec()),
            (b"SELECT", [database]) => Self::Select(database),
            (b"INFO", sections) => Self::Info(sections.to_vec()),
            (b"MULTI", []) => Self::Multi,
            (b"EXEC", []) => Self::Exec,
            (b"DISCARD", []) => Self::Discard,
            (b"QUIT", _) => Self::Quit,
            (b"RESET", []) => Self::Reset,
            (b"PING" | b"ECHO" | b"AUTH" | b"CLIENT" | b"SELECT" | b"RESET", _) => {
                return Err(ErrorReply::wrong_arity(&shown(name).to_ascii_lowercase()));
            }
            _ => return Ok(None),
        }))
    }
}

impl<'a> Hello<'a> {
    fn decode(words: &[&'a [u8]]) -> Result<Self, ErrorReply> {
        let Some((version, mut options)) = words.split_first() else { return Ok(Self::default()) };
        let mut hello = Self { version: Some(version), ..Self::default() };
        while let Some((option, rest)) = options.split_first() {
            options = match rest {
                [user, password, rest @ ..] if option.eq_ignore_ascii_case(b"AUTH") => {
                    hello.login = Some(LoginCredentials { user: Some(user), password });
                    rest
                }
                [name, rest @ ..] if option.eq_ignore_ascii_case(b"SETNAME") => {
                    hello.name = Some(name);
                    rest
                }
                _ => {
                    let option = shown(option);
                    return Err(ErrorReply::err(format_args!(
                        "Syntax error in HELLO option '{option}'"
                    )));
                }
            };
        }
        Ok(hello)
    }
}

/// The error in the words of Redis, by which some clients recognise that a command is not available.
#[cold]
fn unknown(name: &[u8], rest: &[&[u8]]) -> ErrorReply {
    let cut = |word: &[u8], room: usize| shown(&word[..word.len().min(room)]);
    let mut repeated = String::new();
    for word in rest {
        let Some(room) = REPEATED_BYTES_MAX.checked_sub(repeated.len()) else { break };
        repeated += &format!("'{}' ", cut(word, room));
    }
    let name = cut(name, REPEATED_BYTES_MAX);
    ErrorReply::err(format_args!("unknown command '{name}', with args beginning with: {repeated}"))
}

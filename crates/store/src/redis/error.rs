//! What can go wrong between this process and Redis, and whether the call may have been executed.
//!
//! The second question is the important one. A call that was surely not executed may be made
//! again; one with an unknown outcome may not, for it may have charged a budget already.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::config::Address;

/// Whether a call that failed may have changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEffect {
    /// It was surely not executed: it never left, or the server refused it before it began.
    NotExecuted,
    /// It was sent, and may have been executed: it must not be made again.
    Unknown,
}

/// Why a call brought no reply of the script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RedisError {
    /// There is no connection now; the call never left.
    #[error("redis is unavailable: {cause}")]
    Unavailable {
        /// What keeps the connection from being there.
        #[from]
        cause: ConnectError,
    },
    /// The server answers, but has more calls to do than it can within the deadline.
    #[error("redis overloaded: it answers, but not within the deadline of this call")]
    Overloaded {
        /// Unknown once the call was sent.
        outcome: CallEffect,
    },
    /// The deadline passed before the reply came.
    #[error("no reply from redis within the deadline")]
    Timeout {
        /// Unknown once the call was sent.
        outcome: CallEffect,
    },
    /// The connection was lost after the call was sent and before its reply came.
    #[error("the connection to redis was lost before the reply came")]
    Lost,
    /// The server replied with an error.
    #[error("redis refused the call: {0}{advice}", advice = .0.advice())]
    Refused(ServerErrorReply),
    /// The reply has another shape than the script's; the call was executed.
    #[error("unexpected reply from redis")]
    Malformed,
}

/// An error reply of the server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code} {message}")]
pub struct ServerErrorReply {
    /// The first word of the reply: `READONLY`, `OOM`, `ERR`...
    pub code: Arc<str>,
    /// The rest of it.
    pub message: Arc<str>,
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The first attempt is still under way.
    #[error("still connecting for the first time")]
    NotYet,
    /// The operating system or the network said no.
    #[error("cannot connect to {address}: {reason}")]
    Io {
        /// The server.
        address: Address,
        /// What kind of failure it is.
        kind: io::ErrorKind,
        /// What the operating system says.
        reason: Arc<str>,
    },
    /// The server did not finish the handshake in time.
    #[error("cannot connect to {address}: {step} took more than {} ms", timeout.as_millis())]
    Timeout {
        /// What was under way when the time was over: TCP, TLS, the login...
        step: &'static str,
        /// The server.
        address: Address,
        /// The configured bound.
        timeout: Duration,
    },
    /// TLS failed: the certificate is not trusted, or there is no TLS at the other end.
    #[error("TLS handshake with {address} failed: {reason}")]
    Tls {
        /// The server.
        address: Address,
        /// What TLS says.
        reason: Arc<str>,
    },
    /// The server does not accept the user and the password, or wants some.
    #[error("{address} rejects the login: {reason}")]
    Login {
        /// The server.
        address: Address,
        /// What the server says.
        reason: Arc<str>,
    },
    /// The user lacks the right to a command that is needed.
    #[error(
        "{address} does not permit a command: {refusal}; `sluicegate redis-acl URL` prints the rights"
    )]
    NotPermitted {
        /// The server.
        address: Address,
        /// What the server says.
        refusal: ServerErrorReply,
    },
    /// The server refuses what a new connection needs: it is loading, for example.
    #[error("{address} refuses the connection: {refusal}{advice}", advice = refusal.advice())]
    Refused {
        /// The server.
        address: Address,
        /// What the server says.
        refusal: ServerErrorReply,
    },
    /// The server keeps another script under the expected hash, or replies in no known way.
    #[error("{address} does not answer like a redis server: {reason}")]
    Foreign {
        /// The server.
        address: Address,
        /// What was expected.
        reason: Arc<str>,
    },
    /// The server is of another kind than the URL names, or speaks TLS where the URL names none.
    #[error("{address} is {found}: {advice}")]
    WrongServer {
        /// The server.
        address: Address,
        /// What it is, such as `a node of a Redis Cluster`.
        found: &'static str,
        /// What to do, such as `use redis+cluster://`.
        advice: Arc<str>,
    },
    /// The server is not the master, although it was said to be.
    #[error("{address} is a {role}, not the master")]
    NotMaster {
        /// The server.
        address: Address,
        /// The role that it has.
        role: Arc<str>,
    },
    /// No sentinel that answers knows the master.
    #[error("no sentinel knows a master named `{name}`{}", known_masters(.known))]
    NoMaster {
        /// The configured name.
        name: Arc<str>,
        /// The names of masters that a Sentinel knows, as far as it says them.
        known: Arc<[Box<str>]>,
    },
    /// No Sentinel answers.
    #[error("no sentinel answers: {cause}")]
    NoSentinel {
        /// Why one of them does not.
        cause: Arc<str>,
    },
    /// No node of the cluster answers.
    #[error("no cluster node answers: {cause}")]
    NoNode {
        /// Why one of them does not.
        cause: Arc<str>,
    },
    /// The nodes of the cluster answer, and serve no slot.
    #[error(
        "the cluster of {address} is not ready: none of its {} slots is served",
        super::slots::SLOTS
    )]
    ClusterNotReady {
        /// A node.
        address: Address,
    },
    /// No node of the cluster serves the key's slot.
    #[error("no cluster node serves slot {slot}")]
    NoOwner {
        /// The slot, 0..=16383.
        slot: u16,
    },
    /// The connection broke.
    #[error("connection to {address} lost")]
    Broken {
        /// The server.
        address: Address,
    },
    /// Requests were outstanding, and nothing was heard for too long.
    #[error("no reply from {address} for {} ms", silence.as_millis())]
    Silent {
        /// The server.
        address: Address,
        /// How long a reply was awaited.
        silence: Duration,
    },
    /// Another server became the master; a connection to it is being made.
    #[error("{address} is no longer the master")]
    Moved {
        /// The server that was the master.
        address: Address,
    },
}

/// The names of masters in a message.
fn known_masters(known: &[Box<str>]) -> String {
    let names: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
    if names.is_empty() { String::new() } else { format!("; expected {}", names.join(" or ")) }
}

impl ConnectError {
    /// Whether a server answered and is not what it has to be: of several errors, this one names the cause.
    pub(super) fn is_an_answer(&self) -> bool {
        matches!(
            self,
            Self::WrongServer { .. } | Self::ClusterNotReady { .. } | Self::NoMaster { .. }
        )
    }
}

impl RedisError {
    /// Whether the call may have been executed.
    pub fn outcome(&self) -> CallEffect {
        match self {
            Self::Unavailable { .. } => CallEffect::NotExecuted,
            Self::Timeout { outcome } | Self::Overloaded { outcome } => *outcome,
            Self::Lost | Self::Malformed => CallEffect::Unknown,
            Self::Refused(refusal) => refusal.outcome(),
        }
    }
}

/// What an error reply says of the call and of the server. Only a call that was surely not executed may be
/// made again; the store fails (`on_store_failure` decides) unless the error is of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorClass {
    /// The server refused the call before the script began.
    NotBegun,
    /// The same, and refuses every call for as long as it is what it is: the connection is of no use.
    WrongServer,
    /// The server writes nothing at present: the script writes a key once, at its very end.
    NoWrites,
    /// There is something of another type at the key; the server answers others as ever.
    OneKey,
    /// A script may have written something before it ran into any other error.
    Other,
}

/// The class of each code; one that is not here is [`ErrorClass::Other`].
const ERROR_CLASSES: [(&str, ErrorClass); 16] = [
    ("NOSCRIPT", ErrorClass::NotBegun),
    ("MOVED", ErrorClass::NotBegun),
    ("ASK", ErrorClass::NotBegun),
    ("TRYAGAIN", ErrorClass::NotBegun),
    ("CLUSTERDOWN", ErrorClass::NotBegun),
    ("CROSSSLOT", ErrorClass::NotBegun),
    ("BUSY", ErrorClass::NotBegun),
    ("NOAUTH", ErrorClass::NotBegun),
    ("NOPERM", ErrorClass::NotBegun),
    ("LOADING", ErrorClass::WrongServer),
    ("MASTERDOWN", ErrorClass::WrongServer),
    ("READONLY", ErrorClass::WrongServer),
    ("NOREPLICAS", ErrorClass::NoWrites),
    ("MISCONF", ErrorClass::NoWrites),
    ("OOM", ErrorClass::NoWrites),
    ("WRONGTYPE", ErrorClass::OneKey),
];

impl ServerErrorReply {
    fn class(&self) -> ErrorClass {
        let known = ERROR_CLASSES.iter().find(|(code, _)| *code == &*self.code);
        known.map_or(ErrorClass::Other, |(_, class)| *class)
    }

    /// Whether the call may have been executed in spite of the error.
    pub fn outcome(&self) -> CallEffect {
        match self.class() {
            ErrorClass::Other => CallEffect::Unknown,
            _ => CallEffect::NotExecuted,
        }
    }

    /// Whether there is something of another type at the key, while the server answers others as ever.
    pub(super) fn is_wrong_type(&self) -> bool {
        self.class() == ErrorClass::OneKey
    }

    /// Whether the server writes nothing at present, as when its memory is full.
    pub fn means_no_writes(&self) -> bool {
        self.class() == ErrorClass::NoWrites
    }

    /// What to do about a server that writes nothing, or not for this user, in parentheses.
    fn advice(&self) -> &'static str {
        match &*self.code {
            "OOM" => " (its memory is full: raise `maxmemory`)",
            "MISCONF" => " (it cannot save its data: see its log, and the room on its disk)",
            "NOREPLICAS" => {
                " (fewer replicas are connected than `min-replicas-to-write`: start them, or lower it)"
            }
            "NOPERM" => {
                " (the user lacks a right: give it those that `sluicegate redis-acl URL` prints, among them the keys \
                 `~sg:*`)"
            }
            _ if self.means_no_room() => " (raise `maxclients`, or close other clients)",
            "ERR" if self.message.starts_with("DB index is out of range") => {
                " (the URL ends with the number of a database: 0 to 15, unless `databases` says otherwise)"
            }
            _ => "",
        }
    }

    /// Whether the server does not have the command.
    pub(super) fn is_unknown_command(&self) -> bool {
        &*self.code == "ERR" && self.message.starts_with("unknown command")
    }

    /// Whether the server has no room for another client: it says so at once, and closes.
    pub(super) fn means_no_room(&self) -> bool {
        &*self.code == "ERR" && self.message.starts_with("max number of clients")
    }

    /// Whether the server is no place for calls at present: the connection is of no use.
    pub(super) fn means_wrong_server(&self) -> bool {
        self.class() == ErrorClass::WrongServer
    }
}

/// Of an error's code and of its text so much is kept, each: what Redis says is shorter, and an answer and a line of
/// the log stay readable whatever is in its place.
const TEXT_BYTES_KEPT: usize = 512;

impl From<&redis::ServerError> for ServerErrorReply {
    fn from(error: &redis::ServerError) -> Self {
        Self::new(error.code(), error.details().unwrap_or_default())
    }
}

impl ServerErrorReply {
    /// The error `code message`. Redis before 7 wraps what a command in a script was refused with,
    /// in `ERR Error running script (..): @user_script:8: @user_script: 8: -READONLY You can't..`
    /// where it ended the script, in `@user_script: 8: -READONLY You can't..` where the script
    /// replied it: then it is the inner error.
    pub(super) fn new(code: &str, message: &str) -> Self {
        let wrapped = code == "@user_script:" || message.starts_with("Error running script");
        let inner = wrapped.then(|| message.split_once(": -")).flatten();
        let inner = inner.and_then(|(_place, inner)| inner.split_once(' '));
        let (code, message) = inner.unwrap_or((code, message));
        let cut = |text: &str| text[..text.floor_char_boundary(TEXT_BYTES_KEPT)].into();
        Self { code: cut(code), message: cut(message) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Executed, StoreError};

    fn refused(code: &str) -> StoreError {
        RedisError::Refused(ServerErrorReply::new(code, "")).into()
    }

    /// What the store reports for each code, as `spec/failure.md` has it.
    #[test]
    fn each_code_fails_the_store_or_one_key_as_the_specification_says() {
        let page = include_str!("../../../../spec/failure.md");
        let row =
            |start: &str| page.lines().find(|line| line.starts_with(start)).expect("it is there");
        let codes = |row: &str| -> Vec<String> {
            let quoted = row.split('`').skip(1).step_by(2);
            quoted
                .filter(|code| code.bytes().all(|byte| byte.is_ascii_uppercase()))
                .map(str::to_owned)
                .collect()
        };
        let fails = codes(row("| the error `NOSCRIPT`"));
        for code in &fails {
            let error = refused(code);
            let fails = matches!(error, StoreError::Unavailable { executed: Executed::No, .. });
            assert!(fails, "{code}: {error:?}");
        }
        let of_one_key = codes(row("| the error `WRONGTYPE`"));
        for code in &of_one_key {
            let error = refused(code);
            assert!(matches!(error, StoreError::Unreadable { .. }), "{code}: {error:?}");
        }
        let mut named: Vec<_> = fails.iter().chain(&of_one_key).map(String::as_str).collect();
        let mut known: Vec<_> = ERROR_CLASSES.iter().map(|(code, _)| *code).collect();
        named.sort_unstable();
        known.sort_unstable();
        assert_eq!(named, known);
        for code in ["ERR", "EXECABORT", "SOMETHING"] {
            let error = refused(code);
            let perhaps =
                matches!(error, StoreError::Unavailable { executed: Executed::Perhaps, .. });
            assert!(perhaps, "{code}: {error:?}");
        }
    }

    #[test]
    fn what_an_old_server_wraps_is_unwrapped() {
        let wrapped = |inner: &str| {
            let message = format!("Error running script (call to f_0a): @user_script:8: {inner}");
            ServerErrorReply::new("ERR", &message)
        };
        let refusal = wrapped("@user_script: 8: -READONLY You can't write");
        assert_eq!(refusal.to_string(), "READONLY You can't write");
        assert!(refusal.means_wrong_server());
        let replied = ServerErrorReply::new("@user_script:", "8: -READONLY You can't write");
        assert_eq!(replied, refusal);
        let refusal = wrapped("WRONGTYPE Operation against a key");
        assert_eq!((&*refusal.code, refusal.outcome()), ("ERR", CallEffect::Unknown));
    }

    #[test]
    fn of_a_long_error_the_beginning_is_kept() {
        let long = "\u{e9}".repeat(40_000);
        let error = ServerErrorReply::new(&format!("E{long}"), &long);
        assert_eq!((error.code.len(), error.message.len()), (511, 512));
    }

    #[test]
    fn what_was_sent_without_a_reply_has_an_unknown_outcome() {
        assert_eq!(RedisError::Lost.outcome(), CallEffect::Unknown);
        assert_eq!(RedisError::Malformed.outcome(), CallEffect::Unknown);
        assert_eq!(
            RedisError::Overloaded { outcome: CallEffect::NotExecuted }.outcome(),
            CallEffect::NotExecuted
        );
        assert_eq!(RedisError::from(ConnectError::NotYet).outcome(), CallEffect::NotExecuted);
    }
}

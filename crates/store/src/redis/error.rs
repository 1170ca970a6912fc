//! The errors between this process and Redis, and whether the call may have been executed.
//!
//! The second question is the important one. A call that was surely not executed may be made
//! again; one with an unknown outcome may not, for it may have charged a budget already.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::address::Address;

/// The effect of a call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEffect {
    /// The call had surely no effect: it was never sent, or the server refused it.
    NotExecuted,
    /// The call was sent, and may have been executed: it must not be made again.
    Unknown,
}

/// Why a call brought no reply of the script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RedisError {
    /// There is no connection now; the call was not sent.
    #[error("redis is unavailable: {cause}")]
    Unavailable {
        /// The reason why there is no connection.
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
    /// The operating system or the network refused the connection.
    #[error("cannot connect to {address}: {reason}")]
    Io {
        /// The server.
        address: Address,
        /// The kind of the failure.
        kind: io::ErrorKind,
        /// The message of the operating system.
        reason: Arc<str>,
    },
    /// The server did not finish the handshake in time.
    #[error("cannot connect to {address}: {step} took more than {} ms", timeout.as_millis())]
    Timeout {
        /// The step under way when the time was over: TCP, TLS, the login...
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
        /// The message of TLS.
        reason: Arc<str>,
    },
    /// The server rejects the user and the password, or requires them.
    #[error("{address} rejects the login: {reason}")]
    Login {
        /// The server.
        address: Address,
        /// The message of the server.
        reason: Arc<str>,
    },
    /// The user lacks the right to a command that is needed.
    #[error(
        "{address} does not permit a command: {refusal}; `sluicegate redis-acl URL` prints the rights"
    )]
    NotPermitted {
        /// The server.
        address: Address,
        /// The reply of the server.
        refusal: ServerErrorReply,
    },
    /// The server refuses a command that a new connection needs: it is loading, for example.
    #[error("{address} refuses the connection: {refusal}{advice}", advice = refusal.advice())]
    Refused {
        /// The server.
        address: Address,
        /// The reply of the server.
        refusal: ServerErrorReply,
    },
    /// The server keeps another script under the expected hash, or replies in no known way.
    #[error("{address} does not answer like a redis server: {reason}")]
    Foreign {
        /// The server.
        address: Address,
        /// The expected reply.
        reason: Arc<str>,
    },
    /// The server is of another kind than the URL names, or uses TLS where the URL names none.
    #[error("{address} is {found}: {advice}")]
    WrongServer {
        /// The server.
        address: Address,
        /// The kind of server, such as `a node of a Redis Cluster`.
        found: &'static str,
        /// The remedy, such as `use redis+cluster://`.
        advice: Arc<str>,
    },
    /// The server is not the master, although a Sentinel named it.
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
        /// The names of masters that a Sentinel knows, as far as it reports them.
        known: Arc<[Box<str>]>,
    },
    /// No Sentinel answers.
    #[error("no sentinel answers: {cause}")]
    NoSentinel {
        /// Why one of them does not answer.
        cause: Arc<str>,
    },
    /// No node of the cluster answers.
    #[error("no cluster node answers: {cause}")]
    NoNode {
        /// Why one of them does not answer.
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
    /// Requests were outstanding, and no reply came for too long.
    #[error("no reply from {address} for {} ms", silence.as_millis())]
    Silent {
        /// The server.
        address: Address,
        /// The time for which a reply was awaited.
        silence: Duration,
    },
    /// Another server became the master; a connection to it is being made.
    #[error("{address} is no longer the master")]
    Moved {
        /// The server that was the master.
        address: Address,
    },
}

/// Returns the names of masters for a message.
fn known_masters(known: &[Box<str>]) -> String {
    let names: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
    if names.is_empty() { String::new() } else { format!("; expected {}", names.join(" or ")) }
}

impl ConnectError {
    /// Returns whether a server answered and is not of the required kind: of several errors, this one names the
    /// cause.
    pub(super) fn is_an_answer(&self) -> bool {
        matches!(
            self,
            Self::WrongServer { .. } | Self::ClusterNotReady { .. } | Self::NoMaster { .. }
        )
    }
}

impl RedisError {
    /// Returns whether the call may have been executed.
    pub fn outcome(&self) -> CallEffect {
        match self {
            Self::Unavailable { .. } => CallEffect::NotExecuted,
            Self::Timeout { outcome } | Self::Overloaded { outcome } => *outcome,
            Self::Lost | Self::Malformed => CallEffect::Unknown,
            Self::Refused(refusal) => refusal.outcome(),
        }
    }
}

/// The meaning of an error reply for the call and for the server. Only a call that was surely not executed may be
/// made again; the store fails (`on_store_failure` decides) unless the error is of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorClass {
    /// The server refused the call before the script began.
    NotBegun,
    /// The server refused the call before the script began, and refuses every call in its present role or state: the
    /// connection cannot be used.
    WrongServer,
    /// The server accepts no writes at present: the script writes a key once, at its very end.
    NoWrites,
    /// The key has a value of another type; the server serves other keys as usual.
    OneKey,
    /// Any other error: a script may have written something before it.
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

    /// Returns whether the call may have been executed in spite of the error.
    pub fn outcome(&self) -> CallEffect {
        match self.class() {
            ErrorClass::Other => CallEffect::Unknown,
            _ => CallEffect::NotExecuted,
        }
    }

    /// Returns whether the key has a value of another type, while the server serves other keys as usual.
    pub(super) fn is_wrong_type(&self) -> bool {
        self.class() == ErrorClass::OneKey
    }

    /// Returns whether the server accepts no writes at present, as when its memory is full.
    pub fn means_no_writes(&self) -> bool {
        self.class() == ErrorClass::NoWrites
    }

    /// Returns a remedy in parentheses, for errors such as a server that accepts no writes.
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

    /// Returns whether the server does not have the command.
    pub(super) fn is_unknown_command(&self) -> bool {
        &*self.code == "ERR" && self.message.starts_with("unknown command")
    }

    /// Returns whether the server has no room for another client: it replies so at once, and closes.
    pub(super) fn means_no_room(&self) -> bool {
        &*self.code == "ERR" && self.message.starts_with("max number of clients")
    }

    /// Returns whether the server cannot serve calls at present: the connection cannot be used.
    pub(super) fn means_wrong_server(&self) -> bool {
        self.class() == ErrorClass::WrongServer
    }
}

/// The most bytes that are kept of an error's code and of its text, each: real messages of Redis are shorter, and an
/// answer and a line of the log stay readable whatever the server sends.
const TEXT_BYTES_KEPT: usize = 512;

impl From<&redis::ServerError> for ServerErrorReply {
    fn from(error: &redis::ServerError) -> Self {
        Self::new(error.code(), error.details().unwrap_or_default())
    }
}

impl ServerErrorReply {
    /// Returns the error `code message`. Redis before 7 wraps the error of a command in a script, in
    /// `ERR Error running script (..): @user_script:8: @user_script: 8: -READONLY You can't..` where it ended the
    /// script, in `@user_script: 8: -READONLY You can't..` where the script replied it: then it is the inner error.
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

    /// Compares the store's report for each code with `spec/failure.md`.
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

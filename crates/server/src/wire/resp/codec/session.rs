//! One connection: its caller, its version of the protocol, and the answers to commands without a decision.
//!
//! The words are those of Redis, which clients recognise. A client logs in with a password, or with a
//! token, whose app it may send as the user. With a catalog, a wrong one logs the client out, even
//! where no login is required; but a client with a valid token keeps it.

use sluicegate::Micros;

use super::command::{Hello, LoginCredentials, SessionCommand};
use super::error_reply::{ErrorReply, shown};
use super::guesses::{ClientNetwork, GuessResult, Guesses};
use super::password::Password;
use super::reply::{Protocol, Replies};
use super::table::{self, REDIS_VERSION};
use crate::authenticator::{Caller, CallerError, ListenerAuth};

/// Wrong passwords and tokens after which a connection is closed, however often it is `RESET`: a client that
/// guesses has to connect again.
const WRONG_PASSWORDS_MAX: u32 = 8;

/// Longest name of a client in bytes: it is kept as long as the connection.
const NAME_BYTES_MAX: usize = 256;

const NO_AUTH_HELLO: ErrorReply = ErrorReply::new(
    "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
     <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP \
     protocol version at the same time",
);
const WRONG_PASSWORD: ErrorReply =
    ErrorReply::new("WRONGPASS invalid username-password pair or user is disabled.");
const EXPIRED_TOKEN: ErrorReply = ErrorReply::new("WRONGPASS the token has expired");
const NO_MULTI: ErrorReply = ErrorReply::new(
    "ERR unknown command 'MULTI': there are no transactions here; what follows is not executed until EXEC, DISCARD or RESET",
);
const IN_MULTI: ErrorReply =
    ErrorReply::new("ERR not executed: MULTI failed; send EXEC, DISCARD or RESET first");
const EXEC_ABORTED: ErrorReply =
    ErrorReply::new("EXECABORT Transaction discarded because of previous errors.");
const NO_PASSWORD: ErrorReply = ErrorReply::new(
    "ERR AUTH <password> called without any password configured for the default user. Are you \
     sure your configuration is correct?",
);

/// The state of a client.
#[derive(Debug)]
pub(crate) struct Session {
    id: u64,
    name: Vec<u8>,
    /// The caller; absent until the login.
    caller: Option<Caller>,
    wrong_passwords: u32,
    /// A `MULTI` failed: nothing is done until its end.
    is_discarding: bool,
}

/// The data that a login is checked with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AuthContext<'e> {
    pub(crate) password: Option<&'e Password>,
    pub(crate) listener_auth: &'e ListenerAuth,
    /// Wrong passwords of networks lately.
    pub(crate) guesses: &'e Guesses,
    /// The network of the client.
    pub(crate) network: ClientNetwork,
}

/// The next step of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    GoOn,
    Close,
}

impl Session {
    /// The session of a client that has just connected, number `id`.
    pub(crate) fn new(id: u64, entry: AuthContext<'_>) -> Self {
        let is_in = entry.password.is_none() && !entry.listener_auth.requires();
        let caller = is_in.then(|| entry.listener_auth.believed());
        Self { id, name: Vec::new(), caller, wrong_passwords: 0, is_discarding: false }
    }

    /// Returns the caller, if it may still send requests: the token of its login may have expired.
    #[inline]
    pub(crate) fn caller(
        &mut self,
        listener_auth: &ListenerAuth,
        now: Micros,
    ) -> Result<&Caller, CallerError> {
        let caller = self.caller.as_mut().ok_or(CallerError::Missing);
        let still =
            caller.and_then(|caller| listener_auth.revalidate(caller, now).map(|()| &*caller));
        still.map_err(|refused| listener_auth.count_refused(refused))
    }

    /// Returns whether a command belongs to a transaction that failed at its `MULTI`; then it is answered with an
    /// error, and nothing else happens.
    pub(crate) fn discards(&self, replies: &mut Replies) -> bool {
        if self.is_discarding {
            replies.refusal(&IN_MULTI);
        }
        self.is_discarding
    }

    /// Answers a command that is not a request for a decision.
    pub(crate) fn talk(
        &mut self,
        talk: SessionCommand<'_>,
        entry: AuthContext<'_>,
        now: Micros,
        replies: &mut Replies,
    ) -> NextStep {
        let goes_on = matches!(
            talk,
            SessionCommand::Quit
                | SessionCommand::Reset
                | SessionCommand::Exec
                | SessionCommand::Discard
        );
        if !goes_on && self.discards(replies) {
            return NextStep::GoOn;
        }
        let answered = match talk {
            SessionCommand::Quit => {
                replies.ok();
                return NextStep::Close;
            }
            SessionCommand::Reset => {
                let wrong_passwords = self.wrong_passwords;
                *self = Self { wrong_passwords, ..Self::new(self.id, entry) };
                replies.set_protocol(Protocol::Resp2);
                replies.simple("RESET");
                Ok(())
            }
            SessionCommand::Auth(login) => self.log_in(login, entry, now).map(|()| replies.ok()),
            SessionCommand::Hello(hello) => self.greet(&hello, entry, now, replies),
            talk => match self.caller(entry.listener_auth, now) {
                Ok(_) => self.chat(&talk, replies),
                Err(refused) => Err(refused.into()),
            },
        };
        if let Err(refusal) = answered {
            replies.refusal(&refusal);
        }
        if self.wrong_passwords < WRONG_PASSWORDS_MAX { NextStep::GoOn } else { NextStep::Close }
    }

    fn chat(&mut self, talk: &SessionCommand<'_>, replies: &mut Replies) -> Result<(), ErrorReply> {
        match talk {
            SessionCommand::Ping(None) => replies.simple("PONG"),
            SessionCommand::Ping(Some(message)) | SessionCommand::Echo(message) => {
                replies.bulk(message);
            }
            SessionCommand::Client(words) => return self.client(words, replies),
            SessionCommand::Command(words) => return table::answer(words, replies),
            SessionCommand::Select(b"0") => replies.ok(),
            SessionCommand::Select(_) => {
                return Err(ErrorReply::new("ERR DB index is out of range"));
            }
            SessionCommand::Info(sections) => replies.bulk(info(sections).as_bytes()),
            SessionCommand::Multi => {
                self.is_discarding = true;
                return Err(NO_MULTI);
            }
            SessionCommand::Exec if std::mem::take(&mut self.is_discarding) => {
                return Err(EXEC_ABORTED);
            }
            SessionCommand::Exec => return Err(ErrorReply::new("ERR EXEC without MULTI")),
            SessionCommand::Discard if std::mem::take(&mut self.is_discarding) => replies.ok(),
            SessionCommand::Discard => return Err(ErrorReply::new("ERR DISCARD without MULTI")),
            SessionCommand::Hello(_)
            | SessionCommand::Auth(_)
            | SessionCommand::Quit
            | SessionCommand::Reset => {}
        }
        Ok(())
    }

    fn log_in(
        &mut self,
        login: LoginCredentials<'_>,
        entry: AuthContext<'_>,
        now: Micros,
    ) -> Result<(), ErrorReply> {
        let AuthContext { password, listener_auth, guesses, network } = entry;
        let LoginCredentials { user, password: given } = login;
        if !listener_auth.has_tokens() && password.is_none() {
            // Every client is let in, and the default user may have any password, as with Redis.
            return if user.is_some_and(is_default) { Ok(()) } else { Err(NO_PASSWORD) };
        }
        let refused = match token(login, listener_auth, now) {
            Ok(caller) => {
                self.caller = Some(caller);
                return Ok(());
            }
            Err(refused) => refused,
        };
        // A token cannot be guessed, so only an input that may be the password counts as a guess. A client with an
        // expired token once had a valid one.
        let mut refusal = match refused {
            CallerError::Expired => EXPIRED_TOKEN,
            _ => WRONG_PASSWORD,
        };
        let is_anybody = user.is_none_or(is_default);
        if let Some(password) = password.filter(|_| !listener_auth.requires() && is_anybody) {
            match guesses.guess(network, given, now, |given| password.is(given)) {
                GuessResult::Right => {
                    self.caller = Some(listener_auth.believed());
                    return Ok(());
                }
                GuessResult::Wrong => {}
                GuessResult::Later(wait) => refusal = too_many_wrong(wait),
            }
        }
        listener_auth.count_refused(refused);
        self.wrong_passwords += 1;
        if listener_auth.has_tokens() && self.caller.as_ref().is_some_and(Caller::is_believed) {
            self.caller = None;
        }
        Err(refusal)
    }

    fn greet(
        &mut self,
        hello: &Hello<'_>,
        entry: AuthContext<'_>,
        now: Micros,
        replies: &mut Replies,
    ) -> Result<(), ErrorReply> {
        let protocol = match hello.version {
            None => replies.protocol(),
            Some(b"2") => Protocol::Resp2,
            Some(b"3") => Protocol::Resp3,
            Some(other) if other.iter().all(u8::is_ascii_digit) => {
                return Err(ErrorReply::new("NOPROTO unsupported protocol version"));
            }
            Some(_) => {
                return Err(ErrorReply::new(
                    "ERR Protocol version is not an integer or out of range",
                ));
            }
        };
        if let Some(login) = hello.login {
            self.log_in(login, entry, now)?;
        }
        self.caller(entry.listener_auth, now).map_err(|_| NO_AUTH_HELLO)?;
        if let Some(name) = hello.name {
            self.set_name(name)?;
        }
        replies.set_protocol(protocol);
        replies.map(8);
        for (name, value) in [
            ("server", "sluicegate"),
            ("version", REDIS_VERSION),
            ("sluicegate_version", env!("CARGO_PKG_VERSION")),
        ] {
            replies.bulk(name.as_bytes());
            replies.bulk(value.as_bytes());
        }
        replies.bulk(b"proto");
        replies.integer(number(protocol).into());
        replies.bulk(b"id");
        replies.integer(self.id);
        for (name, value) in [("mode", "standalone"), ("role", "master")] {
            replies.bulk(name.as_bytes());
            replies.bulk(value.as_bytes());
        }
        replies.bulk(b"modules");
        replies.array(0);
        Ok(())
    }

    fn client(&mut self, words: &[&[u8]], replies: &mut Replies) -> Result<(), ErrorReply> {
        let (what, rest) = words.split_first().ok_or_else(|| ErrorReply::wrong_arity("client"))?;
        match (&*what.to_ascii_uppercase(), rest) {
            (b"SETNAME", [name]) => {
                self.set_name(name)?;
                replies.ok();
            }
            (b"GETNAME", []) if self.name.is_empty() => replies.null(),
            (b"GETNAME", []) => replies.bulk(&self.name),
            (b"ID", []) => replies.integer(self.id),
            // It lists no other clients.
            (b"INFO" | b"LIST", []) => {
                let (id, name) = (self.id, String::from_utf8_lossy(&self.name));
                let resp = number(replies.protocol());
                replies.bulk(
                    format!("id={id} name={name} db=0 resp={resp} user=default\n").as_bytes(),
                );
            }
            // The name of a library, and wishes about keys, none of which are evicted here.
            (b"SETINFO", [_, _]) | (b"NO-EVICT" | b"NO-TOUCH", [_]) => replies.ok(),
            // A client may cache what it reads: there is nothing to read, so nothing is ever invalidated.
            (b"TRACKING", [state, ..])
                if [&b"ON"[..], b"OFF"].iter().any(|word| state.eq_ignore_ascii_case(word)) =>
            {
                replies.ok();
            }
            _ => {
                let what = shown(what);
                return Err(ErrorReply::err(format_args!(
                    "unknown subcommand or wrong number of arguments for '{what}'. Try SETNAME, \
                     GETNAME, SETINFO, ID, INFO, LIST or TRACKING."
                )));
            }
        }
        Ok(())
    }

    fn set_name(&mut self, name: &[u8]) -> Result<(), ErrorReply> {
        if !name.iter().all(u8::is_ascii_graphic) {
            return Err(ErrorReply::new(
                "ERR Client names cannot contain spaces, newlines or special characters.",
            ));
        }
        if name.len() > NAME_BYTES_MAX {
            let bytes = name.len();
            return Err(ErrorReply::err(format_args!(
                "name: `{bytes}` bytes are outside 0..={NAME_BYTES_MAX}"
            )));
        }
        self.name = name.to_vec();
        Ok(())
    }
}

/// The caller of the token in `login`. The user is the token's app, unless it is the default one.
fn token(
    login: LoginCredentials<'_>,
    listener_auth: &ListenerAuth,
    now: Micros,
) -> Result<Caller, CallerError> {
    let LoginCredentials { user, password: secret } = login;
    if !listener_auth.has_tokens() {
        return Err(CallerError::Unknown);
    }
    let caller = listener_auth.authenticate(Some(secret), || now)?;
    if let Some(user) = user.filter(|user| !is_default(user)) {
        caller.app(Some(std::str::from_utf8(user).map_err(|_| CallerError::App)?))?;
    }
    Ok(caller)
}

fn too_many_wrong(wait: Micros) -> ErrorReply {
    let seconds = wait.ceil_secs();
    ErrorReply::err(format_args!(
        "too many wrong passwords from this network: retry in {seconds} s"
    ))
}

fn is_default(user: &[u8]) -> bool {
    user == b"default"
}

const fn number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Resp2 => 2,
        Protocol::Resp3 => 3,
    }
}

/// The reply to `INFO`: the fields that clients look for before they trust a server.
fn info(sections: &[&[u8]]) -> String {
    let process = std::process::id();
    let version = env!("CARGO_PKG_VERSION");
    let all = [
        (
            "Server",
            format!(
                "server_name:sluicegate\r\nsluicegate_version:{version}\r\n\
                 redis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nprocess_id:{process}\r\n"
            ),
        ),
        ("Persistence", "loading:0\r\n".to_owned()),
        ("Replication", "role:master\r\nconnected_slaves:0\r\n".to_owned()),
    ];
    let named = |name: &str, sections: &[&[u8]]| {
        sections.iter().any(|section| section.eq_ignore_ascii_case(name.as_bytes()))
    };
    let wants_all = sections.is_empty()
        || ["all", "default", "everything"].iter().any(|all| named(all, sections));
    let wanted = all.iter().filter(|(name, _)| wants_all || named(name, sections));
    let parts: Vec<_> = wanted.map(|(name, lines)| format!("# {name}\r\n{lines}")).collect();
    parts.join("\r\n")
}

//! One open connection, and the errors of its replies. It is closed when dropped.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, Value};
use sluicegate_net::tls;
use tokio_rustls::rustls;

use super::address::Address;
use super::error::{ConnectError, ServerErrorReply};
use super::task::OwnedTask;

/// Most requests handed to one connection and not yet answered: enough to fill a fast link, few
/// enough that the last of them still has a chance to meet its deadline.
pub(super) const FLIGHTS_MAX: usize = 1024;

/// An open connection that is logged in.
pub(super) struct Connection {
    pub(super) commands: MultiplexedConnection,
    pub(super) address: Address,
    /// Reads and writes the stream; ends when the stream does.
    pub(super) driver: OwnedTask,
}

impl Connection {
    /// Returns the reply to `command`, which may be an error of the server.
    pub(super) async fn ask(&mut self, command: &Cmd) -> Result<Value, ConnectError> {
        match self.commands.send_packed_command(command).await {
            Ok(Value::ServerError(error)) => {
                Err(refusal(&self.address, ServerErrorReply::from(&error)))
            }
            Ok(value) => Ok(value),
            Err(error) => Err(login_error(&self.address, &error)),
        }
    }

    /// Returns the error for a server whose replies are not those of Redis.
    pub(super) fn foreign(&self, reason: &str) -> ConnectError {
        ConnectError::Foreign { address: self.address.clone(), reason: reason.into() }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("address", &self.address).finish_non_exhaustive()
    }
}

fn refusal(address: &Address, refusal: ServerErrorReply) -> ConnectError {
    let address = address.clone();
    match &*refusal.code {
        "NOAUTH" => {
            let reason = "a password is required, and the URL has none".into();
            ConnectError::Login { address, reason }
        }
        "WRONGPASS" => ConnectError::Login { address, reason: refusal.to_string().into() },
        "NOPERM" => ConnectError::NotPermitted { address, refusal },
        // The answer of Redis to the first words of a client that sends no password.
        "ERR" if refusal.to_string().contains("unauthenticated") => ConnectError::Login {
            address,
            reason: "a password is required, and the URL has none".into(),
        },
        _ => ConnectError::Refused { address, refusal },
    }
}

/// Returns the error of a failed login by redis-rs.
pub(super) fn login_error(address: &Address, error: &redis::RedisError) -> ConnectError {
    match error.kind() {
        ErrorKind::AuthenticationFailed => ConnectError::Login {
            address: address.clone(),
            reason: error.detail().unwrap_or("wrong user or password").into(),
        },
        ErrorKind::Io => match io_source(error) {
            // redis-rs reports a stream that has ended as a broken pipe.
            Some(source) if source.kind() != io::ErrorKind::BrokenPipe => io_error(address, source),
            _ => ConnectError::Broken { address: address.clone() },
        },
        _ => match error.code() {
            Some(code) => {
                refusal(address, ServerErrorReply::new(code, error.detail().unwrap_or_default()))
            }
            None => {
                ConnectError::Foreign { address: address.clone(), reason: error.to_string().into() }
            }
        },
    }
}

/// Returns the error of the stream in an error of redis-rs, whose source is an `Arc` of it.
fn io_source(error: &redis::RedisError) -> Option<&io::Error> {
    let source = error.source()?;
    let shared = source.downcast_ref::<Arc<dyn Error + Send + Sync>>().map(|shared| &**shared);
    shared.and_then(|source| source.downcast_ref())
}

/// Returns the error of a stream that failed.
pub(super) fn io_error(address: &Address, error: &io::Error) -> ConnectError {
    let address = address.clone();
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).is_some();
    if tls {
        return ConnectError::Tls { address, reason: tls::handshake_problem(error).into() };
    }
    ConnectError::Io { address, kind: error.kind(), reason: error.to_string().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> Address {
        Address::Tcp("here".into(), 1)
    }

    #[test]
    fn a_stream_that_fails_in_the_login_says_why_and_is_not_a_foreign_server() {
        let error_of = |error: io::Error| login_error(&here(), &error.into());
        let (kind, reason) = (io::ErrorKind::ConnectionReset, "connection reset".into());
        assert_eq!(error_of(kind.into()), ConnectError::Io { address: here(), kind, reason });
        let alert = rustls::Error::AlertReceived(rustls::AlertDescription::CertificateRequired);
        let reason = alert.to_string().into();
        let alert = io::Error::new(io::ErrorKind::InvalidData, alert);
        assert_eq!(error_of(alert), ConnectError::Tls { address: here(), reason });
        let broken = ConnectError::Broken { address: here() };
        assert_eq!(error_of(io::ErrorKind::BrokenPipe.into()), broken);
        let without_source = redis::RedisError::from((ErrorKind::Io, "closed"));
        assert_eq!(login_error(&here(), &without_source), broken);
    }
}

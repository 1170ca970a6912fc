//! Connections: made within their time, with the handshakes that they need.
//!
//! The streams are opened here rather than by redis-rs, so that one deadline covers name lookup, TCP, TLS
//! and login, Nagle's algorithm is off, the TLS settings are read once instead of at every connection, and
//! aws-lc-rs is the crypto provider whatever else the process uses. On the stream, redis-rs does the rest:
//! RESP, login, and a pipeline that never repeats a command by itself (its multiplexed connection has no
//! retries, and a future that is dropped leaves its reply to be read and thrown away).

use std::fmt;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Cmd, RedisConnectionInfo, Value};
use secrecy::ExposeSecret;
use sluicegate_net::tls;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::ServerName;

use super::address::{Address, RedisCredentials};
use super::config::RedisConfig;
use super::config_error::RedisConfigError;
use super::connection::{Connection, FLIGHTS_MAX, io_error, login_error};
use super::error::{ConnectError, ServerErrorReply};
use super::kind::{self, ServerKind};
use super::task::OwnedTask;

/// The longest probe of a server that did not finish a handshake: whether it expects one with TLS, or
/// without.
const PROBE_MAX: Duration = Duration::from_millis(300);

/// Most bytes that are read of an answer to a probe.
const ANSWER_BYTES_MAX: u64 = 128;

/// Opens connections of one kind.
#[derive(Clone)]
pub(super) struct Dialer {
    kind: ServerKind,
    tls: Option<TlsConnector>,
    login: RedisConnectionInfo,
    connect_timeout: Duration,
}

/// The instant by which a connection must be made.
struct ConnectDeadline<'a> {
    address: &'a Address,
    timeout: Duration,
    deadline: Instant,
}

/// A stream of bytes of any transport.
trait AsyncStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> AsyncStream for S {}

impl Dialer {
    /// Returns a dialer for the servers that hold data.
    ///
    /// # Errors
    /// [`RedisConfigError::Authorities`] if the certificates to trust cannot be read.
    pub(super) fn for_data(config: &RedisConfig) -> Result<Self, RedisConfigError> {
        Self::new(config, ServerKind::of_data(config), &config.login)
    }

    /// Returns a dialer for Sentinels.
    ///
    /// # Errors
    /// [`RedisConfigError::Authorities`] if the certificates to trust cannot be read.
    pub(super) fn for_sentinels(config: &RedisConfig) -> Result<Self, RedisConfigError> {
        Self::new(config, ServerKind::Sentinel, &config.sentinel_login)
    }

    fn new(
        config: &RedisConfig,
        kind: ServerKind,
        login: &RedisCredentials,
    ) -> Result<Self, RedisConfigError> {
        let database = if kind == ServerKind::Sentinel { 0 } else { config.database };
        let mut info =
            RedisConnectionInfo::default().set_db(database.into()).set_skip_set_lib_name();
        if let Some(user) = &login.user {
            info = info.set_username(user);
        }
        if let Some(password) = &login.password {
            info = info.set_password(password.expose_secret());
        }
        let tls = config.connector()?;
        Ok(Self { kind, tls, login: info, connect_timeout: config.connect_timeout })
    }

    /// Opens a connection to `address`, logs in, and runs `prepare` on it; all of it within the configured
    /// time.
    pub(super) async fn open(
        &self,
        address: &Address,
        prepare: impl AsyncFnOnce(&mut Connection) -> Result<(), ConnectError>,
    ) -> Result<Connection, ConnectError> {
        let limit = self.limit(address);
        let stream = self.stream(&limit).await?;
        let settings = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None)
            .set_pipeline_buffer_size(FLIGHTS_MAX);
        let greeting = async {
            let login = MultiplexedConnection::new_with_config(&self.login, stream, settings);
            let (commands, driver) = login.await.map_err(|error| login_error(address, &error))?;
            let driver = OwnedTask::start(driver);
            let mut connection = Connection { commands, address: address.clone(), driver };
            self.kind.check(&mut connection, self.tls.is_some()).await?;
            Ok(connection)
        };
        let greeted = limit.step("the login", greeting).await.and_then(|greeted| greeted);
        let mut connection = match greeted {
            Ok(connection) => connection,
            Err(error) => return Err(self.cause(address, error).await),
        };
        limit.step("the first commands", prepare(&mut connection)).await??;
        Ok(connection)
    }

    /// Returns the reply of `address` to one question, on a connection of its own.
    pub(super) async fn query(
        &self,
        address: &Address,
        question: &Cmd,
    ) -> Result<Value, ConnectError> {
        let mut reply = Value::Nil;
        self.open(address, async |connection| {
            reply = connection.ask(question).await?;
            Ok(())
        })
        .await?;
        Ok(reply)
    }

    /// Opens a connection to `address` that is subscribed to `channel`.
    pub(super) async fn listen(
        &self,
        address: &Address,
        channel: &str,
    ) -> Result<PubSub, ConnectError> {
        let limit = self.limit(address);
        let stream = self.stream(&limit).await?;
        let listening = async {
            let mut messages = PubSub::new(&self.login, stream).await?;
            messages.subscribe(channel).await?;
            Ok(messages)
        };
        let messages = limit.step("the login", listening).await?;
        messages.map_err(|error| login_error(address, &error))
    }

    fn limit<'a>(&self, address: &'a Address) -> ConnectDeadline<'a> {
        let timeout = self.connect_timeout;
        ConnectDeadline { address, timeout, deadline: Instant::now() + timeout }
    }

    async fn stream(
        &self,
        limit: &ConnectDeadline<'_>,
    ) -> Result<Box<dyn AsyncStream>, ConnectError> {
        let failed = |error| io_error(limit.address, &error);
        let (host, port) = match limit.address {
            Address::Unix(path) => {
                let stream = limit.step("the socket", UnixStream::connect(path)).await?;
                return Ok(Box::new(stream.map_err(failed)?));
            }
            Address::Tcp(host, port) => (&**host, *port),
        };
        let tcp = limit.step("TCP", TcpStream::connect((host, port))).await?.map_err(failed)?;
        tcp.set_nodelay(true).map_err(failed)?;
        let Some(tls) = &self.tls else { return Ok(Box::new(tcp)) };
        let name = ServerName::try_from(host.to_owned()).map_err(|error| ConnectError::Tls {
            address: limit.address.clone(),
            reason: error.to_string().into(),
        })?;
        let tls = limit.step("TLS", tls.connect(name, tcp)).await;
        match tls.and_then(|tls| tls.map_err(failed)) {
            Ok(tls) => Ok(Box::new(tls)),
            Err(error) => Err(self.or_speaks_plainly(limit.address, error).await),
        }
    }

    /// Returns why the login failed: `error`, unless the answers to probes are more specific.
    async fn cause(&self, address: &Address, error: ConnectError) -> ConnectError {
        match &error {
            ConnectError::Login { .. } => {
                let has_password_alone =
                    self.login.password().is_some() && self.login.username().is_none();
                let answers_all = async || {
                    let answer = self.answer(address, b"PING\r\n").await;
                    answer.is_some_and(|answer| answer.starts_with("+PONG"))
                };
                if has_password_alone && answers_all().await {
                    let reason = "the URL has a password, and this server has none: remove it from the URL, or set \
                                  `requirepass` in Redis";
                    return ConnectError::Login { address: address.clone(), reason: reason.into() };
                }
                return error;
            }
            ConnectError::NotPermitted { .. } | ConnectError::WrongServer { .. } => return error,
            _ => {}
        }
        if let (None, Address::Tcp(host, port)) = (&self.tls, address)
            && matches!(timeout(PROBE_MAX, speaks_tls(host, *port)).await, Ok(true))
        {
            let advice = format!("use {}", self.kind.scheme(true));
            return kind::wrong(address, "a server that expects TLS", advice);
        }
        match self.answer(address, b"GET / HTTP/1.0\r\n\r\n").await {
            Some(answer) if answer.starts_with("HTTP/") => {
                let advice = "name the address of Redis, whose port is 6379 by default".to_owned();
                kind::wrong(address, "an HTTP server, not a Redis", advice)
            }
            // A server without room for another client reports it before any request, and closes.
            Some(answer) if answer.starts_with("-ERR max number of clients") => {
                let message = answer.trim_start_matches("-ERR ").trim_end();
                let refusal = ServerErrorReply::new("ERR", message);
                ConnectError::Refused { address: address.clone(), refusal }
            }
            _ => error,
        }
    }

    /// Returns the first line of the server's answer to these first words, up to [`ANSWER_BYTES_MAX`].
    async fn answer(&self, address: &Address, words: &[u8]) -> Option<String> {
        let answered = async {
            let mut stream = self.stream(&self.limit(address)).await.ok()?;
            // A server may have answered, and closed, before this request.
            stream.write_all(words).await.ok();
            stream.flush().await.ok();
            let mut line = Vec::new();
            let mut answer = BufReader::new(stream).take(ANSWER_BYTES_MAX);
            answer.read_until(b'\n', &mut line).await.ok()?;
            Some(String::from_utf8_lossy(&line).into_owned())
        };
        timeout(PROBE_MAX, answered).await.ok().flatten()
    }

    /// Returns why TLS failed: `error`, unless the server answers without it.
    async fn or_speaks_plainly(&self, address: &Address, error: ConnectError) -> ConnectError {
        let Address::Tcp(host, port) = address else { return error };
        let answers = async {
            let mut tcp = TcpStream::connect((&**host, *port)).await.ok()?;
            tcp.write_all(b"PING\r\n").await.ok()?;
            tcp.read_u8().await.ok()
        };
        match timeout(PROBE_MAX, answers).await {
            Ok(Some(b'+' | b'-')) => {
                let advice = format!("use {}", self.kind.scheme(false));
                kind::wrong(address, "a server without TLS", advice)
            }
            _ => error,
        }
    }
}

/// Returns whether a server answers the first message of TLS with TLS; its certificate does not matter.
async fn speaks_tls(host: &str, port: u16) -> bool {
    let connector = TlsConnector::from(tls::client(rustls::RootCertStore::empty()));
    let (Ok(name), Ok(tcp)) =
        (ServerName::try_from(host.to_owned()), TcpStream::connect((host, port)).await)
    else {
        return false;
    };
    let Err(error) = connector.connect(name, tcp).await else { return true };
    let reason = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    reason.is_some_and(|reason| !matches!(reason, rustls::Error::InvalidMessage(_)))
}

impl ConnectDeadline<'_> {
    /// Returns the result of `work`, unless no time is left for it.
    async fn step<T>(
        &self,
        step: &'static str,
        work: impl Future<Output = T>,
    ) -> Result<T, ConnectError> {
        timeout_at(self.deadline, work).await.map_err(|_| {
            let (address, timeout) = (self.address.clone(), self.timeout);
            ConnectError::Timeout { address, timeout, step }
        })
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The login is left out: it contains the password.
        let Self { kind, tls, login: _, connect_timeout } = self;
        f.debug_struct("Dialer")
            .field("kind", kind)
            .field("tls", &tls.is_some())
            .field("connect_timeout", connect_timeout)
            .finish_non_exhaustive()
    }
}

//! A minimal client of Redis: one command, one reply, no retries, no hidden work.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::Error;

/// One connection.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
}

/// The reply of a server; errors are [`Error::Reply`] instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The null reply, such as that of an absent key.
    Nil,
    /// A whole number.
    Int(i64),
    /// A string, simple or bulk.
    Bytes(Vec<u8>),
    /// A list, in which the errors of scripts and transactions are strings.
    List(Vec<Reply>),
}

impl Client {
    /// Connects to `address`.
    ///
    /// # Errors
    /// [`Error::Io`] if no server listens there.
    pub async fn connect(address: SocketAddr) -> Result<Self, Error> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends one command and waits for its reply, for at most ten seconds.
    ///
    /// # Errors
    /// [`Error::Reply`] if the server answers with an error, [`Error::Timeout`] if it is silent,
    /// [`Error::Io`] if the connection breaks.
    pub async fn call<A: AsRef<[u8]>>(&mut self, command: &[A]) -> Result<Reply, Error> {
        self.call_within(REPLY_MAX, command).await
    }

    /// Sends one command and waits for its reply, for at most `patience`.
    ///
    /// # Errors
    /// As for [`call`](Self::call). After a timeout the connection cannot be used any more: the
    /// reply may still come.
    pub async fn call_within<A: AsRef<[u8]>>(
        &mut self,
        patience: Duration,
        command: &[A],
    ) -> Result<Reply, Error> {
        let call = async {
            self.send(command).await?;
            self.receive().await
        };
        match tokio::time::timeout(patience, call).await {
            Ok(reply) => reply,
            Err(_elapsed) => {
                let what = "the server replied".to_owned();
                Err(Error::Timeout { what, patience })
            }
        }
    }

    /// Sends one command; its reply must be [received](Self::receive) after those of the commands
    /// before it.
    ///
    /// # Errors
    /// [`Error::Io`] if the connection breaks.
    pub async fn send<A: AsRef<[u8]>>(&mut self, command: &[A]) -> Result<(), Error> {
        Ok(self.stream.write_all(&encode(command)).await?)
    }

    /// Waits for the next reply, as long as it takes.
    ///
    /// # Errors
    /// [`Error::Reply`] if it is an error, [`Error::Io`] if the connection breaks.
    pub async fn receive(&mut self) -> Result<Reply, Error> {
        let line = self.line().await?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| malformed(&line))?;
        let number = || rest.parse::<i64>().map_err(|_error| malformed(&line));
        Ok(match kind {
            "+" => Reply::Bytes(rest.as_bytes().to_vec()),
            "-" => return Err(Error::Reply(rest.to_owned())),
            ":" => Reply::Int(number()?),
            "$" => match usize::try_from(number()?) {
                Ok(length) => self.bulk(length).await?,
                Err(_negative) => Reply::Nil,
            },
            "*" => match usize::try_from(number()?) {
                Ok(length) => self.list(length).await?,
                Err(_negative) => Reply::Nil,
            },
            _ => return Err(malformed(&line)),
        })
    }

    async fn bulk(&mut self, length: usize) -> Result<Reply, Error> {
        if length > BULK_MAX {
            return Err(malformed("a string that is too long"));
        }
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes).await?;
        bytes.truncate(length);
        Ok(Reply::Bytes(bytes))
    }

    async fn list(&mut self, length: usize) -> Result<Reply, Error> {
        let mut items = Vec::new();
        for _ in 0..length {
            items.push(match Box::pin(self.receive()).await {
                Err(Error::Reply(error)) => Reply::Bytes(error.into_bytes()),
                item => item?,
            });
        }
        Ok(Reply::List(items))
    }

    async fn line(&mut self) -> Result<String, Error> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line).await?;
        match line.strip_suffix(b"\r\n") {
            Some(text) => Ok(String::from_utf8_lossy(text).into_owned()),
            None => Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()),
        }
    }
}

impl Reply {
    /// The string or number as text; empty for [`Nil`](Self::Nil).
    ///
    /// # Panics
    /// If it is a list.
    pub fn text(&self) -> String {
        match self {
            Self::Nil => String::new(),
            Self::Int(number) => number.to_string(),
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::List(items) => panic!("a text was expected, not {items:?}"),
        }
    }

    /// The number, also one that was sent as text.
    ///
    /// # Panics
    /// If it is not a number.
    pub fn int(&self) -> i64 {
        match self {
            Self::Int(number) => *number,
            other => other.text().parse().expect("a number was expected"),
        }
    }

    /// The list; empty for [`Nil`](Self::Nil).
    ///
    /// # Panics
    /// If it is not a list.
    pub fn list(&self) -> &[Self] {
        match self {
            Self::Nil => &[],
            Self::List(items) => items,
            other => panic!("a list was expected, not {other:?}"),
        }
    }
}

/// `command` as an array of bulk strings.
fn encode<A: AsRef<[u8]>>(command: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for part in command {
        let part = part.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
        bytes.extend_from_slice(part);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn malformed(line: &str) -> Error {
    let what = format!("`{line}` is no reply");
    std::io::Error::new(std::io::ErrorKind::InvalidData, what).into()
}

/// Longest wait for a reply. A server of the tests answers in microseconds, and in a second where a
/// machine is overloaded; a test that waits longer will not succeed.
const REPLY_MAX: Duration = Duration::from_secs(10);
/// Longest string of a reply: the limit of Redis itself is 512 MiB, tests read kilobytes.
const BULK_MAX: usize = 16 << 20;

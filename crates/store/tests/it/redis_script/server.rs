//! A real server on a free port of this machine, and the part of its protocol that the tests use.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use sluicegate_store::redis::script;
use sluicegate_testkit::{Options, RedisServer, needed};

use crate::redis_script::subject::Executor;

/// A server that ends with this value.
pub(crate) struct RealRedis {
    connection: BufReader<TcpStream>,
    _server: RedisServer,
}

/// A server whose keys do not expire: the time of tests does not pass there.
pub(crate) struct Timeless(pub(crate) RealRedis);

/// A reply of the server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Resp {
    Nil,
    Integer(i64),
    Text(Vec<u8>),
    Error(String),
    List(Vec<Self>),
}

impl RealRedis {
    /// Starts the server; `None`, and a line about it, if none is installed and none is required.
    pub(crate) fn start() -> Option<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let server = needed(runtime.block_on(RedisServer::start(Options::default())))?;
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut server = Self { connection: BufReader::new(stream), _server: server };
        let loaded = server.call(&[b"SCRIPT", b"LOAD", script::TEXT.as_bytes()]);
        assert_eq!(loaded, Resp::Text(script::SHA1.into()));
        Some(server)
    }

    pub(crate) fn call(&mut self, words: &[&[u8]]) -> Resp {
        self.send(words);
        self.reply()
    }

    fn send(&mut self, words: &[&[u8]]) {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend(format!("${}\r\n", word.len()).into_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        self.connection.get_mut().write_all(&request).unwrap();
    }

    fn reply(&mut self) -> Resp {
        let mut line = String::new();
        self.connection.read_line(&mut line).unwrap();
        let (kind, rest) = line.trim_end().split_at(1);
        match (kind, rest.parse::<i64>()) {
            ("+", _) => Resp::Text(rest.into()),
            ("-", _) => Resp::Error(rest.into()),
            (":", Ok(number)) => Resp::Integer(number),
            ("$" | "*", Ok(-1)) => Resp::Nil,
            ("$", Ok(length)) => {
                let mut bytes = vec![0; usize::try_from(length).unwrap() + 2];
                self.connection.read_exact(&mut bytes).unwrap();
                bytes.truncate(bytes.len() - 2);
                Resp::Text(bytes)
            }
            ("*", Ok(length)) => Resp::List((0..length).map(|_| self.reply()).collect()),
            _ => panic!("`{line}` is no reply"),
        }
    }
}

impl Executor for RealRedis {
    fn eval(&mut self, keys: &[String], args: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
        let count = keys.len().to_string();
        let reply = self.call(&evalsha(keys, &count, args));
        replies(reply)
    }
}

impl Executor for Timeless {
    fn eval(&mut self, keys: &[String], args: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
        let Self(server) = self;
        let count = keys.len().to_string();
        // Within a transaction no key ends, so it cannot before it is made to last.
        server.send(&[b"MULTI"]);
        server.send(&evalsha(keys, &count, args));
        for key in keys {
            server.send(&[b"PERSIST", key.as_bytes()]);
        }
        server.send(&[b"EXEC"]);
        for _ in 0..keys.len() + 2 {
            server.reply();
        }
        match server.reply() {
            Resp::List(mut done) => replies(done.swap_remove(0)),
            other => Err(format!("{other:?}")),
        }
    }
}

/// Returns the call of the script.
fn evalsha<'a>(keys: &'a [String], count: &'a str, args: &'a [Vec<u8>]) -> Vec<&'a [u8]> {
    let mut words: Vec<&[u8]> = vec![b"EVALSHA", script::SHA1.as_bytes(), count.as_bytes()];
    words.extend(keys.iter().map(String::as_bytes));
    words.extend(args.iter().map(Vec::as_slice));
    words
}

/// Returns the replies of the script: one for each key, if there are several.
fn replies(reply: Resp) -> Result<Vec<Vec<u8>>, String> {
    let text = |reply| match reply {
        Resp::Text(bytes) => Ok(bytes),
        other => Err(format!("{other:?}")),
    };
    match reply {
        Resp::List(replies) => replies.into_iter().map(text).collect(),
        reply => Ok(vec![text(reply)?]),
    }
}

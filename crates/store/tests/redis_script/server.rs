//! A real server on a free port of this machine, and as much of its protocol as the tests speak.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use sluicegate_store::redis::script;

use crate::subject::Executor;

/// Attempts to find a free port, and to reach the server that was started on it.
const ATTEMPTS_MAX: u32 = 500;

/// A server that ends with this value.
pub(crate) struct RealRedis {
    child: Child,
    folder: PathBuf,
    connection: BufReader<TcpStream>,
}

/// What the server replies.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Resp {
    Nil,
    Integer(i64),
    Text(Vec<u8>),
    Error(String),
    List(Vec<Self>),
}

impl RealRedis {
    /// The server; `None`, and a line about it, where none is installed and nobody insists.
    pub(crate) fn start() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let binary = std::env::var("SLUICEGATE_REDIS_SERVER");
        let binary = binary.unwrap_or_else(|_| "redis-server".into());
        if Command::new(&binary).arg("--version").stdout(Stdio::null()).status().is_err() {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "`{binary}` is not installed");
            println!("skipped: `{binary}` is not installed");
            return None;
        }
        let name =
            format!("sluicegate-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(binary);
        command.args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--port"]);
        command.arg(port.to_string()).arg("--dir").arg(&folder).stdout(Stdio::null());
        let child = command.spawn().unwrap();
        let connection = BufReader::new(connect(port));
        let mut server = Self { child, folder, connection };
        let loaded = server.call(&[b"SCRIPT", b"LOAD", script::TEXT.as_bytes()]);
        assert_eq!(loaded, Resp::Text(script::SHA1.into()));
        Some(server)
    }

    pub(crate) fn call(&mut self, words: &[&[u8]]) -> Resp {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend(format!("${}\r\n", word.len()).into_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        self.connection.get_mut().write_all(&request).unwrap();
        self.reply()
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

/// The server needs a few milliseconds before it listens; a refused connection says so at once.
fn connect(port: u16) -> TcpStream {
    for _ in 0..ATTEMPTS_MAX {
        if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
            stream.set_nodelay(true).unwrap();
            return stream;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(10));
    }
    panic!("no server listens on port {port}");
}

impl Drop for RealRedis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Executor for RealRedis {
    fn eval(&mut self, keys: &[String], args: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
        let count = keys.len().to_string();
        let mut words: Vec<&[u8]> = vec![b"EVALSHA", script::SHA1.as_bytes(), count.as_bytes()];
        words.extend(keys.iter().map(String::as_bytes));
        words.extend(args.iter().map(Vec::as_slice));
        let text = |reply| match reply {
            Resp::Text(bytes) => Ok(bytes),
            other => Err(format!("{other:?}")),
        };
        match self.call(&words) {
            Resp::List(replies) => replies.into_iter().map(text).collect(),
            reply => Ok(vec![text(reply)?]),
        }
    }
}

//! Sluicegate, an application, and a gateway between the application and its clients.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sluicegate_testkit::{Error, Launch, Port, Program};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::PATIENCE;
use super::client::probe;

/// The processes of a test.
pub(crate) struct Stage {
    pub(crate) server: Server,
    pub(crate) app: App,
    /// The address of the gateway.
    pub(crate) gateway: SocketAddr,
    _program: Program,
    _port: Port,
}

/// The ports of the examples, and the actual addresses of those programs.
pub(crate) struct Places(pub(crate) Vec<(u16, SocketAddr)>);

/// A server of Sluicegate on free ports.
pub(crate) struct Server {
    program: Program,
    pub(crate) http: SocketAddr,
    pub(crate) resp: SocketAddr,
    pub(crate) rls: SocketAddr,
}

/// The protected application, which answers every request with its head.
pub(crate) struct App {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
    serving: JoinHandle<()>,
}

impl Server {
    /// Starts a server with these policies, and with more options.
    pub(crate) async fn start(policies: &str, options: &[&str]) -> Result<Self, Error> {
        let config = "[admin]\nlisten = []\n[http]\nlisten = '127.0.0.1:0'\n";
        Self::start_with(policies, options, config).await
    }

    /// Starts a server with this configuration.
    pub(crate) async fn start_with(
        policies: &str,
        options: &[&str],
        config: &str,
    ) -> Result<Self, Error> {
        let files = [("policies.yaml", policies.to_owned()), ("server.toml", config.to_owned())];
        let mut args = vec!["serve", "--policies", "{dir}/policies.yaml"];
        args.extend(["--config", "{dir}/server.toml"]);
        args.extend(["--resp", "127.0.0.1:0", "--rls", "127.0.0.1:0"]);
        args.extend(options);
        let binary = Path::new(env!("CARGO_BIN_EXE_sluicegate"));
        let mut program = Program::start(binary, &Launch { files: &files, args: &args })?;
        let log = program.log();
        let address_of = |said: &str, wire: &str| {
            let line = said
                .lines()
                .find_map(|line| line.strip_prefix("listening on ")?.strip_prefix(wire));
            line.and_then(|address| address.parse().ok())
        };
        let mut found = None;
        program
            .ready(PATIENCE, async || {
                let said = fs::read_to_string(&log).unwrap_or_default();
                let of = |wire| address_of(&said, wire);
                found = of("http://").zip(of("resp://")).zip(of("rls://"));
                found.is_some() && said.contains("\ntry: ")
            })
            .await?;
        let ((http, resp), rls) = found.expect("a server that is ready has said where");
        Ok(Self { program, http, resp, rls })
    }

    pub(crate) fn kill(&mut self) {
        self.program.kill();
    }
}

impl App {
    /// Starts an application with the name `name`.
    pub(crate) async fn start(name: &'static str) -> Result<Self, Error> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&seen);
        let serving = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let keep = Arc::clone(&keep);
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        let Ok(byte) = stream.read_u8().await else { return };
                        head.push(byte);
                    }
                    let head = String::from_utf8_lossy(&head).to_lowercase();
                    let body = format!("{name}\n{head}");
                    keep.lock().unwrap_or_else(PoisonError::into_inner).push(head);
                    let length = body.len();
                    let answer = format!(
                        "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                    );
                    stream.write_all(answer.as_bytes()).await.ok();
                });
            }
        });
        Ok(Self { address, seen, serving })
    }

    /// Number of requests that reached the application.
    pub(crate) fn requests(&self) -> usize {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Stage {
    /// Starts Sluicegate with `policies` and `options`, and an application behind the gateway that `launch` starts.
    pub(crate) async fn set(
        policies: &str,
        options: &[&str],
        launch: impl AsyncFnOnce(&Places) -> Result<Program, Error>,
    ) -> Result<Self, Error> {
        Self::before(Server::start(policies, options).await?, launch).await
    }

    /// Starts an application behind the gateway that `launch` starts, which uses `server`.
    pub(crate) async fn before(
        server: Server,
        launch: impl AsyncFnOnce(&Places) -> Result<Program, Error>,
    ) -> Result<Self, Error> {
        let app = App::start("app").await?;
        let port = Port::free()?;
        let gateway = port.address();
        let places = Places(vec![
            (8080, server.http),
            (6380, server.resp),
            (8081, server.rls),
            (9000, app.address),
            (8000, gateway),
        ]);
        let mut program = launch(&places).await?;
        program
            .ready(PATIENCE, async || matches!(probe(gateway, "/").await, Some(200 | 429)))
            .await?;
        Ok(Self { server, app, gateway, _program: program, _port: port })
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The text of `examples/PATH`.
pub(crate) fn example(path: &str) -> String {
    let path = root().join("examples").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// `text` with all of `changes` made; each must apply.
pub(crate) fn changed(text: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "there is no `{from}` in: {text}");
        text.replace(from, to)
    })
}

impl Places {
    /// `text` of an example with these ports instead of its own.
    pub(crate) fn in_text(&self, text: &str) -> String {
        let ways = ["127.0.0.1:{}", "//:{}", "port_value: {} ", "port = {},"];
        // Two steps, so that an inserted port is not replaced again.
        let marked = self.0.iter().fold(text.to_owned(), |text, (port, _)| {
            ways.iter().fold(text, |text, way| {
                let marked = way.replace("{}", &format!("<{port}>"));
                text.replace(&way.replace("{}", &port.to_string()), &marked)
            })
        });
        self.0.iter().fold(marked, |text, (port, address)| {
            text.replace(&format!("<{port}>"), &address.port().to_string())
        })
    }
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The path of the program `name`: from `make deps`, from the system, or only its name.
pub(crate) fn tool(name: &str) -> PathBuf {
    let own = root().join(".tools/bin").join(name);
    let system = Path::new("/usr/sbin").join(name);
    [own, system].into_iter().find(|path| path.is_file()).unwrap_or_else(|| name.into())
}

//! One Redis or Valkey server.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::clock::ServerClock;
use crate::port::Port;
use crate::process::{Process, Spec, find, tail};
use crate::version::field;
use crate::{Client, Error, Reply, TlsFiles, Version, until};

/// A server for one test, empty at first, without persistence. It ends when it is dropped.
#[derive(Debug)]
pub struct RedisServer {
    // Ended before its folder is removed.
    process: Process,
    program: PathBuf,
    args: Vec<String>,
    port: Port,
    tls: Option<TlsSetup>,
    clock: Option<ServerClock>,
    credentials: Option<Credentials>,
    version: Version,
    dir: TempDir,
}

/// The options of a server. The default is a plain server without a password.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The program; by default the one that [`SERVER_VARIABLE`] names, or else `redis-server`.
    pub binary: Option<PathBuf>,
    /// The password of the user `default` (`requirepass`): letters and digits, as it becomes part of
    /// the configuration and of URLs as it is.
    pub password: Option<String>,
    /// Users, as ACL lines without the word `user`: `app on >secret ~sg:* +@read`. The kit adds
    /// one for itself, so `default` may be turned off.
    pub users: Vec<String>,
    /// The server has TLS too, on its own port; client certificates are optional.
    pub tls: bool,
    /// Most bytes of data (`maxmemory`).
    pub maxmemory: Option<u64>,
    /// The server that it is a replica of, with which it shares its credentials. The start then
    /// ends with the first synchronisation.
    pub replica_of: Option<SocketAddr>,
    /// [`RedisServer::set_clock_offset_us`] can move its clock.
    pub clock: bool,
    /// Further lines of `redis.conf`, after those that the kit writes.
    pub config: Vec<String>,
}

/// The environment variable that names the server's binary.
pub const SERVER_VARIABLE: &str = "SLUICEGATE_REDIS_SERVER";

/// The differences between the kinds of servers.
#[derive(Debug)]
pub(crate) struct ServerSetup {
    pub(crate) port: Port,
    /// Lines of the configuration.
    pub(crate) lines: Vec<String>,
    /// Arguments after the configuration's file.
    pub(crate) args: &'static [&'static str],
}

/// The credentials of the kit on a server.
#[derive(Debug, Clone)]
pub(crate) struct Credentials {
    pub(crate) user: String,
    pub(crate) password: String,
}

#[derive(Debug)]
struct TlsSetup {
    port: Port,
    files: TlsFiles,
}

impl RedisServer {
    /// Starts a server, and waits until it answers.
    ///
    /// # Errors
    /// [`Error::Missing`] if it is not installed, [`Error::Unsupported`] if TLS is required and the binary has none,
    /// [`Error::Start`] if it does not start.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let setup = ServerSetup { port: Port::free()?, lines: options.lines(), args: &[] };
        let replica = options.replica_of.is_some();
        let server = Self::boot(options, setup).await?;
        if replica {
            server.synchronised().await?;
        }
        Ok(server)
    }

    /// Starts a server with `setup`, and with the settings of every server.
    pub(crate) async fn boot(options: Options, setup: ServerSetup) -> Result<Self, Error> {
        let ServerSetup { port, mut lines, args } = setup;
        let program = find(&options.program())?;
        let dir = TempDir::with_prefix("sluicegate-redis-")?;
        let path = |name: &str| dir.path().join(name);
        lines.push(format!("port {}", port.number()));
        lines.push(format!("dir {}", dir.path().display()));
        let tls = if options.tls { Some(TlsSetup::new(dir.path())?) } else { None };
        lines.extend(tls.iter().flat_map(TlsSetup::lines));
        let clock = if options.clock { Some(ServerClock::new(dir.path())?) } else { None };
        let environment = clock.as_ref().map(|clock| clock.environment.clone());
        lines.extend(options.config.iter().cloned());
        fs::write(path("redis.conf"), lines.join("\n") + "\n")?;

        let mut args: Vec<_> = args.iter().map(|&arg| arg.to_owned()).collect();
        args.insert(0, path("redis.conf").display().to_string());
        let spec = Spec { log: path("log"), environment: environment.unwrap_or_default() };
        let mut server = Self {
            process: Process::start(&program, &args, spec)?,
            program,
            args,
            port,
            tls,
            clock,
            credentials: options.credentials(),
            version: Version { valkey: false, number: [0; 3] },
            dir,
        };
        server.version = server.ready().await.map_err(|error| options.blame(error))?;
        Ok(server)
    }

    /// The address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// `redis://127.0.0.1:PORT`, with the name and password of a user with all rights.
    pub fn url(&self) -> String {
        self.url_with("redis", self.address())
    }

    /// `rediss://localhost:PORT`, likewise; [`tls_files`](Self::tls_files) has the authority to trust. `None` without
    /// TLS.
    pub fn tls_url(&self) -> Option<String> {
        self.tls_address().map(|address| self.url_with("rediss", address))
    }

    /// The address at which it listens for TLS; `None` without TLS.
    pub fn tls_address(&self) -> Option<SocketAddr> {
        self.tls.as_ref().map(|tls| tls.port.address())
    }

    /// The certificates and keys of it and its clients; `None` without TLS.
    pub fn tls_files(&self) -> Option<&TlsFiles> {
        self.tls.as_ref().map(|tls| &tls.files)
    }

    /// The version that it reports.
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// The id of its process.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// The last lines of its output.
    pub fn log(&self) -> String {
        tail(&self.log_path())
    }

    /// Connects as a user with all rights.
    ///
    /// # Errors
    /// [`Error::Io`] if it does not listen.
    pub async fn client(&self) -> Result<Client, Error> {
        log_in(self.address(), self.credentials.as_ref()).await
    }

    /// Sends one command on a new connection.
    ///
    /// # Errors
    /// As for [`Client::call`].
    pub async fn cli<A: AsRef<[u8]>>(&self, command: &[A]) -> Result<Reply, Error> {
        self.client().await?.call(command).await
    }

    /// A field of `INFO`, empty if there is none.
    ///
    /// # Errors
    /// As for [`Client::call`].
    pub async fn info(&self, name: &str) -> Result<String, Error> {
        let info = self.cli(&["INFO", "all"]).await?.text();
        Ok(field(&info, name).unwrap_or_default().to_owned())
    }

    /// Makes it forget every script.
    ///
    /// # Errors
    /// As for [`Client::call`].
    pub async fn script_flush(&self) -> Result<(), Error> {
        self.cli(&["SCRIPT", "FLUSH"]).await.map(drop)
    }

    /// Moves its wall clock: it is `offset_us` microseconds ahead of this machine's, or behind.
    ///
    /// # Errors
    /// [`Error::Io`] if the file of the clock cannot be written.
    ///
    /// # Panics
    /// If it was started without [`Options::clock`].
    pub fn set_clock_offset_us(&self, offset_us: i64) -> Result<(), Error> {
        let clock = self.clock.as_ref().expect("the server was started with `clock: true`");
        Ok(clock.set_offset_us(offset_us)?)
    }

    /// Ends it at once (`SIGKILL`). Its port stays reserved.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Freezes it (`SIGSTOP`): the kernel accepts connections, and nothing answers.
    ///
    /// # Errors
    /// [`Error::Io`] if it has ended.
    pub fn stop_process(&self) -> Result<(), Error> {
        Ok(self.process.freeze()?)
    }

    /// Lets it go on after [`stop_process`](Self::stop_process).
    ///
    /// # Errors
    /// [`Error::Io`] if it has ended.
    pub fn continue_process(&self) -> Result<(), Error> {
        Ok(self.process.thaw()?)
    }

    /// Kills it if it runs, and starts it again on the same port, with the configuration that it
    /// had last. Its data are lost.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub async fn restart(&mut self) -> Result<(), Error> {
        self.process.kill();
        let environment = self.clock.as_ref().map(|clock| clock.environment.clone());
        let spec = Spec { log: self.log_path(), environment: environment.unwrap_or_default() };
        self.process = Process::start(&self.program, &self.args, spec)?;
        self.ready().await.map(drop)
    }

    /// Waits until it answers, and checks that the answer is from this process.
    async fn ready(&mut self) -> Result<Version, Error> {
        let (id, log) = (self.process.id().to_string(), self.log_path());
        let (process, address, who) =
            (&mut self.process, self.port.address(), self.credentials.as_ref());
        until("the server answered", START_MAX, async || {
            if process.ended() {
                return Some(Err(Error::Start { log: tail(&log) }));
            }
            let mut client = log_in(address, who).await.ok()?;
            let info = client.call(&["INFO", "all"]).await.ok()?.text();
            let ready = field(&info, "process_id") == Some(&id)
                && field(&info, "loading").is_none_or(|loading| loading == "0");
            Version::from_info(&info).filter(|_| ready).map(Ok)
        })
        .await?
    }

    /// Waits until it, a replica, has its master's data.
    pub(crate) async fn synchronised(&self) -> Result<(), Error> {
        until("the replica had its master's data", START_MAX, async || {
            let status = self.info("master_link_status").await.ok()?;
            (status == "up").then_some(())
        })
        .await
    }

    fn url_with(&self, scheme: &str, address: SocketAddr) -> String {
        let host = if scheme == "rediss" { "localhost" } else { "127.0.0.1" };
        let login = match &self.credentials {
            Some(Credentials { user, password }) if user == "default" => format!(":{password}@"),
            Some(Credentials { user, password }) => format!("{user}:{password}@"),
            None => String::new(),
        };
        format!("{scheme}://{login}{host}:{}", address.port())
    }

    /// The answer to one command if it comes soon; a server that is frozen or dead has none.
    pub(crate) async fn answer(&self, command: &[&str]) -> Option<Reply> {
        tokio::time::timeout(ANSWER_MAX, self.cli(command)).await.ok()?.ok()
    }

    pub(crate) fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("log")
    }
}

impl Options {
    /// Lines of the configuration of every server that holds data.
    pub(crate) fn lines(&self) -> Vec<String> {
        let Self { binary: _, password, users, tls: _, maxmemory, replica_of, clock: _, config: _ } =
            self;
        let mut lines = ["bind 127.0.0.1", "save \"\"", "appendonly no"].map(String::from).to_vec();
        // A replica gets its data at once, through its connection: no files, no wait for other replicas.
        lines.extend(["repl-diskless-sync yes", "repl-diskless-sync-delay 0"].map(String::from));
        lines.extend(password.iter().map(|password| format!("requirepass {password}")));
        lines.extend(users.iter().map(|user| format!("user {user}")));
        if let Some(Credentials { user, password }) = self.credentials() {
            if !users.is_empty() {
                lines.push(format!("user {user} on >{password} ~* &* +@all"));
            }
            lines.extend([format!("masteruser {user}"), format!("masterauth {password}")]);
        }
        lines.extend(maxmemory.iter().map(|bytes| format!("maxmemory {bytes}")));
        lines.extend(replica_of.iter().map(|at| format!("replicaof {} {}", at.ip(), at.port())));
        lines
    }

    pub(crate) fn credentials(&self) -> Option<Credentials> {
        let user = |name: &str, password: &str| Credentials {
            user: name.to_owned(),
            password: password.to_owned(),
        };
        if self.users.is_empty() {
            self.password.as_ref().map(|password| user("default", password))
        } else {
            Some(user("testkit", "testkit"))
        }
    }

    fn program(&self) -> PathBuf {
        let variable = || std::env::var_os(SERVER_VARIABLE).filter(|value| !value.is_empty());
        let default = || variable().unwrap_or(OsString::from("redis-server")).into();
        self.binary.clone().unwrap_or_else(default)
    }

    /// Returns [`Error::Unsupported`] for the error of a server that was built without TLS, unless it is the default
    /// one, which has TLS everywhere.
    fn blame(&self, error: Error) -> Error {
        match error {
            Error::Start { log }
                if self.tls
                    && self.program() != Path::new("redis-server")
                    && (log.contains("TLS support") || log.contains("tls-port")) =>
            {
                Error::Unsupported(format!("`{}` has no TLS", self.program().display()))
            }
            error => error,
        }
    }
}

impl TlsSetup {
    fn new(dir: &Path) -> Result<Self, Error> {
        Ok(Self { port: Port::free()?, files: TlsFiles::write(dir)? })
    }

    fn lines(&self) -> Vec<String> {
        let Self { port, files } = self;
        vec![
            format!("tls-port {}", port.number()),
            format!("tls-ca-cert-file {}", files.ca.display()),
            format!("tls-cert-file {}", files.server_cert.display()),
            format!("tls-key-file {}", files.server_key.display()),
            "tls-auth-clients optional".to_owned(),
        ]
    }
}

async fn log_in(address: SocketAddr, who: Option<&Credentials>) -> Result<Client, Error> {
    let mut client = Client::connect(address).await?;
    if let Some(Credentials { user, password }) = who {
        client.call(&["AUTH", user, password]).await?;
    }
    Ok(client)
}

/// Longest wait for a server that may be frozen, before the next one.
const ANSWER_MAX: Duration = Duration::from_millis(200);
/// Longest wait for a server to answer: it takes 10 ms, and seconds where a machine is overloaded.
const START_MAX: Duration = Duration::from_secs(20);

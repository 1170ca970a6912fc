//! Databases of SQL: PostgreSQL and MariaDB, one server of each for all tests of a process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::sync::OnceCell;

use crate::port::Port;
use crate::process::{Process, Spec, find, tail};
use crate::{Error, until};

/// The kind of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqlKind {
    /// PostgreSQL.
    Postgres,
    /// MariaDB, which has the protocol of MySQL.
    MariaDb,
}

/// A server with databases. They end with it, so it need not write to the disk at once.
#[derive(Debug)]
pub struct SqlServer {
    kind: SqlKind,
    port: Port,
    _process: Process,
    dir: TempDir,
    databases: AtomicU32,
}

/// Longest wait for a server that starts, and for a statement of the kit's.
const PATIENCE_MAX: Duration = Duration::from_secs(60);

/// The owner of the databases on PostgreSQL, and the user of MariaDB.
const USER: &str = "root";

/// The folder of PostgreSQL's programs in Debian, which is not in `PATH`.
const POSTGRES_DIR: &str = "/usr/lib/postgresql";

impl SqlServer {
    /// The server of this kind that all tests of this process share. It ends with the process, and its
    /// files a moment later.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub async fn shared(kind: SqlKind) -> Result<&'static Self, Error> {
        static SERVERS: [OnceCell<SqlServer>; 2] = [const { OnceCell::const_new() }; 2];
        let start = async || {
            let server = Self::start(kind).await?;
            // A static is never dropped: a process that reads until this one ends removes the files.
            let mut broom = Command::new("sh");
            broom.args(["-c", "cat >/dev/null; sleep 1; rm -rf \"$0\""]).arg(server.dir.path());
            std::mem::forget(broom.stdin(Stdio::piped()).spawn()?);
            Ok(server)
        };
        SERVERS[kind as usize].get_or_try_init(start).await
    }

    /// Starts a server of this kind.
    ///
    /// # Errors
    /// [`Error::Missing`] if it is not installed, [`Error::Start`] if it does not start.
    pub async fn start(kind: SqlKind) -> Result<Self, Error> {
        let (dir, port) = (TempDir::with_prefix("sluicegate-sql-")?, Port::free()?);
        let (make, serve) = match kind {
            SqlKind::Postgres => postgres(dir.path(), &port)?,
            SqlKind::MariaDb => mariadb(dir.path(), &port)?,
        };
        run(&make)?;
        let log = dir.path().join("log");
        let spec = Spec { log: log.clone(), environment: Vec::new() };
        let [program, args @ ..] = &serve[..] else { unreachable!("a command has a program") };
        let mut process = Process::start(Path::new(program), args, spec)?;
        until("the database answered", PATIENCE_MAX, async || {
            if process.ended() {
                return Some(Err(Error::Start { log: tail(&log) }));
            }
            TcpStream::connect(port.address()).await.ok().map(|_| Ok(()))
        })
        .await??;
        let server = Self { kind, port, _process: process, dir, databases: AtomicU32::new(0) };
        until("the database took a statement", PATIENCE_MAX, async || server.say("SELECT 1").ok())
            .await?;
        Ok(server)
    }

    /// Creates a new, empty database, and returns its URL.
    ///
    /// # Errors
    /// [`Error::Reply`] if it cannot be created.
    pub fn database(&self) -> Result<String, Error> {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        self.say(&format!("CREATE DATABASE test_{number}"))?;
        let (scheme, port) = match self.kind {
            SqlKind::Postgres => ("postgres", self.port.number()),
            SqlKind::MariaDb => ("mysql", self.port.number()),
        };
        Ok(format!("{scheme}://{USER}@127.0.0.1:{port}/test_{number}"))
    }

    /// Executes a statement with the client that comes with the server.
    fn say(&self, statement: &str) -> Result<(), Error> {
        let port = self.port.number().to_string();
        let words: Vec<&str> = match self.kind {
            SqlKind::Postgres => {
                vec![
                    "psql",
                    "-qX",
                    "-h",
                    "127.0.0.1",
                    "-U",
                    USER,
                    "-p",
                    &port,
                    "-d",
                    "postgres",
                    "-c",
                ]
            }
            SqlKind::MariaDb => {
                vec!["mariadb", "--no-defaults", "-h", "127.0.0.1", "-u", USER, "-P", &port, "-e"]
            }
        };
        let mut command: Vec<_> = words.into_iter().map(str::to_owned).collect();
        command.push(statement.to_owned());
        run(&command)
    }

    /// The address at which it listens: its databases can also be reached through a [`FaultProxy`](crate::FaultProxy)
    /// in front of it.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port.number()))
    }
}

/// The commands that create a database of PostgreSQL, and serve it. PostgreSQL does not run as root.
fn postgres(dir: &Path, port: &Port) -> Result<(Vec<String>, Vec<String>), Error> {
    let data = dir.join("data").display().to_string();
    let (initdb, postgres) = (of_postgres("initdb")?, of_postgres("postgres")?);
    let mut prefix = Vec::new();
    if rustix::process::geteuid().is_root() {
        run(&["chown", "postgres", &dir.display().to_string()].map(str::to_owned))?;
        // The signal at the end of its parent does not survive a change of user, so it is set again.
        let words = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"];
        prefix = words.map(str::to_owned).to_vec();
        prefix.extend(["--pdeathsig", "KILL", "--"].map(str::to_owned));
    }
    let make =
        [&initdb, "-A", "trust", "-U", USER, "--no-sync", "-E", "UTF8", "--locale=C", "-D", &data];
    let (port, socket) = (port.number().to_string(), dir.display().to_string());
    let serve = [
        &postgres,
        "-D",
        &data,
        "-p",
        &port,
        "-k",
        &socket,
        "-h",
        "127.0.0.1",
        "-c",
        "fsync=off",
        "-c",
        "max_connections=200",
    ];
    let with_prefix = |words: &[&str]| {
        prefix.iter().cloned().chain(words.iter().map(|word| (*word).to_owned())).collect()
    };
    Ok((with_prefix(&make), with_prefix(&serve)))
}

fn of_postgres(program: &str) -> Result<String, Error> {
    let versions = std::fs::read_dir(POSTGRES_DIR).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        versions.map(|version| version.path().join("bin").join(program)).collect();
    found.sort();
    found.retain(|path| path.is_file());
    let path = found.pop().map_or_else(|| find(Path::new(program)), Ok)?;
    Ok(path.display().to_string())
}

/// The commands that create a database of MariaDB, and serve it.
fn mariadb(dir: &Path, port: &Port) -> Result<(Vec<String>, Vec<String>), Error> {
    // Debian keeps the server in a folder that is only in the `PATH` of root.
    let server = find(Path::new("mariadbd")).or_else(|error| {
        let path = PathBuf::from("/usr/sbin/mariadbd");
        if path.is_file() { Ok(path) } else { Err(error) }
    })?;
    let (dir, port) = (dir.display().to_string(), port.number().to_string());
    let data = format!("--datadir={dir}/data");
    let make = [
        "mariadb-install-db",
        "--no-defaults",
        &data,
        "--skip-test-db",
        "--skip-name-resolve",
        "--auth-root-authentication-method=normal",
    ];
    let server = server.display().to_string();
    let (port, socket) = (format!("--port={port}"), format!("--socket={dir}/socket"));
    let serve = [
        &server,
        "--no-defaults",
        &data,
        &port,
        &socket,
        "--bind-address=127.0.0.1",
        "--skip-name-resolve",
        "--innodb-flush-log-at-trx-commit=0",
        "--sync-binlog=0",
        "--max-connections=500",
    ];
    let with_user = |words: &[&str]| {
        let is_root = rustix::process::geteuid().is_root();
        let user = is_root.then_some("--user=root");
        words.iter().copied().chain(user).map(str::to_owned).collect()
    };
    Ok((with_user(&make), with_user(&serve)))
}

/// Runs a command to its end.
fn run(command: &[String]) -> Result<(), Error> {
    let [program, args @ ..] = command else { unreachable!("a command has a program") };
    let done = Command::new(find(Path::new(program))?).args(args).stdin(Stdio::null()).output()?;
    if done.status.success() {
        return Ok(());
    }
    let told = [done.stdout, done.stderr].concat();
    Err(Error::Reply(format!("{program}: {}", String::from_utf8_lossy(&told))))
}

//! URLs of databases: `sqlite:PATH`, `mysql://…`, `postgres://…`.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

#[cfg(feature = "mysql")]
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
#[cfg(feature = "postgres")]
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};

use crate::error::Error;

/// Maximum time that a writer of SQLite waits for another.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(5);

/// The URL of a database. `Debug` shows its kind only, since the rest may contain a password.
#[derive(Clone)]
pub enum Url {
    /// `sqlite:PATH`: a file, which only [`create`](Self::create) creates.
    Sqlite(SqliteConnectOptions),
    /// `mysql://USER:PASSWORD@HOST:PORT/DATABASE`, MariaDB as well. Feature `mysql`.
    #[cfg(feature = "mysql")]
    MySql(MySqlConnectOptions),
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE`. Feature `postgres`.
    #[cfg(feature = "postgres")]
    Postgres(PgConnectOptions),
}

impl Url {
    /// Returns the name of the kind of database.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "sqlite",
            #[cfg(feature = "mysql")]
            Self::MySql(_) => "mysql",
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => "postgres",
        }
    }

    /// Returns whether others on the network can read the connection, or pose as the database: it is on another
    /// machine, and its certificate and its name are not verified.
    pub fn is_open(&self) -> bool {
        let server: Option<(&str, bool, bool)> = match self {
            Self::Sqlite(_) => None,
            #[cfg(feature = "mysql")]
            Self::MySql(options) => {
                let mode = options.get_ssl_mode();
                let verified = matches!(mode, MySqlSslMode::VerifyIdentity);
                Some((options.get_host(), options.get_socket().is_some(), verified))
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(options) => {
                let mode = options.get_ssl_mode();
                let verified = matches!(mode, PgSslMode::VerifyFull);
                Some((options.get_host(), options.get_socket().is_some(), verified))
            }
        };
        let Some((host, is_socket, is_verified)) = server else { return false };
        let address = host.trim_matches(['[', ']']).parse();
        let is_here = address.is_ok_and(|address: IpAddr| address.is_loopback());
        !(is_here || is_socket || is_verified || host == "localhost" || host.starts_with('/'))
    }

    /// The options of SQLite, if the database is one.
    pub(super) const fn sqlite(&self) -> Option<&SqliteConnectOptions> {
        match self {
            Self::Sqlite(options) => Some(options),
            #[cfg(feature = "mysql")]
            Self::MySql(_) => None,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => None,
        }
    }

    /// Returns whether the file of a SQLite database does not exist.
    pub fn is_missing(&self) -> bool {
        self.file().is_some_and(|path| !path.exists())
    }

    /// Creates the file of a SQLite database if it does not exist, for its owner only: nobody else can read the hashes
    /// of passwords, also in the files that SQLite puts beside it.
    ///
    /// # Errors
    /// [`Error::Database`] if it cannot be created.
    pub fn create(&self) -> Result<(), Error> {
        let Some(options) = self.sqlite() else { return Ok(()) };
        let path = options.get_filename();
        if path.to_str().is_some_and(|path| path.starts_with("file:") || path == ":memory:") {
            // It is in memory, or given in another way.
            return Ok(());
        }
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(Error::Database(match error.kind() {
                    io::ErrorKind::NotFound => missing(path),
                    io::ErrorKind::PermissionDenied => format!(
                        "{}: permission denied: the user of this process must be permitted to write to the folder",
                        path.display()
                    ),
                    _ => format!("{}: {error}", path.display()),
                }))
            }
            _ => Ok(()),
        }
    }

    /// Returns the URL for reading: the file of a SQLite database is opened read-only.
    pub(super) fn to_look(&self) -> Self {
        let Some(options) = self.sqlite() else { return self.clone() };
        let look = SqliteConnectOptions::new().filename(options.get_filename());
        Self::Sqlite(look.read_only(true).busy_timeout(BUSY_WAIT_MAX))
    }
}

/// Returns the reason why there is no file at `path`.
pub(super) fn missing(path: &Path) -> String {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder.filter(|folder| !folder.is_dir()) {
        Some(folder) => format!("{}: there is no folder {}", path.display(), folder.display()),
        None => format!("{}: there is no such file", path.display()),
    }
}

/// Adds the file and the cause to `error` of a database that cannot be opened, where SQLite names a number.
pub(super) fn explained(url: &Url, error: Error) -> Error {
    let (Error::Database(problem), Some(path)) = (&error, url.file()) else { return error };
    let shown = path.display();
    Error::Database(match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => missing(&path),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            format!("{shown}: permission denied: the user of this process cannot read the file")
        }
        _ if path.is_dir() => format!("{shown}: is a directory, expected a file"),
        _ => format!("{shown}: {problem}"),
    })
}

impl FromStr for Url {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (scheme, _) = text.split_once(':').unwrap_or_default();
        // The URL is not repeated: there may be a password in it.
        let wrong = |_| {
            let problem = ssl_mode_problem(scheme, text);
            Error::Database(
                problem.unwrap_or_else(|| format!("invalid database URL: `{scheme}:…`")),
            )
        };
        Ok(match scheme {
            "sqlite" => {
                let options = SqliteConnectOptions::from_str(text).map_err(wrong)?;
                // A file is made by `create` alone: a later connection that makes one anew, because its volume is
                // away for a moment, would take the log of the old one (WAL) for its own and empty it.
                let is_file = Self::Sqlite(options.clone()).file().is_some();
                // Written to the disk before it is acknowledged.
                Self::Sqlite(
                    options
                        .create_if_missing(!is_file)
                        .foreign_keys(true)
                        .busy_timeout(BUSY_WAIT_MAX)
                        .journal_mode(SqliteJournalMode::Wal)
                        .synchronous(SqliteSynchronous::Full),
                )
            }
            #[cfg(feature = "mysql")]
            "mysql" | "mariadb" => Self::MySql(MySqlConnectOptions::from_str(text).map_err(wrong)?),
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => {
                check_parameters(text)?;
                Self::Postgres(PgConnectOptions::from_str(text).map_err(wrong)?)
            }
            #[cfg(not(feature = "mysql"))]
            "mysql" | "mariadb" => return Err(not_built_in("MySQL", "mysql")),
            #[cfg(not(feature = "postgres"))]
            "postgres" | "postgresql" => return Err(not_built_in("PostgreSQL", "postgres")),
            _ => {
                let problem = "expected `sqlite:PATH`, `mysql://…` or `postgres://…`";
                return Err(Error::Database(problem.to_owned()));
            }
        })
    }
}

/// The error of a URL whose database this build does not have.
#[cfg(not(all(feature = "mysql", feature = "postgres")))]
fn not_built_in(database: &str, feature: &str) -> Error {
    Error::Database(format!(
        "{database} is not built in: build with the feature `{feature}`, or use `sqlite:PATH`"
    ))
}

/// Parameters of `postgres://…?NAME=VALUE` that the library knows. It logs others, with their values.
#[cfg(feature = "postgres")]
const POSTGRES_PARAMETERS: [&str; 18] = [
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "ssl-mode",
    "ssl-root-cert",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "statement-cache-capacity",
    "user",
];

/// The values of `sslmode` for each database.
const SSL_MODES: [(&[&str], &[&str]); 2] = [
    (
        &["postgres", "postgresql"],
        &["disable", "allow", "prefer", "require", "verify-ca", "verify-full"],
    ),
    (&["mysql", "mariadb"], &["DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"]),
];

/// Returns the problem of the mode of TLS in the URL `text`, if it is unknown. The mode is not repeated: a
/// password may stand in its place.
fn ssl_mode_problem(scheme: &str, text: &str) -> Option<String> {
    let (_, modes) = SSL_MODES.iter().find(|(schemes, _)| schemes.contains(&scheme))?;
    let (_, query) = text.split_once('?')?;
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (name, mode) = pairs.find(|(name, _)| matches!(*name, "sslmode" | "ssl-mode"))?;
    let is_known = modes.iter().any(|known| known.eq_ignore_ascii_case(mode));
    (!is_known).then(|| {
        format!(
            "unknown `{name}` in the URL of the database, expected one of `{}`",
            modes.join("`, `")
        )
    })
}

/// Checks that all parameters of a URL are known. The error repeats none: a password may stand in its place.
#[cfg(feature = "postgres")]
fn check_parameters(url: &str) -> Result<(), Error> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let query = query.split('#').next().unwrap_or_default();
    let mut names = query.split('&').filter(|pair| !pair.is_empty());
    let is_known = |pair: &str| {
        let name = pair.split('=').next().unwrap_or_default();
        POSTGRES_PARAMETERS.contains(&name) || name.starts_with("options[")
    };
    if names.all(is_known) {
        return Ok(());
    }
    let known = POSTGRES_PARAMETERS.join("`, `");
    Err(Error::Database(format!(
        "unknown parameter in the URL of the database, expected one of `{known}`"
    )))
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:…", self.kind())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_that_would_be_logged_is_refused_and_not_repeated() {
        for query in ["sslpassword=hunter2", "passwd=hunter2", "sslmode=require&hunter2"] {
            let error = format!("postgres://u@h/c?{query}").parse::<Url>().unwrap_err().to_string();
            assert!(error.contains("unknown parameter") && !error.contains("hunter2"), "{error}");
        }
        for query in ["sslmode=verify-full&sslrootcert=/ca", "host=/run&options[search_path]=a", ""]
        {
            format!("postgres://u@h/c?{query}").parse::<Url>().unwrap();
        }
    }

    #[test]
    fn a_mode_of_tls_that_is_not_known_is_refused_with_those_that_are() {
        for (url, mode) in [
            ("postgres://u:p@h/c?sslmode=hunter2", "`require`, `verify-ca`"),
            ("mysql://u:p@h/c?ssl-mode=hunter2", "`REQUIRED`, `VERIFY_CA`"),
            // That of the other database.
            ("mariadb://u:p@h/c?sslmode=require", "`REQUIRED`, `VERIFY_CA`"),
        ] {
            let error = url.parse::<Url>().unwrap_err().to_string();
            assert!(error.contains("unknown `ssl") && error.contains(mode), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_opened_is_named_with_the_cause() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::create_dir(path("folder")).unwrap();
        std::fs::write(path("text"), "this is a text, and no database of SQLite").unwrap();
        for (name, problem) in [
            ("none", "there is no such file".to_owned()),
            ("nowhere/c.db", format!("there is no folder {}", path("nowhere"))),
            ("folder", "is a directory, expected a file".to_owned()),
        ] {
            let url: Url = format!("sqlite:{}", path(name)).parse().unwrap();
            let error = super::super::Db::open_read_only(&url).await.map(drop).unwrap_err();
            assert_eq!(error.to_string(), format!("database: {}: {problem}", path(name)));
            let made = url.create();
            match name {
                "nowhere/c.db" => assert_eq!(made.unwrap_err().to_string(), error.to_string()),
                _ => made.unwrap(),
            }
        }
        let url: Url = format!("sqlite:{}", path("text")).parse().unwrap();
        let db = super::super::Db::open_read_only(&url).await.unwrap();
        let error = db.rows("SELECT name FROM sqlite_master", &[]).await.map(drop).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("file is not a database") && !error.contains("code"), "{error}");
    }

    #[test]
    fn a_database_that_others_can_listen_to_is_known() {
        let is_open = |text: &str| text.parse::<Url>().unwrap().is_open();
        for text in [
            "postgres://u:p@db.example/c",
            "postgres://u:p@10.0.0.7/c?sslmode=require",
            "postgres://u:p@db.example/c?sslmode=verify-ca",
            "mysql://u:p@db.example/c",
            "mysql://u:p@[2001:db8::1]/c?ssl-mode=REQUIRED",
        ] {
            assert!(is_open(text), "{text}");
        }
        for text in [
            "sqlite:catalog.db",
            "postgres://u:p@localhost/c",
            "postgres://u:p@127.0.0.1:5432/c",
            "postgres://u:p@[::1]/c",
            "postgres://u@%2Frun%2Fpostgresql/c",
            "postgres://u:p@db.example/c?sslmode=verify-full",
            "mysql://u:p@127.0.0.1/c",
            "mysql://u:p@db.example/c?ssl-mode=VERIFY_IDENTITY",
            "mysql://u:p@db.example/c?socket=/run/mysqld/mysqld.sock",
        ] {
            assert!(!is_open(text), "{text}");
        }
    }
}

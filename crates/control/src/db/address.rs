//! The address of a database without secrets, by which a copy names its catalog.

use std::fmt;
use std::path::{Path, PathBuf, absolute};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Url;
use crate::error::Error;

/// Maximum number of symbolic links that are followed to the file of a database, as in Linux.
const LINKS_MAX: usize = 40;

/// Longest address in bytes: a path of Linux, and what stands before it.
const ADDRESS_BYTES_MAX: usize = 4_200;

/// Bytes of a hash in the name of a file: few enough to read, enough that two catalogs of a machine differ.
const TAG_BYTES: usize = 4;

/// The scheme, host, port and name of a database, or the path of its file: `postgres://db.example:5432/sluicegate`,
/// `sqlite:/var/lib/sluicegate/catalog.db`. It never has a user or a password.
///
/// Two URLs of one database have one address: hosts are in small letters, ports that are left out are the usual
/// ones, paths are absolute and without symbolic links.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CatalogAddress(String);

impl CatalogAddress {
    /// Returns the address of the database at `url`.
    pub fn of(url: &Url) -> Self {
        Self(match url {
            Url::Sqlite(options) => {
                let path = url.file().unwrap_or_else(|| options.get_filename().to_owned());
                format!("sqlite:{}", encoded(&path.to_string_lossy()))
            }
            #[cfg(feature = "mysql")]
            Url::MySql(options) => {
                let database = encoded(options.get_database().unwrap_or_default());
                match options.get_socket() {
                    Some(socket) => {
                        format!("mysql://localhost/{database}?socket={}", socket.display())
                    }
                    None => {
                        let host = host(options.get_host());
                        format!("mysql://{host}:{}/{database}", options.get_port())
                    }
                }
            }
            #[cfg(feature = "postgres")]
            Url::Postgres(options) => {
                // The server takes the name of the user for that of the database.
                let database = options.get_database().unwrap_or_else(|| options.get_username());
                let socket = options.get_socket().map(|socket| socket.to_string_lossy());
                // The folder of a socket, in which the port is a part of its name.
                let host = host(socket.as_deref().unwrap_or_else(|| options.get_host()));
                format!("postgres://{host}:{}/{}", options.get_port(), encoded(database))
            }
        })
    }

    /// Returns the kind and name of the database and the first digits of the hash of this address, for a file name.
    pub fn file_tag(&self) -> String {
        let (kind, place) = self.0.split_once(':').unwrap_or_default();
        let name = place.rsplit('/').next().unwrap_or_default();
        let name: String = name.chars().filter(char::is_ascii_alphanumeric).take(32).collect();
        let hash = Sha256::digest(&self.0);
        let hash: String = hash[..TAG_BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{kind}-{name}-{hash}")
    }
}

impl Url {
    /// Returns the file of a SQLite database, which need not exist; none if it is in memory, or on a server. The path
    /// is absolute and without symbolic links.
    pub fn file(&self) -> Option<PathBuf> {
        let options = self.sqlite()?;
        let path = options.get_filename();
        let is_elsewhere = |path: &str| path.starts_with("file:") || path == ":memory:";
        if path.to_str().is_some_and(is_elsewhere) {
            return None;
        }
        let path = absolute(path).unwrap_or_else(|_| path.to_owned());
        Some(resolved(&path, LINKS_MAX))
    }
}

impl FromStr for CatalogAddress {
    type Err = Error;

    /// Reads an address, or the URL of a database without user and password.
    fn from_str(text: &str) -> Result<Self, Error> {
        let (_, place) = text.split_once("://").unwrap_or_default();
        let authority = place.split('/').next().unwrap_or_default();
        if text.len() > ADDRESS_BYTES_MAX || authority.contains('@') {
            // It is not repeated: there may be a password in it.
            let problem = "expected an address without user and password, such as \
                           `postgres://HOST:PORT/DATABASE` or `sqlite:PATH`";
            return Err(Error::Database(problem.to_owned()));
        }
        Ok(Self::of(&text.parse()?))
    }
}

impl fmt::Display for CatalogAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A host as it stands in a URL: in small letters, unless it is the folder of a socket.
#[cfg(any(feature = "mysql", feature = "postgres"))]
fn host(host: &str) -> String {
    if host.starts_with('/') {
        return host.replace('/', "%2F");
    }
    host.trim_end_matches('.').to_ascii_lowercase()
}

/// A name or a path as it stands in a URL.
fn encoded(name: &str) -> String {
    name.replace('%', "%25").replace('?', "%3F").replace('#', "%23").replace(' ', "%20")
}

/// Returns `path` without symbolic links, as far as it exists; the file may be on a disk that is not there.
fn resolved(path: &Path, links_max: usize) -> PathBuf {
    if let Ok(path) = path.canonicalize() {
        return path;
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return path.to_owned();
    };
    match path.read_link() {
        Ok(target) if links_max > 0 => resolved(&folder.join(target), links_max - 1),
        _ => resolved(folder, links_max).join(name),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn address(url: &str) -> String {
        CatalogAddress::of(&url.parse().expect("it is a URL")).to_string()
    }

    #[test]
    fn two_urls_of_one_database_have_one_address() {
        for same in [
            "postgres://u:p@db.example/production",
            "postgresql://other:secret@DB.Example:5432/production?sslmode=verify-full",
            "postgres://db.example.:5432/production",
            "postgres://production@db.example",
        ] {
            assert_eq!(address(same), "postgres://db.example:5432/production", "{same}");
        }
        for same in ["mysql://u:p@DB/c", "mariadb://db:3306/c?ssl-mode=REQUIRED"] {
            assert_eq!(address(same), "mysql://db:3306/c", "{same}");
        }
        assert_eq!(
            address("postgres://u@%2Frun%2Fpostgresql/c"),
            "postgres://%2Frun%2Fpostgresql:5432/c"
        );
        for (one, other) in [
            ("postgres://db/production", "postgres://db/staging"),
            ("postgres://db/production", "postgres://db2/production"),
            ("postgres://db/production", "postgres://db:5433/production"),
            ("postgres://db/c", "mysql://db:5432/c"),
            ("postgres://db/Production", "postgres://db/production"),
            ("sqlite:/a/b.db", "sqlite:/a/c.db"),
        ] {
            assert_ne!(address(one), address(other));
        }
    }

    #[test]
    fn an_address_has_no_password_and_no_user_and_reads_itself() {
        for url in [
            "postgres://ada:hunter2@h/d",
            "postgres://ada:hunter2@[2001:db8::1]/d%20e",
            "postgres://ada@%2Frun%2FPg/d",
            "mysql://ada:hunter2@h/d",
            "mysql://ada:hunter2@h/d?socket=/run/mysqld/mysqld.sock",
            "sqlite:/x/y.db",
            "sqlite:/x/50%25 off?mode=rwc",
        ] {
            let address = address(url);
            assert!(!address.contains("ada") && !address.contains("hunter2"), "{address}");
            let again: CatalogAddress = address.parse().expect("it is one");
            assert_eq!(again.to_string(), address);
        }
        let error = "postgres://ada:hunter2@h/d".parse::<CatalogAddress>().unwrap_err();
        assert!(error.to_string().contains("without user and password"), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    #[test]
    fn a_file_has_one_address_by_whichever_link_also_if_it_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        fs::create_dir(folder.join("real")).unwrap();
        symlink("real", folder.join("link")).unwrap();
        symlink("gone/deep", folder.join("dangling")).unwrap();
        symlink("circle", folder.join("circle")).unwrap();
        let of = |name: &str| address(&format!("sqlite:{}", folder.join(name).display()));
        let expected = |name: &str| format!("sqlite:{}", folder.join(name).display());
        // Before there is a file, and behind it.
        assert_eq!(of("link/catalog.db"), expected("real/catalog.db"));
        fs::write(folder.join("real/catalog.db"), "").unwrap();
        symlink("real/catalog.db", folder.join("c.db")).unwrap();
        for name in ["real/catalog.db", "link/catalog.db", "real/../link/./catalog.db", "c.db"] {
            assert_eq!(of(name), expected("real/catalog.db"), "{name}");
        }
        assert_eq!(of("dangling/catalog.db"), expected("gone/deep/catalog.db"));
        assert_eq!(of("circle"), expected("circle"));
    }

    #[test]
    fn files_of_two_catalogs_have_two_names() {
        let tag = |url: &str| CatalogAddress::of(&url.parse().expect("it is a URL")).file_tag();
        let one = tag("postgres://u:p@db/production");
        assert!(one.starts_with("postgres-production-"), "{one}");
        assert_ne!(one, tag("postgres://u:p@db2/production"));
        assert!(!tag("mysql://db/../../etc").contains(['/', '.']));
    }
}

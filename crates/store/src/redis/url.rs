//! The parts of a Redis URL. Several hosts in one URL are beyond what URL libraries read.

use std::path::Path;

use percent_encoding::percent_decode_str;

use super::address::{Address, HOSTS_MAX, RedisCredentials, Topology};
use super::config_error::RedisConfigError;

/// The parts of a URL.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) topology: Topology,
    pub(super) tls: bool,
    pub(super) login: RedisCredentials,
    pub(super) database: Option<String>,
    pub(super) options: Vec<(String, String)>,
}

/// The default port of a Redis server.
const PORT: u16 = 6379;

/// The default port of a Sentinel.
const SENTINEL_PORT: u16 = 26379;

/// Splits `url` into its parts.
///
/// # Errors
/// [`RedisConfigError`] that names the part; never with user or password in it.
pub(super) fn parse(url: &str) -> Result<Parts, RedisConfigError> {
    let (scheme, rest) = url.split_once("://").ok_or(RedisConfigError::Scheme)?;
    let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = place.split_once('/').unwrap_or((place, ""));
    let (family, tls) = match scheme {
        "unix" => ("unix", false),
        _ => match scheme.strip_prefix("rediss") {
            Some(family) => (family, true),
            None => (scheme.strip_prefix("redis").ok_or(RedisConfigError::Scheme)?, false),
        },
    };
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (parse_login(login)?, hosts),
        None => (RedisCredentials::default(), authority),
    };
    // The text that looks like host and path may be half a password: it is not repeated.
    if path.contains('@') || options.contains('@') || rest.contains('#') {
        return Err(RedisConfigError::Credentials);
    }
    let (topology, database) = match family {
        "" => (Topology::Standalone(parse_one_host(hosts)?), path),
        "unix" => (Topology::Standalone(parse_socket(hosts, path)?), ""),
        "+sentinel" => {
            let sentinels = parse_hosts(hosts, SENTINEL_PORT)?;
            let (master, database) = path.split_once('/').unwrap_or((path, ""));
            if master.is_empty() {
                return Err(RedisConfigError::NoMasterName { hosts: hosts.to_owned() });
            }
            let master = decode("master name", master)?.into();
            (Topology::Sentinel { sentinels, master }, database)
        }
        "+cluster" => (Topology::Cluster { seeds: parse_hosts(hosts, PORT)? }, path),
        _ => return Err(RedisConfigError::Scheme),
    };
    let database = (!database.is_empty()).then(|| database.to_owned());
    Ok(Parts { topology, tls, login, database, options: parse_options(options)? })
}

fn parse_login(text: &str) -> Result<RedisCredentials, RedisConfigError> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let decoded =
        |text| percent_decode_str(text).decode_utf8().map_err(|_| RedisConfigError::Credentials);
    let (user, password) = (decoded(user)?, decoded(password)?);
    if password.is_empty() {
        return Err(RedisConfigError::Missing { field: "password" });
    }
    Ok(RedisCredentials {
        user: (!user.is_empty()).then(|| user.as_ref().into()),
        password: Some(password.into_owned().into()),
    })
}

fn parse_options(text: &str) -> Result<Vec<(String, String)>, RedisConfigError> {
    let mut options = Vec::new();
    for option in text.split('&').filter(|option| !option.is_empty()) {
        let Some((name, value)) = option.split_once('=') else {
            return Err(RedisConfigError::UnknownOption { name: option.to_owned() });
        };
        let decoded = percent_decode_str(value).decode_utf8();
        let value = decoded.map_err(|_| RedisConfigError::Malformed {
            field: "options",
            value: name.to_owned(),
            expected: "an option with a UTF-8 value",
        })?;
        options.push((name.to_owned(), value.into_owned()));
    }
    Ok(options)
}

fn parse_socket(hosts: &str, path: &str) -> Result<Address, RedisConfigError> {
    if !hosts.is_empty() {
        return Err(malformed("path", hosts, "an absolute path, such as `unix:///run/redis.sock`"));
    }
    if path.is_empty() {
        return Err(RedisConfigError::Missing { field: "path" });
    }
    Ok(Address::Unix(Path::new(&format!("/{}", decode("path", path)?)).into()))
}

fn parse_one_host(text: &str) -> Result<Address, RedisConfigError> {
    if text.contains(',') {
        let reason = "expected one host; several hosts require `+sentinel` or `+cluster`";
        return Err(RedisConfigError::Unusable { field: "host", reason });
    }
    parse_host(text, PORT)
}

fn parse_hosts(text: &str, port: u16) -> Result<Vec<Address>, RedisConfigError> {
    let hosts: Vec<_> = text.split(',').collect();
    if hosts.len() > HOSTS_MAX {
        return Err(RedisConfigError::Range {
            field: "hosts",
            value: hosts.len().to_string(),
            min: 1,
            max: HOSTS_MAX as u64,
        });
    }
    hosts.into_iter().map(|host| parse_host(host, port)).collect()
}

/// Reads `host`, `host:port`, `[v6]` or `[v6]:port`.
pub(super) fn parse_host(text: &str, default_port: u16) -> Result<Address, RedisConfigError> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let v6 = "an address in brackets, such as `[::1]:6379`";
            let (host, rest) = rest.split_once(']').ok_or_else(|| malformed("host", text, v6))?;
            (host, rest.strip_prefix(':').or_else(|| rest.is_empty().then_some("")))
        }
        None => match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, Some("")),
        },
    };
    let port = match port {
        Some("") if !text.ends_with(':') => default_port,
        // Without a host, this text may be a password: it is not repeated.
        Some(port) => {
            port.parse().ok().filter(|&port: &u16| port > 0).ok_or(RedisConfigError::Unusable {
                field: "port",
                reason: "expected a number in 1..=65535",
            })?
        }
        None => return Err(malformed("host", text, "a host and a port")),
    };
    let shown = |byte: u8| byte.is_ascii_graphic() && byte != b'%';
    if host.is_empty() {
        return Err(RedisConfigError::Missing { field: "host" });
    }
    if !host.bytes().all(shown) {
        return Err(malformed("host", host, "a host name or an IP address"));
    }
    Ok(Address::Tcp(host.into(), port))
}

fn decode(field: &'static str, text: &str) -> Result<String, RedisConfigError> {
    let decoded = percent_decode_str(text).decode_utf8();
    Ok(decoded.map_err(|_| malformed(field, text, "UTF-8"))?.into_owned())
}

fn malformed(field: &'static str, value: &str, expected: &'static str) -> RedisConfigError {
    RedisConfigError::Malformed { field, value: value.to_owned(), expected }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use crate::redis::{HOSTS_MAX, RedisConfig, RedisConfigError, Topology};

    fn read(url: &str) -> Result<RedisConfig, RedisConfigError> {
        url.parse()
    }

    fn message(url: &str) -> String {
        read(url).expect_err("a URL that cannot be used").to_string()
    }

    fn address(url: &str) -> String {
        match read(url).expect("a good URL").topology {
            Topology::Standalone(address) => address.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_url_says_where_the_server_is() {
        assert_eq!(address("redis://localhost"), "localhost:6379");
        assert_eq!(address("redis://user:pw@10.0.0.1:7000/3"), "10.0.0.1:7000");
        assert_eq!(address("rediss://[::1]:7000"), "[::1]:7000");
        assert_eq!(address("redis://[fe80::1]"), "[fe80::1]:6379");
        assert_eq!(address("unix:///run/redis.sock?database=2"), "/run/redis.sock");
    }

    #[test]
    fn several_hosts_make_a_sentinel_or_a_cluster() {
        let config = read("redis+sentinel://:pw@a,b:7,c/mymaster/4").expect("a good URL");
        let Topology::Sentinel { sentinels, master } = &config.topology else { panic!() };
        let hosts: Vec<_> = sentinels.iter().map(ToString::to_string).collect();
        assert_eq!((hosts.join(" "), &**master), ("a:26379 b:7 c:26379".into(), "mymaster"));
        assert_eq!(config.database, 4);
        let config = read("rediss+cluster://a,b").expect("a good URL");
        assert!(
            config.tls
                && matches!(config.topology, Topology::Cluster { seeds } if seeds.len() == 2)
        );
    }

    #[test]
    fn a_url_names_at_most_as_many_hosts_as_suffice() {
        let of = |count| format!("redis+cluster://{}", vec!["h"; count].join(","));
        read(&of(HOSTS_MAX)).expect("a good URL");
        for count in [HOSTS_MAX + 1, 10 * HOSTS_MAX] {
            assert_eq!(message(&of(count)), format!("hosts: `{count}` is outside 1..=16"));
        }
    }

    #[test]
    fn options_are_read_and_bounded() {
        let url = "redis://h?connections=4&deadline_ms=5&connect_timeout_ms=250&joined_max=1";
        let config = read(url).expect("a good URL");
        assert_eq!((config.connections, config.joined_max), (4, 1));
        assert_eq!(config.deadline().as_millis(), 5);
        for (url, expected) in [
            ("redis://h?connections=17", "connections: `17` is outside 1..=16"),
            ("redis://h?deadline_ms=0", "deadline_ms: `0` is outside 1..=10000"),
            ("redis://h?deadline_ms=+5", "deadline_ms: `+5` is not a whole number 1..=10000"),
            ("redis://h?joined_max=65", "joined_max: `65` is outside 1..=64"),
            ("redis://h/70000", "database: `70000` is outside 0..=65535"),
            ("redis+cluster://h/1", "database: a cluster supports database 0 only"),
            ("redis://h?ca_file=x", "ca_file: requires `rediss://`"),
            ("redis://h:0", "port: expected a number in 1..=65535"),
            ("redis://h:", "port: expected a number in 1..=65535"),
            ("redis://", "host: is missing"),
            (
                "redis+sentinel://h:1,i",
                "master name: is missing, such as `redis+sentinel://h:1,i/mymaster`",
            ),
            ("redis://u@h", "password: is missing"),
        ] {
            assert_eq!(message(url), expected, "{url}");
        }
        let unknown = message("redis://h?colour=red");
        assert!(
            unknown.starts_with("unknown option `colour`, expected `connections`"),
            "{unknown}"
        );
        for url in ["http://h", "postgres://u@h", "redis+what://h"] {
            assert!(message(url).starts_with("scheme: expected redis"), "{url}");
        }
    }

    #[test]
    fn a_password_is_read_exactly_and_shown_nowhere() {
        let url = "redis+sentinel://user:s%40crET%2f@h/m?sentinel_password=OTHERsecret";
        let config = read(url).expect("a good URL");
        let password = config.login.password.as_ref().expect("a password");
        assert_eq!(password.expose_secret(), "s@crET/");
        let shown = format!("{config:?} {config:#?}");
        assert!(!shown.contains("crET") && !shown.contains("OTHER"), "{shown}");
    }

    #[test]
    fn no_error_repeats_a_part_of_a_password() {
        for url in [
            "redis://user:se/cret@host",
            "redis://user:se?cret@host",
            "redis://user:se#cret@host",
            "redis://user:se#cret",
            "redis://user:cret",
            "redis://user:cret%ff@host:x",
            "what://user:cret@host",
        ] {
            let error = read(url).expect_err("a URL that cannot be used");
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("cret") && !shown.contains("`se`"), "{url}: {shown}");
        }
    }
}

//! The `combined` format: access logs as Apache and nginx write them, the older `common` one, and `vhost_combined`.
//!
//! ```text
//! 203.0.113.7 - alice [17/May/2015:10:05:03 +0200] "GET /a?b=1 HTTP/1.1" 200 2326 "-" "curl/8.5"
//! client            at (to the second)              method, path         status bytes referer user_agent
//! ```
//!
//! Pure: a line in, a [`LogLine`] or a [`LogError`] out. A line has the attributes that a gateway has of the request:
//! the path in its one spelling ([`normal_path`]), an IPv6 client by its /64 ([`address_text`]), values without the
//! escapes of the log. Fields after the user agent (many logs append some) are ignored, and so is a malformed request
//! line: clients send anything, and the server logged it. If a limit of its length has cut a line, the rest of the
//! last field counts as that field.
//!
//! [`normal_path`]: sluicegate::internals::gateway::normal_path
//! [`address_text`]: sluicegate::internals::gateway::address_text

use std::borrow::Cow;
use std::net::IpAddr;

use jiff::civil;
use jiff::tz::Offset;
use sluicegate::Micros;
use sluicegate::internals::gateway::{PathError, address_text, host_text, normal_path};
use sluicegate::internals::http::TrustedProxies;
use sluicegate::internals::http::address::parse_address;
use sluicegate_policy::Attributes;
use sluicegate_text::terminal::one_line;

/// The format of the lines of a log.
#[derive(Clone, Debug, Default)]
pub struct LogFormat {
    /// Each line begins with the host of the request, as in Apache's `vhost_combined` (`%v:%p`).
    pub has_host: bool,
    /// The client may be a name instead of an address, as Apache writes with `HostnameLookups On`.
    pub has_client_names: bool,
    /// Proxies in front of the server: if a line has a list of addresses, the client is the last one that is not
    /// theirs. `None`: a list is an error.
    pub proxies: Option<TrustedProxies>,
}

/// One request of a log.
#[derive(Clone, Debug)]
pub struct LogLine<'a> {
    /// The instant, µs since the Unix epoch; logs write whole seconds.
    pub at: Micros,
    /// The line was cut before its user agent, so that it is unknown whether there was one.
    pub is_cut: bool,
    client: Option<Cow<'a, str>>,
    host: Option<String>,
    method: Option<&'a str>,
    path: Option<String>,
    status: &'a str,
    user_agent: Option<Cow<'a, str>>,
}

/// The reason for which a line cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The line is not UTF-8.
    #[error("byte {0} of the line is not UTF-8")]
    Utf8(usize),
    /// The line ends before this field.
    #[error("{0}: is missing")]
    Missing(&'static str),
    /// The field has no end.
    #[error("{0}: the closing `{1}` is missing")]
    Open(&'static str, char),
    /// The first field is not an address: the line has a prefix, or another format.
    #[error("client: `{0}` is not an address; names of clients need --client-names")]
    Client(String),
    /// The line has a prefix before the client, as syslog and containers write it.
    #[error(
        "client: the line begins with `{0}`, as syslog and containers write it; cut that off, for example with \
         `sed -E 's|^.* ([^ ]+ [^ ]+ [^ ]+ \\[[0-9]{{2}}/)|\\1|'`"
    )]
    Prefix(String),
    /// The first field is a list of addresses.
    #[error("client: `{0}` is a list of addresses; --trusted-proxies says which are proxies")]
    ClientList(String),
    /// The line begins with the host of the request.
    #[error("client: `{0}` is a host with a port; the format is vhost_combined")]
    Host(String),
    /// A gateway refuses such a path, so no policy decides the request.
    #[error("path: `{0}` {1}; gateways refuse it")]
    Path(String, PathError),
    /// The time is not written as `17/May/2015:10:05:03 +0000`.
    #[error("time: `{0}` is not a time such as `17/May/2015:10:05:03 +0000`")]
    Time(String),
    /// The time is written as in ISO 8601.
    #[error(
        "time: `{0}` is not a time such as `17/May/2015:10:05:03 +0000`: log `$time_local` (nginx) or `%t` (Apache)"
    )]
    IsoTime(String),
    /// There is no such day or time of day.
    #[error("time: `{0}` does not exist")]
    NoSuchTime(String),
    /// The time is before 1970.
    #[error("time: `{0}` is before 1970")]
    TooEarly(String),
    /// The status is not three digits.
    #[error("status: `{0}` is not three digits or `-`")]
    Status(String),
    /// The size is not a number.
    #[error("bytes: `{0}` is not a number or `-`")]
    Bytes(String),
}

impl LogLine<'_> {
    /// The attributes of the request, as gateways have them; `None` where the line has `-`.
    pub fn attributes(&self) -> Attributes<'_> {
        let Self { at: _, is_cut: _, client, host, method, path, status, user_agent } = self;
        Attributes {
            remote_ip: client.as_deref(),
            path: path.as_deref(),
            method: *method,
            user_agent: user_agent.as_deref(),
            status: given(status),
            host: host.as_deref(),
            headers: &[],
        }
    }
}

impl LogFormat {
    /// Parses one line.
    ///
    /// # Errors
    /// [`LogError`], which names the field.
    pub fn parse<'a>(&self, line: &'a [u8]) -> Result<LogLine<'a>, LogError> {
        let line =
            std::str::from_utf8(line).map_err(|error| LogError::Utf8(error.valid_up_to()))?;
        let line = line.strip_prefix('\u{feff}').unwrap_or(line);
        let line = line.strip_suffix('\r').unwrap_or(line);
        let (host, line) = match self.has_host {
            true => word("host", line).map(|(host, rest)| (Some(host), rest))?,
            false => (None, line),
        };
        let (start, rest) = line.split_once(" [").ok_or(LogError::Missing("time"))?;
        let client = self.client(start)?;
        let (at, rest) = rest.split_once(']').ok_or(LogError::Open("time", ']'))?;
        let at = time(at)?;
        let (request, rest) = quoted("request", rest)?;
        let (status, rest) = word("status", rest)?;
        if status != "-" && !(status.len() == 3 && is_digits(status)) {
            return Err(LogError::Status(one_line(status)));
        }
        let (bytes, rest) = word("bytes", rest)?;
        if bytes != "-" && !is_digits(bytes) {
            return Err(LogError::Bytes(one_line(bytes)));
        }
        let (user_agent, is_cut) = user_agent(rest);
        let (method, target) = method_and_target(request).unzip();
        Ok(LogLine {
            at,
            is_cut,
            client,
            host: host.and_then(given).map(|host| host_text(host.as_bytes())),
            method,
            path: target.and_then(given).map(path).transpose()?,
            status,
            user_agent: given(user_agent).map(unescaped_text),
        })
    }

    /// Returns the client of `start`, the text before the time: `203.0.113.7 - alice`.
    fn client<'a>(&self, start: &'a str) -> Result<Option<Cow<'a, str>>, LogError> {
        let field = client_field(start)?;
        if field.contains(',') {
            let address = self.client_of_list(field);
            return address.map(|address| Some(address_text(address).into()));
        }
        match parse_address(field.as_bytes()) {
            Some(address) => Ok(Some(address_text(address).into())),
            None if matches!(field, "" | "-") => Ok(None),
            None if let Some(prefix) = prefix(start) => Err(LogError::Prefix(one_line(prefix))),
            None if is_host_and_port(field) => Err(LogError::Host(one_line(field))),
            None if self.has_client_names && is_name(field) => Ok(Some(field.into())),
            None => Err(LogError::Client(one_line(field))),
        }
    }

    /// Returns the client in a list that proxies wrote: the last address that is not theirs.
    fn client_of_list(&self, list: &str) -> Result<IpAddr, LogError> {
        let Some(proxies) = &self.proxies else {
            return Err(LogError::ClientList(one_line(list)));
        };
        let (before, last) = list.rsplit_once(',').expect("a list has a comma");
        let last = parse_address(last.as_bytes());
        let last = last.ok_or_else(|| LogError::Client(one_line(list)))?;
        Ok(proxies.client_address(last, [before.as_bytes()]))
    }
}

/// Returns the first field of `start`: in quotes, a list whose commas end words, or a word.
fn client_field(start: &str) -> Result<&str, LogError> {
    let start = start.trim_ascii_start();
    if start.starts_with('"') {
        return quoted("client", start).map(|(list, _)| list);
    }
    if start.is_empty() {
        return Err(LogError::Missing("client"));
    }
    let mut end = 0;
    for word in start.split_inclusive(' ') {
        end += word.len();
        if !word.trim_ascii_end().ends_with(',') {
            break;
        }
    }
    Ok(start[..end].trim_ascii_end())
}

/// Returns the words in front of the three that a line has before its time (`203.0.113.7 - alice`), if the first of
/// these is an address: `May 17 10:05:03 web1 nginx:`. A single word may be the host of the request.
fn prefix(start: &str) -> Option<&str> {
    let words: Vec<_> = start.split_ascii_whitespace().rev().take(3).collect();
    let client = words.get(2).filter(|word| parse_address(word.as_bytes()).is_some())?;
    let begin = (client.as_ptr() as usize).saturating_sub(start.as_ptr() as usize);
    let prefix = start.get(..begin)?.trim_ascii();
    (prefix.split_ascii_whitespace().count() > 1).then_some(prefix)
}

/// Returns whether `field` is like `www.example.com:443`, with which `vhost_combined` begins.
fn is_host_and_port(field: &str) -> bool {
    let parts = field.rsplit_once(':');
    parts.is_some_and(|(host, port)| is_name(host) && is_digits(port))
}

/// Returns whether `field` is the name of a host.
fn is_name(field: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !field.is_empty() && field.bytes().all(is_part)
}

/// Returns the next field, which ends at a space, and the rest.
fn word<'a>(field: &'static str, rest: &'a str) -> Result<(&'a str, &'a str), LogError> {
    let rest = rest.trim_ascii_start();
    if rest.is_empty() {
        return Err(LogError::Missing(field));
    }
    Ok(rest.split_at(rest.find(' ').unwrap_or(rest.len())))
}

/// Returns the next field, which is in quotes, and the rest; a quote inside is written `\"`.
fn quoted<'a>(field: &'static str, rest: &'a str) -> Result<(&'a str, &'a str), LogError> {
    let inside = rest.trim_ascii_start().strip_prefix('"').ok_or(LogError::Missing(field))?;
    let mut escaped = false;
    for (place, byte) in inside.bytes().enumerate() {
        if byte == b'"' && !escaped {
            return Ok((&inside[..place], &inside[place + 1..]));
        }
        escaped = byte == b'\\' && !escaped;
    }
    Err(LogError::Open(field, '"'))
}

/// Returns the user agent, which is behind the size and the referer, and whether the line was cut before it.
/// A line of the `common` format has neither and is whole.
fn user_agent(rest: &str) -> (&str, bool) {
    if !rest.trim_ascii_start().starts_with('"') {
        return ("-", false);
    }
    let Ok((_, rest)) = quoted("referer", rest) else { return ("-", true) };
    match rest.trim_ascii_start().strip_prefix('"') {
        Some(cut) => (quoted("user_agent", rest).map_or(cut, |(whole, _)| whole), false),
        None => ("-", true),
    }
}

/// Returns `17/May/2015:10:05:03 +0000` as µs since the Unix epoch.
fn time(given: &str) -> Result<Micros, LogError> {
    let malformed = || match given.as_bytes() {
        [b'0'..=b'9', b'0'..=b'9', b'0'..=b'9', b'0'..=b'9', b'-', ..] => {
            LogError::IsoTime(one_line(given))
        }
        _ => LogError::Time(one_line(given)),
    };
    let text: &[u8; 26] = given.as_bytes().try_into().map_err(|_| malformed())?;
    let separators = [(2, b'/'), (6, b'/'), (11, b':'), (14, b':'), (17, b':'), (20, b' ')];
    let separated = separators.iter().all(|(place, byte)| text[*place] == *byte);
    let number = |from: usize, to: usize| {
        text[from..to].iter().try_fold(0_i16, |number, byte| {
            byte.is_ascii_digit().then(|| number * 10 + i16::from(byte - b'0'))
        })
    };
    let small = |from| number(from, from + 2).and_then(|number| i8::try_from(number).ok());
    let month = MONTHS.iter().position(|month| text[3..6].eq_ignore_ascii_case(*month));
    let (Some(day), Some(month), Some(year), Some(hour), Some(minute), Some(second), true) =
        (small(0), month, number(7, 11), small(12), small(15), small(18), separated)
    else {
        return Err(malformed());
    };
    let (Some(zone_hours), Some(zone_minutes)) = (small(22), small(24)) else {
        return Err(malformed());
    };
    let sign = match text[21] {
        b'+' => 1,
        b'-' => -1,
        _ => return Err(malformed()),
    };
    let month = i8::try_from(month + 1).expect("there are twelve months");
    // A leap second repeats the last second of its minute: the Unix epoch does not count it.
    let day_and_time = civil::DateTime::new(year, month, day, hour, minute, second.min(59), 0);
    let offset = i32::from(zone_hours) * 3600 + i32::from(zone_minutes) * 60;
    let offset = Offset::from_seconds(sign * offset);
    let instant = match (day_and_time, offset) {
        (Ok(day_and_time), Ok(offset)) if second <= 60 && zone_minutes < 60 => {
            offset.to_timestamp(day_and_time).ok()
        }
        _ => None,
    };
    let instant = instant.ok_or_else(|| LogError::NoSuchTime(one_line(given)))?;
    let seconds = u64::try_from(instant.as_second());
    seconds.map(Micros::from_secs).map_err(|_| LogError::TooEarly(one_line(given)))
}

/// Returns the method and the target of a request line such as `GET /a?b HTTP/1.1`.
fn method_and_target(request: &str) -> Option<(&str, &str)> {
    let (method, rest) = request.split_once(' ')?;
    // A token of RFC 9110.
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_method = !method.is_empty() && method.bytes().all(is_letter);
    let target = match rest.rsplit_once(' ') {
        Some((target, version)) if version.starts_with("HTTP/") => target,
        _ => rest,
    };
    is_method.then_some((method, target))
}

/// Returns the path of `target` in its one spelling.
fn path(target: &str) -> Result<String, LogError> {
    normal_path(&unescaped(target)).map_err(|error| LogError::Path(one_line(target), error))
}

/// Returns the bytes of `text`: servers write `\"`, `\\`, `\xC3` and `\n` for bytes that would confuse readers.
fn unescaped(text: &str) -> Cow<'_, [u8]> {
    if !text.contains('\\') {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let (byte, after) = if *byte == b'\\' { escaped(after) } else { (*byte, after) };
        bytes.push(byte);
        rest = after;
    }
    Cow::Owned(bytes)
}

/// Returns the byte of an escape, and the rest; a backslash that begins no escape is itself.
fn escaped(after: &[u8]) -> (u8, &[u8]) {
    let hex = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    match *after {
        [b'x', high, low, ref rest @ ..] => match (hex(high), hex(low)) {
            (Some(high), Some(low)) => (high * 16 + low, rest),
            _ => (b'\\', after),
        },
        [quoted @ (b'"' | b'\\'), ref rest @ ..] => (quoted, rest),
        [b'n', ref rest @ ..] => (b'\n', rest),
        [b'r', ref rest @ ..] => (b'\r', rest),
        [b't', ref rest @ ..] => (b'\t', rest),
        [b'b', ref rest @ ..] => (0x08, rest),
        [b'v', ref rest @ ..] => (0x0b, rest),
        _ => (b'\\', after),
    }
}

fn unescaped_text(text: &str) -> Cow<'_, str> {
    match unescaped(text) {
        Cow::Borrowed(_) => Cow::Borrowed(text),
        Cow::Owned(bytes) => String::from_utf8_lossy(&bytes).into_owned().into(),
    }
}

/// Returns `value`, or `None` for `-`, which logs write for an absent value.
fn given(value: &str) -> Option<&str> {
    (!matches!(value, "" | "-")).then_some(value)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The names of months as both servers write them, in English whatever the locale.
const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIME: &str = "17/May/2015:10:05:03 +0000";

    fn line(time: &str, request: &str, rest: &str) -> String {
        format!("203.0.113.7 - - [{time}] \"{request}\" {rest}")
    }

    fn parse(line: &[u8]) -> Result<LogLine<'_>, LogError> {
        LogFormat::default().parse(line)
    }

    fn at(time: &str) -> Result<u64, String> {
        let line = line(time, "GET / HTTP/1.1", "200 1");
        parse(line.as_bytes()).map(|line| line.at.get()).map_err(|error| error.to_string())
    }

    /// Parses `line` and returns its client.
    fn client(format: &LogFormat, line: &str) -> Result<Option<String>, String> {
        let parsed = format.parse(line.as_bytes()).map_err(|error| error.to_string())?;
        Ok(parsed.attributes().remote_ip.map(ToOwned::to_owned))
    }

    fn proxies(networks: &[&str]) -> Option<TrustedProxies> {
        Some(TrustedProxies::new(networks.iter().map(|network| network.parse().unwrap())))
    }

    #[test]
    fn a_combined_line_gives_all_attributes() {
        let line = line(TIME, "GET /a?b=1 HTTP/1.1", r#"200 2326 "http://x/" "curl/8.5""#);
        let parsed = parse(line.as_bytes()).unwrap();
        assert!(!parsed.is_cut);
        assert_eq!(parsed.at, Micros::from_secs(1_431_857_103));
        let request = parsed.attributes();
        assert_eq!((request.remote_ip, request.status), (Some("203.0.113.7"), Some("200")));
        assert_eq!((request.method, request.path), (Some("GET"), Some("/a")));
        assert_eq!(request.user_agent, Some("curl/8.5"));
    }

    #[test]
    fn a_common_line_has_no_user_agent_and_appended_fields_do_no_harm() {
        for rest in
            ["200 -", "- -", "200 5 0.003", r#"200 5 "-" "-" "10.0.0.1" 0.003"#, r#"200 5 "-" """#]
        {
            let line = line(TIME, "GET / HTTP/1.1", rest);
            let parsed = parse(line.as_bytes()).unwrap();
            assert_eq!(parsed.attributes().user_agent, None, "{rest}");
        }
    }

    #[test]
    fn what_a_server_escaped_is_what_the_client_sent() {
        let line =
            line(TIME, r#"GET /\"x\"/caf\xC3\xA9\q HTTP/1.1"#, r#"200 5 "\"" "a \"b\" \\ \xE6""#);
        let parsed = parse(line.as_bytes()).unwrap();
        assert_eq!(parsed.attributes().path, Some(r#"/"x"/café\q"#));
        assert_eq!(parsed.attributes().user_agent, Some("a \"b\" \\ \u{fffd}"));
    }

    #[test]
    fn a_client_is_the_address_that_gateways_know_it_by() {
        let names = LogFormat { has_client_names: true, ..LogFormat::default() };
        for (start, expected) in [
            ("2001:db8::1 - -", "2001:db8::/64"),
            ("[2001:db8::1]:443 - -", "2001:db8::/64"),
            ("::ffff:192.0.2.1 - frank", "192.0.2.1"),
            ("192.0.2.1:51123 - John Smith", "192.0.2.1"),
            ("\"192.0.2.1\" - -", "192.0.2.1"),
            ("crawler.example.org - John Smith", "crawler.example.org"),
        ] {
            let line = format!("{start} [{TIME}] \"GET / HTTP/1.1\" 200 1");
            assert_eq!(client(&names, &line), Ok(Some(expected.to_owned())));
        }
        let line = format!("- - - [{TIME}] \"GET / HTTP/1.1\" 200 1");
        assert_eq!(client(&names, &line), Ok(None));
    }

    #[test]
    fn of_a_list_the_client_is_the_last_that_is_no_proxy() {
        let format =
            |networks: &[&str]| LogFormat { proxies: proxies(networks), ..LogFormat::default() };
        for start in [
            "203.0.113.9, 198.51.100.4 - -",
            "\"203.0.113.9, 198.51.100.4\" - -",
            "203.0.113.9,198.51.100.4 - -",
        ] {
            let line = format!("{start} [{TIME}] \"GET / HTTP/1.1\" 200 1");
            let of = |networks: &[&str]| client(&format(networks), &line);
            assert_eq!(of(&["198.51.100.0/24"]), Ok(Some("203.0.113.9".to_owned())));
            assert_eq!(of(&["10.0.0.0/8"]), Ok(Some("198.51.100.4".to_owned())));
            let error = client(&LogFormat::default(), &line).unwrap_err();
            assert!(error.contains("is a list of addresses; --trusted-proxies"), "{error}");
        }
    }

    #[test]
    fn a_first_field_that_is_no_address_is_no_client() {
        for (start, problem) in [
            (
                "Nov 27 10:00:00 web1 nginx: 203.0.113.9 - -",
                "the line begins with `Nov 27 10:00:00 web1 nginx:`, as syslog",
            ),
            (
                "<190>Nov 27 10:00:00 web1 nginx: 203.0.113.9 - -",
                "the line begins with `<190>Nov 27 ",
            ),
            (
                "2026-11-27T10:00:00Z stdout F 203.0.113.9 - -",
                "begins with `2026-11-27T10:00:00Z stdout F`",
            ),
            ("web-1  | 203.0.113.9 - -", "the line begins with `web-1  |`"),
            ("\0 203.0.113.9 - -", "is not an address"),
            ("www.example.com:443 203.0.113.9 - -", "the format is vhost_combined"),
        ] {
            let line = format!("{start} [{TIME}] \"GET / HTTP/1.1\" 200 1");
            let names = LogFormat { has_client_names: true, ..LogFormat::default() };
            let is_prefix = problem.contains("begins with");
            for format in [LogFormat::default(), names].iter().take(1 + usize::from(is_prefix)) {
                let error = client(format, &line).unwrap_err();
                assert!(error.contains(problem), "{error}");
            }
        }
    }

    #[test]
    fn a_line_of_vhost_combined_begins_with_the_host() {
        let format = LogFormat { has_host: true, ..LogFormat::default() };
        let line =
            format!("www.example.com:443 192.0.2.10 - - [{TIME}] \"GET /a HTTP/1.1\" 200 12");
        let parsed = format.parse(line.as_bytes()).unwrap();
        let request = parsed.attributes();
        assert_eq!(
            (request.host, request.remote_ip),
            (Some("www.example.com"), Some("192.0.2.10"))
        );
    }

    #[test]
    fn a_host_of_a_log_has_the_spelling_that_gateways_give_it() {
        let format = LogFormat { has_host: true, ..LogFormat::default() };
        for (written, host) in [
            ("WWW.Example.com:443", "www.example.com"),
            ("www.example.com.:80", "www.example.com"),
            ("[2001:DB8::1]:8443", "[2001:db8::1]"),
            ("[2001:DB8::1]", "[2001:db8::1]"),
        ] {
            let line = format!("{written} 192.0.2.10 - - [{TIME}] \"GET / HTTP/1.1\" 200 12");
            let parsed = format.parse(line.as_bytes()).unwrap();
            assert_eq!(parsed.attributes().host, Some(host), "{written}");
        }
    }

    #[test]
    fn the_end_of_a_line_and_the_mark_of_its_encoding_are_no_part_of_it() {
        for line in [
            format!("\u{feff}192.0.2.1 - - [{TIME}] \"GET / HTTP/1.1\" 200 5"),
            format!("192.0.2.1 - - [{TIME}] \"GET / HTTP/1.1\" 200 5\r"),
        ] {
            assert_eq!(client(&LogFormat::default(), &line), Ok(Some("192.0.2.1".to_owned())));
        }
    }

    #[test]
    fn time_zones_are_taken_off() {
        assert_eq!(at("17/May/2015:12:05:03 +0200"), at(TIME));
        assert_eq!(at("17/May/2015:00:35:03 -0930"), at(TIME));
        assert_eq!(at("01/Jan/1970:00:00:00 +0000"), Ok(0));
        assert_eq!(at("30/Jun/2012:23:59:60 +0000"), at("30/Jun/2012:23:59:59 +0000"));
    }

    #[test]
    fn times_that_are_none_are_refused() {
        for (time, problem) in [
            ("17/May/2015 10:05:03 +0000", "is not a time such as `17/May/2015:10:05:03 +0000`"),
            ("17/Mai/2015:10:05:03 +0000", "is not a time such as `17/May/2015:10:05:03 +0000`"),
            ("17/May/2015:10:05:03 00000", "is not a time such as `17/May/2015:10:05:03 +0000`"),
            ("1x/May/2015:10:05:03 +0000", "is not a time such as `17/May/2015:10:05:03 +0000`"),
            (
                "2015-05-17T10:05:03+00:00",
                "is not a time such as `17/May/2015:10:05:03 +0000`: log `$time_local` (nginx) or `%t` (Apache)",
            ),
            ("30/Feb/2015:10:05:03 +0000", "does not exist"),
            ("00/May/2015:10:05:03 +0000", "does not exist"),
            ("17/May/2015:24:05:03 +0000", "does not exist"),
            ("17/May/2015:10:05:61 +0000", "does not exist"),
            ("17/May/2015:10:05:03 +9900", "does not exist"),
            ("31/Dec/1969:23:59:59 +0000", "is before 1970"),
        ] {
            assert_eq!(at(time), Err(format!("time: `{time}` {problem}")));
        }
    }

    #[test]
    fn what_is_no_log_line_is_refused_with_the_field() {
        for (line, problem) in [
            ("", "time: is missing"),
            (&format!(" [{TIME}] \"GET / HTTP/1.1\" 200 1"), "client: is missing"),
            ("\u{7f}\u{2028} -", "time: is missing"),
            ("hello", "time: is missing"),
            ("1.1.1.1 - - [17/May", "time: the closing `]` is missing"),
            (&line(TIME, "GET /", "20 1"), "status: `20` is not three digits or `-`"),
            (&line(TIME, "GET /", "2x0 1"), "status: `2x0` is not three digits or `-`"),
            (&line(TIME, "GET /", "200"), "bytes: is missing"),
            (&line(TIME, "GET /", "200 1.5"), "bytes: `1.5` is not a number or `-`"),
            (
                &line(TIME, "GET /", "").trim_end().replace("GET /\"", "GET /"),
                "request: the closing `\"` is missing",
            ),
            (&format!("1.1.1.1 - - [{TIME}] GET"), "request: is missing"),
        ] {
            assert_eq!(parse(line.as_bytes()).unwrap_err().to_string(), problem, "{line}");
        }
    }

    #[test]
    fn of_a_line_that_was_cut_the_last_field_is_what_is_left_of_it() {
        for (rest, user_agent, is_cut) in [
            (r#"200 1 "-" "curl/8.5"#, Some("curl/8.5"), false),
            (r#"200 1 "-" "curl\""#, Some(r#"curl""#), false),
            (r#"200 1 "-" "curl\"#, Some(r"curl\"), false),
            (r#"200 1 "-" ""#, None, false),
            (r#"200 1 "-" "#, None, true),
            (r#"200 1 "http://x/" cu"#, None, true),
            (r#"200 1 "http://x/"#, None, true),
            (r#"200 1 ""#, None, true),
            ("200 1 ", None, false),
        ] {
            let line = line(TIME, "GET /a HTTP/1.1", rest);
            let parsed = parse(line.as_bytes()).unwrap();
            let request = parsed.attributes();
            assert_eq!((request.user_agent, parsed.is_cut), (user_agent, is_cut), "{rest}");
            assert_eq!((request.path, request.status), (Some("/a"), Some("200")));
        }
    }

    #[test]
    fn a_request_line_may_be_anything() {
        for (written, method, path) in [
            ("GET / HTTP/1.1", Some("GET"), Some("/")),
            ("GET /a b HTTP/1.0", Some("GET"), Some("/a b")),
            ("GET /old", Some("GET"), Some("/old")),
            ("M-SEARCH /m HTTP/1.1", Some("M-SEARCH"), Some("/m")),
            ("get /m HTTP/1.1", Some("get"), Some("/m")),
            ("GET http://example.org/a?b HTTP/1.1", Some("GET"), Some("/a")),
            ("GET http://example.org HTTP/1.1", Some("GET"), Some("/")),
            ("GET /r?u=http://x/y HTTP/1.1", Some("GET"), Some("/r")),
            ("GET //login HTTP/1.1", Some("GET"), Some("/login")),
            ("GET /%6Cogin HTTP/1.1", Some("GET"), Some("/login")),
            ("GET /x/../login?next=/ HTTP/1.1", Some("GET"), Some("/login")),
            ("-", None, None),
            ("", None, None),
            (r"\x16\x03\x01 x", None, None),
        ] {
            let line = line(TIME, written, "400 0 \"-\" \"-\"");
            let parsed = parse(line.as_bytes()).unwrap();
            let request = parsed.attributes();
            assert_eq!((request.method, request.path), (method, path), "{written}");
        }
    }

    #[test]
    fn a_path_that_gateways_refuse_is_no_line_of_a_policy() {
        for (written, problem) in [
            ("GET ?q HTTP/1.1", "path: `?q` does not begin with `/`; gateways refuse it"),
            ("OPTIONS * HTTP/1.1", "path: `*` does not begin with `/`; gateways refuse it"),
            (
                "GET /a/%2e%2e/b HTTP/1.1",
                "path: `/a/%2e%2e/b` has an ambiguous `..`; gateways refuse it",
            ),
        ] {
            let line = line(TIME, written, "400 0");
            assert_eq!(parse(line.as_bytes()).unwrap_err().to_string(), problem);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn no_damage_to_a_line_makes_the_parser_panic(
            place in 0_usize..90,
            bytes in proptest::collection::vec(any::<u8>(), 0..4),
        ) {
            let mut line = line(TIME, "GET /a HTTP/1.1", r#"200 5 "-" "x""#).into_bytes();
            let place = place.min(line.len());
            let end = (place + 2).min(line.len());
            line.splice(place..end, bytes);
            let _ = parse(&line);
        }
    }
}

//! The `combined` format: access logs as Apache and nginx write them, and the older `common` one.
//!
//! ```text
//! 203.0.113.7 - alice [17/May/2015:10:05:03 +0200] "GET /a?b=1 HTTP/1.1" 200 2326 "-" "curl/8.5"
//! remote_ip         at (to the second)              method, path         status bytes referer user_agent
//! ```
//!
//! Pure: a line in, a [`LogLine`] or a [`LogError`] out. Values stay as they are written in the log,
//! escapes included, for the same value is always escaped alike. What comes after the user agent
//! (many logs append fields) is not looked at, and neither is what the request line says if it is
//! no request line: clients send anything, and the server logged it. Of a line that a limit of its
//! length has cut, what is left of the last field is that field.

use jiff::civil;
use jiff::tz::Offset;
use sluicegate::Micros;
use sluicegate_policy::Attributes;
use sluicegate_text::terminal::one_line;

/// One request of a log, borrowed from its line.
#[derive(Clone, Copy, Debug)]
pub struct LogLine<'a> {
    /// When, µs since the Unix epoch; logs write whole seconds.
    pub at: Micros,
    /// What the line says of the request; `None` where it says `-`. The path is without query,
    /// scheme and host.
    pub request: Attributes<'a>,
    /// Whether the line was cut before its user agent: that there is none in `request` says nothing.
    pub is_cut: bool,
}

/// Why a line is no line of a log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The line is no text.
    #[error("byte {0} of the line is not UTF-8")]
    Utf8(usize),
    /// The line ends before this field.
    #[error("{0}: is missing")]
    Missing(&'static str),
    /// The field has no end.
    #[error("{0}: the closing `{1}` is missing")]
    Open(&'static str, char),
    /// The time is not written as `17/May/2015:10:05:03 +0000`.
    #[error("time: `{0}` is not a time such as `17/May/2015:10:05:03 +0000`")]
    Time(String),
    /// There is no such day or time of day.
    #[error("time: `{0}` does not exist")]
    NoSuchTime(String),
    /// The time is before 1970.
    #[error("time: `{0}` is before 1970")]
    TooEarly(String),
    /// The status is not three digits.
    #[error("status: `{0}` is not three digits or `-`")]
    Status(String),
    /// The size is no number.
    #[error("bytes: `{0}` is not a number or `-`")]
    Bytes(String),
}

/// Parses one line.
///
/// # Errors
/// [`LogError`], which names the field.
pub fn parse(line: &[u8]) -> Result<LogLine<'_>, LogError> {
    let line = std::str::from_utf8(line).map_err(|error| LogError::Utf8(error.valid_up_to()))?;
    let (remote_ip, rest) = word("remote_ip", line)?;
    let (_, rest) = rest.split_once(" [").ok_or(LogError::Missing("time"))?;
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
    let (method, path) = method_and_path(request).unzip();
    let request = Attributes {
        remote_ip: given(remote_ip),
        path: path.and_then(given),
        method,
        user_agent: given(user_agent),
        status: given(status),
        host: None,
        headers: &[],
    };
    Ok(LogLine { at, request, is_cut })
}

/// The next field that ends at a space.
fn word<'a>(field: &'static str, rest: &'a str) -> Result<(&'a str, &'a str), LogError> {
    let rest = rest.trim_ascii_start();
    if rest.is_empty() {
        return Err(LogError::Missing(field));
    }
    Ok(rest.split_at(rest.find(' ').unwrap_or(rest.len())))
}

/// The next field, which is in quotes; a quote inside is written `\"`.
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

/// What follows the size: the user agent behind the referer, and whether the line was cut before it.
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

/// `17/May/2015:10:05:03 +0000` as µs since the Unix epoch.
fn time(given: &str) -> Result<Micros, LogError> {
    let malformed = || LogError::Time(one_line(given));
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
    // A leap second is the last one of its minute once more: the Unix epoch does not count it.
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

/// What a request line such as `GET /a?b HTTP/1.1` asks for.
fn method_and_path(request: &str) -> Option<(&str, &str)> {
    let (method, rest) = request.split_once(' ')?;
    let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
    let target = match rest.rsplit_once(' ') {
        Some((target, version)) if version.starts_with("HTTP/") => target,
        _ => rest,
    };
    is_method.then(|| (method, path(target)))
}

/// `target` without query and fragment, and without scheme and host if it has them.
fn path(target: &str) -> &str {
    let target = target.split(['?', '#']).next().unwrap_or_default();
    match target.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            rest.find('/').map_or("/", |slash| &rest[slash..])
        }
        _ => target,
    }
}

/// Logs write what is not there as `-`.
fn given(value: &str) -> Option<&str> {
    (!matches!(value, "" | "-")).then_some(value)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// As both servers write them, in English whatever the locale.
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

    fn at(time: &str) -> Result<u64, String> {
        let line = line(time, "GET / HTTP/1.1", "200 1");
        parse(line.as_bytes()).map(|line| line.at.get()).map_err(|error| error.to_string())
    }

    fn request(line: &str) -> Attributes<'_> {
        parse(line.as_bytes()).unwrap().request
    }

    #[test]
    fn a_combined_line_gives_all_attributes() {
        let line = line(TIME, "GET /a?b=1 HTTP/1.1", r#"200 2326 "http://x/" "curl/8.5""#);
        let LogLine { at, request, is_cut } = parse(line.as_bytes()).unwrap();
        assert!(!is_cut);
        assert_eq!(at, Micros::from_secs(1_431_857_103));
        assert_eq!((request.remote_ip, request.status), (Some("203.0.113.7"), Some("200")));
        assert_eq!((request.method, request.path), (Some("GET"), Some("/a")));
        assert_eq!(request.user_agent, Some("curl/8.5"));
    }

    #[test]
    fn a_common_line_has_no_user_agent_and_appended_fields_do_no_harm() {
        for rest in
            ["200 -", "- -", "200 5 0.003", r#"200 5 "-" "-" "10.0.0.1" 0.003"#, r#"200 5 "-" """#]
        {
            assert_eq!(request(&line(TIME, "GET / HTTP/1.1", rest)).user_agent, None, "{rest}");
        }
    }

    #[test]
    fn quotes_inside_a_field_are_escaped() {
        let line = line(TIME, r#"GET /\"x\" HTTP/1.1"#, r#"200 5 "\"" "a \"b\" \\""#);
        let request = request(&line);
        assert_eq!(request.path, Some(r#"/\"x\""#));
        assert_eq!(request.user_agent, Some(r#"a \"b\" \\"#));
    }

    #[test]
    fn clients_may_be_ipv6_or_names_and_users_may_have_spaces() {
        for (start, expected) in [
            ("2001:db8::1 - -", "2001:db8::1"),
            ("crawler.example.org - John Smith", "crawler.example.org"),
            ("::ffff:192.0.2.1 - frank", "::ffff:192.0.2.1"),
        ] {
            let line = format!("{start} [{TIME}] \"GET / HTTP/1.1\" 200 1");
            assert_eq!(request(&line).remote_ip, Some(expected));
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
            ("2015-05-17T10:05:03+00:00", "is not a time such as `17/May/2015:10:05:03 +0000`"),
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
            ("", "remote_ip: is missing"),
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
            (r#"200 1 "-" "curl\""#, Some(r#"curl\""#), false),
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
            assert_eq!((parsed.request.user_agent, parsed.is_cut), (user_agent, is_cut), "{rest}");
            assert_eq!((parsed.request.path, parsed.request.status), (Some("/a"), Some("200")));
        }
    }

    #[test]
    fn a_request_line_may_be_anything() {
        for (written, method, path) in [
            ("GET / HTTP/1.1", Some("GET"), Some("/")),
            ("GET /a b HTTP/1.0", Some("GET"), Some("/a b")),
            ("GET /old", Some("GET"), Some("/old")),
            ("GET http://example.org/a?b HTTP/1.1", Some("GET"), Some("/a")),
            ("GET http://example.org HTTP/1.1", Some("GET"), Some("/")),
            ("GET /r?u=http://x/y HTTP/1.1", Some("GET"), Some("/r")),
            ("OPTIONS * HTTP/1.1", Some("OPTIONS"), Some("*")),
            ("GET ?q HTTP/1.1", Some("GET"), None),
            ("-", None, None),
            ("", None, None),
            (r"\x16\x03\x01 x", None, None),
        ] {
            let line = line(TIME, written, "400 0 \"-\" \"-\"");
            let request = request(&line);
            assert_eq!((request.method, request.path), (method, path), "{written}");
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

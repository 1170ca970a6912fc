//! Header fields that servers read from a request: tokens, and the type of its body.

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// The media type of JSON.
pub const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The scheme before a token in `Authorization`, in lower case.
const SCHEME: &[u8] = b"bearer ";

/// A value that is never a token, for fields that have something else.
const NONE: &[u8] = b"";

/// Returns the token of `Authorization: Bearer TOKEN`; for a field with another scheme, or a repeated one, a value that
/// is never a token. `None` without the field.
pub fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let shown = only(headers, &header::AUTHORIZATION)?;
    Some(match shown.split_at_checked(SCHEME.len()) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(SCHEME) => token.trim_ascii(),
        _ => NONE,
    })
}

/// Returns the value of the field `name`, if there is one; for a repeated field, a value that is never a token.
pub fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h [u8]> {
    let mut fields = headers.get_all(name).iter();
    let first = fields.next()?;
    Some(if fields.next().is_none() { first.as_bytes() } else { NONE })
}

/// Returns whether the body is declared as JSON. A page in a browser cannot send JSON to a server without its consent,
/// but it can send other types.
pub fn is_json(headers: &HeaderMap) -> bool {
    let given = headers.get(header::CONTENT_TYPE);
    if given == Some(&JSON) {
        return true;
    }
    let given = given.and_then(|value| value.to_str().ok());
    let media = given.and_then(|value| value.split(';').next()).map(str::trim);
    media.is_some_and(|media| media.eq_ignore_ascii_case("application/json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_known_with_its_parameters_and_in_any_case() {
        for (given, expected) in [
            (None, false),
            (Some("application/json"), true),
            (Some("Application/JSON; charset=utf-8"), true),
            (Some("text/plain"), false),
            (Some("application/json-patch+json"), false),
            (Some("text/plain; application/json"), false),
        ] {
            let given = given.map(|given| (header::CONTENT_TYPE, HeaderValue::from_static(given)));
            assert_eq!(is_json(&given.into_iter().collect()), expected);
        }
    }

    #[test]
    fn a_token_stands_behind_its_scheme_and_is_shown_once() {
        for (fields, expected) in [
            (&[][..], None),
            (&["Bearer t"][..], Some("t")),
            (&["bearer  t "], Some("t")),
            (&["Bearer"], Some("")),
            (&["Bearer "], Some("")),
            (&["t"], Some("")),
            (&["Basic dDp0"], Some("")),
            (&["Bearer t", "Bearer t"], Some("")),
        ] {
            let mut headers = HeaderMap::new();
            for field in fields {
                headers.append(header::AUTHORIZATION, HeaderValue::from_static(field));
            }
            assert_eq!(bearer(&headers), expected.map(str::as_bytes), "{headers:?}");
        }
    }
}

//! Tokens in header fields.

use axum::http::{HeaderMap, HeaderName, header};

/// What stands before a token in `Authorization`.
const SCHEME: &[u8] = b"bearer ";

/// What no token is: for fields that show something else.
const NONE: &[u8] = b"";

/// The token that `headers` show as `Authorization: Bearer TOKEN`; of a field that is no such thing,
/// what no token is.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let shown = only(headers, &header::AUTHORIZATION)?;
    Some(match shown.split_at_checked(SCHEME.len()) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(SCHEME) => token.trim_ascii(),
        _ => NONE,
    })
}

/// What `headers` show in a field of that name, if they do; what no token is, if they do twice.
pub(crate) fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h [u8]> {
    let mut fields = headers.get_all(name).iter();
    let first = fields.next()?;
    Some(if fields.next().is_none() { first.as_bytes() } else { NONE })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

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

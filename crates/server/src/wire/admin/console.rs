//! The console: its files, for browsers, with the header fields that keep pages of others out of it.

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sluicegate_console::Asset;

use super::{method_not_allowed, not_found};

/// Only the console's own files, and no elements that are built of text: a name with a script in it stays a
/// name. Trusted Types let only the policy of the console's framework make elements of text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; font-src 'self'; manifest-src 'self'; frame-ancestors 'none'; base-uri 'none'; \
    form-action 'self'; require-trusted-types-for 'script'; trusted-types svelte-trusted-html";

/// Header fields of every file.
const HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "clipboard-write=(self)"),
    // Names do not change with the content, so that a browser has to ask.
    (header::CACHE_CONTROL, "no-cache"),
];

/// `Strict-Transport-Security` of an address with TLS: browsers use TLS only, for a year.
const STRICT_TRANSPORT: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// The address that serves the console.
#[derive(Clone, Copy, Debug)]
struct Served {
    has_tls: bool,
}

/// Answers all other paths: with files, and with pages, which are all one file that reads its address.
pub(super) fn router<S: Clone + Send + Sync + 'static>(has_tls: bool) -> Router<S> {
    let served = Served { has_tls };
    Router::new().fallback_service(get(answer).fallback(method_not_allowed).with_state(served))
}

async fn answer(
    State(served): State<Served>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let Some(asset) = asset(uri.path(), &headers) else {
        return not_found();
    };
    let is_known = headers
        .get(header::IF_NONE_MATCH)
        .is_some_and(|tags| tags.as_bytes() == b"*" || has_part(tags, asset.etag));
    let is_compressed = headers.get(header::ACCEPT_ENCODING).is_some_and(takes_gzip);
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let bytes = if is_compressed { asset.gzip } else { asset.bytes };
        let body = if method == Method::HEAD { Body::empty() } else { bytes.into() };
        let mut response = Response::new(body);
        let sent = response.headers_mut();
        sent.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.media_type()));
        sent.insert(header::CONTENT_LENGTH, bytes.len().into());
        if is_compressed {
            sent.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    };
    let sent = response.headers_mut();
    sent.insert(header::ETAG, HeaderValue::from_static(asset.etag));
    sent.insert(header::VARY, HeaderValue::from_static("accept, accept-encoding"));
    sent.extend(HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value))));
    if served.has_tls {
        sent.insert(header::STRICT_TRANSPORT_SECURITY, STRICT_TRANSPORT);
    }
    response
}

/// The file at `path`; the index for a path that a browser opens as a page, except where the API is.
fn asset(path: &str, headers: &HeaderMap) -> Option<&'static Asset> {
    let path = path.strip_prefix('/')?;
    if let Some(asset) = Asset::at(path).filter(|asset| *asset != Asset::index()) {
        return Some(asset);
    }
    let is_opened =
        || headers.get(header::ACCEPT).is_some_and(|kinds| has_part(kinds, "text/html"));
    let is_page = !path.starts_with("v1/") && !path.starts_with("assets/") && is_opened();
    (path.is_empty() || is_page).then(Asset::index)
}

/// Returns whether one of the parts of a list is `part`, before its parameters and behind `W/`.
fn has_part(list: &HeaderValue, part: &str) -> bool {
    let parts = list.to_str().unwrap_or_default().split(',');
    parts.map(str::trim_ascii).any(|one| {
        let one = one.strip_prefix("W/").unwrap_or(one);
        one.split(';').next() == Some(part)
    })
}

/// Returns whether `gzip` is in the list, with a weight above zero (RFC 9110, section 12.5.3).
fn takes_gzip(list: &HeaderValue) -> bool {
    list.to_str().unwrap_or_default().split(',').any(|one| {
        let mut parts = one.split(';').map(str::trim_ascii);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let weight = parts.find_map(|part| part.strip_prefix("q="));
        is_gzip && !weight.is_some_and(|weight| weight.parse() == Ok(0.0_f32))
    })
}

#[cfg(test)]
mod tests {
    use axum::http::Request;
    use tower::ServiceExt;

    use super::*;

    async fn ask(method: &str, path: &str, fields: &[(&str, &str)]) -> Response {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).expect("a request");
        router::<()>(false).with_state(()).oneshot(request).await.expect("it always answers")
    }

    const PAGE: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");

    #[tokio::test]
    async fn pages_are_the_index_and_other_paths_are_not() {
        for (path, fields, expected) in [
            ("/", &[][..], 200),
            ("/?next=/apps", &[], 200),
            ("/apps/shop/orders.create", &[PAGE], 200),
            ("/setup", &[PAGE], 200),
            ("/apps/shop", &[("accept", "*/*")], 404),
            ("/apps/shop", &[], 404),
            ("/v1/nothing", &[PAGE], 404),
            ("/assets/nothing.js", &[PAGE], 404),
            ("/.gitignore", &[], 404),
            ("/BUILT", &[], 404),
        ] {
            let response = ask("GET", path, fields).await;
            assert_eq!(response.status(), expected, "{path} {fields:?}");
            if expected == 200 {
                assert_eq!(
                    response.headers()["content-type"],
                    "text/html; charset=utf-8",
                    "{path}"
                );
                assert_eq!(response.headers()["etag"], Asset::index().etag, "{path}");
            }
        }
        assert_eq!(ask("POST", "/", &[PAGE]).await.status(), 405);
    }

    #[tokio::test]
    async fn every_file_is_sent_with_the_fields_that_keep_others_out() {
        for asset in Asset::all() {
            let path = match asset.path {
                "index.html" => "/".to_owned(),
                path => format!("/{path}"),
            };
            let response = ask("GET", &path, &[]).await;
            for (name, value) in HEADERS {
                assert_eq!(response.headers()[&name], value, "{path} {name}");
            }
            assert_eq!(response.headers()["content-type"], asset.media_type(), "{path}");
            assert_eq!(response.headers()["content-length"], asset.bytes.len().to_string());
            assert!(!response.headers().contains_key("strict-transport-security"), "{path}");
        }
        let over_tls = router::<()>(true).with_state(());
        let request = Request::builder().uri("/").body(Body::empty()).expect("a request");
        let response = over_tls.oneshot(request).await.expect("it always answers");
        assert_eq!(response.headers()["strict-transport-security"], STRICT_TRANSPORT);
    }

    #[tokio::test]
    async fn a_file_that_a_browser_has_is_not_sent_again() {
        let etag = Asset::index().etag;
        for tags in [etag.to_owned(), format!("\"x\", W/{etag}"), "*".to_owned()] {
            let response = ask("GET", "/", &[("if-none-match", &tags)]).await;
            assert_eq!(response.status(), 304, "{tags}");
            assert_eq!(response.headers()["etag"], etag);
        }
        assert_eq!(ask("GET", "/", &[("if-none-match", "\"x\"")]).await.status(), 200);
    }

    #[tokio::test]
    async fn files_are_compressed_for_those_that_take_it() {
        for (field, expected) in [
            ("gzip, br", true),
            ("br;q=1.0, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("gzip;q=0.000, *", false),
            ("br", false),
            ("xgzip", false),
        ] {
            let response = ask("GET", "/", &[("accept-encoding", field)]).await;
            let encoding = response.headers().get("content-encoding");
            assert_eq!(encoding.is_some(), expected, "{field}");
            let length = if expected { Asset::index().gzip } else { Asset::index().bytes }.len();
            assert_eq!(response.headers()["content-length"], length.to_string(), "{field}");
        }
        let head = ask("HEAD", "/", &[]).await;
        assert_eq!(head.headers()["content-length"], Asset::index().bytes.len().to_string());
    }
}

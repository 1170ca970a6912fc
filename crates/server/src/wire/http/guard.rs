//! Ends a connection where it is not clear where a request on it ends.
//!
//! A request that says both `content-length` and `transfer-encoding` is read by the latter here, and
//! perhaps not by a proxy in front: what comes behind may be a request that the proxy has not seen
//! (RFC 9112, section 6.1, wants such a connection closed). The library of HTTP does not tell whether
//! both were said. So a request in chunks is the last of its connection; clients know how long their
//! question is, and do not send it in chunks.

use axum::http::{HeaderValue, Request, Response, header};
use futures_util::TryFutureExt;
use futures_util::future::MapOk;
use hyper::service::Service;

/// A service behind which a request in chunks is the last.
#[derive(Debug)]
pub(super) struct Guard<S>(pub(super) S);

impl<S, B, R> Service<Request<B>> for Guard<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = MapOk<S::Future, fn(Response<R>) -> Response<R>>;

    fn call(&self, request: Request<B>) -> Self::Future {
        let is_in_chunks = request.headers().contains_key(header::TRANSFER_ENCODING);
        self.0.call(request).map_ok(if is_in_chunks { the_last } else { as_it_is })
    }
}

fn as_it_is<R>(response: Response<R>) -> Response<R> {
    response
}

fn the_last<R>(mut response: Response<R>) -> Response<R> {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

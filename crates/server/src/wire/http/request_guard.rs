//! The guard before both services of HTTP/1.1: that of decisions, and that of the admin and metrics addresses.
//!
//! **Hosts.** A request for a host that is not allowed goes no further ([`Hosts`]).
//!
//! **Ends.** It ends a connection where it is not clear where a request on it ends. A request that has both
//! `content-length` and `transfer-encoding` is read by the latter here, and perhaps not by a proxy in front: the bytes
//! behind it may be a request that the proxy has not seen (RFC 9112, section 6.1, wants such a connection closed). The
//! library of HTTP does not report whether both were there. So a request in chunks is the last of its connection;
//! clients know the length of their requests, and do not send them in chunks.

use axum::http::{HeaderValue, Request, Response, header};
use futures_util::TryFutureExt;
use futures_util::future::{Either, MapOk, Ready, ready};
use hyper::service::Service;

use super::codec::Problem;
use super::host::Hosts;

/// A service that answers requests for `hosts` only, and for which a request in chunks is the last.
#[derive(Debug)]
pub(super) struct RequestGuard<S, R> {
    pub(super) service: S,
    pub(super) hosts: Hosts,
    /// Creates the refusal of a request.
    pub(super) refuse: fn(&Problem) -> Response<R>,
}

impl<S, B, R> Service<Request<B>> for RequestGuard<S, R>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Either<
        MapOk<S::Future, fn(Response<R>) -> Response<R>>,
        Ready<Result<Response<R>, S::Error>>,
    >;

    fn call(&self, request: Request<B>) -> Self::Future {
        if let Err(problem) = self.hosts.check(&request) {
            return Either::Right(ready(Ok(the_last((self.refuse)(&problem)))));
        }
        let is_in_chunks = request.headers().contains_key(header::TRANSFER_ENCODING);
        Either::Left(self.service.call(request).map_ok(match is_in_chunks {
            true => the_last,
            false => as_it_is,
        }))
    }
}

fn as_it_is<R>(response: Response<R>) -> Response<R> {
    response
}

fn the_last<R>(mut response: Response<R>) -> Response<R> {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

//! Keys: select the budget from which a request takes.

mod address;
mod header;

pub use address::{ForwardedFor, PeerAddr};
pub use header::Header;

use ::http::StatusCode;
use ::http::header::HeaderName;
use ::http::request::Parts;
use sluicegate_kernel::limits::KEY_BYTES_MAX;

use crate::http::AddressKey;

/// An extractor of the key whose budget a request takes from.
///
/// `()` is one: all requests share a budget. A function is one too:
///
/// ```
/// use http::request::Parts;
/// use sluicegate::tower::{Key, KeyError, KeyExtractor};
///
/// fn tenant(request: &Parts) -> Result<Key, KeyError> {
///     let path = request.uri.path();
///     match path.split('/').nth(1) {
///         Some(tenant) if !tenant.is_empty() => Key::new(tenant),
///         _ => Err(KeyError::Rejected("expected a path such as `/TENANT/orders`".to_owned())),
///     }
/// }
///
/// let (request, ()) = http::Request::get("/acme/orders").body(())?.into_parts();
/// assert_eq!(tenant.extract(&request)?.as_bytes(), b"acme");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait KeyExtractor {
    /// Returns the key of `request`.
    ///
    /// # Errors
    /// [`KeyError`] if it has none; the response is [`KeyError::status`], and the service is not called.
    fn extract(&self, request: &Parts) -> Result<Key, KeyError>;
}

impl<F: Fn(&Parts) -> Result<Key, KeyError>> KeyExtractor for F {
    fn extract(&self, request: &Parts) -> Result<Key, KeyError> {
        self(request)
    }
}

/// The key of a budget: up to 1 KiB, compared byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(Bytes);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Bytes {
    Address(AddressKey),
    Text(Box<[u8]>),
    None,
}

/// The reason for which a request has no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The server does not provide the address of its peer.
    #[error(
        "peer address missing: serve with \
         `into_make_service_with_connect_info::<SocketAddr>()`, or put a `SocketAddr` into the \
         request's extensions"
    )]
    NoPeer,
    /// The header field is missing.
    #[error("header `{0}`: is missing")]
    MissingHeader(HeaderName),
    /// The header field is there several times, so that it is not clear which one counts.
    #[error("header `{0}`: is given more than once")]
    RepeatedHeader(HeaderName),
    /// The key is empty. The budget that all share is [`Key::shared`], never an accident.
    #[error("key: is empty, expected 1..={KEY_BYTES_MAX} bytes")]
    Empty,
    /// The key has this many bytes. It is never cut: two users must not share a budget.
    #[error("key: `{0}` bytes are outside 1..={KEY_BYTES_MAX}")]
    TooLong(usize),
    /// A custom extractor rejected the request, for this reason.
    #[error("{0}")]
    Rejected(String),
}

impl Key {
    /// Returns the key of these bytes.
    ///
    /// # Errors
    /// [`KeyError`] unless there are 1..=1024 of them.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, KeyError> {
        match bytes.as_ref() {
            [] => Err(KeyError::Empty),
            long if long.len() > KEY_BYTES_MAX => Err(KeyError::TooLong(long.len())),
            bytes => Ok(Self(Bytes::Text(bytes.into()))),
        }
    }

    /// Returns the key of the budget that all share.
    pub const fn shared() -> Self {
        Self(Bytes::None)
    }

    const fn of_address(address: AddressKey) -> Self {
        Self(Bytes::Address(address))
    }

    /// Its bytes; none if it is [`shared`](Self::shared).
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Bytes::Address(address) => address.as_bytes(),
            Bytes::Text(text) => text,
            Bytes::None => &[],
        }
    }
}

impl KeyError {
    /// The status of the response: 500 if the server is configured wrongly (the text is logged and not returned), 400
    /// if the client can correct its request.
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::NoPeer => StatusCode::INTERNAL_SERVER_ERROR,
            Self::MissingHeader(_)
            | Self::RepeatedHeader(_)
            | Self::Empty
            | Self::TooLong(_)
            | Self::Rejected(_) => StatusCode::BAD_REQUEST,
        }
    }
}

/// One budget for all requests.
impl KeyExtractor for () {
    fn extract(&self, _: &Parts) -> Result<Key, KeyError> {
        Ok(Key::shared())
    }
}

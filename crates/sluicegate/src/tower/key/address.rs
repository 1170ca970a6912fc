//! Keys that are addresses.

use std::net::{IpAddr, SocketAddr};

use ::http::HeaderValue;
use ::http::request::Parts;
use ipnet::IpNet;
use sluicegate_kernel::RangeError;

use super::{Key, KeyError, KeyExtractor};
use crate::http::{AddressKey, TrustedProxies, V6Prefix};

/// The address of the peer of the connection: the client's, if there is no proxy in front of the
/// service.
///
/// It is axum's `ConnectInfo<SocketAddr>` (feature `axum`), or a `SocketAddr` that the
/// server put into the request's extensions. All addresses of one IPv6 network of 64 bits have one key, and an IPv4
/// address has the same key in whatever form it comes.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerAddr {
    v6_prefix: V6Prefix,
}

/// The address of the client in front of the trusted proxies, by `X-Forwarded-For`.
///
/// The field is believed only if the peer is a trusted proxy, and read from the right only past
/// trusted proxies. If it is damaged, the last address that could be believed counts. The form of a key is that of
/// [`PeerAddr`].
///
/// ```
/// use sluicegate::tower::ForwardedFor;
///
/// let extractor = ForwardedFor::behind(["10.0.0.0/8".parse()?, "fd00::/8".parse()?]);
/// # let _ = extractor;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ForwardedFor {
    trusted: TrustedProxies,
    v6_prefix: V6Prefix,
}

impl PeerAddr {
    /// Returns an extractor of the peer's address; of IPv6 the first 64 bits.
    ///
    /// ```
    /// use sluicegate::tower::PeerAddr;
    ///
    /// let extractor = PeerAddr::new();
    /// # let _ = extractor;
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns this extractor, with the first `bits` of an IPv6 address instead of 64.
    ///
    /// # Errors
    /// [`RangeError`] unless `48 <= bits <= 128`.
    pub fn with_v6_prefix(self, bits: u8) -> Result<Self, RangeError> {
        Ok(Self { v6_prefix: V6Prefix::new(bits)? })
    }
}

impl ForwardedFor {
    /// Returns an extractor that trusts the proxies in the networks `trusted`, and no others.
    pub fn behind(trusted: impl IntoIterator<Item = IpNet>) -> Self {
        Self { trusted: TrustedProxies::new(trusted), v6_prefix: V6Prefix::default() }
    }

    /// Returns this extractor, with the first `bits` of an IPv6 address instead of 64.
    ///
    /// # Errors
    /// [`RangeError`] unless `48 <= bits <= 128`.
    pub fn with_v6_prefix(self, bits: u8) -> Result<Self, RangeError> {
        Ok(Self { v6_prefix: V6Prefix::new(bits)?, ..self })
    }
}

impl KeyExtractor for PeerAddr {
    fn extract(&self, request: &Parts) -> Result<Key, KeyError> {
        Ok(Key::of_address(AddressKey::new(peer(request)?, self.v6_prefix)))
    }
}

impl KeyExtractor for ForwardedFor {
    fn extract(&self, request: &Parts) -> Result<Key, KeyError> {
        let peer = peer(request)?;
        let lines = request.headers.get_all("x-forwarded-for").iter();
        let client = self.trusted.client_address(peer, lines.map(HeaderValue::as_bytes));
        Ok(Key::of_address(AddressKey::new(client, self.v6_prefix)))
    }
}

fn peer(request: &Parts) -> Result<IpAddr, KeyError> {
    #[cfg(feature = "axum")]
    if let Some(axum::extract::ConnectInfo(peer)) = request.extensions.get() {
        let peer: &SocketAddr = peer;
        return Ok(peer.ip());
    }
    request.extensions.get().map(SocketAddr::ip).ok_or(KeyError::NoPeer)
}

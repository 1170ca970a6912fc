//! Addresses as keys: by their bits, never by their text.
//!
//! One client can write its address in many ways and own many addresses. So that it still has one
//! budget:
//!
//! | address | becomes |
//! |---|---|
//! | `192.0.2.1` | its 4 bytes |
//! | `::ffff:192.0.2.1` (IPv4-mapped) | the 4 bytes of `192.0.2.1` |
//! | `64:ff9b::192.0.2.1` (NAT64, RFC 6052) | the 4 bytes of `192.0.2.1` |
//! | any other IPv6 address | its 16 bytes, cleared after the first 64 bits |
//!
//! 64 bits, since that is what one subscriber gets at least: a host moves freely inside of it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use sluicegate_kernel::param::{RangeError, within};

/// An address as the key of a budget.
///
/// ```
/// use sluicegate::internals::http::{AddressKey, V6Prefix};
///
/// let key = |text: &str| AddressKey::new(text.parse().unwrap(), V6Prefix::default());
/// assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
/// assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:1"));
/// assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
/// let text = |text: &str| AddressKey::text_of(text.parse().unwrap(), V6Prefix::default());
/// assert_eq!(text("2001:db8::1"), "2001:db8::/64");
/// assert_eq!(text("64:ff9b::192.0.2.1"), "192.0.2.1");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressKey {
    /// An IPv4 address.
    V4([u8; 4]),
    /// The prefix of an IPv6 address; the bits after it are zero.
    V6([u8; 16]),
}

/// The number of leading bits of an IPv6 address that make its key: 48..=128, by default 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct V6Prefix(u8);

impl AddressKey {
    /// Returns the key of `address`: the bits of `prefix`, unless it is or embeds an IPv4 address.
    pub fn new(address: IpAddr, prefix: V6Prefix) -> Self {
        let address = match address.to_canonical() {
            IpAddr::V4(v4) => return Self::V4(v4.octets()),
            IpAddr::V6(v6) => v6,
        };
        if let [0x00, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d] = address.octets() {
            return Self::V4([a, b, c, d]);
        }
        Self::V6((address.to_bits() & prefix.mask()).to_be_bytes())
    }

    /// Returns the key of `address` as text, the same for all addresses that have it: `192.0.2.1`,
    /// `2001:db8::/64`.
    pub fn text_of(address: IpAddr, prefix: V6Prefix) -> String {
        match Self::new(address, prefix) {
            Self::V4(bytes) => Ipv4Addr::from(bytes).to_string(),
            Self::V6(bytes) => format!("{}/{}", Ipv6Addr::from(bytes), prefix.bits()),
        }
    }

    /// The key's bytes: 4 or 16 of them.
    pub const fn as_bytes(&self) -> &[u8] {
        match self {
            Self::V4(bytes) => bytes,
            Self::V6(bytes) => bytes,
        }
    }
}

impl V6Prefix {
    /// Returns the prefix of `bits` bits.
    ///
    /// # Errors
    /// [`RangeError`] unless `48 <= bits <= 128`. Less would put unrelated networks together.
    pub fn new(bits: u8) -> Result<Self, RangeError> {
        within("IPv6 prefix", bits.into(), BITS_MIN.into(), BITS_MAX.into())?;
        Ok(Self(bits))
    }

    /// The number of bits.
    pub const fn bits(self) -> u8 {
        self.0
    }

    const fn mask(self) -> u128 {
        u128::MAX << (BITS_MAX - self.0)
    }
}

impl Default for V6Prefix {
    /// 64 bits.
    fn default() -> Self {
        Self(64)
    }
}

/// Parses an address as proxies write it: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`,
/// `[2001:db8::1]` or `[2001:db8::1]:80`, with blanks around it. Returns an IPv4-mapped one as
/// IPv4.
///
/// `None` for everything else, among it an address with a zone (`fe80::1%eth0`), which means
/// something on one machine only.
pub fn parse_address(text: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(text.trim_ascii()).ok()?;
    if text.len() > ADDRESS_BYTES_MAX || text.contains('%') {
        return None;
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    if let Some(inside) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        return inside.parse::<Ipv6Addr>().ok().map(|address| address.to_canonical());
    }
    text.parse::<SocketAddr>().ok().map(|peer| peer.ip().to_canonical())
}

/// Longest text that can be an address: the longest IPv6 address (45 bytes, with an IPv4 tail), in
/// brackets, and a port.
const ADDRESS_BYTES_MAX: usize = "[".len() + 45 + "]:65535".len();

/// The size of a site: the most that one end user is usually given.
const BITS_MIN: u8 = 48;

const BITS_MAX: u8 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_has_48_to_128_bits() {
        assert_eq!(
            V6Prefix::new(47).unwrap_err().to_string(),
            "IPv6 prefix: `47` is outside 48..=128"
        );
        assert!(V6Prefix::new(129).is_err());
        assert_eq!(V6Prefix::new(128).unwrap().mask(), u128::MAX);
        assert_eq!(V6Prefix::new(48).unwrap().mask(), u128::MAX << 80);
    }
}

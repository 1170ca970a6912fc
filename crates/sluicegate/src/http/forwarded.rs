//! The client's address behind proxies: `X-Forwarded-For`, as far as trusted proxies vouch for it.
//!
//! Every proxy appends the address of its caller. Addresses that a client wrote itself stand to the
//! left of that, so the list is read from the right: each address vouches for the one before it, as
//! long as it is a trusted proxy.
//!
//! ```text
//! X-Forwarded-For: 6.6.6.6,  203.0.113.7,  10.0.0.2      peer 10.0.0.1, trusted 10.0.0.0/8
//!                  forged    the client ◀─ trusted ◀──── trusted
//! ```

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

use super::address::parse_address;

/// The networks of proxies that are trusted to name their callers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Box<[IpNet]>);

impl TrustedProxies {
    /// Returns the proxies of these networks. A network of IPv4-mapped addresses is the IPv4 network that it maps.
    pub fn new(networks: impl IntoIterator<Item = IpNet>) -> Self {
        Self(networks.into_iter().map(unmapped).collect())
    }

    /// Returns whether `address` is in one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// Returns the client's address: `peer`, or, if that is a trusted proxy, the last address of
    /// `forwarded_for` (the values of all `X-Forwarded-For` lines, in order) that is not one.
    ///
    /// If the list ends, or contains something other than an address, or passes 64 hops, returns the last
    /// address that could be believed. This is never an error: a client that sends
    /// garbage is held to the budget of the proxy that let it through.
    ///
    /// ```
    /// use sluicegate::internals::http::TrustedProxies;
    ///
    /// let trusted = TrustedProxies::new(["10.0.0.0/8".parse()?]);
    /// let lines = [&b"6.6.6.6, 203.0.113.7"[..], b"10.0.0.2"];
    /// let client = trusted.client_address("10.0.0.1".parse()?, lines);
    /// assert_eq!(client.to_string(), "203.0.113.7");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn client_address<'a>(
        &self,
        peer: IpAddr,
        forwarded_for: impl IntoIterator<Item = &'a [u8], IntoIter: DoubleEndedIterator>,
    ) -> IpAddr {
        let mut hops = hops(forwarded_for);
        let mut client = peer.to_canonical();
        while self.contains(client) {
            match hops.next() {
                Some(hop) => client = hop,
                None => break,
            }
        }
        client
    }
}

/// Returns the `number`-th address of `forwarded_for` from the right, for as many proxies that each append
/// one: the first is the caller of `peer`. The addresses themselves do not matter, so a client in
/// the network of a proxy is not taken for one.
///
/// If the list ends before, or contains something other than an address, returns the last address on the
/// way there; `peer` if there is none. A `number` beyond 64 is 64.
///
/// ```
/// use sluicegate::internals::http::address_at_hop;
///
/// let lines = [&b"6.6.6.6, 203.0.113.7"[..], b"10.0.0.2"];
/// let client = address_at_hop(2, "10.0.0.1".parse()?, lines);
/// assert_eq!(client.to_string(), "203.0.113.7");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn address_at_hop<'a>(
    number: usize,
    peer: IpAddr,
    forwarded_for: impl IntoIterator<Item = &'a [u8], IntoIter: DoubleEndedIterator>,
) -> IpAddr {
    hops(forwarded_for).take(number).last().unwrap_or(peer.to_canonical())
}

/// Returns the addresses of `forwarded_for` from the right, until there is something else.
fn hops<'a>(
    forwarded_for: impl IntoIterator<Item = &'a [u8], IntoIter: DoubleEndedIterator>,
) -> impl Iterator<Item = IpAddr> {
    let lines = forwarded_for.into_iter().rev();
    let hops = lines.flat_map(|line| line.rsplit(|byte| *byte == b',')).take(HOPS_MAX);
    hops.map_while(parse_address)
}

fn unmapped(network: IpNet) -> IpNet {
    let IpNet::V6(v6) = network else { return network };
    let mapped = v6.network().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(96));
    mapped
        .and_then(|(address, bits)| Ipv4Net::new(address, bits).ok())
        .map_or(network, |network| network.trunc().into())
}

/// Longest chain of proxies that is followed: far more than real chains have, and it bounds the work
/// that a request can cause.
pub const HOPS_MAX: usize = 64;

//! The request that a gateway asks about, and whose budgets it takes.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, header};
use sha2::{Digest, Sha256};
use sluicegate::http::{AddressKey, IpNet, TrustedProxies, V6Prefix, address_at_hop};
use sluicegate::{Admission, Cost, Micros, Patience, Request, Verb};
use sluicegate_kernel::limits::KEY_BYTES_MAX;
use sluicegate_policy::{Attributes, KeyAttribute, Overflow, Policy, PolicySet, attribute};

use super::error::POLICIES_MAX;
use super::{AuthError, PolicyDecision, path};
use crate::config::Network;
use crate::protocol::Peer;

const FORWARDED_FOR: &str = "x-forwarded-for";

/// The fields that say the same, nginx's and that of others. A gateway sets one; the other may be what
/// its client wrote.
const URI: [&str; 2] = ["x-original-uri", "x-forwarded-uri"];
const METHOD: [&str; 2] = ["x-original-method", "x-forwarded-method"];
const HOST: [&str; 2] = ["x-original-host", "x-forwarded-host"];

/// Gateways whose word is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TrustedPeers {
    proxies: TrustedProxies,
    /// The same and this machine, for those who come through a socket in the file system.
    proxies_and_here: TrustedProxies,
    /// How many proxies a request passes, where that is known.
    hops: Option<usize>,
}

/// A request in the hands of a gateway.
#[derive(Debug)]
pub(in crate::wire::http::auth) struct GatewayRequest<'h> {
    remote_ip: String,
    path: String,
    method: &'h str,
    host: Option<String>,
    headers: Vec<(&'h str, Cow<'h, str>)>,
}

/// A budget that the request takes from.
#[derive(Clone, Debug)]
pub(in crate::wire::http::auth) struct PolicyKey {
    pub(in crate::wire::http::auth) policy: Arc<Policy>,
    /// `None`: the one that all share.
    pub(in crate::wire::http::auth) key: Option<Vec<u8>>,
}

impl TrustedPeers {
    /// These networks.
    pub(crate) fn new(networks: &[Network]) -> Self {
        let networks = networks.iter().map(|Network(network)| *network);
        let here = IpNet::from(IpAddr::V4(Ipv4Addr::LOCALHOST));
        Self {
            proxies: TrustedProxies::new(networks.clone()),
            proxies_and_here: TrustedProxies::new(networks.chain([here])),
            hops: None,
        }
    }

    /// The same, where every request passes so many proxies.
    pub(crate) fn with_hops(self, hops: Option<usize>) -> Self {
        Self { hops, ..self }
    }

    /// The client of `peer`: the last address of `X-Forwarded-For` that is none of these, or that of its
    /// hop.
    pub(super) fn client(&self, peer: Peer, headers: &HeaderMap) -> Result<IpAddr, AuthError> {
        let lines: Vec<_> = headers.get_all(FORWARDED_FOR).iter().collect();
        let lines = lines.into_iter().map(HeaderValue::as_bytes);
        let (peer, proxies) = match peer {
            Peer::Ip(peer) if self.proxies.contains(peer) => (peer, &self.proxies),
            Peer::Ip(peer) => return Err(AuthError::Untrusted(peer)),
            Peer::Local => (Ipv4Addr::LOCALHOST.into(), &self.proxies_and_here),
        };
        Ok(match self.hops {
            Some(hops) => address_at_hop(hops, peer, lines),
            None => proxies.client_address(peer, lines),
        })
    }
}

impl<'h> GatewayRequest<'h> {
    /// What `peer` says of the request, if it is one of those `trusted`.
    pub(in crate::wire::http::auth) fn decode(
        headers: &'h HeaderMap,
        peer: Peer,
        trusted: &TrustedPeers,
    ) -> Result<Self, AuthError> {
        let remote_ip = AddressKey::text_of(trusted.client(peer, headers)?, V6Prefix::default());
        let uri = said(headers, URI)?.ok_or(AuthError::Missing(URI[0], URI[1]))?;
        let method = said(headers, METHOD)?.ok_or(AuthError::Missing(METHOD[0], METHOD[1]))?;
        let method = method.to_str().map_err(|_| AuthError::NoText(METHOD[0]))?;
        let host = said(headers, HOST)?.map(|host| host_text(host.as_bytes()));
        let text = |value: &'h HeaderValue| String::from_utf8_lossy(value.as_bytes());
        let headers = headers.iter().map(|(name, value)| (name.as_str(), text(value)));
        Ok(Self {
            remote_ip,
            path: path::normal(uri.as_bytes())?,
            method,
            host,
            headers: headers.collect(),
        })
    }

    /// The budgets of the policies that guard the request of `app`, and how many of those policies are
    /// left out because there are too many. Those that refuse nothing are left out first, then the last
    /// by name, so that all servers leave out the same.
    pub(in crate::wire::http::auth) fn matching(
        &self,
        policies: &PolicySet,
        app: Option<&str>,
    ) -> Result<(Vec<PolicyKey>, usize), AuthError> {
        self.with_attributes(|attributes| {
            let guarding = policies.matching(attributes).filter(|policy| policy.guards(app));
            let mut guarding: Vec<_> = guarding.collect();
            let left_out = guarding.len().saturating_sub(POLICIES_MAX);
            if left_out > 0 {
                guarding
                    .sort_by_key(|policy| (*policy.overflow() == Overflow::Shadow, policy.name()));
                guarding.truncate(POLICIES_MAX);
            }
            let budgets = guarding.into_iter().map(|policy| budget(policy, attributes));
            Ok((budgets.collect::<Result<_, _>>()?, left_out))
        })
    }

    /// The budget of `policy`.
    pub(in crate::wire::http::auth) fn budget(
        &self,
        policy: &Arc<Policy>,
    ) -> Result<PolicyKey, AuthError> {
        self.with_attributes(|attributes| budget(policy, attributes))
    }

    fn with_attributes<T>(&self, ask: impl FnOnce(&Attributes<'_>) -> T) -> T {
        let Self { remote_ip, path, method, host, headers } = self;
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
        let user_agent = headers.iter().find(|(name, _)| *name == header::USER_AGENT.as_str());
        ask(&Attributes {
            remote_ip: Some(remote_ip),
            path: Some(path),
            method: Some(method),
            user_agent: user_agent.map(|(_, value)| *value),
            status: None,
            host: host.as_deref(),
            headers: &headers,
        })
    }
}

/// How long a policy holds a request back at most, in a queue or because its rules delay it: as long as
/// gateways wait for an answer unless you configure more. What would take longer is refused.
const HOLD_MAX: Micros = Micros::from_secs(60);

impl PolicyKey {
    /// What was decided of it.
    pub(in crate::wire::http::auth) fn decided(&self, admission: Admission) -> PolicyDecision {
        PolicyDecision { policy: Arc::clone(&self.policy), admission }
    }

    /// One permit of it, for `app`.
    pub(in crate::wire::http::auth) fn check<'a>(&'a self, app: Option<&'a str>) -> Request<'a> {
        let verb = Verb::Check { cost: Cost::ONE };
        let request = Request::new(self.policy.name(), self.key.as_deref(), verb);
        Request { app, patience: Patience::Gateway(HOLD_MAX), ..request }
    }
}

/// The budget of `policy` that a request with these attributes takes from.
fn budget(policy: &Arc<Policy>, attributes: &Attributes<'_>) -> Result<PolicyKey, AuthError> {
    for part in policy.key() {
        if let KeyAttribute::Header(wanted) = part {
            let given = attributes.headers.iter().filter(|(name, _)| *name == &**wanted);
            // What is protected may go by the other one.
            if given.count() > 1 {
                return Err(AuthError::Twice(wanted.to_string()));
            }
        }
    }
    let key = attribute::key_of(policy.key(), attributes);
    let key = (!key.is_empty()).then(|| bounded(key));
    Ok(PolicyKey { policy: Arc::clone(policy), key })
}

/// `key` as stores take it: a long one is its hash, as text, which all wires carry. Gateways do not choose
/// how long the paths and headers of their clients are.
fn bounded(key: String) -> Vec<u8> {
    let is_long = key.len() > KEY_BYTES_MAX;
    if is_long { format!("sha256:{:x}", Sha256::digest(&key)) } else { key }.into_bytes()
}

/// What the one or the other field says, if any does.
fn said<'h>(
    headers: &'h HeaderMap,
    names: [&'static str; 2],
) -> Result<Option<&'h HeaderValue>, AuthError> {
    let only = |name: &'static str| {
        let mut values = headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (_, Some(_)) => Err(AuthError::Twice(name.to_owned())),
            (value, None) => Ok(value),
        }
    };
    match (only(names[0])?, only(names[1])?) {
        (Some(one), Some(other)) if one != other => Err(AuthError::Differ(names[0], names[1])),
        (one, other) => Ok(one.or(other)),
    }
}

/// A host in small letters, without port and final dot.
fn host_text(host: &[u8]) -> String {
    let host = String::from_utf8_lossy(host).to_ascii_lowercase();
    let end = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => name.len(),
        _ => host.len(),
    };
    host[..end].trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_key_is_the_text_of_its_hash() {
        let longest = "a".repeat(KEY_BYTES_MAX);
        assert_eq!(bounded(longest.clone()), longest.as_bytes());
        let hash = "4a82297889eb505cf6b5cbdf69977afab4632d6557539782f657bd7dc78091a5";
        assert_eq!(bounded(longest + "a"), format!("sha256:{hash}").into_bytes());
    }
}

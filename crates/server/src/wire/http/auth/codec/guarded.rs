//! The request of a gateway's client, read from header fields.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, header};
use sluicegate::internals::gateway::{
    Guarding, GuardingBudget, address_text, host_text, normal_path,
};
use sluicegate::internals::http::{IpNet, TrustedProxies, address_at_hop};
use sluicegate_policy::{Attributes, KeyAttribute, Policy, PolicySet};

use super::AuthError;
use crate::config::Network;
use crate::protocol::Peer;

const FORWARDED_FOR: &str = "x-forwarded-for";

/// Pairs of fields with one meaning, nginx's and those of others. A gateway sets one; the other may be from its client.
const URI: [&str; 2] = ["x-original-uri", "x-forwarded-uri"];
const METHOD: [&str; 2] = ["x-original-method", "x-forwarded-method"];
const HOST: [&str; 2] = ["x-original-host", "x-forwarded-host"];

/// Gateways that are trusted to describe requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TrustedPeers {
    proxies: TrustedProxies,
    /// These networks and this machine, for peers on a socket in the file system.
    proxies_and_here: TrustedProxies,
    /// The number of proxies that a request passes, if it is configured.
    hops: Option<usize>,
}

/// A client's request, as its gateway describes it.
#[derive(Debug)]
pub(in crate::wire::http::auth) struct GatewayRequest<'h> {
    remote_ip: String,
    path: String,
    method: &'h str,
    host: Option<String>,
    headers: Vec<(&'h str, Cow<'h, str>)>,
}

impl TrustedPeers {
    /// Trusts the peers in `networks`.
    pub(crate) fn new(networks: &[Network]) -> Self {
        let networks = networks.iter().map(|Network(network)| *network);
        let here = IpNet::from(IpAddr::V4(Ipv4Addr::LOCALHOST));
        Self {
            proxies: TrustedProxies::new(networks.clone()),
            proxies_and_here: TrustedProxies::new(networks.chain([here])),
            hops: None,
        }
    }

    /// Sets the number of proxies that every request passes.
    pub(crate) fn with_hops(self, hops: Option<usize>) -> Self {
        Self { hops, ..self }
    }

    /// The client of `peer`: the last address of `X-Forwarded-For` that is not trusted, or the address
    /// at the configured hop.
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
    /// Reads the request that `peer` describes, if `peer` is `trusted`.
    pub(in crate::wire::http::auth) fn decode(
        headers: &'h HeaderMap,
        peer: Peer,
        trusted: &TrustedPeers,
    ) -> Result<Self, AuthError> {
        let remote_ip = address_text(trusted.client(peer, headers)?);
        let uri = field(headers, URI)?.ok_or(AuthError::Missing(URI[0], URI[1]))?;
        let method = field(headers, METHOD)?.ok_or(AuthError::Missing(METHOD[0], METHOD[1]))?;
        let method = method.to_str().map_err(|_| AuthError::NoText(METHOD[0]))?;
        let host = field(headers, HOST)?.map(|host| host_text(host.as_bytes()));
        let text = |value: &'h HeaderValue| String::from_utf8_lossy(value.as_bytes());
        let headers = headers.iter().map(|(name, value)| (name.as_str(), text(value)));
        Ok(Self {
            remote_ip,
            path: normal_path(uri.as_bytes())?,
            method,
            host,
            headers: headers.collect(),
        })
    }

    /// The budgets of the policies that guard the request of `app`.
    pub(in crate::wire::http::auth) fn guarding(
        &self,
        policies: &PolicySet,
        app: Option<&str>,
    ) -> Result<Guarding, AuthError> {
        self.with_attributes(|attributes| {
            let guarding = Guarding::of(policies, attributes, app);
            let mut budgets = guarding.budgets.iter();
            budgets.try_for_each(|budget| check_headers(&budget.policy, attributes))?;
            Ok(guarding)
        })
    }

    /// The budget of `policy`.
    pub(in crate::wire::http::auth) fn budget(
        &self,
        policy: &Arc<Policy>,
    ) -> Result<GuardingBudget, AuthError> {
        self.with_attributes(|attributes| {
            check_headers(policy, attributes)?;
            Ok(GuardingBudget::of(policy, attributes))
        })
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

/// Checks that a header in the key of `policy` is given once: the protected service may read the other one.
fn check_headers(policy: &Policy, attributes: &Attributes<'_>) -> Result<(), AuthError> {
    for part in policy.key() {
        if let KeyAttribute::Header(wanted) = part {
            let given = attributes.headers.iter().filter(|(name, _)| *name == &**wanted);
            if given.count() > 1 {
                return Err(AuthError::Twice(wanted.to_string()));
            }
        }
    }
    Ok(())
}

/// The value of one of two fields, if there is any.
fn field<'h>(
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

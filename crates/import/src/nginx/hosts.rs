//! The requests that a server of nginx gets, by their host.
//!
//! nginx chooses among the servers of the address that was connected to: by exact name, then by the longest `*.name`,
//! then `name.*` and regular expressions; without a fit the default server of the address. A policy does not know the
//! address: it takes a host for another server's only where that is so at all addresses of its own.

use std::collections::{BTreeMap, BTreeSet};

use sluicegate_policy::limits::HOSTS_MAX;

use super::tokens::Directive;

/// The `host` of a `match`, and of its exceptions. Both empty: every host.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hosts {
    pub(super) of: Vec<String>,
    pub(super) except: Vec<String>,
}

/// The names and addresses of a server.
#[derive(Debug, Default)]
pub(super) struct ServerNames {
    /// As policies write them: `shop.example`, `*.shop.example`.
    pub(super) names: Vec<String>,
    /// Names that policies cannot write.
    pub(super) unsaid: Vec<String>,
    /// The server has a name, so that `$server_name` is not empty.
    pub(super) is_named: bool,
    /// The first name as it is written: `$server_name`.
    pub(super) first: String,
    /// The addresses, each with its `default_server` flag.
    listens: Vec<(String, bool)>,
}

impl ServerNames {
    /// Reads `server_name` and `listen` of a server.
    pub(super) fn read(directives: &[Directive]) -> Self {
        let mut found = Self::default();
        for directive in directives {
            match directive.name() {
                "server_name" => {
                    if found.first.is_empty() {
                        found.first = directive.arguments().first().cloned().unwrap_or_default();
                    }
                    directive.arguments().iter().for_each(|name| found.name(name));
                }
                "listen" => {
                    let Some((address, options)) = directive.arguments().split_first() else {
                        continue;
                    };
                    let is_default =
                        |word: &String| matches!(word.as_str(), "default_server" | "default");
                    found.listens.push((address_of(address), options.iter().any(is_default)));
                }
                _ => (),
            }
        }
        if found.listens.is_empty() {
            found.listens.push((address_of("80"), false));
        }
        found
    }

    fn name(&mut self, name: &str) {
        self.is_named |= !name.is_empty();
        let name = name.to_ascii_lowercase();
        let is_letter =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let plain = name.strip_prefix("*.").or(name.strip_prefix('.')).unwrap_or(&name);
        let is_plain =
            plain.bytes().all(is_letter) && !plain.starts_with('.') && !plain.contains("..");
        let is_plain = is_plain && !plain.ends_with('.') && name.len() < 250;
        let mut names = Vec::new();
        match name.strip_prefix('.') {
            // Not a host.
            None if matches!(name.as_str(), "" | "_" | "-" | "--") => return,
            _ if !is_plain || plain.is_empty() => self.unsaid.push(name),
            Some(below) => names.extend([below.to_owned(), format!("*.{below}")]),
            None => names.push(name),
        }
        for name in names {
            if !self.names.contains(&name) {
                self.names.push(name);
            }
        }
    }
}

/// `80`, `*:80` and `0.0.0.0:80` are the same.
fn address_of(listen: &str) -> String {
    let is_port = listen.bytes().all(|byte| byte.is_ascii_digit());
    match listen {
        port if is_port => format!("*:{port}"),
        unix if unix.starts_with("unix:") => unix.to_owned(),
        address => {
            let address = address.replacen("0.0.0.0", "*", 1);
            let has_port = address.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
            if has_port { address } else { format!("{address}:80") }
        }
    }
}

/// The requests of each server, by their hosts, as alternatives. An empty list: no host leads to it.
pub(super) fn all(servers: &[&ServerNames]) -> Vec<Vec<Hosts>> {
    let mut known = Known::default();
    for (place, names) in servers.iter().enumerate() {
        for (address, is_said) in &names.listens {
            let default = known.defaults.entry(address).or_insert((place, *is_said));
            if *is_said && !default.1 {
                *default = (place, true);
            }
            known.names.extend(names.names.iter().map(|name| (name.as_str(), address.as_str())));
        }
    }
    servers.iter().enumerate().map(|(place, names)| known.hosts(place, names)).collect()
}

/// The names and addresses of all servers.
#[derive(Default)]
struct Known<'s> {
    /// The default server of each address, and its `default_server` flag.
    defaults: BTreeMap<&'s str, (usize, bool)>,
    /// Names with the addresses at which they lead to a server.
    names: BTreeSet<(&'s str, &'s str)>,
}

impl Known<'_> {
    fn hosts(&self, place: usize, own: &ServerNames) -> Vec<Hosts> {
        let addresses = || own.listens.iter().map(|(address, _)| address.as_str());
        let is_default =
            |address: &&str| self.defaults.get(address).is_some_and(|of| of.0 == place);
        let defaults: Vec<_> = addresses().filter(is_default).collect();
        let except = if defaults.is_empty() { Vec::new() } else { self.others(own, &defaults) };
        // Its own names that the exceptions would take away, or all of them if it is not a default server.
        let is_taken = |name: &&String| except.iter().any(|other| covers(other, name));
        let needed: Vec<_> =
            own.names.iter().filter(|name| defaults.is_empty() || is_taken(name)).collect();
        let has_wide = needed.iter().any(|name| name.starts_with('*'));
        let others =
            if has_wide { self.others(own, &addresses().collect::<Vec<_>>()) } else { Vec::new() };
        let mut hosts = Vec::new();
        for name in needed {
            let except = others.iter().filter(|other| covers(name, other)).cloned().collect();
            hosts.push(Hosts { of: vec![name.clone()], except });
        }
        if !defaults.is_empty() {
            hosts.push(Hosts { of: Vec::new(), except });
        }
        joined(hosts)
    }

    /// Names that lead to other servers at each of these addresses.
    fn others(&self, own: &ServerNames, addresses: &[&str]) -> Vec<String> {
        let names: BTreeSet<_> = self.names.iter().map(|(name, _)| *name).collect();
        let leads_there =
            |name: &&str| addresses.iter().all(|address| self.names.contains(&(*name, *address)));
        let is_other = |name: &&str| !own.names.iter().any(|own| own == name);
        names.into_iter().filter(is_other).filter(leads_there).map(str::to_owned).collect()
    }
}

/// Joins names without exceptions to one item.
fn joined(hosts: Vec<Hosts>) -> Vec<Hosts> {
    let (plain, mut others): (Vec<_>, Vec<_>) =
        hosts.into_iter().partition(|hosts| !hosts.of.is_empty() && hosts.except.is_empty());
    let of: Vec<_> = plain.into_iter().flat_map(|hosts| hosts.of).collect();
    let plain = of.chunks(HOSTS_MAX).map(|of| Hosts { of: of.to_vec(), except: Vec::new() });
    others.splice(..0, plain);
    others
}

/// Returns whether all hosts of `name` are hosts of `wide`: those of `shop.example` are among those of `*.example`.
fn covers(wide: &str, name: &str) -> bool {
    wide == name
        || wide.strip_prefix('*').is_some_and(|suffix| {
            name.trim_start_matches('*').ends_with(suffix) && name.len() > suffix.len()
        })
}

//! nginx: `limit_req` and `limit_conn` become policies.
//!
//! | there | here |
//! |---|---|
//! | `limit_req_zone KEY zone=Z:1m rate=10r/s` with `limit_req zone=Z burst=20` | `leaky_bucket: { rate: 10/s, burst: 20 }`, which holds requests back as nginx does |
//! | `nodelay`, `delay=8` | `delay: none`, `delay: 8` |
//! | `limit_conn_zone`, `limit_conn Z 5` | `concurrency: { limit: 5, ttl: 60s }`, without `match`: nginx asks for it by its name |
//! | `location /api/`, `location /api`, `location = /login` | `match: { path: { prefix: /api/ } }`, `{ starts_with: /api }`, `{ exact: /login }` |
//! | a location in another, or beside one that contains it | `except` of the other's `match` |
//! | `server_name`, where servers differ | `host` of `match` |
//! | `$binary_remote_addr`, `$host`, `$http_x_user`… | `key: [remote_ip]`, `[host]`, `[header:x-user]`… |
//! | `$server_name` | a policy for each server |
//! | `limit_req_dry_run on` | `overflow: shadow` |
//!
//! nginx admits the first request and `burst` more, and refuses while more than `burst` are owed
//! (`ngx_http_limit_req_lookup`): the same count as `leaky_bucket`, at any rate. It counts milliseconds; a policy
//! counts exactly. `limit_req` of an outer block holds in an inner one that has none of its own.
//!
//! Sources: nginx.org, modules `ngx_http_limit_req_module` and `ngx_http_limit_conn_module`, *Server names* and
//! `location`; the behaviour of nginx 1.22, with which a test compares.

mod hosts;
mod key;
mod lua;
mod regions;
mod server;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};

use key::Key;
use regions::Regions;
use serde_json::{Value, json};
use server::{Delay, RequestLimit, Server};
use sluicegate_policy::limits::{MATCHES_MAX, POLICIES_MAX};
use sluicegate_policy::{Finding, finding};
use sluicegate_text::terminal::one_line;
use tokens::Directive;

use crate::names::{Names, plain};
use crate::{Imported, ImportedPolicy, Note, too_many};

/// The time after which the place of a request is free again if its end is not reported.
const TTL: &str = "60s";

pub(crate) fn import(text: &str) -> Result<Imported, Vec<Note>> {
    let directives = tokens::parse(text).map_err(|note| vec![note])?;
    let mut importer = Importer::default();
    importer.look_around(&directives);
    importer.zones(&directives);
    let servers = importer.servers(&directives);
    importer.note_servers(&servers);
    importer.requests(&servers);
    importer.connections();
    importer.note_shared();
    let Importer { policies, policies_more, mut notes, .. } = importer;
    notes.sort_by_key(|note| note.line);
    if policies_more > 0 {
        notes.insert(0, Note::widens(None, too_many(policies_more)));
    }
    Ok(Imported { policies, notes, descriptors: None })
}

/// A zone of `limit_req_zone` or `limit_conn_zone`.
#[derive(Debug)]
struct Zone {
    /// The key; `None` if it was not understood, which a note reports.
    key: Option<Key>,
    /// In the format of documents; only for limits of requests.
    rate: Option<String>,
}

/// A limit, and the place of its server; `None`: it is of all servers.
struct LimitOfServer<'l> {
    limit: &'l RequestLimit,
    server: Option<usize>,
}

/// The properties that the limits of one policy share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    key: Vec<String>,
    is_dry: bool,
    /// As text, which can be compared.
    matching: String,
}

#[derive(Debug, Default)]
struct Importer {
    zones: BTreeMap<String, Zone>,
    /// Limits of requests, `is_dry` apart, each with the line where it stands first.
    limits: BTreeMap<RequestLimit, u64>,
    /// Limits of connections, and whether they are dry, with their lines.
    connections: BTreeMap<(String, u64, bool), u64>,
    /// The number of policies of each zone (of each server, if the server's name is in the key), and the line of the
    /// last one.
    used: BTreeMap<(String, Option<usize>), (u32, u64)>,
    /// Variables whose values the configuration sets.
    redefined: BTreeSet<String>,
    /// A `rewrite` changes `$uri` somewhere.
    has_rewrite: bool,
    names: Names,
    statuses: BTreeSet<String>,
    policies: Vec<ImportedPolicy>,
    /// The number of policies beyond the most that an import can have.
    policies_more: usize,
    notes: Vec<Note>,
}

impl Importer {
    fn widens(&mut self, line: u64, finding: Finding) {
        self.notes.push(Note::widens(line, finding));
    }

    fn differs(&mut self, line: u64, finding: Finding) {
        self.notes.push(Note::differs(line, finding));
    }

    /// Reads directives, at any depth, that change the meaning of limits elsewhere.
    fn look_around(&mut self, directives: &[Directive]) {
        for directive in directives {
            let arguments = directive.arguments();
            let variable = match directive.name() {
                "map" | "geo" | "split_clients" => arguments.last(),
                "set" | "auth_request_set" | "js_set" | "js_var" | "perl_set" => arguments.first(),
                _ => None,
            };
            let variable = variable.and_then(|variable| variable.strip_prefix('$'));
            self.redefined.extend(variable.map(str::to_ascii_lowercase));
            self.has_rewrite |= directive.name() == "rewrite";
            if directive.name() == "merge_slashes" && arguments == ["off"] {
                let problem = finding!(
                    "nginx_slashes",
                    "`merge_slashes off`: for policies `//api` is `/api`, and the limits of `/api` hold for it"
                );
                self.widens(directive.line, problem);
            }
            self.look_around(directive.block.as_deref().unwrap_or_default());
        }
    }

    /// Reads the zones, wherever they stand.
    fn zones(&mut self, directives: &[Directive]) {
        for directive in directives {
            match directive.name() {
                "limit_req_zone" => self.zone(directive, true),
                "limit_conn_zone" => self.zone(directive, false),
                _ => self.zones(directive.block.as_deref().unwrap_or_default()),
            }
        }
    }

    fn zone(&mut self, directive: &Directive, is_of_requests: bool) {
        let Directive { line, .. } = *directive;
        let value = |name: &str| last_of(directive, name);
        let name = value("zone=").map(|zone| zone.split(':').next().unwrap_or_default());
        let (Some(name), Some(given)) = (name, directive.arguments().first()) else {
            return self.widens(line, wrong(directive));
        };
        let given_rate = value("rate=");
        let rate = given_rate.and_then(rate);
        if is_of_requests && rate.is_none() {
            let Some(rate) = given_rate else { return self.widens(line, wrong(directive)) };
            let rate = one_line(rate);
            let problem = finding!(
                "nginx_rate",
                "zone `{zone}`: rate: `{rate}` is not a rate of nginx; expected requests a second or a minute, such as `10r/s` or `300r/m`",
                zone = name,
                rate
            );
            self.zones.insert(name.to_owned(), Zone { key: None, rate: None });
            return self.widens(line, problem);
        }
        let key = match key::read(given, &self.redefined) {
            Ok(key) => {
                key.notes.iter().for_each(|note| self.differs(line, note.clone()));
                key.wider.iter().for_each(|note| self.widens(line, note.clone()));
                if key.is_of_uri && self.has_rewrite {
                    let problem = finding!(
                        "nginx_rewritten",
                        "`rewrite` changes `$uri`: a policy counts by the path that was asked for"
                    );
                    self.widens(line, problem);
                }
                Some(key)
            }
            Err(variable) => {
                let problem = finding!(
                    "nginx_key",
                    "zone `{zone}`: policies cannot make keys of `{variable}`; its limits were not imported",
                    zone = name,
                    variable
                );
                self.widens(line, problem);
                None
            }
        };
        self.zones.insert(name.to_owned(), Zone { key, rate });
    }

    /// A directive `limit_req`.
    fn request_limit(&mut self, limit: &Directive) -> Option<RequestLimit> {
        let value = |name: &str| last_of(limit, name);
        let burst = value("burst=").map_or(Some(0), |burst| burst.parse::<u64>().ok());
        let is_delay = |word: &&String| word.starts_with("delay=") || *word == "nodelay";
        let delay = match limit.words.iter().rfind(is_delay).map(String::as_str) {
            None => Some(0),
            Some("nodelay") => Some(u64::MAX),
            Some(delay) => delay["delay=".len()..].parse::<u64>().ok(),
        };
        let (Some(zone), Some(burst), Some(delay)) = (value("zone="), burst, delay) else {
            self.widens(limit.line, wrong(limit));
            return None;
        };
        if !self.has_zone(zone, limit.line) {
            return None;
        }
        let delay = match burst {
            0 => None,
            burst if delay >= burst => Some(Delay::None),
            _ => (delay > 0).then_some(Delay::After(delay)),
        };
        let found = RequestLimit { zone: zone.to_owned(), burst, delay, is_dry: false };
        self.limits.entry(found.clone()).or_insert(limit.line);
        Some(found)
    }

    /// A directive `limit_conn`.
    fn connection_limit(&mut self, limit: &Directive, is_dry: bool) {
        let most = |text: &String| text.parse::<u64>().ok();
        let (Some(zone), Some(most)) =
            (limit.arguments().first(), limit.arguments().get(1).and_then(most))
        else {
            return self.widens(limit.line, wrong(limit));
        };
        if self.has_zone(zone, limit.line) {
            self.connections.entry((zone.clone(), most, is_dry)).or_insert(limit.line);
        }
    }

    /// Returns whether there is a zone of this name with a key that is understood; notes a missing zone.
    fn has_zone(&mut self, name: &str, line: u64) -> bool {
        match self.zones.get(name) {
            Some(zone) => zone.key.is_some(),
            None => {
                let problem = finding!("nginx_zone", "zone `{name}` is not defined here", name);
                self.widens(line, problem);
                false
            }
        }
    }

    /// Policies of `limit_req`: one for the limits that have the same key and the same requests.
    fn requests(&mut self, servers: &[Server]) {
        let regions = Regions::of(servers);
        let mut limits: Vec<_> = regions.limits().into_iter().collect();
        limits.sort_by_key(|limit| self.line_of(limit));
        let mut groups: BTreeMap<Group, Vec<LimitOfServer<'_>>> = BTreeMap::new();
        let mut order = Vec::new();
        for limit in limits {
            let line = self.line_of(limit);
            let Key { attributes, is_of_server, is_only_server, .. } = self.key(&limit.zone);
            // Each server separately, if its name is a part of the key.
            let of: Vec<_> = if is_of_server {
                let is_counted = |at: &usize| !is_only_server || servers[*at].names.is_named;
                (0..servers.len()).filter(is_counted).map(Some).collect()
            } else {
                vec![None]
            };
            let mut names = BTreeMap::new();
            for server in of.iter().flatten().filter(|at| regions.holds(limit, **at)) {
                *names.entry(servers[*server].names.first.to_ascii_lowercase()).or_insert(0) += 1;
            }
            if let Some((name, count)) = names.into_iter().find(|(_, count)| *count > 1) {
                let problem = finding!(
                    "nginx_same_server",
                    "nginx counts the {count} servers whose first name is `{name}` together in zone `{zone}`; here each has budgets of its own",
                    count,
                    name,
                    zone = limit.zone
                );
                self.widens(line, problem);
            }
            for server in of {
                let cases = regions.cases(limit, server);
                if !self.fits(&cases, line) {
                    continue;
                }
                for cases in cases.chunks(MATCHES_MAX) {
                    let matching = match cases {
                        [case] => case.to_string(),
                        cases => json!(cases).to_string(),
                    };
                    let group = Group { key: attributes.clone(), is_dry: limit.is_dry, matching };
                    let limits = groups.entry(group.clone()).or_insert_with(|| {
                        order.push((group, line));
                        Vec::new()
                    });
                    limits.push(LimitOfServer { limit, server });
                }
            }
        }
        for (group, line) in order {
            let limits = groups.remove(&group).unwrap_or_default();
            self.request_policy(&group, &limits, line);
        }
    }

    /// The line of a limit's first occurrence.
    fn line_of(&self, limit: &RequestLimit) -> u64 {
        let known = RequestLimit { is_dry: false, ..limit.clone() };
        self.limits.get(&known).copied().unwrap_or_default()
    }

    fn key(&self, zone: &str) -> Key {
        self.zones.get(zone).and_then(|zone| zone.key.clone()).unwrap_or_default()
    }

    fn request_policy(&mut self, group: &Group, limits: &[LimitOfServer<'_>], line: u64) {
        let Group { key, is_dry, matching } = group;
        let matching: Value = serde_json::from_str(matching).unwrap_or_default();
        let mut rules = Vec::new();
        for LimitOfServer { limit, server } in limits {
            let RequestLimit { zone, burst, delay, is_dry: _ } = limit;
            let rate = self.zones.get(zone).and_then(|zone| zone.rate.clone()).unwrap_or_default();
            let mut bucket = json!({ "rate": rate });
            if *burst > 0 {
                bucket["burst"] = (*burst).into();
            }
            match delay {
                Some(Delay::None) => bucket["delay"] = "none".into(),
                Some(Delay::After(delay)) => bucket["delay"] = (*delay).into(),
                None => (),
            }
            rules.push(json!({ "name": plain(zone), "leaky_bucket": bucket }));
            let used = self.used.entry((zone.clone(), *server)).or_default();
            *used = (used.0 + 1, line);
        }
        let zone = limits.first().map_or("", |of_server| of_server.limit.zone.as_str());
        let path = ["exact", "prefix", "starts_with"]
            .iter()
            .find_map(|form| matching["path"][form].as_str());
        let wanted = match path {
            Some(path) if path != "/" => format!("{zone}-{path}"),
            _ => zone.to_owned(),
        };
        let mut document =
            json!({ "name": self.names.make(&wanted), "rules": rules, "match": matching });
        if !key.is_empty() {
            document["key"] = json!(key);
        }
        if *is_dry {
            document["overflow"] = "shadow".into();
        }
        self.policy(document, line);
    }

    /// Policies of `limit_conn`: one for each limit, as permits that are given back need another verb.
    fn connections(&mut self) {
        let mut connections: Vec<_> = std::mem::take(&mut self.connections).into_iter().collect();
        connections.sort_by_key(|(_, line)| *line);
        for ((zone, most, is_dry), line) in connections {
            let problem = finding!(
                "nginx_connections",
                "`{zone}` counts requests that are being handled: in each location that it limits, ask for the policy by its name and give the permit back, as `examples/gateways/nginx/limit_conn.conf` does",
                zone
            );
            self.differs(line, problem);
            let rule =
                json!({ "name": plain(&zone), "concurrency": { "limit": most, "ttl": TTL } });
            let mut document = json!({ "name": self.names.make(&zone), "rules": [rule] });
            let key = self.key(&zone).attributes;
            if !key.is_empty() {
                document["key"] = json!(key);
            }
            if is_dry {
                document["overflow"] = "shadow".into();
            }
            self.policy(document, line);
        }
    }

    fn policy(&mut self, document: Value, line: u64) {
        if self.policies.len() == POLICIES_MAX {
            self.policies_more += 1;
            return;
        }
        self.policies.push(ImportedPolicy { document, comment: None, line: Some(line) });
    }

    /// Notes zones from which several policies were made.
    fn note_shared(&mut self) {
        for ((zone, _), (places, line)) in std::mem::take(&mut self.used) {
            if places > 1 {
                let problem = finding!(
                    "nginx_shared",
                    "nginx counts all {places} places of zone `{zone}` together; here each policy has budgets of its own",
                    places,
                    zone
                );
                self.widens(line, problem);
            }
        }
    }
}

/// `10r/s` as `10/s`. nginx counts in thousandths of a request a second, rounded down, so that `10r/m` is `166/1000s`.
fn rate(text: &str) -> Option<String> {
    let (permits, unit) = text.split_once("r/")?;
    let is_number = permits.bytes().all(|byte| byte.is_ascii_digit());
    let permits = permits.parse::<u64>().ok().filter(|permits| is_number && *permits > 0)?;
    match unit {
        "s" => Some(format!("{permits}/s")),
        "m" if permits.is_multiple_of(3) => Some(format!("{permits}/m")),
        "m" => Some(format!("{}/1000s", permits.checked_mul(1_000)? / 60)),
        _ => None,
    }
}

/// The value of the parameter `name`; if there are several, of the last, as in nginx.
fn last_of<'d>(directive: &'d Directive, name: &str) -> Option<&'d str> {
    directive.words.iter().rev().find_map(|word| word.strip_prefix(name))
}

fn wrong(directive: &Directive) -> Finding {
    finding!("nginx_wrong", "`{directive}` cannot be read", directive = directive.words.join(" "))
}

fn is_limit(directive: &Directive) -> bool {
    matches!(directive.name(), "limit_req" | "limit_conn")
}

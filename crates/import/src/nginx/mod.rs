//! nginx: `limit_req` and `limit_conn` become policies.
//!
//! | there | here |
//! |---|---|
//! | `limit_req_zone KEY zone=Z:1m rate=10r/s` with `limit_req zone=Z burst=20` | `leaky_bucket: { rate: 10/s, burst: 20 }`, which holds requests back as nginx does |
//! | `nodelay`, `delay=8` | `delay: none`, `delay: 8` |
//! | `limit_conn_zone`, `limit_conn Z 5` | `concurrency: { limit: 5, ttl: 60s }` |
//! | `location /api/`, `location = /login` | `match: { path: { prefix: /api/ } }`, `{ exact: /login }` |
//! | `$binary_remote_addr`, `$host`, `$http_x_user`… | `key: [remote_ip]`, `[host]`, `[header:x-user]`… |
//! | `limit_req_dry_run on` | `overflow: shadow` |
//!
//! nginx admits the first request and `burst` more, and refuses while more than `burst` are owed
//! (`ngx_http_limit_req_lookup`): the same count as `leaky_bucket`, at any rate. It counts milliseconds; a policy
//! counts exactly. Directives of an outer block hold in an inner one that has none of its own.
//!
//! Sources: nginx.org, modules `ngx_http_limit_req_module` and `ngx_http_limit_conn_module`; the behaviour of nginx
//! 1.22, which a test asks.

mod key;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use sluicegate_policy::limits::POLICIES_MAX;
use sluicegate_policy::{Finding, finding};
use tokens::Directive;

use crate::names::{Names, plain};
use crate::{Imported, ImportedPolicy, Note, too_many};

/// How long a request may be handled before its place is free again, if its end is not reported.
const TTL: &str = "60s";

/// The status of refusals, unless the configuration names another.
const STATUS: &str = "503";

pub(crate) fn import(text: &str) -> Result<Imported, Vec<Note>> {
    let directives = tokens::parse(text).map_err(|note| vec![note])?;
    let mut importer = Importer::default();
    importer.zones(&directives);
    importer.block(&directives, &Settings::default(), &Place::Everything);
    importer.note_shared();
    let Importer { policies, policies_more, mut notes, .. } = importer;
    if policies_more > 0 {
        notes.insert(0, Note { line: None, finding: too_many(policies_more) });
    }
    Ok(Imported { policies, notes, descriptors: None })
}

/// What limits count by, of `limit_req_zone` or `limit_conn_zone`.
#[derive(Debug)]
struct Zone {
    /// What the key is made of; none: it was not understood, and a note says so.
    key: Option<Vec<String>>,
    /// As documents write it; of requests only.
    rate: Option<String>,
}

/// Where limits hold.
#[derive(Debug)]
enum Place {
    Everything,
    Path(Value, String),
}

/// What inner blocks have of outer ones.
#[derive(Clone, Debug)]
struct Settings {
    is_limited: bool,
    is_dry: bool,
    status: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self { is_limited: false, is_dry: false, status: STATUS.to_owned() }
    }
}

/// Limits that were read, by what they count.
struct Limits<'a> {
    zone: &'a str,
    key: &'a [String],
    rules: &'a [Value],
}

#[derive(Debug, Default)]
struct Importer {
    zones: BTreeMap<String, Zone>,
    /// In how many places each zone is used, and the line of the last.
    used: BTreeMap<String, (u32, u64)>,
    names: Names,
    statuses: BTreeSet<String>,
    policies: Vec<ImportedPolicy>,
    /// Policies that are more than an import has.
    policies_more: usize,
    notes: Vec<Note>,
}

impl Importer {
    fn note(&mut self, line: u64, finding: Finding) {
        self.notes.push(Note::at(line, finding));
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
        let value = |name: &str| directive.words.iter().find_map(|word| word.strip_prefix(name));
        let name = value("zone=").map(|zone| zone.split(':').next().unwrap_or_default());
        let (Some(name), Some(given)) = (name, directive.arguments().first()) else {
            return self.note(line, wrong(directive));
        };
        let rate = value("rate=").and_then(rate);
        if is_of_requests && rate.is_none() {
            return self.note(line, wrong(directive));
        }
        let key = key::read(given);
        if let Err(variable) = &key {
            let problem = finding!(
                "nginx_key",
                "zone `{zone}`: policies cannot make keys of `{variable}`; its limits were not imported",
                zone = name,
                variable
            );
            self.note(line, problem);
        }
        self.zones.insert(name.to_owned(), Zone { key: key.ok(), rate });
    }

    /// Reads the limits of a block, and of those in it.
    fn block(&mut self, directives: &[Directive], outer: &Settings, place: &Place) {
        let mut settings = outer.clone();
        for directive in directives {
            let value = || directive.arguments().first().cloned().unwrap_or_default();
            match directive.name() {
                "limit_req_dry_run" | "limit_conn_dry_run" => settings.is_dry = value() == "on",
                "limit_req_status" | "limit_conn_status" => settings.status = value(),
                "include" => {
                    let problem =
                        finding!("nginx_include", "`{file}` was not read", file = value());
                    self.note(directive.line, problem);
                }
                _ => (),
            }
        }
        let limits = |name: &str| directives.iter().filter(|limit| limit.name() == name).collect();
        let (requests, connections): (Vec<_>, Vec<_>) = (limits("limit_req"), limits("limit_conn"));
        if let Some(first) = requests.first().or(connections.first()) {
            if outer.is_limited {
                let problem = finding!(
                    "nginx_outer",
                    "nginx applies these limits in place of those of the outer block; policies of both count here"
                );
                self.note(first.line, problem);
            }
            settings.is_limited = true;
            if settings.status != "429" && self.statuses.insert(settings.status.clone()) {
                let problem = finding!(
                    "nginx_status",
                    "nginx refuses with status {status}; a policy refuses with 429",
                    status = settings.status
                );
                self.note(first.line, problem);
            }
        }
        self.requests(&requests, &settings, place);
        self.connections(&connections, &settings, place);
        for directive in directives {
            let Some(inner) = directive.block.as_deref() else { continue };
            match directive.name() {
                "location" => self.location(directive, inner, &settings),
                "if" | "limit_except" if has_limits(inner) => {
                    let problem = finding!(
                        "nginx_block",
                        "the limits in `{block}` were not imported",
                        block = directive.name()
                    );
                    self.note(directive.line, problem);
                }
                _ => self.block(inner, &settings, place),
            }
        }
    }

    fn location(&mut self, directive: &Directive, inner: &[Directive], settings: &Settings) {
        let (how, path) = match directive.arguments() {
            [path] => ("", path),
            [how, path] => (how.as_str(), path),
            _ => return self.note(directive.line, wrong(directive)),
        };
        let kind = match how {
            "" | "^~" if path.starts_with('/') => "prefix",
            "=" if path.starts_with('/') => "exact",
            _ => {
                if has_limits(inner) {
                    let problem = finding!(
                        "nginx_location",
                        "`location {location}`: policies match paths and prefixes only; its limits were not imported",
                        location = directive.arguments().join(" ")
                    );
                    self.note(directive.line, problem);
                }
                return;
            }
        };
        if kind == "prefix" && !path.ends_with('/') && has_own_limits(inner) {
            let problem = finding!(
                "nginx_prefix",
                "nginx also limits paths that go on, such as `{path}x`; the policy guards `{path}` and what is below it",
                path
            );
            self.note(directive.line, problem);
        }
        let mut matching = Map::new();
        matching.insert(kind.to_owned(), path.as_str().into());
        let place = Place::Path(json!({ "path": matching }), path.clone());
        self.block(inner, settings, &place);
    }

    /// Policies of `limit_req`: one for each key, as a policy has one.
    fn requests(&mut self, limits: &[&Directive], settings: &Settings, place: &Place) {
        let mut by_key: BTreeMap<Vec<String>, (String, Vec<Value>)> = BTreeMap::new();
        for limit in limits {
            let value = |name: &str| limit.words.iter().find_map(|word| word.strip_prefix(name));
            let Some((zone, key, rate)) = self.zone_of(limit, value("zone=")) else { continue };
            let burst = value("burst=").map_or(Some(0), |burst| burst.parse::<u64>().ok());
            let delay = value("delay=").map(|delay| delay.parse::<u64>().ok());
            let (Some(burst), false) = (burst, delay == Some(None)) else {
                self.note(limit.line, wrong(limit));
                continue;
            };
            let mut bucket = json!({ "rate": rate.unwrap_or_default() });
            if burst > 0 {
                bucket["burst"] = burst.into();
                if limit.words.iter().any(|word| word == "nodelay") {
                    bucket["delay"] = "none".into();
                } else if let Some(delay) = delay.flatten() {
                    let is_none = delay >= burst;
                    bucket["delay"] = if is_none { "none".into() } else { delay.into() };
                }
            }
            let rule = json!({ "name": plain(&zone), "leaky_bucket": bucket });
            by_key.entry(key).or_insert((zone, Vec::new())).1.push(rule);
        }
        for (key, (zone, rules)) in by_key {
            let limits = Limits { zone: &zone, key: &key, rules: &rules };
            self.policy(&limits, settings, place);
        }
    }

    /// Policies of `limit_conn`: each by itself, as permits that are given back are asked for by another verb.
    fn connections(&mut self, limits: &[&Directive], settings: &Settings, place: &Place) {
        for limit in limits {
            let [zone, most] = limit.arguments() else {
                self.note(limit.line, wrong(limit));
                continue;
            };
            let Some((zone, key, _)) = self.zone_of(limit, Some(zone)) else { continue };
            let Ok(most) = most.parse::<u64>() else {
                self.note(limit.line, wrong(limit));
                continue;
            };
            let problem = finding!(
                "nginx_connections",
                "`{zone}` counts requests that are being handled: acquire and release its permits; after {ttl} they are free again",
                zone,
                ttl = TTL
            );
            self.note(limit.line, problem);
            let rule =
                json!({ "name": plain(&zone), "concurrency": { "limit": most, "ttl": TTL } });
            let limits = Limits { zone: &zone, key: &key, rules: &[rule] };
            self.policy(&limits, settings, place);
        }
    }

    /// The zone that a limit names, if it can be imported.
    fn zone_of(
        &mut self,
        limit: &Directive,
        name: Option<&str>,
    ) -> Option<(String, Vec<String>, Option<String>)> {
        let Some(name) = name else {
            self.note(limit.line, wrong(limit));
            return None;
        };
        let Some(Zone { key, rate }) = self.zones.get(name) else {
            let problem = finding!("nginx_zone", "zone `{name}` is not defined here", name);
            self.note(limit.line, problem);
            return None;
        };
        let key = key.clone()?;
        let rate = rate.clone();
        let used = self.used.entry(name.to_owned()).or_default();
        *used = (used.0 + 1, limit.line);
        Some((name.to_owned(), key, rate))
    }

    fn policy(&mut self, limits: &Limits<'_>, settings: &Settings, place: &Place) {
        let Limits { zone, key, rules } = *limits;
        if self.policies.len() == POLICIES_MAX {
            self.policies_more += 1;
            return;
        }
        let name = match place {
            Place::Everything => self.names.make(zone),
            Place::Path(_, path) => self.names.make(&format!("{zone}-{path}")),
        };
        let mut document = json!({ "name": name, "rules": rules });
        // Permits are acquired by a program: no gateway asks for them.
        let hands_out_permits = rules.iter().any(|rule| rule.get("concurrency").is_some());
        if let Place::Path(matching, _) = place
            && !hands_out_permits
        {
            document["match"] = matching.clone();
        }
        if !key.is_empty() {
            document["key"] = key.into();
        }
        if settings.is_dry {
            document["overflow"] = "shadow".into();
        }
        self.policies.push(ImportedPolicy { document, comment: None });
    }

    /// Zones of which several policies were made.
    fn note_shared(&mut self) {
        for (zone, (places, line)) in std::mem::take(&mut self.used) {
            if places > 1 {
                let problem = finding!(
                    "nginx_shared",
                    "nginx counts all {places} places of zone `{zone}` together; here each policy has budgets of its own",
                    places,
                    zone
                );
                self.note(line, problem);
            }
        }
    }
}

/// `10r/s` as `10/s`.
fn rate(text: &str) -> Option<String> {
    let (permits, unit) = text.split_once("r/")?;
    let is_number = permits.bytes().all(|byte| byte.is_ascii_digit());
    let permits = permits.trim_start_matches('0');
    let fits = is_number && !permits.is_empty() && matches!(unit, "s" | "m");
    fits.then(|| format!("{permits}/{unit}"))
}

fn wrong(directive: &Directive) -> Finding {
    finding!("nginx_wrong", "`{directive}` cannot be read", directive = directive.words.join(" "))
}

fn is_limit(directive: &Directive) -> bool {
    matches!(directive.name(), "limit_req" | "limit_conn")
}

fn has_own_limits(directives: &[Directive]) -> bool {
    directives.iter().any(is_limit)
}

fn has_limits(directives: &[Directive]) -> bool {
    let inner = |directive: &Directive| directive.block.as_deref().is_some_and(has_limits);
    directives.iter().any(|directive| is_limit(directive) || inner(directive))
}

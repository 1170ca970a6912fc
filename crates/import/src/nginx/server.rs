//! Blocks of a configuration: the limits and settings of each server and location.

use std::rc::Rc;

use sluicegate_policy::finding;
use sluicegate_policy::path::spelled;

use super::Importer;
use super::hosts::ServerNames;
use super::tokens::Directive;
use super::{is_limit, wrong};

/// The status of refusals, unless the configuration names another.
const STATUS: &str = "503";

/// The file that stands for a directory, unless the configuration names others.
const INDEX: &str = "index.html";

/// Most limits of one block: a policy has as many rules.
const LIMITS_MAX: usize = 8;

/// Most servers of a configuration: those of a large host. The names of each are compared with those of all others.
const SERVERS_MAX: usize = 1_000;

/// A limit of `limit_req` in a block.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequestLimit {
    pub(super) zone: String,
    pub(super) burst: u64,
    /// As `delay` of a policy, where it is not `all`.
    pub(super) delay: Option<Delay>,
    /// Only counted: `limit_req_dry_run`.
    pub(super) is_dry: bool,
}

/// `delay` of a leaky bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Delay {
    None,
    After(u64),
}

/// The settings of a block; inner blocks inherit them.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    /// The limits of the innermost block that has any.
    pub(super) requests: Rc<[RequestLimit]>,
    is_dry: bool,
    is_dry_of_connections: bool,
    status: String,
    status_of_connections: String,
    /// Files that stand for a directory: `index`.
    pub(super) index: Rc<[String]>,
    /// No directive answers requests, so that files do, and `index` has a meaning.
    pub(super) is_of_files: bool,
}

impl Default for Scope {
    fn default() -> Self {
        let status = || STATUS.to_owned();
        Self {
            requests: Rc::new([]),
            is_dry: false,
            is_dry_of_connections: false,
            status: status(),
            status_of_connections: status(),
            index: Rc::new([INDEX.to_owned()]),
            is_of_files: true,
        }
    }
}

/// A server with its settings and locations.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) line: u64,
    pub(super) names: ServerNames,
    /// Outside of its locations.
    pub(super) scope: Scope,
    /// Locations that are a path, at any depth.
    pub(super) places: Vec<Place>,
    /// Other locations, which no `match` can express.
    pub(super) others: Vec<Other>,
    /// Directives that lead requests from one location to another.
    pub(super) jumps: Vec<Jump>,
}

/// The block that contains a location.
#[derive(Clone, Copy, Debug)]
enum Outer {
    /// The server, or one of its places.
    Place(Option<usize>),
    /// A location that is not a path.
    Other,
}

/// A location that is a path.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) line: u64,
    pub(super) path: String,
    pub(super) is_exact: bool,
    /// `^~`: nginx does not try regular expressions.
    pub(super) is_first: bool,
    /// `internal`: only other locations lead to it.
    pub(super) is_internal: bool,
    /// The place of the location that contains it.
    pub(super) outer: Option<usize>,
    pub(super) scope: Scope,
}

/// A location that is a regular expression or a name.
#[derive(Debug)]
pub(super) struct Other {
    pub(super) line: u64,
    /// As it is written.
    pub(super) text: String,
    pub(super) is_name: bool,
    pub(super) scope: Scope,
}

/// A directive that leads requests to another location.
#[derive(Debug)]
pub(super) struct Jump {
    pub(super) line: u64,
    pub(super) directive: String,
    /// The settings of the block that contains it.
    pub(super) scope: Scope,
    /// The directive takes effect before the limits of its location: `rewrite`.
    pub(super) is_early: bool,
    /// The path that it leads to; `None` if that depends on the request.
    pub(super) target: Option<String>,
}

impl Importer {
    /// The servers of a configuration: those of its `http` blocks, or those in a text that is the inside of one.
    pub(super) fn servers(&mut self, directives: &[Directive]) -> Vec<Server> {
        let has_http = directives.iter().any(|directive| directive.name() == "http");
        let mut servers = Vec::new();
        if !has_http {
            self.http(directives, &Scope::default(), &mut servers);
            return servers;
        }
        for directive in directives {
            match (directive.name(), directive.block.as_deref()) {
                ("http", Some(inner)) => self.http(inner, &Scope::default(), &mut servers),
                (_, Some(inner)) => self.skipped(directive, inner),
                _ => (),
            }
        }
        servers
    }

    fn http(&mut self, directives: &[Directive], outer: &Scope, servers: &mut Vec<Server>) {
        let scope = self.scope(directives, outer);
        let has_locations = directives.iter().any(|directive| directive.name() == "location");
        let is_server =
            |directive: &Directive| directive.name() == "server" && directive.block.is_some();
        let is_one_server = has_locations || !directives.iter().any(is_server);
        let first = servers.len();
        if is_one_server {
            servers.push(self.server(1, directives, &scope));
        }
        for directive in directives {
            let Some(inner) = directive.block.as_deref() else { continue };
            match directive.name() {
                "server" if servers.len() == SERVERS_MAX => {
                    let problem =
                        finding!("nginx_servers", "more than {max} servers", max = SERVERS_MAX);
                    return self.widens(directive.line, problem);
                }
                "server" => {
                    let scope = self.scope(inner, &scope);
                    servers.push(self.server(directive.line, inner, &scope));
                }
                _ if is_one_server => (),
                _ => self.skipped(directive, inner),
            }
        }
        if !is_one_server {
            for server in &mut servers[first..] {
                let jumps =
                    directives.iter().filter_map(|directive| jump(directive, &server.scope));
                server.jumps.extend(jumps.collect::<Vec<_>>());
            }
        }
    }

    /// Notes the limits in a block that is not read: of another module, or one in which nginx does not allow limits.
    fn skipped(&mut self, directive: &Directive, inner: &[Directive]) {
        if has_limits(inner) {
            let problem = finding!(
                "nginx_block",
                "the limits in `{block}` were not imported",
                block = directive.name()
            );
            self.widens(directive.line, problem);
        }
    }

    fn server(&mut self, line: u64, directives: &[Directive], scope: &Scope) -> Server {
        let names = ServerNames::read(directives);
        let (places, others, jumps) = Default::default();
        let mut server = Server { line, names, scope: scope.clone(), places, others, jumps };
        self.locations(directives, scope, &mut server, Outer::Place(None));
        server
    }

    fn locations(
        &mut self,
        directives: &[Directive],
        scope: &Scope,
        server: &mut Server,
        at: Outer,
    ) {
        server.jumps.extend(directives.iter().filter_map(|directive| jump(directive, scope)));
        for directive in directives {
            let Some(inner) = directive.block.as_deref() else { continue };
            match directive.name() {
                "location" => {
                    let scope = self.scope(inner, scope);
                    self.location(directive, &scope, server, at);
                }
                "server" => (),
                "if" | "limit_except" => {
                    self.skipped(directive, inner);
                    self.ignored(inner);
                    server
                        .jumps
                        .extend(inner.iter().filter_map(|directive| jump(directive, scope)));
                }
                _ => self.skipped(directive, inner),
            }
        }
    }

    fn location(&mut self, directive: &Directive, scope: &Scope, server: &mut Server, at: Outer) {
        let Some((how, path)) = location_of(directive.arguments()) else {
            return self.widens(directive.line, wrong(directive));
        };
        let inner = directive.block.as_deref().unwrap_or_default();
        let mut within = Outer::Other;
        match (how, at) {
            ("" | "=" | "^~", Outer::Place(outer)) if path.starts_with('/') => {
                within = Outer::Place(Some(server.places.len()));
                let (is_exact, is_first) = (how == "=", how == "^~");
                let is_internal = inner.iter().any(|directive| directive.name() == "internal");
                // nginx compares the decoded path.
                let (path, scope) = (spelled(path.as_bytes()), scope.clone());
                let line = directive.line;
                server.places.push(Place {
                    line,
                    path,
                    is_exact,
                    is_first,
                    is_internal,
                    outer,
                    scope,
                });
            }
            // Not a path.
            ("" | "=" | "^~", Outer::Place(_)) => (),
            _ => {
                let (line, text) = (directive.line, directive.arguments().join(" "));
                let is_name = how == "@";
                server.others.push(Other { line, text, is_name, scope: scope.clone() });
            }
        }
        self.locations(inner, scope, server, within);
    }

    /// Returns the settings of a block inside `outer`.
    fn scope(&mut self, directives: &[Directive], outer: &Scope) -> Scope {
        let mut scope = outer.clone();
        self.ignored(directives);
        let index = directives.iter().filter(|directive| directive.name() == "index");
        let index: Vec<_> = index.flat_map(|index| index.arguments().iter().cloned()).collect();
        if !index.is_empty() {
            scope.index = index.into();
        }
        scope.is_of_files = !directives.iter().any(answers);
        let mut is_status = false;
        for directive in directives {
            let value = || directive.arguments().first().cloned().unwrap_or_default();
            match directive.name() {
                "limit_req_dry_run" => scope.is_dry = value() == "on",
                "limit_conn_dry_run" => scope.is_dry_of_connections = value() == "on",
                "limit_req_status" => (scope.status, is_status) = (value(), true),
                "limit_conn_status" => scope.status_of_connections = value(),
                _ => (),
            }
        }
        let of = |name| directives.iter().filter(move |limit: &&Directive| limit.name() == name);
        let own: Vec<_> = of("limit_req").collect();
        let is_dry = scope.is_dry;
        let dry = |limit: RequestLimit| RequestLimit { is_dry, ..limit };
        if own.is_empty() && is_dry != outer.is_dry {
            scope.requests = scope.requests.iter().cloned().map(dry).collect();
        } else if let Some(first) = own.first() {
            if own.len() > LIMITS_MAX {
                let problem = finding!(
                    "nginx_limits",
                    "more than {max} limits in one block",
                    max = LIMITS_MAX
                );
                self.widens(first.line, problem);
            }
            let limits = own.iter().take(LIMITS_MAX).filter_map(|limit| self.request_limit(limit));
            scope.requests = limits.map(dry).collect();
        }
        if let Some(first) = own.first() {
            self.note_status(first.line, &scope.status);
        } else if is_status && !scope.requests.is_empty() {
            let line = of("limit_req_status").map(|status| status.line).next().unwrap_or_default();
            self.note_status(line, &scope.status);
        }
        for limit in of("limit_conn") {
            self.note_status(limit.line, &scope.status_of_connections);
            self.connection_limit(limit, scope.is_dry_of_connections);
        }
        scope
    }

    fn note_status(&mut self, line: u64, status: &str) {
        if status != "429" && self.statuses.insert(status.to_owned()) {
            let problem = finding!(
                "nginx_status",
                "nginx refuses with status {status}; a policy refuses with 429",
                status
            );
            self.differs(line, problem);
        }
    }

    /// Notes directives that have no meaning for a policy.
    fn ignored(&mut self, directives: &[Directive]) {
        for directive in directives {
            let value = directive.arguments().first().map_or("", String::as_str);
            match directive.name() {
                "limit_rate" if value != "0" => {
                    let problem = finding!(
                        "nginx_bytes",
                        "`limit_rate` limits the bytes of a response: a policy cannot"
                    );
                    self.widens(directive.line, problem);
                }
                name @ ("limit_rate_after" | "limit_req_log_level" | "limit_conn_log_level") => {
                    let problem =
                        finding!("nginx_ignored", "`{name}` has no meaning for a policy", name);
                    self.differs(directive.line, problem);
                }
                "include" if !is_plain_include(value) => {
                    let problem = finding!(
                        "nginx_include",
                        "`{file}` was not read: put its lines in place of this one",
                        file = value
                    );
                    self.widens(directive.line, problem);
                }
                _ => (),
            }
        }
    }
}

/// A modifier and a path: `= /login`, also `=/login`; a named location has the modifier `@`.
fn location_of(arguments: &[String]) -> Option<(&str, &str)> {
    match arguments {
        [how, path] if matches!(how.as_str(), "=" | "^~" | "~" | "~*") => Some((how, path)),
        [name] if name.starts_with('@') => Some(("@", name)),
        [path] => {
            let modifier = ["=", "^~", "~*", "~"].into_iter().find(|how| path.starts_with(how));
            let modifier = modifier.unwrap_or_default();
            Some((modifier, &path[modifier.len()..]))
        }
        _ => None,
    }
}

/// Returns the jump that `directive` makes, if it leads requests to another location.
fn jump(directive: &Directive, scope: &Scope) -> Option<Jump> {
    let arguments = directive.arguments();
    let last = arguments.last().map_or("", String::as_str);
    let (is_early, target) = match directive.name() {
        "rewrite" => {
            let to = arguments.get(1).map_or("", String::as_str);
            let is_elsewhere = to.starts_with("http://")
                || to.starts_with("https://")
                || to.starts_with("$scheme");
            if matches!(last, "redirect" | "permanent") || is_elsewhere {
                return None;
            }
            (true, to)
        }
        "try_files" | "error_page" => (false, last),
        "auth_request" if last != "off" => (false, last),
        _ => return None,
    };
    let is_other = target.starts_with('=') || target.starts_with('@') || target.contains("://");
    if is_other {
        return None;
    }
    let path = target.split('?').next().unwrap_or_default();
    let is_written = path.starts_with('/') && !path.contains('$');
    Some(Jump {
        line: directive.line,
        directive: directive.name().to_owned(),
        scope: scope.clone(),
        is_early,
        target: is_written.then(|| path.to_owned()),
    })
}

/// Returns whether `directive` answers requests itself, or has another server answer them.
fn answers(directive: &Directive) -> bool {
    let name = directive.name();
    name.ends_with("_pass") || matches!(name, "return" | "stub_status" | "empty_gif")
}

/// Files of the packages of nginx, which limit nothing.
fn is_plain_include(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or_default();
    matches!(name, "mime.types" | "fastcgi.conf" | "koi-utf" | "koi-win" | "win-utf")
        || name.ends_with("_params")
}

fn has_limits(directives: &[Directive]) -> bool {
    let inner = |directive: &Directive| directive.block.as_deref().is_some_and(has_limits);
    directives.iter().any(|directive| is_limit(directive) || inner(directive))
}

//! The requests that a limit holds for: those whose most specific location has it.
//!
//! nginx chooses one location: the exact one, else the longest that the path begins with. So a limit of `/` does not
//! hold in `/api/` if that has limits of its own, and the policy's `match` excepts it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sluicegate_policy::finding;
use sluicegate_policy::limits::{HOSTS_MAX, MATCHES_MAX};

use super::Importer;
use super::hosts::{self, Hosts};
use super::server::{Jump, Place, RequestLimit, Scope, Server};

/// The requests of a server outside of its locations, or a location.
struct Spot<'s> {
    line: u64,
    /// None: all paths.
    path: Option<&'s str>,
    is_exact: bool,
    scope: &'s Scope,
    limits: &'s [RequestLimit],
    /// The innermost spot that contains it.
    outer: Option<usize>,
    /// The spots directly inside it.
    inner: Vec<usize>,
}

/// Requests of a server: those of a path, without those of some.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Area {
    path: PathOf,
    except: Vec<PathOf>,
}

/// A path as policies write it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PathOf {
    All,
    Exact(String),
    Below(String),
    StartsWith(String),
}

/// The areas of each limit in a server.
type Areas = BTreeMap<RequestLimit, Vec<Area>>;

/// The areas in which the limits of a configuration hold.
pub(super) struct Regions {
    /// By server.
    areas: Vec<Areas>,
    hosts: Vec<Vec<Hosts>>,
}

impl Regions {
    pub(super) fn of(servers: &[Server]) -> Self {
        let areas = servers.iter().map(areas).collect();
        let names: Vec<_> = servers.iter().map(|server| &server.names).collect();
        Self { areas, hosts: hosts::all(&names) }
    }

    /// All limits that hold somewhere.
    pub(super) fn limits(&self) -> BTreeSet<&RequestLimit> {
        self.areas.iter().flat_map(BTreeMap::keys).collect()
    }

    /// Returns whether this limit holds for some requests of a server.
    pub(super) fn holds(&self, limit: &RequestLimit, server: usize) -> bool {
        self.areas[server].get(limit).is_some_and(|areas| !areas.is_empty())
    }

    /// The cases of a `match` for the requests that have this limit, of one server or of all.
    pub(super) fn cases(&self, limit: &RequestLimit, only: Option<usize>) -> Vec<Value> {
        let areas = |at: usize| match only {
            Some(only) if only != at => &[][..],
            _ => self.areas[at].get(limit).map_or(&[][..], Vec::as_slice),
        };
        let first = areas(0);
        // Where all servers have the same areas, the host does not matter.
        if (1..self.areas.len()).all(|at| areas(at) == first) {
            return first.iter().map(|area| case(&Hosts::default(), area)).collect();
        }
        // Two servers may have the same requests: one redirects to the other.
        let mut found = BTreeSet::new();
        let mut cases = Vec::new();
        for (at, hosts) in self.hosts.iter().enumerate() {
            for area in areas(at) {
                for hosts in hosts {
                    if found.insert((hosts, area)) {
                        cases.push(case(hosts, area));
                    }
                }
            }
        }
        cases
    }
}

fn case(hosts: &Hosts, area: &Area) -> Value {
    let mut case = json!({});
    if !hosts.of.is_empty() {
        case["host"] = json!(hosts.of);
    }
    case["path"] = area.path.document();
    let mut except = Vec::new();
    except.extend(hosts.except.chunks(HOSTS_MAX).map(|hosts| json!({ "host": hosts })));
    except.extend(area.except.iter().map(|path| json!({ "path": path.document() })));
    if !except.is_empty() {
        case["except"] = except.into();
    }
    case
}

impl PathOf {
    fn of(spot: &Spot<'_>) -> Self {
        match spot.path {
            None => Self::All,
            Some(path) if spot.is_exact => Self::Exact(path.to_owned()),
            Some(path) if path.ends_with('/') => Self::Below(path.to_owned()),
            Some(path) => Self::StartsWith(path.to_owned()),
        }
    }

    fn document(&self) -> Value {
        match self {
            Self::All => json!({ "prefix": "/" }),
            Self::Exact(path) => json!({ "exact": path }),
            Self::Below(path) => json!({ "prefix": path }),
            Self::StartsWith(path) => json!({ "starts_with": path }),
        }
    }
}

/// The areas in which the limits of a server hold.
fn areas(server: &Server) -> Areas {
    let spots = spots(server);
    let mut areas = Areas::new();
    for (at, spot) in spots.iter().enumerate() {
        for limit in spot.limits {
            let is_around = spot.outer.is_some_and(|outer| spots[outer].limits.contains(limit));
            if !is_around {
                let except = exceptions(&spots, at, limit);
                areas
                    .entry(limit.clone())
                    .or_default()
                    .push(Area { path: PathOf::of(spot), except });
            }
        }
    }
    areas
}

/// The outermost spots in `spots[at]` in which `limit` does not hold: as many as a `match` may have, and one more.
fn exceptions(spots: &[Spot<'_>], at: usize, limit: &RequestLimit) -> Vec<PathOf> {
    let mut except = Vec::new();
    let mut left: Vec<_> = spots[at].inner.iter().rev().copied().collect();
    while let Some(at) = left.pop().filter(|_| except.len() <= MATCHES_MAX) {
        let spot = &spots[at];
        if spot.limits.contains(limit) {
            left.extend(spot.inner.iter().rev());
        } else {
            except.push(PathOf::of(spot));
        }
    }
    except
}

/// The places that requests reach: nginx looks into a location only after it chose it among those beside it. So no
/// request reaches `/a/bc` in `/a/` if there is `/a/b` beside `/a/`.
fn reachable(places: &[Place]) -> impl Iterator<Item = &Place> {
    let beside: BTreeSet<_> =
        places.iter().map(|place| (place.outer, place.path.as_str(), place.is_exact)).collect();
    places.iter().filter(move |place| {
        let path = place.path.as_str();
        let mut outer = place.outer;
        while let Some(at) = outer {
            outer = places[at].outer;
            let is_taken = |end: usize| {
                path.get(..end).is_some_and(|longer| beside.contains(&(outer, longer, false)))
            };
            let is_exact = place.is_exact && beside.contains(&(outer, path, true));
            if is_exact || (places[at].path.len() + 1..=path.len()).any(is_taken) {
                return false;
            }
        }
        true
    })
}

/// The spots of a server, each after the one that contains it; the first contains all.
fn spots<'s>(server: &'s Server) -> Vec<Spot<'s>> {
    let mut places: BTreeMap<(&str, bool), (u64, &Scope)> = BTreeMap::new();
    for place in reachable(&server.places) {
        // Of two that are equal, the first: nginx does not start with both.
        places.entry((&place.path, place.is_exact)).or_insert((place.line, &place.scope));
    }
    let spot = |(line, scope): (u64, &'s Scope), path, is_exact, outer| {
        let (limits, inner) = (&*scope.requests, Vec::new());
        Spot { line, path, is_exact, scope, limits, outer, inner }
    };
    let all = places.remove(&("/", false)).unwrap_or((server.line, &server.scope));
    let mut spots = vec![spot(all, None, false, None)];
    // In this order a prefix stands before the paths that begin with it: those around the present one, outermost first.
    let mut around: Vec<usize> = vec![0];
    for ((path, is_exact), place) in places {
        let is_in = |spot: &Spot<'_>| {
            !spot.is_exact && spot.path.is_none_or(|outer| path.starts_with(outer))
        };
        while around.last().is_some_and(|at| !is_in(&spots[*at])) {
            around.pop();
        }
        let outer = around.last().copied().unwrap_or_default();
        let at = spots.len();
        spots[outer].inner.push(at);
        spots.push(spot(place, Some(path), is_exact, Some(outer)));
        around.push(at);
    }
    spots
}

/// Limits of the blocks of a server, compared.
struct Compared<'s> {
    /// Each list of limits once.
    lists: BTreeSet<&'s [RequestLimit]>,
}

impl<'s> Compared<'s> {
    fn of(server: &'s Server, is_of: impl Fn(&Place) -> bool) -> Self {
        let is_all = |place: &Place| place.path == "/" && !place.is_exact;
        let outside = Some(&*server.scope.requests).filter(|_| !server.places.iter().any(is_all));
        let places = server.places.iter().filter(|place| is_of(place));
        let lists = places.map(|place| &*place.scope.requests).chain(outside);
        Self { lists: lists.collect() }
    }

    /// The list, if there is only one.
    fn only(&self) -> Option<&'s [RequestLimit]> {
        self.lists.first().copied().filter(|_| self.lists.len() == 1)
    }

    /// The limits that all lists have.
    fn common(&self) -> Vec<&'s RequestLimit> {
        let Some(first) = self.lists.first() else { return Vec::new() };
        first.iter().filter(|limit| self.lists.iter().all(|list| list.contains(limit))).collect()
    }
}

impl Importer {
    /// Notes differences between servers that a `match` cannot express.
    pub(super) fn note_servers(&mut self, servers: &[Server]) {
        let all: Vec<_> = servers.iter().map(|server| Compared::of(server, |_| true)).collect();
        let first = all.first().and_then(Compared::only);
        let is_same = first.is_some() && all.iter().all(|compared| compared.only() == first);
        for (server, compared) in servers.iter().zip(&all) {
            self.note_locations(server, compared);
            self.note_jumps(server);
            self.note_indexes(server);
            self.note_internals(server);
            let [name, ..] = &server.names.unsaid[..] else { continue };
            if is_same || servers.len() == 1 {
                continue;
            }
            let problem = finding!(
                "nginx_server_name",
                "`server_name {name}`: policies match names and `*.name` only; the limits of the default server hold for its requests",
                name
            );
            if compared.only().is_some_and(<[_]>::is_empty) {
                self.differs(server.line, problem);
            } else {
                self.widens(server.line, problem);
            }
        }
    }

    /// Notes locations that are not a path.
    fn note_locations(&mut self, server: &Server, all: &Compared<'_>) {
        let around = Compared::of(server, |place| !place.is_first && !place.is_exact);
        let common = around.common();
        for other in &server.others {
            let (limits, location) = (&*other.scope.requests, &other.text);
            // nginx counts a request once: in the location that it came from, if that has limits.
            let is_counted = if other.is_name {
                limits.is_empty() || !all.lists.contains(&[][..])
            } else {
                limits.iter().all(|limit| common.contains(&limit))
            };
            if !is_counted {
                let problem = finding!(
                    "nginx_location",
                    "`location {location}`: policies match paths and prefixes only; its limits were not imported",
                    location
                );
                self.widens(other.line, problem);
            } else if !other.is_name && around.only() != Some(limits) {
                let problem = finding!(
                    "nginx_regex",
                    "`location {location}`: policies match paths and prefixes only; the limits of each path hold in it",
                    location
                );
                self.differs(other.line, problem);
            }
        }
    }

    /// Notes requests that nginx limits in another location than that of their path.
    fn note_jumps(&mut self, server: &Server) {
        let spots = spots(server);
        let all: BTreeSet<_> = spots.iter().flat_map(|spot| spot.limits).collect();
        let is_wide = |jump: &&Jump| {
            let from = &jump.scope.requests;
            let is_once = !jump.is_early && !from.is_empty();
            let is_counted = match &jump.target {
                Some(path) => spot_of(&spots, path).limits.iter().all(|limit| from.contains(limit)),
                None => all.iter().all(|limit| from.contains(limit)),
            };
            !is_once && !is_counted
        };
        for jump in server.jumps.iter().filter(is_wide) {
            let problem = finding!(
                "nginx_jump",
                "`{directive}` leads requests to locations with other limits; a policy holds for the path that was asked for",
                directive = jump.directive
            );
            self.widens(jump.line, problem);
        }
    }

    /// Notes limits of internal locations: a policy does not limit the requests that other locations lead there.
    fn note_internals(&mut self, server: &Server) {
        let is_open = |place: &Place| place.scope.requests.is_empty() && !place.is_internal;
        let has_open = server.scope.requests.is_empty() || server.places.iter().any(is_open);
        for place in server.places.iter().filter(|place| place.is_internal) {
            if has_open && !place.scope.requests.is_empty() {
                let problem = finding!(
                    "nginx_internal",
                    "no client asks for `{path}`, which is `internal`: its limits were not imported",
                    path = place.path
                );
                self.widens(place.line, problem);
            }
        }
    }

    /// Notes directories without a limit whose `index` has one: nginx limits the request of the directory by it.
    fn note_indexes(&mut self, server: &Server) {
        let spots = spots(server);
        let paths = spots.iter().map(|spot| spot.path.unwrap_or("/"));
        let directories: BTreeSet<_> =
            paths.filter_map(|path| Some(&path[..=path.rfind('/')?])).collect();
        for directory in directories {
            let from = spot_of(&spots, directory);
            if !from.limits.is_empty() || !from.scope.is_of_files {
                continue;
            }
            let target = |file: &String| match file.starts_with('/') {
                true => file.clone(),
                false => format!("{directory}{file}"),
            };
            let mut files = from.scope.index.iter().map(target);
            let Some(file) = files.find(|file| !spot_of(&spots, file).limits.is_empty()) else {
                continue;
            };
            let problem = finding!(
                "nginx_index",
                "nginx answers `{directory}` by its `index` {file}, which has limits; a policy holds for the path that was asked for",
                directory,
                file
            );
            self.widens(from.line, problem);
        }
    }

    /// Returns whether a `match` can have these cases; adds a note if not.
    pub(super) fn fits(&mut self, cases: &[Value], line: u64) -> bool {
        let exceptions = |case: &Value| case["except"].as_array().map_or(0, Vec::len);
        let fits = cases.iter().all(|case| exceptions(case) <= MATCHES_MAX);
        if !fits {
            let problem = finding!(
                "nginx_exceptions",
                "the limit was not imported: more than {max} locations in its place do not have it",
                max = MATCHES_MAX
            );
            self.widens(line, problem);
        }
        fits
    }
}

/// The spot of a path.
fn spot_of<'a, 's>(spots: &'a [Spot<'s>], path: &str) -> &'a Spot<'s> {
    let mut found = &spots[0];
    loop {
        let is_in = |spot: &&Spot<'_>| {
            let of = spot.path.unwrap_or_default();
            if spot.is_exact { path == of } else { path.starts_with(of) }
        };
        let inner = || found.inner.iter().map(|at| &spots[*at]);
        let exact = inner().find(|spot| spot.is_exact && is_in(spot));
        match exact.or_else(|| inner().find(is_in)) {
            Some(inner) => found = inner,
            None => return found,
        }
    }
}

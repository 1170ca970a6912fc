//! The parameters of each route, which its description lists, and beyond which a request has none.

use super::route::Route;
use crate::access::Action;

/// A parameter of a route: where it is sent, its name and type, whether it must be there, and what it is.
pub(super) type Parameter<'p> = (&'static str, &'p str, &'static str, bool, &'static str);

const CURSOR: &str = "Cursor: `next` of the previous page.";

/// Returns the parameters of `route`; a request with another one in its query gets 400.
pub(super) fn parameters(route: &Route) -> Vec<Parameter<'_>> {
    let steps = route.path.split('/');
    let of_path = steps
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| ("path", name, "string", true, "Name of the resource."));
    let mut all: Vec<Parameter<'_>> = of_path.collect();
    if route.action.writes() {
        let reason = "Reason for the change, recorded in the audit.";
        all.push(("query", "reason", "string", false, reason));
    }
    if route.action.can_be_shown() {
        let again = "Identifies the request: if sent again, it is executed only once.";
        all.extend([
            ("query", "dry_run", "boolean", false, "If true, only shows what would change."),
            ("query", "force", "boolean", false, "If true, ignores warnings."),
            ("header", "Idempotency-Key", "string", false, again),
        ]);
    }
    if route.asks == Some("NewPolicy") {
        let state = "State of a policy that is sent as YAML: `shadow` (default) or `active`.";
        all.push(("query", "state", "string", false, state));
    }
    if route.is_called_back {
        let error = "Error reported by the provider instead of a code.";
        all.extend([
            ("query", "code", "string", false, "Authorization code from the provider."),
            ("query", "state", "string", true, "State sent to the provider."),
            ("query", "error", "string", false, error),
        ]);
    }
    if route.is_versioned {
        all.push(("header", "If-Match", "string", true, "`ETag` of the resource to change."));
    }
    if route.action == Action::ApplyPolicies {
        let tag = "`ETag` of a dry run: applies exactly what it showed, or fails.";
        all.push(("header", "If-Match", "string", false, tag));
    }
    if route.action == Action::Watch {
        all.extend(STREAM.map(|(name, what)| ("query", name, "string", false, what)));
    }
    all.extend(of_answer(route.answers));
    all
}

/// Returns the names that the query of a request to `route` may have.
pub(super) fn query_names(route: &Route) -> Vec<&str> {
    let parameters = parameters(route).into_iter().filter(|(place, ..)| *place == "query");
    parameters.map(|(_, name, ..)| name).collect()
}

/// Returns the parameters that depend on the schema of the answer.
fn of_answer(answers: Option<&str>) -> Vec<Parameter<'static>> {
    let mut all: Vec<Parameter<'static>> = Vec::new();
    let list = LISTS.iter().find(|(list, _)| answers == Some(list) && !SHORT_LISTS.contains(list));
    if let Some((list, _)) = list {
        let limit = match *list {
            "Policies" | "Versions" | "Entries" => "Page size, 1 to 100; default 100.",
            _ => "Page size, 1 to 1000; default 100.",
        };
        all.extend([
            ("query", "after", "string", false, CURSOR),
            ("query", "limit", "integer", false, limit),
        ]);
    }
    if matches!(answers, Some("PolicySummaries" | "Hits" | "People")) {
        let name = "Only names that contain this text.";
        all.push(("query", "q", "string", false, name));
    }
    if answers == Some("PolicySummaries") {
        let order = "`name` (default), or `updated`: the latest change first.";
        all.push(("query", "sort", "string", false, order));
    }
    if matches!(answers, Some("Policies" | "PolicySummaries")) {
        let state = "Only policies in this state; default: all but deleted ones.";
        all.push(("query", "state", "string", false, state));
    }
    if answers == Some("Entries") {
        all.extend([
            (
                "query",
                "actor",
                "string",
                false,
                "Only entries of this actor, such as `account:ada`.",
            ),
            ("query", "action", "string", false, "Only this action, such as `policy.update`."),
            ("query", "target", "string", false, "Only entries about this object."),
            ("query", "outcome", "string", false, "Only `done`, `denied` or `failed`."),
            ("query", "since", "integer", false, "From this time on, in milliseconds since 1970."),
            ("query", "until", "integer", false, "Before this time, in milliseconds since 1970."),
        ]);
    }
    if answers == Some("Changes") {
        all.push(("query", "limit", "integer", false, "How many, 1 to 100; default 10."));
    }
    if answers == Some("EndingTokens") {
        let days = "Only tokens that expire within so many days, 1 to 731; default 14.";
        all.push(("query", "ends_within_days", "integer", false, days));
    }
    if answers == Some("Verified") {
        all.extend([
            ("query", "from_seq", "integer", false, "Number of an entry that was verified before."),
            ("query", "from_hash", "string", false, "Hash of that entry."),
        ]);
    }
    if answers == Some("Traffic") {
        all.extend(TRAFFIC.map(|(name, kind, what)| ("query", name, kind, false, what)));
    }
    if answers == Some("Diffs") {
        let (from, to) = (
            "Base version; default: the version before `to`.",
            "Version to compare; default: the current version.",
        );
        all.extend([
            ("query", "from", "integer", false, from),
            ("query", "to", "integer", false, to),
        ]);
    }
    all
}

/// Parameters of traffic over time.
const TRAFFIC: [(&str, &str, &str); 4] = [
    ("policy", "string", "Policy names, separated by commas, at most 50; default: all of the app."),
    ("step", "string", "Length of a bucket: `10s` (default) or `5m`."),
    (
        "since",
        "integer",
        "From this time on, in milliseconds since 1970; default: all that is kept.",
    ),
    ("summary", "boolean", "If true, only sums and points of the last 5 minutes, of all policies."),
];

/// Parameters of a stream.
const STREAM: [(&str, &str); 3] = [
    ("policy", "Names of the policies to count, separated by commas, at most 50."),
    ("tail", "Name of the policy whose decisions are sent."),
    ("result", "Only decisions with this result, such as `refused`."),
];

/// Lists with the schema of their items.
pub(super) const LISTS: [(&str, &str); 14] = [
    ("Accounts", "Account"),
    ("Apps", "App"),
    ("Members", "Member"),
    ("Policies", "Policy"),
    ("Versions", "Version"),
    ("Tokens", "Token"),
    ("Entries", "Entry"),
    ("Nodes", "Node"),
    ("AppSummaries", "AppSummary"),
    ("PolicySummaries", "PolicySummary"),
    ("Hits", "Hit"),
    ("Changes", "PolicyChange"),
    ("Sessions", "Session"),
    ("People", "Person"),
];

/// Lists that have a single page.
const SHORT_LISTS: [&str; 4] = ["Hits", "Changes", "Sessions", "People"];

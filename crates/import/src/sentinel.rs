//! Sentinel of Alibaba: flow rules, a JSON array, become policies.
//!
//! | there | here |
//! |---|---|
//! | `grade: 1` (requests a second), `controlBehavior: 0` | `sliding_window: { limit: COUNT, window: 1s, buckets: 2 }` |
//! | `controlBehavior: 1`, `warmUpPeriodSec` | `smooth_warmup: { rate: COUNT/s, warmup: 10s }`, cold factor 3 |
//! | `controlBehavior: 2`, `maxQueueingTimeMs` | `leaky_bucket`, of which as many wait as pass in that time |
//! | `controlBehavior: 3` | `smooth_warmup` |
//! | `grade: 0` (threads) | `concurrency: { limit: COUNT, ttl: 60s }` |
//! | `resource` | the name; one that is a path, `GET:/orders`, also `match` |
//!
//! Rules of one resource are one policy, as all of them have to pass.
//!
//! Sources: the wiki of Sentinel (*Flow Control*), and `FlowRule`, `FlowRuleUtil`, `ThrottlingController` and
//! `WarmUpController` of its 1.8.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluicegate_policy::{Finding, finding};

use crate::names::Names;
use crate::rates::{decimal, per_second};
use crate::{Imported, ImportedPolicy, Note};

/// How long a request may be handled before its place is free again, if its end is not reported.
const TTL: &str = "60s";

/// The fields that change a limit; all other fields are noted.
const FIELDS: [&str; 9] = [
    "resource",
    "limitApp",
    "grade",
    "count",
    "strategy",
    "controlBehavior",
    "warmUpPeriodSec",
    "maxQueueingTimeMs",
    "clusterMode",
];

/// What is noted of nothing: they have no meaning for a limit.
const SILENT: [&str; 5] = ["refResource", "clusterConfig", "id", "regex", "gmtCreate"];

pub(crate) fn import(text: &str) -> Result<Imported, Vec<Note>> {
    let rules: Vec<Value> = serde_json::from_str(text).map_err(|error| {
        let (line, problem) = (error.line() as u64, error.to_string());
        let problem = finding!("import_wrong", "{problem}", problem);
        vec![Note { line: (line > 0).then_some(line), finding: problem }]
    })?;
    let mut importer = Importer::default();
    for (place, rule) in rules.iter().enumerate() {
        importer.rule(place, rule);
    }
    Ok(importer.imported())
}

#[derive(Debug, Default)]
struct Importer {
    /// The rules by resource, those of threads apart.
    found: BTreeMap<(String, bool), Vec<Value>>,
    order: Vec<(String, bool)>,
    notes: Vec<Note>,
}

/// A rule whose numbers make sense.
struct FlowRule<'a> {
    /// What it is called in notes.
    rule: &'a str,
    /// Permits a second, or threads.
    count: String,
    value: &'a Value,
}

impl Importer {
    fn note(&mut self, finding: Finding) {
        self.notes.push(Note { line: None, finding });
    }

    fn rule(&mut self, place: usize, value: &Value) {
        let resource = value["resource"].as_str().unwrap_or_default();
        let rule = &format!("[{place}] `{resource}`");
        let Some(fields) = value.as_object().filter(|_| !resource.is_empty()) else {
            let problem =
                finding!("sentinel_resource", "{rule}: not imported: it has no `resource`", rule);
            return self.note(problem);
        };
        let known = |name: &str| FIELDS.contains(&name) || SILENT.contains(&name);
        let unknown: Vec<_> =
            fields.keys().map(String::as_str).filter(|name| !known(name)).collect();
        if !unknown.is_empty() {
            let fields = unknown.join(", ");
            self.note(finding!(
                "sentinel_fields",
                "{rule}: without a meaning here: {fields}",
                rule,
                fields
            ));
        }
        if !matches!(value["strategy"].as_u64(), None | Some(0)) {
            return self.note(finding!(
                "sentinel_strategy",
                "{rule}: not imported: `strategy` 1 and 2 limit one resource by the traffic of another",
                rule
            ));
        }
        let caller = value["limitApp"].as_str().unwrap_or("default");
        if caller != "default" {
            self.note(finding!(
                "sentinel_caller",
                "{rule}: `limitApp` is `{caller}`: the policy counts all callers; give it an app or a key",
                rule,
                caller
            ));
        }
        if value["clusterMode"] != true {
            self.note(finding!(
                "sentinel_process",
                "{rule}: it was a limit of each process; the policy holds for all of them together",
                rule
            ));
        }
        let count = match &value["count"] {
            Value::Number(count) => count.to_string(),
            _ => String::new(),
        };
        match (FlowRule { rule, count, value }).limit() {
            Ok((is_threads, limit, notes)) => {
                notes.into_iter().for_each(|note| self.note(note));
                let at = (resource.to_owned(), is_threads);
                if !self.found.contains_key(&at) {
                    self.order.push(at.clone());
                }
                self.found.entry(at).or_default().push(limit);
            }
            Err(problem) => self.note(problem),
        }
    }

    fn imported(self) -> Imported {
        let Self { mut found, order, notes } = self;
        let mut names = Names::default();
        let policies = order.into_iter().map(|at| {
            let limits = found.remove(&at).unwrap_or_default();
            let (resource, is_threads) = at;
            let (matching, wanted) = matching(&resource);
            let wanted = if is_threads { format!("{wanted}-threads") } else { wanted };
            let mut document = json!({ "name": names.make(&wanted) });
            document["rules"] = limits
                .into_iter()
                .enumerate()
                .map(|(place, limit)| {
                    let mut rule = json!({ "name": format!("flow-{}", place + 1) });
                    if let (Some(rule), Value::Object(limit)) = (rule.as_object_mut(), limit) {
                        rule.extend(limit);
                    }
                    rule
                })
                .collect();
            // Permits are acquired by a program: no gateway asks for them.
            if let Some(matching) = matching.filter(|_| !is_threads) {
                document["match"] = matching;
            }
            ImportedPolicy { document, comment: None }
        });
        Imported { policies: policies.collect(), notes, descriptors: None }
    }
}

impl FlowRule<'_> {
    /// A field that is a whole number.
    fn number(&self, field: &str, absent: u64) -> Result<u64, Finding> {
        let wrong = || {
            let rule = self.rule;
            finding!(
                "sentinel_number",
                "{rule}: not imported: `{field}` is not a number that it can be",
                rule,
                field
            )
        };
        match &self.value[field] {
            Value::Null => Ok(absent),
            value => value.as_u64().ok_or_else(wrong),
        }
    }

    /// Whether it counts threads, its algorithm, and notes; or why it was not imported.
    fn limit(&self) -> Result<(bool, Value, Vec<Finding>), Finding> {
        let Self { rule, count, value: _ } = self;
        let no_count = || {
            let field = "count";
            finding!(
                "sentinel_number",
                "{rule}: not imported: `{field}` is not a number that it can be",
                rule,
                field
            )
        };
        let mut notes = Vec::new();
        let (units, parts) = decimal(count).ok_or_else(no_count)?;
        let rate = per_second(count).ok_or_else(no_count)?;
        let (whole, behavior) = (units / parts, self.number("controlBehavior", 0)?);
        let is_threads = self.number("grade", 1)? == 0;
        let is_whole = is_threads || behavior == 0;
        if units == 0 || is_whole && whole == 0 {
            return Err(finding!(
                "sentinel_closed",
                "{rule}: not imported: a `count` below 1 closes the resource, and a policy cannot",
                rule
            ));
        }
        if is_whole && parts > 1 {
            notes.push(finding!(
                "sentinel_rounded",
                "{rule}: `count` {count} is rounded down to {whole}",
                rule,
                count,
                whole
            ));
        }
        if is_threads {
            return Ok((true, json!({ "concurrency": { "limit": whole, "ttl": TTL } }), notes));
        }
        let warmup = format!("{}s", self.number("warmUpPeriodSec", 10)?);
        let limit = match behavior {
            0 => json!({ "sliding_window": { "limit": whole, "window": "1s", "buckets": 2 } }),
            1 => {
                notes.push(finding!(
                    "sentinel_spaced",
                    "{rule}: `smooth_warmup` spaces requests evenly; Sentinel lets those of a second come at once",
                    rule
                ));
                json!({ "smooth_warmup": { "rate": rate, "warmup": warmup } })
            }
            2 => {
                let queue_ms = self.number("maxQueueingTimeMs", 500)?;
                let waiting = units.saturating_mul(queue_ms) / parts / 1_000;
                json!({ "leaky_bucket": { "rate": rate, "burst": waiting } })
            }
            3 => {
                notes.push(finding!(
                    "sentinel_queue",
                    "{rule}: `maxQueueingTimeMs` has no meaning here: callers say how long they wait",
                    rule
                ));
                json!({ "smooth_warmup": { "rate": rate, "warmup": warmup } })
            }
            other => {
                return Err(finding!(
                    "sentinel_behavior",
                    "{rule}: not imported: `controlBehavior` {other} is not known",
                    rule,
                    other
                ));
            }
        };
        Ok((false, limit, notes))
    }
}

/// The requests of a resource that is a path, and what to call it.
fn matching(resource: &str) -> (Option<Value>, String) {
    let (method, path) = match resource.split_once(':') {
        Some((method, path))
            if path.starts_with('/') && method.bytes().all(|b| b.is_ascii_uppercase()) =>
        {
            (Some(method), path)
        }
        _ => (None, resource),
    };
    let is_path = path.starts_with('/') && !path.contains(['?', '#', '{', '*']);
    if !is_path {
        return (None, resource.to_owned());
    }
    let mut matching = json!({ "path": { "exact": path } });
    if let Some(method) = method.filter(|method| !method.is_empty()) {
        matching["method"] = json!([method]);
    }
    (Some(matching), resource.to_owned())
}

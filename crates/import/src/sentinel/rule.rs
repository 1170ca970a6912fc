//! One flow rule of Sentinel as a rule of a policy.

use serde_json::{Value, json};
use sluicegate_policy::{Finding, finding};

use crate::Note;
use crate::rates::decimal;

/// The time after which the place of a request is free again if its end is not reported.
const TTL: &str = "60s";

/// The fields that change a limit, or that mean nothing for one. All others are noted.
const KNOWN: [&str; 16] = [
    "resource",
    "limitApp",
    "grade",
    "count",
    "strategy",
    "controlBehavior",
    "warmUpPeriodSec",
    "maxQueueingTimeMs",
    "maxQueueingTimeoutMs",
    "clusterMode",
    "clusterConfig",
    "intervalSec",
    "burst",
    "paramItem",
    "resourceMode",
    "regex",
];

/// Fields that are never noted: they have no meaning for a limit.
const SILENT: [&str; 5] = ["refResource", "id", "gmtCreate", "gmtModified", "app"];

/// Fields of rules other than flow rules, with the names of those rules.
const OTHERS: [(&str, &str); 7] = [
    ("timeWindow", "circuit breaking"),
    ("slowRatioThreshold", "circuit breaking"),
    ("minRequestAmount", "circuit breaking"),
    ("paramIdx", "hot parameters"),
    ("paramFlowItemList", "hot parameters"),
    ("durationInSec", "hot parameters"),
    ("highestSystemLoad", "the load of a system"),
];

/// A rule as it is written.
pub(super) struct FlowRule<'a> {
    /// Its name in notes.
    pub(super) name: &'a str,
    pub(super) line: u64,
    pub(super) value: &'a Value,
    pub(super) notes: Vec<Note>,
}

/// A rule of a policy.
pub(super) struct Limit {
    pub(super) is_of_threads: bool,
    pub(super) key: Option<String>,
    pub(super) rule: Value,
}

/// A number of permits in a number of seconds.
struct Rate {
    permits: u64,
    per_s: u64,
}

impl FlowRule<'_> {
    /// The limit; `None`: it was not imported, which a note reports.
    pub(super) fn limit(&mut self) -> Option<Limit> {
        let (rule, value) = (self.name, self.value);
        let has_resource = value["resource"].as_str().is_some_and(|name| !name.is_empty());
        let Some(fields) = value.as_object().filter(|_| has_resource) else {
            return self.not_imported(finding!(
                "sentinel_resource",
                "{rule}: not imported: it has no `resource`",
                rule
            ));
        };
        if let Some((_, kind)) = OTHERS.iter().find(|(field, _)| fields.contains_key(*field)) {
            return self.not_imported(finding!(
                "sentinel_kind",
                "{rule}: not imported: it is a rule about {kind}, not a flow rule",
                rule,
                kind
            ));
        }
        if !matches!(value["strategy"].as_u64(), None | Some(0)) {
            return self.not_imported(finding!(
                "sentinel_strategy",
                "{rule}: not imported: `strategy` 1 and 2 limit one resource by the traffic of another",
                rule
            ));
        }
        match self.read() {
            Ok(limit) => {
                self.note_fields();
                Some(limit)
            }
            Err(problem) => self.not_imported(problem),
        }
    }

    fn not_imported<T>(&mut self, problem: Finding) -> Option<T> {
        self.notes.push(Note::widens(self.line, problem));
        None
    }

    fn differs(&mut self, problem: Finding) {
        self.notes.push(Note::differs(self.line, problem));
    }

    /// A field that is a whole number.
    fn number(&self, field: &str, absent: u64) -> Result<u64, Finding> {
        match &self.value[field] {
            Value::Null => Ok(absent),
            value => value.as_u64().ok_or_else(|| self.wrong_number(field)),
        }
    }

    fn wrong_number(&self, field: &str) -> Finding {
        let (rule, given) = (self.name, &self.value[field]);
        if given.is_null() {
            return finding!(
                "sentinel_missing",
                "{rule}: not imported: {field}: is missing",
                rule,
                field
            );
        }
        let is_text = given.is_string();
        let given = sluicegate_text::terminal::one_line(&given.to_string());
        if is_text {
            return finding!(
                "sentinel_text",
                "{rule}: not imported: {field}: `{given}` is a text; expected a number, without quotes",
                rule,
                field,
                given
            );
        }
        finding!(
            "sentinel_number",
            "{rule}: not imported: {field}: `{given}` is not a number that it can be",
            rule,
            field,
            given
        )
    }

    fn read(&mut self) -> Result<Limit, Finding> {
        let (rule, value) = (self.name, self.value);
        let count = match &value["count"] {
            Value::Number(count) => count.to_string(),
            _ => String::new(),
        };
        let (units, parts) = decimal(&count).ok_or_else(|| self.wrong_number("count"))?;
        let (grade, behavior) = (self.number("grade", 1)?, self.number("controlBehavior", 0)?);
        let interval_s = self.number("intervalSec", 1)?;
        let per_s = parts.checked_mul(interval_s).filter(|per_s| *per_s > 0);
        let per_s = per_s.ok_or_else(|| self.wrong_number("intervalSec"))?;
        if grade > 1 {
            return Err(finding!(
                "sentinel_grade",
                "{rule}: not imported: grade: `{grade}` is neither 0 (threads) nor 1 (requests per second)",
                rule,
                grade
            ));
        }
        let (whole, is_of_threads) = (units / parts, grade == 0);
        let is_whole = is_of_threads || behavior == 0;
        if units == 0 || is_whole && whole == 0 {
            return Err(finding!(
                "sentinel_closed",
                "{rule}: not imported: a `count` below 1 closes the resource, and a policy cannot",
                rule
            ));
        }
        if is_whole && parts > 1 {
            self.differs(finding!(
                "sentinel_rounded",
                "{rule}: `count` {count} is rounded down to {whole}",
                rule,
                count,
                whole
            ));
        }
        let key = self.key()?;
        let rule = if is_of_threads {
            json!({ "concurrency": { "limit": whole, "ttl": TTL } })
        } else if behavior == 0 {
            let window = format!("{interval_s}s");
            json!({ "sliding_window": { "limit": whole, "window": window, "buckets": 2 } })
        } else {
            self.paced(behavior, &Rate { permits: units, per_s })?
        };
        Ok(Limit { is_of_threads, key, rule })
    }

    /// A limit that spaces requests.
    fn paced(&mut self, behavior: u64, rate: &Rate) -> Result<Value, Finding> {
        let (rule, Rate { permits, per_s }) = (self.name, rate);
        let written = match per_s {
            1 => format!("{permits}/s"),
            per_s => format!("{permits}/{per_s}s"),
        };
        let warmup = format!("{}s", self.number("warmUpPeriodSec", 10)?);
        match behavior {
            1 => {
                self.differs(finding!(
                    "sentinel_spaced",
                    "{rule}: `smooth_warmup` spaces requests evenly; Sentinel lets those of a second come at once",
                    rule
                ));
                Ok(json!({ "smooth_warmup": { "rate": written, "warmup": warmup } }))
            }
            2 => {
                let of_gateway = self.number("maxQueueingTimeoutMs", 500)?;
                let queue_ms = self.number("maxQueueingTimeMs", of_gateway)?;
                let waiting = permits.saturating_mul(queue_ms) / per_s / 1_000;
                Ok(json!({ "leaky_bucket": { "rate": written, "burst": waiting } }))
            }
            3 => {
                self.differs(finding!(
                    "sentinel_queue",
                    "{rule}: `maxQueueingTimeMs` has no meaning here: callers say how long they wait",
                    rule
                ));
                Ok(json!({ "smooth_warmup": { "rate": written, "warmup": warmup } }))
            }
            other => Err(finding!(
                "sentinel_behavior",
                "{rule}: not imported: `controlBehavior` {other} is not known",
                rule,
                other
            )),
        }
    }

    /// The attribute that a gateway rule counts by.
    fn key(&mut self) -> Result<Option<String>, Finding> {
        let (rule, item) = (self.name, &self.value["paramItem"]);
        if item.is_null() {
            return Ok(None);
        }
        let key = match (item["parseStrategy"].as_u64(), item["fieldName"].as_str()) {
            (Some(0), _) => "remote_ip".to_owned(),
            (Some(1), _) => "host".to_owned(),
            (Some(2), Some(name)) => format!("header:{}", name.to_ascii_lowercase()),
            _ => {
                return Err(finding!(
                    "sentinel_parameter",
                    "{rule}: not imported: policies cannot make keys of this `paramItem`: only of client addresses, hosts and header fields",
                    rule
                ));
            }
        };
        if item["pattern"].as_str().is_some_and(|pattern| !pattern.is_empty()) {
            self.differs(finding!(
                "sentinel_values",
                "{rule}: the policy limits all values, not only those of `pattern`",
                rule
            ));
        }
        Ok(Some(key))
    }

    /// Notes fields by which as much passes as before, or less.
    fn note_fields(&mut self) {
        let (rule, value) = (self.name, self.value);
        let known = |name: &str| KNOWN.contains(&name) || SILENT.contains(&name);
        let fields = value.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
        let unknown: Vec<_> = fields.filter(|name| !known(name)).collect();
        if !unknown.is_empty() {
            let fields = unknown.join(", ");
            self.differs(finding!(
                "sentinel_fields",
                "{rule}: without a meaning here: {fields}",
                rule,
                fields
            ));
        }
        let caller = value["limitApp"].as_str().unwrap_or("default");
        if caller != "default" {
            self.differs(finding!(
                "sentinel_caller",
                "{rule}: `limitApp` is `{caller}`: the policy counts all callers; give it an app or a key",
                rule,
                caller
            ));
        }
        let burst = &value["burst"];
        if !burst.is_null() && *burst != json!(0) {
            self.differs(finding!(
                "sentinel_burst",
                "{rule}: the policy does not admit the {burst} of `burst` beside `count`",
                rule,
                burst
            ));
        }
        let is_of_all =
            value["clusterMode"] == true && value["clusterConfig"]["thresholdType"] == 1;
        if !is_of_all {
            self.differs(finding!(
                "sentinel_process",
                "{rule}: it was a limit of each process; the policy holds for all of them together",
                rule
            ));
        }
    }
}

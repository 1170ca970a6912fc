//! Sentinel of Alibaba: flow rules and gateway flow rules, a JSON array, become policies.
//!
//! | there | here |
//! |---|---|
//! | `grade: 1` (requests a second), `controlBehavior: 0` | `sliding_window: { limit: COUNT, window: 1s, buckets: 2 }` |
//! | `controlBehavior: 1`, `warmUpPeriodSec` | `smooth_warmup: { rate: COUNT/s, warmup: 10s }`, cold factor 3 |
//! | `controlBehavior: 2`, `maxQueueingTimeMs` | `leaky_bucket`, of which as many wait as pass in that time |
//! | `controlBehavior: 3` | `smooth_warmup` |
//! | `grade: 0` (threads) | `concurrency: { limit: COUNT, ttl: 60s }`, without `match`: it is acquired by its name |
//! | `intervalSec: 60` of a gateway rule | `window: 60s`, `rate: COUNT/60s` |
//! | `paramItem` of a gateway rule: client address, host, header | `key` |
//! | `resource` | the name; one that is a path, `GET:/orders`, also `match` |
//! | `/api/**`, `/products/{id}` | `match: { path: { prefix: /api } }`, `{ prefix: /products/ }` |
//!
//! Rules of one resource and key are one policy, as all of them have to pass.
//!
//! Sources: the wiki of Sentinel (*Flow Control*, *API Gateway Flow Control*), and `FlowRule`, `FlowRuleUtil`,
//! `ThrottlingController`, `WarmUpController` and `GatewayFlowRule` of its 1.8.

mod resource;
mod rule;

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use sluicegate_policy::finding;

use crate::names::Names;
use crate::{Imported, ImportedPolicy, Note};
use resource::Resource;
use rule::FlowRule;

pub(crate) fn import(text: &str) -> Result<Imported, Vec<Note>> {
    let rules: Vec<&RawValue> = serde_json::from_str(text).map_err(|error| {
        let (line, problem) = (error.line() as u64, error.to_string());
        let problem = match text.trim_start().starts_with('[') {
            true => finding!("import_wrong", "{problem}", problem),
            false => finding!(
                "sentinel_no_array",
                "expected a JSON array of flow rules, such as `[{{\"resource\": \"…\", \"count\": 10}}]`"
            ),
        };
        vec![Note::widens((line > 0).then_some(line), problem)]
    })?;
    let mut importer = Importer::default();
    let (mut line, mut read) = (1, 0);
    for (place, rule) in rules.into_iter().enumerate() {
        let begin = (rule.get().as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
        let between = text.get(read..begin).unwrap_or_default();
        line += between.bytes().filter(|byte| *byte == b'\n').count() as u64;
        read = begin;
        importer.rule(place, line, rule);
    }
    Ok(importer.imported())
}

#[derive(Debug, Default)]
struct Importer {
    /// The policies, in the order of their first rules.
    found: Vec<Found>,
    /// Their places, by resource, whether they count threads, and key.
    places: BTreeMap<(String, bool, Option<String>), usize>,
    notes: Vec<Note>,
}

/// The rules of one policy.
#[derive(Debug)]
struct Found {
    resource: Resource,
    is_of_threads: bool,
    key: Option<String>,
    line: u64,
    limits: Vec<Value>,
}

impl Importer {
    fn rule(&mut self, place: usize, line: u64, text: &RawValue) {
        let value: Value = serde_json::from_str(text.get()).unwrap_or_default();
        let resource = value["resource"].as_str().unwrap_or_default();
        let name = format!("[{place}] `{resource}`");
        let mut rule = FlowRule { name: &name, line, value: &value, notes: Vec::new() };
        let limit = rule.limit();
        self.notes.append(&mut rule.notes);
        let Some(limit) = limit else { return };
        let is_of_threads = limit.is_of_threads;
        let at = (resource.to_owned(), is_of_threads, limit.key.clone());
        if let Some(found) = self.places.get(&at).and_then(|place| self.found.get_mut(*place)) {
            return found.limits.push(limit.rule);
        }
        self.places.insert(at, self.found.len());
        let is_pattern = value["regex"] == true;
        let resource = Resource::read(resource, is_pattern);
        self.notes.extend(resource.notes(&name, line, is_of_threads));
        let (key, limits) = (limit.key, vec![limit.rule]);
        self.found.push(Found { resource, is_of_threads, key, line, limits });
    }

    fn imported(self) -> Imported {
        let Self { found, notes, places: _ } = self;
        let mut names = Names::default();
        let policies = found.into_iter().map(|found| {
            let Found { resource, is_of_threads, key, line, limits } = found;
            let wanted = match (is_of_threads, &key) {
                (true, _) => format!("{}-threads", resource.name),
                (false, Some(key)) => format!("{}-{key}", resource.name),
                (false, None) => resource.name.clone(),
            };
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
            if let Some(matching) = resource.matching.filter(|_| !is_of_threads) {
                document["match"] = matching;
            }
            if let Some(key) = key {
                document["key"] = json!([key]);
            }
            ImportedPolicy { document, comment: None, line: Some(line) }
        });
        Imported { policies: policies.collect(), notes, descriptors: None }
    }
}

//! The import of configurations of `envoyproxy/ratelimit`, the reference service behind Envoy.
//!
//! A configuration is one file for each domain: nested lists of descriptors, some with a `rate_limit`. The result is
//! two documents with the same meaning here: policies, one for each limit, and the [tree](super::DescriptorTree) that
//! leads to them. They are text, made to be read and changed; a server that uses a configuration directly parses the
//! same text.
//!
//! | there | here |
//! |---|---|
//! | `requests_per_unit: 5`, `unit: day` | `fixed_window: { limit: 5, window: 1d }`: windows begin at multiples of their length since 1970; a week is 7 days (from Thursday on), a month 30, a year 365 |
//! | `requests_per_unit: 0` | no policy: `always: refuse`, with its `unit` |
//! | `unlimited: true` | no policy: `always: allow` |
//! | neither limit nor descriptors | no policy: `always: ignore` |
//! | `*` anywhere in a key or a value | the same, each value a budget; with `share_threshold: true` one for all values |
//! | `shadow_mode: true` | `overflow: shadow`, and `shadow: true` where the limit is 0 |
//! | `name`, `replaces` | the same, in the tree |
//! | `quota_mode: true` | `quota: true`, in the tree |
//! | a domain without descriptors | `domains`, in the tree |
//! | `detailed_metric`, `value_to_metric`, `metadata` | nothing: values of users are not labels here, and answers have no metadata; a note |
//!
//! A key and a value are matched apart, see [the module above](super).
//!
//! The YAML is read as gopkg.in/yaml.v2 reads it, which that project uses: `value: True` is the text `True`, `yes` and
//! `on` are true where true or false is expected, and merge keys (`<<: *limit`) are merged.
//!
//! Source: the README of that project, and its code for each of these words.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::{self, Write};

use super::document::{domain, limit_name};
use super::name::names;
use super::{DescriptorAction, DescriptorRoute, KeyPattern, Leaf, RouteEntry, Unit, ValuePattern};
use crate::document::fields::{Fields, line, list, word};
use crate::document::read_yaml_v2;
use crate::error::{At, DocumentErrors};
use crate::finding;
use crate::limits::{DESCRIPTORS_MAX, ENTRIES_MAX, TEXT_BYTES_MAX};
use crate::node::DocumentNode;
use crate::quoted::{excerpt, quoted};
use crate::text::whole;

/// The result of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The policies, a [`Document`](crate::Document).
    pub policies: String,
    /// The descriptors, a [`DescriptorTree`](super::DescriptorTree).
    pub descriptors: String,
    /// Fields that have no meaning here and change no decision, one line each.
    pub notes: Vec<String>,
}

/// The errors of a configuration that was not imported, by file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportErrors {
    files: Vec<(String, DocumentErrors)>,
}

/// Imports the files of a configuration, each with its name in messages. Each has its own domain.
///
/// # Errors
/// [`ImportErrors`]: all problems, and all that cannot be expressed here, each with its file and path.
pub fn import<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<Import, ImportErrors> {
    import_files(files.into_iter().map(|(name, text)| NamedText { name, text }), false)
}

/// Imports files of which several may share a domain, which has the descriptors of all of them, in the order of the
/// files: that project does so with `MERGE_DOMAIN_CONFIG`.
///
/// # Errors
/// As for [`import`], and where two files have the same key and value at the top.
pub fn import_merged<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<Import, ImportErrors> {
    import_files(files.into_iter().map(|(name, text)| NamedText { name, text }), true)
}

fn import_files<'a>(
    files: impl IntoIterator<Item = NamedText<'a>>,
    merge: bool,
) -> Result<Import, ImportErrors> {
    let mut errors = Vec::new();
    let mut found = Vec::new();
    let mut notes = Vec::new();
    let mut domains = Domains { merge, ..Domains::default() };
    for NamedText { name: file, text } in files {
        let read = read_yaml_v2(text, |node, at| {
            let config = config(node, at)?;
            domains.add(file, &config, at).then_some(config)
        });
        match read {
            Ok(config) => {
                let note = |note| alloc::format!("{}: {note}", excerpt(file));
                notes.extend(config.notes.into_iter().map(note));
                found.extend(
                    config
                        .found
                        .into_iter()
                        .map(|descriptor| FoundDescriptor { file: excerpt(file), descriptor }),
                );
            }
            Err(problems) => errors.push((excerpt(file), problems)),
        }
    }
    if !errors.is_empty() {
        return Err(ImportErrors { files: errors });
    }
    let (policies, descriptors) = print(&domains, found);
    Ok(Import { policies, descriptors, notes })
}

/// A file, with its name in messages.
struct NamedText<'a> {
    name: &'a str,
    text: &'a str,
}

/// The domains of the files that were read.
#[derive(Default)]
struct Domains<'a> {
    /// A domain may be in several files.
    merge: bool,
    known: BTreeMap<Box<str>, Domain<'a>>,
    /// Domains of files without a descriptor.
    empty: BTreeSet<Box<str>>,
}

/// A domain of the files that were read.
struct Domain<'a> {
    /// The first file with this domain.
    file: &'a str,
    /// The entries at the top of all its files, with their file and place.
    top: BTreeMap<Values, (&'a str, usize)>,
}

impl<'a> Domains<'a> {
    /// Adds the domain of `file`, or reports the reason why it cannot.
    fn add(&mut self, file: &'a str, config: &EnvoyFile, at: &At<'_>) -> bool {
        let EnvoyFile { domain, top, found, notes: _ } = config;
        if let Some(Domain { file: earlier, .. }) = self.known.get(domain)
            && !self.merge
        {
            let (domain, earlier) = (quoted(domain), excerpt(earlier));
            at.field("domain").report::<()>(finding!(
                "domain_taken",
                "{domain} is the domain of {earlier} already, and merging domains is off",
                domain,
                earlier
            ));
            return false;
        }
        if found.is_empty() {
            self.empty.insert(domain.clone());
        }
        let new = || Domain { file, top: BTreeMap::new() };
        let all = &mut self.known.entry(domain.clone()).or_insert_with(new).top;
        let mut is_good = true;
        for (values, place) in top {
            if let Some((earlier, earlier_place)) = all.insert(values.clone(), (file, *place)) {
                let earlier = excerpt(earlier);
                at.field("descriptors").index(*place).report::<()>(finding!(
                    "duplicate_of",
                    "duplicate of descriptors[{earlier_place}] of {earlier}: same key and value",
                    earlier_place,
                    earlier
                ));
                is_good = false;
            }
        }
        is_good
    }
}

/// The contents of one file.
struct EnvoyFile {
    domain: Box<str>,
    /// The entries at the top, with their places.
    top: Vec<(Values, usize)>,
    found: Vec<EnvoyDescriptor>,
    notes: Vec<String>,
}

/// A descriptor, and the file that it is in.
struct FoundDescriptor {
    file: String,
    descriptor: EnvoyDescriptor,
}

/// A descriptor that ends the search.
struct EnvoyDescriptor {
    /// The path at which it is written.
    path: String,
    route: DescriptorRoute,
    limit: Option<EnvoyLimit>,
}

/// The key and the value of a descriptor as they are written.
type Values = (Box<str>, Option<Box<str>>);

/// A limit.
struct EnvoyLimit {
    requests: u64,
    unit: Unit,
    shadow: bool,
}

fn config(node: &DocumentNode, at: &At<'_>) -> Option<EnvoyFile> {
    let fields = Fields::read(node, at, &["domain", "descriptors"])?;
    let domain = {
        let at = at.field("domain");
        fields.required("domain", "a domain", &at).and_then(|node| domain(node, &at))
    };
    let mut reader = EnvoyReader::default();
    if let Some(node) = given(&fields, "descriptors") {
        reader.descriptors(node, &at.field("descriptors"));
    }
    let EnvoyReader { top, mut found, notes, path: _ } = reader;
    let domain = domain?;
    for found in &mut found {
        found.route.domain = domain.clone();
    }
    Some(EnvoyFile { domain, top, found, notes })
}

/// The field called `name`, unless it is null.
fn given<'n>(fields: &Fields<'n>, name: &str) -> Option<&'n DocumentNode> {
    fields.get(name).filter(|node| **node != DocumentNode::Null)
}

/// Walks the nested lists.
#[derive(Default)]
struct EnvoyReader {
    top: Vec<(Values, usize)>,
    found: Vec<EnvoyDescriptor>,
    notes: Vec<String>,
    /// The entries above the present one.
    path: Vec<RouteEntry>,
}

const FIELDS: [&str; 10] = [
    "key",
    "value",
    "rate_limit",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
    "descriptors",
];

/// Fields that change no decision, and the reason.
const NOTED: [(&str, &str); 3] = [
    ("detailed_metric", "values are not exported as labels"),
    ("value_to_metric", "values are not exported as labels"),
    ("metadata", "responses carry no metadata"),
];

impl EnvoyReader {
    fn descriptors(&mut self, node: &DocumentNode, at: &At<'_>) {
        let Some(items) = list(node, at, "descriptors", 0, DESCRIPTORS_MAX) else { return };
        let mut places = BTreeMap::new();
        for (place, item) in items.iter().enumerate() {
            let at = at.index(place);
            let Some(fields) = Fields::read(item, &at, &FIELDS) else { continue };
            let Some(entry) = entry(&fields, &at) else { continue };
            let values = (entry.key.written().into(), entry.value.written().map(Box::from));
            if let Some(earlier) = places.insert(values, place) {
                let problem =
                    finding!("duplicate", "duplicate of [{earlier}]: same key and value", earlier);
                at.report::<()>(problem);
                continue;
            }
            self.path.push(entry);
            self.descriptor(&fields, &at);
            self.path.pop();
        }
        if self.path.is_empty() {
            self.top.extend(places);
        }
    }

    fn descriptor(&mut self, fields: &Fields<'_>, at: &At<'_>) {
        if self.path.len() > ENTRIES_MAX {
            at.report::<()>(finding!("too_deep", "nested more than {max} deep", max = ENTRIES_MAX));
            return;
        }
        let shadow = flag(fields, "shadow_mode", at);
        let quota = flag(fields, "quota_mode", at);
        for (field, why) in NOTED {
            let is_given = match given(fields, field) {
                Some(_) if field == "metadata" => true,
                _ => flag(fields, field, at) == Some(true),
            };
            if is_given {
                let path = at.field(field).path();
                self.notes.push(alloc::format!("{path}: no effect, {why}"));
            }
        }
        let below = given(fields, "descriptors");
        let has_below = matches!(below, Some(DocumentNode::List(items)) if !items.is_empty());
        let rate_limit = match given(fields, "rate_limit") {
            Some(node) => rate_limit(node, &at.field("rate_limit")),
            None if has_below => None,
            // Neither a limit nor anything below: requests that match it meet no limit.
            None => Some(EnvoyRateLimit::none()),
        };
        if let (Some(EnvoyRateLimit { action, limit, name, replaces }), Some(shadow), Some(quota)) =
            (rate_limit, shadow, quota)
        {
            let limit = limit.map(|limit| EnvoyLimit { shadow, ..limit });
            let action = match action {
                DescriptorAction::Refuse { unit, shadow: _ } => {
                    DescriptorAction::Refuse { unit, shadow }
                }
                other => other,
            };
            let leaf = Leaf { action, name, replaces, quota };
            let route =
                DescriptorRoute { domain: Box::default(), entries: self.path.clone(), leaf };
            self.found.push(EnvoyDescriptor { path: at.path(), route, limit });
        }
        if let Some(node) = below {
            self.descriptors(node, &at.field("descriptors"));
        }
    }
}

fn entry(fields: &Fields<'_>, at: &At<'_>) -> Option<RouteEntry> {
    let key = {
        let at = at.field("key");
        let node = fields.required("key", "a key", &at);
        let key = node.and_then(|node| scalar(node, &at, "a key"));
        key.and_then(|key| KeyPattern::parse(&key, &at))
    };
    let value = match given(fields, "value") {
        None => Some(None),
        // An empty value is none.
        Some(DocumentNode::Text(text)) if text.is_empty() => Some(None),
        Some(node) => scalar(node, &at.field("value"), "a value").map(Some),
    };
    let shared = flag(fields, "share_threshold", at);
    let (value, shared) = (value?, shared?);
    let at_shared = at.field("share_threshold");
    let value = ValuePattern::parse(value.as_deref(), shared, &at.field("value"), &at_shared);
    Some(RouteEntry { key: key?, value: value? })
}

/// A text, or what YAML reads as something else where that project reads text.
fn scalar(node: &DocumentNode, at: &At<'_>, wanted: &str) -> Option<Box<str>> {
    match node {
        DocumentNode::Number(text) => Some(text.as_str().into()),
        DocumentNode::Bool(value) => Some(value.to_string().into()),
        _ => line(node, at, wanted, TEXT_BYTES_MAX).map(Box::from),
    }
}

fn flag(fields: &Fields<'_>, name: &str, at: &At<'_>) -> Option<bool> {
    match given(fields, name) {
        None => Some(false),
        Some(DocumentNode::Bool(value)) => Some(*value),
        Some(DocumentNode::Text(word)) if TRUE.contains(&word.as_str()) => Some(true),
        Some(DocumentNode::Text(word)) if FALSE.contains(&word.as_str()) => Some(false),
        Some(other) => at.field(name).expected("`true` or `false`", other),
    }
}

/// The words of gopkg.in/yaml.v2 for true.
const TRUE: [&str; 11] = ["true", "True", "TRUE", "yes", "Yes", "YES", "y", "Y", "on", "On", "ON"];

/// The words of gopkg.in/yaml.v2 for false.
const FALSE: [&str; 11] =
    ["false", "False", "FALSE", "no", "No", "NO", "n", "N", "off", "Off", "OFF"];

/// A `rate_limit`: its action, and the limit of a policy.
struct EnvoyRateLimit {
    action: DescriptorAction,
    limit: Option<EnvoyLimit>,
    name: Box<str>,
    replaces: Box<[Box<str>]>,
}

impl EnvoyRateLimit {
    /// No `rate_limit`: requests that match meet no limit.
    fn none() -> Self {
        let (name, replaces) = (Box::default(), Box::default());
        Self { action: DescriptorAction::Ignore, limit: None, name, replaces }
    }
}

fn rate_limit(node: &DocumentNode, at: &At<'_>) -> Option<EnvoyRateLimit> {
    let known = ["name", "replaces", "unit", "requests_per_unit", "unlimited"];
    let fields = Fields::read(node, at, &known)?;
    let unlimited = flag(&fields, "unlimited", at);
    let name = match given(&fields, "name") {
        Some(DocumentNode::Text(text)) if text.is_empty() => Some(Box::default()),
        Some(node) => limit_name(node, &at.field("name")),
        None => Some(Box::default()),
    };
    let replaces = match given(&fields, "replaces") {
        Some(node) => replaces(node, name.as_deref(), &at.field("replaces")),
        None => Some(Box::default()),
    };
    let (action, limit) = if unlimited? {
        if given(&fields, "unit").is_some() {
            return at
                .field("unit")
                .report(finding!("not_with_unlimited", "cannot be combined with `unlimited`"));
        }
        (DescriptorAction::Allow, None)
    } else {
        match limit(&fields, at)? {
            EnvoyLimit { requests: 0, unit, .. } => {
                (DescriptorAction::Refuse { unit: Some(unit), shadow: false }, None)
            }
            // Its name is given when all are known.
            limit => (DescriptorAction::Policy(Box::default()), Some(limit)),
        }
    };
    Some(EnvoyRateLimit { action, limit, name: name?, replaces: replaces? })
}

fn limit(fields: &Fields<'_>, at: &At<'_>) -> Option<EnvoyLimit> {
    let unit = {
        let at = at.field("unit");
        fields.required("unit", "a unit such as `second`", &at).and_then(|node| match node {
            DocumentNode::Text(unit) => {
                word(&DocumentNode::Text(unit.to_ascii_lowercase()), &at, &Unit::NAMES)
            }
            other => word(other, &at, &Unit::NAMES),
        })
    };
    let requests = {
        let at = at.field("requests_per_unit");
        let wanted = "a whole number from 0 to 4294967295";
        match fields.required("requests_per_unit", wanted, &at) {
            Some(DocumentNode::Number(text)) => at.ok(whole(text, 0, u32::MAX.into())),
            Some(other) => at.expected(wanted, other),
            None => None,
        }
    };
    Some(EnvoyLimit { requests: requests?, unit: unit?, shadow: false })
}

fn replaces(node: &DocumentNode, own: Option<&str>, at: &At<'_>) -> Option<Box<[Box<str>]>> {
    let items = list(node, at, "names", 0, DESCRIPTORS_MAX)?;
    let mut names = Vec::with_capacity(items.len());
    for (place, item) in items.iter().enumerate() {
        let at = at.index(place);
        let Some(fields) = Fields::read(item, &at, &["name"]) else { continue };
        let at = at.field("name");
        let node = fields.required("name", "the name of a limit", &at);
        let Some(name) = node.and_then(|node| limit_name(node, &at)) else { continue };
        if own == Some(&*name) {
            at.report::<()>(finding!(
                "replaces_itself",
                "{name} is the name of this limit itself",
                name = quoted(&name)
            ));
        } else if !names.contains(&name) {
            names.push(name);
        }
    }
    Some(names.into_boxed_slice())
}

/// Appends to a `String`, which takes all text.
macro_rules! put {
    ($text:expr, $($format:tt)*) => { write!($text, $($format)*).expect("a String takes all text") };
}

/// The two documents.
fn print(domains: &Domains<'_>, found: Vec<FoundDescriptor>) -> (String, String) {
    let limited = |found: &&FoundDescriptor| found.descriptor.limit.is_some();
    let mut names =
        names(found.iter().filter(limited).map(|found| &found.descriptor.route)).into_iter();
    let mut policies = String::from("policies:\n");
    let mut descriptors = String::new();
    if !domains.empty.is_empty() {
        let empty: Vec<_> = domains.empty.iter().map(|domain| string(domain)).collect();
        put!(descriptors, "domains: [{}]\n", empty.join(", "));
    }
    if found.is_empty() {
        descriptors.push_str("descriptors: []\n");
        return ("policies: []\n".into(), descriptors);
    }
    descriptors.push_str("descriptors:\n");
    for FoundDescriptor { file, descriptor } in found {
        let EnvoyDescriptor { path, mut route, limit } = descriptor;
        if let Some(limit) = &limit {
            let name = names.next().expect("there is a name for each limit");
            push_policy(&mut policies, &alloc::format!("{file}: {path}"), &name, limit);
            route.leaf.action = DescriptorAction::Policy(name.into());
        }
        push_route(&mut descriptors, &alloc::format!("{file}: {path}"), &route);
    }
    if policies == "policies:\n" {
        policies = "policies: []\n".into();
    }
    (policies, descriptors)
}

fn push_policy(text: &mut String, origin: &str, name: &str, limit: &EnvoyLimit) {
    let EnvoyLimit { requests, unit, shadow } = limit;
    let window = unit.span();
    put!(text, "  # {origin}\n  - name: {}\n", string(name));
    put!(text, "    rules: [{{ fixed_window: {{ limit: {requests}, window: {window} }} }}]\n");
    if *shadow {
        put!(text, "    overflow: shadow\n");
    }
}

fn push_route(text: &mut String, origin: &str, route: &DescriptorRoute) {
    let DescriptorRoute { domain, entries, leaf: Leaf { action, name, replaces, quota } } = route;
    put!(text, "  # {origin}\n  - domain: {}\n    entries:\n", string(domain));
    for RouteEntry { key, value } in entries {
        put!(text, "      - {{ key: {}", string(key.written()));
        if let Some(value) = value.written() {
            put!(text, ", value: {}", string(value));
        }
        if matches!(value, ValuePattern::Glob { shared: true, .. }) {
            put!(text, ", shared: true");
        }
        put!(text, " }}\n");
    }
    match action {
        DescriptorAction::Policy(policy) => put!(text, "    policy: {}\n", string(policy)),
        DescriptorAction::Allow => put!(text, "    always: allow\n"),
        DescriptorAction::Ignore => put!(text, "    always: ignore\n"),
        DescriptorAction::Refuse { unit, shadow } => {
            put!(text, "    always: refuse\n");
            if let Some(unit) = unit {
                put!(text, "    unit: {}\n", unit.name());
            }
            if *shadow {
                put!(text, "    shadow: true\n");
            }
        }
    }
    if *quota {
        put!(text, "    quota: true\n");
    }
    if !name.is_empty() {
        put!(text, "    name: {}\n", string(name));
    }
    if !replaces.is_empty() {
        let names: Vec<_> = replaces.iter().map(|name| string(name)).collect();
        put!(text, "    replaces: [{}]\n", names.join(", "));
    }
}

/// A string of JSON, which is one of YAML too.
fn string(text: &str) -> String {
    serde_json::to_string(text).expect("a text is always JSON")
}

impl ImportErrors {
    /// The files with errors, by the names that they were given.
    pub fn files(&self) -> &[(String, DocumentErrors)] {
        &self.files
    }
}

impl fmt::Display for ImportErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (file, errors) in &self.files {
            for line in errors.to_string().lines() {
                if !first {
                    f.write_char('\n')?;
                }
                first = false;
                write!(f, "{file}: {line}")?;
            }
        }
        Ok(())
    }
}

impl core::error::Error for ImportErrors {}

//! Errors of a configuration in plain words: the value that was given, and the values that are permitted.

use schemars::Schema;
use sluicegate::internals::http::HOPS_MAX;
use sluicegate::internals::store::KEYS_MAX;
use sluicegate_policy::nearest;
use toml::Value;

use super::check::STATE_BYTES_MIN;
use super::schema;

/// Returns the problem at `path` in plain words. `problem` is the message of serde, and `given` the value.
pub(super) fn in_words(path: &str, problem: String, given: Option<&Value>) -> String {
    let is_section = !path.contains('.') || problem.contains("expected struct");
    if is_section && problem.starts_with("invalid type") {
        // It may be a secret that misses its key: it is not repeated.
        return "expected a section".to_owned();
    }
    let plain = near_field(path, &problem)
        .or_else(|| unknown_word(&problem))
        .or_else(|| word_expected(path, &problem, given))
        .or_else(|| wrong_kind(path, &problem));
    plain.unwrap_or(problem)
}

/// Names the unknown word, and the known words that `problem` lists.
fn unknown_word(problem: &str) -> Option<String> {
    let (given, known) = problem.strip_prefix("unknown variant `")?.split_once("`, expected ")?;
    let near = nearest(given, known.split('`').skip(1).step_by(2));
    let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    Some(format!("unknown value `{given}`, expected {known}{near}"))
}

/// Names the permitted words, if `given` is not a text but must be.
fn word_expected(path: &str, problem: &str, given: Option<&Value>) -> Option<String> {
    if !problem.starts_with("invalid type: unit variant") && !problem.contains("string or table") {
        return None;
    }
    let expected = match permitted(&schema(), path) {
        Some(words) => {
            let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
            format!("one of {}, in quotes", words.join(", "))
        }
        None => "a word in quotes".to_owned(),
    };
    Some(format!("{} is not a text: expected {expected}", shown(given)))
}

/// The words that the schema permits at `path`.
fn permitted(schema: &Schema, path: &str) -> Option<Vec<String>> {
    let root = schema.as_value();
    let resolved = |of: &'_ serde_json::Value| -> serde_json::Value {
        let pointer = of["$ref"].as_str().and_then(|to| to.strip_prefix('#'));
        pointer.and_then(|to| root.pointer(to)).unwrap_or(of).clone()
    };
    let mut at = root.clone();
    for key in path.split('.') {
        at = resolved(&at["properties"][key]);
    }
    let mut words: Vec<_> = texts(&at["enum"]);
    for one in at["oneOf"].as_array().into_iter().flatten() {
        words.extend(one["const"].as_str().map(str::to_owned));
        words.extend(texts(&one["enum"]));
    }
    (!words.is_empty()).then_some(words)
}

fn texts(list: &serde_json::Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// The value, as a message shows it. No setting with a list of words is a secret.
fn shown(given: Option<&Value>) -> String {
    match given {
        Some(Value::Table(_)) => "a section".to_owned(),
        Some(Value::Array(_)) => "a list".to_owned(),
        Some(value) => format!("`{value}`"),
        None => "the value".to_owned(),
    }
}

/// Names that people look for, and the paths of the settings that they mean.
const ELSEWHERE: [(&str, &str); 8] = [
    ("redis", "store.url"),
    ("valkey", "store.url"),
    ("database", "catalog.url"),
    ("mysql", "catalog.url"),
    ("postgres", "catalog.url"),
    ("envoy", "rls.envoy_config"),
    ("grpc", "rls.listen"),
    ("listen", "http.listen"),
];

/// Names the field that was most likely meant by an unknown field at `path`, of those that `problem` lists.
fn near_field(path: &str, problem: &str) -> Option<String> {
    let (given, known) = problem.strip_prefix("unknown field `")?.split_once("`, expected ")?;
    let elsewhere = ELSEWHERE.iter().find(|(name, _)| *name == path).map(|(_, right)| *right);
    // Names are between backticks, of which every other one opens.
    let near = elsewhere.or_else(|| nearest(given, known.split('`').skip(1).step_by(2)))?;
    Some(format!("unknown field, did you mean `{near}`?"))
}

/// The ranges of the types of numbers, by the names that serde gives them.
const WHOLE_NUMBERS: [(&str, u64, u64); 5] = [
    ("u8", 0, u8::MAX as u64),
    ("u16", 0, u16::MAX as u64),
    ("u32", 0, u32::MAX as u64),
    ("a nonzero u16", 1, u16::MAX as u64),
    ("a nonzero u32", 1, u32::MAX as u64),
];

/// The ranges of settings that are smaller than those of their types.
const RANGES: [(&str, u64, u64); 4] = [
    ("store.keys_max", 1, KEYS_MAX as u64),
    ("store.keys_per_policy_max", 1, KEYS_MAX as u64),
    ("store.state_bytes_max", STATE_BYTES_MIN as u64, i64::MAX as u64),
    ("http.trusted_hops", 1, HOPS_MAX as u64),
];

/// The problem of a value of another kind at `path`, in plain words.
fn wrong_kind(path: &str, problem: &str) -> Option<String> {
    let (given, expected) = problem.strip_prefix("invalid ")?.split_once(", expected ")?;
    let given = given.split_once(": ")?.1;
    let (kind, value) = given.split_once(' ').unwrap_or((given, ""));
    let shown = match kind {
        "map" => "a section".to_owned(),
        "sequence" => "a list".to_owned(),
        _ => format!("`{}`", value.trim_matches(['`', '"'])),
    };
    match expected {
        "a boolean" => return Some(format!("{shown} is neither `true` nor `false`")),
        "f64" => return Some(format!("{shown} is not a number, such as `0.1`")),
        "path string" => return Some(format!("{shown} is not a path: expected a text in quotes")),
        "a string" => return Some(format!("{shown} is not a text: expected quotes")),
        _ => {}
    }
    if let Some(list) = expected.strip_prefix("a string, or ") {
        return Some(format!("{shown} is not a text: expected quotes, or {list}"));
    }
    if let Some((_, example)) = expected.split_once("a string such as ") {
        return Some(format!("{shown} is not a text: expected quotes, such as {example}"));
    }
    let of_path = RANGES.iter().find(|(name, ..)| *name == path);
    let of_type = || WHOLE_NUMBERS.iter().find(|(name, ..)| *name == expected);
    let (_, min, max) = of_path.or_else(of_type)?;
    Some(match kind {
        "integer" => format!("{shown} is outside {min}..={max}"),
        _ => format!("{shown} is not a whole number {min}..={max}"),
    })
}

//! `policies`: writes the tables of `docs/policies.md` from the JSON Schema of policy documents, which is made from the
//! tables of their parser.

use std::fmt::Write;
use std::fs;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use sluicegate_policy::schema;

use crate::texts::root;

/// Path of the page, below the root of the project.
const PAGE: &str = "docs/policies.md";

/// An example for each algorithm, as in `rules`.
const EXAMPLES: &[(&str, &str)] = &[
    ("token_bucket", "{ rate: 100/s, burst: 200 }"),
    ("leaky_bucket", "{ rate: 10/s, burst: 20, delay: none }"),
    ("smooth_bursty", "{ rate: 5/s, max_burst: 2s }"),
    ("smooth_warmup", "{ rate: 100/s, warmup: 30s }"),
    ("fixed_window", "{ limit: 10000, calendar: day, time_zone: Asia/Shanghai }"),
    ("sliding_window", "{ limit: 5000, window: 1h, buckets: 60 }"),
    ("sliding_counter", "{ limit: 1000, window: 1m }"),
    ("sliding_log", "{ limit: 5, window: 10m }"),
    ("concurrency", "{ limit: 20, ttl: 30s }"),
];

/// Writes the tables again.
///
/// # Errors
/// If the page cannot be read or written, or has no place for a table.
pub fn write() -> Result<String> {
    let path = root().join(PAGE);
    let page = fs::read_to_string(&path).with_context(|| format!("cannot read {PAGE}"))?;
    fs::write(&path, filled(&page, &schema::document())?)?;
    Ok(format!("{PAGE}: tables written"))
}

/// Compares the tables with the schema.
///
/// # Errors
/// If they differ, or the page cannot be read.
pub fn check() -> Result<String> {
    let page = fs::read_to_string(root().join(PAGE))?;
    ensure!(
        page == filled(&page, &schema::document())?,
        "{PAGE} is old: run `cargo xtask policies`"
    );
    Ok(format!("{PAGE} is what the schema says"))
}

/// Returns `page` with its tables made from `schema`.
///
/// # Errors
/// If a table has no end, or names an object that the schema does not have.
pub fn filled(page: &str, schema: &Value) -> Result<String> {
    let mut out = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        writeln!(out, "{line}")?;
        let Some(block) = line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->"))
        else {
            continue;
        };
        let table = match block.strip_prefix("fields: ") {
            Some(path) => fields(schema, object(schema, path)?),
            None if block == "algorithms" => algorithms(schema)?,
            None => bail!("unknown table `{block}`"),
        };
        write!(out, "\n{table}\n")?;
        ensure!(lines.any(|line| line == "<!-- end -->"), "`{block}` has no end");
        writeln!(out, "<!-- end -->")?;
    }
    Ok(out)
}

/// The schema of an object: `policy`, or a field of it that is an object or a list of objects.
fn object<'s>(schema: &'s Value, path: &str) -> Result<&'s Value> {
    let (first, field) =
        path.split_once('.').map_or((path, None), |(first, field)| (first, Some(field)));
    let mut found = &schema["$defs"][first];
    if let Some(field) = field {
        found = &found["properties"][field];
    }
    if found["items"].is_object() {
        found = &found["items"];
    }
    ensure!(found["properties"].is_object(), "the schema has no object `{path}`");
    Ok(found)
}

/// A section for each algorithm.
fn algorithms(schema: &Value) -> Result<String> {
    let mut out = String::new();
    let rule = &schema["$defs"]["rule"]["properties"];
    for (name, algorithm) in rule.as_object().context("rules have properties")? {
        if name == "name" {
            continue;
        }
        let example = EXAMPLES.iter().find(|(of, _)| of == name);
        let (_, example) = example.with_context(|| format!("`{name}` has no example"))?;
        let about = algorithm["description"].as_str().unwrap_or_default();
        writeln!(out, "#### `{name}`\n\n{about}\n")?;
        writeln!(
            out,
            "```yaml\npolicies:\n  - name: example\n    rules: [ {{ {name}: {example} }} ]\n```\n"
        )?;
        writeln!(out, "{}", fields(schema, algorithm))?;
    }
    Ok(out.trim_end().to_owned() + "\n")
}

/// A row for each field of an object.
fn fields(schema: &Value, object: &Value) -> String {
    let mut out = "| Field | Value | Default | Meaning |\n|---|---|---|---|\n".to_owned();
    let required: Vec<_> = object["required"].as_array().into_iter().flatten().collect();
    let Some(properties) = object["properties"].as_object() else { return out };
    let (must, may): (Vec<_>, Vec<_>) =
        properties.iter().partition(|(name, _)| required.iter().any(|of| *of == *name));
    for (name, field) in must.into_iter().chain(may) {
        let about = field["description"].as_str().or_else(|| {
            let of = field["$ref"].as_str()?.rsplit('/').next()?;
            schema["$defs"][of]["description"].as_str()
        });
        let about = about.unwrap_or_default();
        let (meaning, default) = match about.split_once(" Default: ") {
            Some((meaning, default)) => (meaning, default.trim_end_matches('.')),
            None if required.iter().any(|of| *of == name) => (about, "required"),
            None => (about, "–"),
        };
        let row =
            [format!("`{name}`"), value(schema, field), default.to_owned(), meaning.to_owned()];
        out += &format!("| {} |\n", row.map(|cell| cell.replace('|', "\\|")).join(" | "));
    }
    out
}

/// Describes the values that `field` may have, in words.
fn value(schema: &Value, field: &Value) -> String {
    if let Some(of) = field["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        let example = schema["$defs"][of]["examples"][0].as_str();
        return match (of, example) {
            (_, Some(example)) => format!("{of}, such as `{example}`"),
            ("rules", _) => {
                format!("1 to {} [rules](#rules)", schema["$defs"]["rules"]["maxItems"])
            }
            ("path", _) => "path that begins with `/`".to_owned(),
            ("overflow", _) => "[see below](#overflow-what-happens-over-the-limit)".to_owned(),
            ("request_match", _) => "see below".to_owned(),
            _ => of.to_owned(),
        };
    }
    if let Some(all) = ["oneOf", "anyOf"].iter().find_map(|any| field[any].as_array()) {
        let all: Vec<_> = all.iter().map(|one| value(schema, one)).collect();
        return all.join(" or ");
    }
    if let Some(words) = field["enum"].as_array() {
        let words: Vec<_> =
            words.iter().filter_map(Value::as_str).map(|word| format!("`{word}`")).collect();
        return words.join(", ");
    }
    if let Some(word) = field["const"].as_str() {
        return format!("`{word}`");
    }
    match field["type"].as_str() {
        Some("integer") => format!(
            "whole number, {} to {}",
            grouped(&field["minimum"]),
            grouped(&field["maximum"])
        ),
        Some("number") => {
            format!("number above {}, up to {}", field["exclusiveMinimum"], field["maximum"])
        }
        Some("array") => {
            let least = field["minItems"].as_u64().unwrap_or_default();
            format!(
                "list of {least} to {}: {}",
                grouped(&field["maxItems"]),
                value(schema, &field["items"])
            )
        }
        Some("object") => object_value(schema, field),
        Some("string") => match (field["maxLength"].as_u64(), field["examples"][0].as_str()) {
            (_, Some(_)) => field["examples"].as_array().map_or_else(String::new, |all| {
                let all: Vec<_> =
                    all.iter().filter_map(Value::as_str).map(|one| format!("`{one}`")).collect();
                format!("text, such as {}", all.join(" or "))
            }),
            (Some(most), None) => format!("text of up to {} bytes", grouped(&most.into())),
            (None, None) => "text".to_owned(),
        },
        _ => "see below".to_owned(),
    }
}

/// An object with few fields, as it is written.
fn object_value(schema: &Value, field: &Value) -> String {
    let Some(fields) = field["properties"].as_object() else { return "object".to_owned() };
    let fields: Vec<_> =
        fields.iter().map(|(name, of)| format!("`{name}`: {}", value(schema, of))).collect();
    let is_choice = field["maxProperties"] == 1 && field["minProperties"] == 1;
    if !is_choice && (fields.len() > 2 || fields.concat().len() > 90) {
        return "see below".to_owned();
    }
    format!("{{ {} }}", fields.join(if field["maxProperties"] == 1 { " or " } else { ", " }))
}

/// A number with its thousands apart.
fn grouped(number: &Value) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use sluicegate_kernel::algorithm::{AlgorithmInfo, algorithms};
    use sluicegate_kernel::param::{Kind, Param};
    use sluicegate_policy::Document;

    use super::*;

    fn page() -> String {
        fs::read_to_string(root().join(PAGE)).unwrap()
    }

    #[test]
    fn the_page_is_what_the_schema_says() {
        check().unwrap();
    }

    #[test]
    fn a_new_parameter_is_in_the_schema_and_on_the_page() {
        let new = Param {
            name: "jitter",
            kind: Kind::Permits { min: 1, max: 1_000 },
            default: Some("7"),
            about: "A parameter of a test.",
        };
        let with_new: Vec<_> = algorithms()
            .iter()
            .map(|algorithm| {
                let mut params = algorithm.params.to_vec();
                if algorithm.name == "token_bucket" {
                    params.push(new);
                }
                AlgorithmInfo { params: params.leak(), ..*algorithm }
            })
            .collect();
        let schema = schema::document_of(&with_new);
        let jitter = &schema["$defs"]["rule"]["properties"]["token_bucket"]["properties"]["jitter"];
        assert_eq!(jitter["maximum"], 1_000);
        let row = "| `jitter` | whole number, 1 to 1,000 | 7 | A parameter of a test. |";
        assert!(filled(&page(), &schema).unwrap().contains(row));
        assert!(!page().contains("jitter"));
    }

    #[test]
    fn every_example_is_a_document() {
        let page = page();
        let mut examples =
            page.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
        let count = examples.clone().count();
        assert!(count > algorithms().len(), "{count}");
        examples.all(|example| {
            Document::parse(example).unwrap_or_else(|error| panic!("{error}\n{example}"));
            true
        });
    }

    #[test]
    fn every_field_of_a_policy_is_on_the_page() {
        let (page, schema) = (page(), schema::document());
        for name in schema["$defs"]["policy"]["properties"].as_object().unwrap().keys() {
            assert!(page.contains(&format!("| `{name}` |")), "{name}");
        }
    }
}

//! The JSON Schema of the configuration.

use schemars::Schema;
use serde_json::{Map, Value as Json, json};

use super::Config;
use super::load::{FILE_SUFFIX, SECRETS};

/// What a file may say: what the types have, and beside each secret the file that may hold it.
pub fn schema() -> Schema {
    let mut schema = schemars::schema_for!(Config);
    for path in SECRETS {
        let Some((key, sections)) = path.split_last() else { continue };
        let Some(properties) = properties(&mut schema, sections) else { continue };
        let file = json!({
            "description": format!("File that contains `{key}`; trailing line breaks are ignored."),
            "type": ["string", "null"],
            "default": null,
        });
        properties.insert(format!("{key}{FILE_SUFFIX}"), file);
    }
    schema
}

/// What a section in sections may say.
fn properties<'s>(schema: &'s mut Schema, sections: &[&str]) -> Option<&'s mut Map<String, Json>> {
    let mut place = String::new();
    for section in sections {
        let of = schema.pointer(&format!("{place}/properties/{section}"))?;
        // One that may be left out is that or null.
        let reference = of.get("$ref").or_else(|| of.pointer("/anyOf/0/$ref"))?.as_str()?;
        place = reference.trim_start_matches('#').to_owned();
    }
    schema.pointer_mut(&format!("{place}/properties"))?.as_object_mut()
}

//! The JSON Schema of the configuration.

use schemars::Schema;
use serde_json::{Map, Value as Json, json};

use super::Config;
use super::secrets::{FILE_SUFFIX, SECRETS};

/// The schema of a file: the settings of the types, and beside each secret the key of a file that contains it.
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

/// The properties of a section in sections.
fn properties<'s>(schema: &'s mut Schema, sections: &[&str]) -> Option<&'s mut Map<String, Json>> {
    let mut place = String::new();
    for section in sections {
        let of = schema.pointer(&format!("{place}/properties/{section}"))?;
        // An optional section is a reference or null.
        let reference = of.get("$ref").or_else(|| of.pointer("/anyOf/0/$ref"))?.as_str()?;
        place = reference.trim_start_matches('#').to_owned();
    }
    schema.pointer_mut(&format!("{place}/properties"))?.as_object_mut()
}

//! Files of `spec/wire`, which the code of the server writes.

use std::fs;
use std::path::Path;

/// Compares `spec/wire/{name}.json` with the expected contents: `about`, and one entry a line, each as JSON. Writes it
/// if `SLUICEGATE_WRITE` is set.
///
/// # Panics
/// If the file is stale.
pub fn wire_vectors(name: &str, about: &str, entries: &[String]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/wire");
    let path = folder.join(format!("{name}.json"));
    let lines: Vec<_> = entries.iter().map(|entry| format!("    {entry}")).collect();
    let entries = lines.join(",\n");
    let text = format!("{{\n  \"about\": {about:?},\n  \"entries\": [\n{entries}\n  ]\n}}\n");
    if std::env::var_os("SLUICEGATE_WRITE").is_some() {
        fs::write(&path, &text).expect("the folder is there");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == text, "{name}.json is stale: run this test with SLUICEGATE_WRITE=1");
}

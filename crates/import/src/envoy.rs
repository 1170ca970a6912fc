//! `envoyproxy/ratelimit`: see [`sluicegate_policy::descriptor::envoy`], which does the work.

use sluicegate_policy::descriptor::envoy;
use sluicegate_policy::{Document, finding};

use crate::{Imported, ImportedPolicy, Note};

/// The name of the text in notes of that importer.
const FILE: &str = "text";

pub(crate) fn import(text: &str) -> Result<Imported, Vec<Note>> {
    let envoy::Import { policies, descriptors, notes } =
        envoy::import([(FILE, text)]).map_err(|errors| {
            let errors = errors.files().iter().flat_map(|(_, errors)| errors.errors());
            let note = |error: &_| Note::widens(None, wrong(error));
            errors.map(note).collect::<Vec<_>>()
        })?;
    let documents = Document::written(&policies).map_err(|errors| {
        let note = |error: &_| Note::widens(None, wrong(error));
        errors.errors().iter().map(note).collect::<Vec<_>>()
    })?;
    let policy = |document| ImportedPolicy { document, comment: None, line: None };
    let note = |note: String| {
        let problem = note.strip_prefix("text: ").unwrap_or(&note).to_owned();
        Note::differs(None, finding!("import_note", "{problem}", problem))
    };
    let mut notes: Vec<_> = notes.into_iter().map(note).collect();
    let tree = finding!(
        "import_descriptors",
        "descriptors lead to these policies: set `rls.descriptors` to the tree, or use `rls.envoy_config`"
    );
    notes.insert(0, Note::differs(None, tree));
    Ok(Imported {
        policies: documents.into_iter().map(policy).collect(),
        notes,
        descriptors: Some(descriptors),
    })
}

fn wrong(error: &impl ToString) -> sluicegate_policy::Finding {
    let problem = error.to_string();
    finding!("import_wrong", "{problem}", problem)
}

//! `sluicegate policies`, and how every command reads a policy document.

mod live;
mod source;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use sha2::{Digest, Sha256};
use sluicegate_policy::limits::DOCUMENT_BYTES_MAX;
use sluicegate_policy::{DescriptorTree, Document};

use crate::say;
pub(crate) use live::{Live, Status};
pub(crate) use source::{Fingerprint, Located, Source, fingerprint};

/// The document at `path` (`-` is standard input).
pub(crate) fn load(path: &Path) -> Result<Document> {
    let text = read(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(path, &text)
}

fn parse(path: &Path, text: &str) -> Result<Document> {
    let document = Document::parse(text);
    document.with_context(|| format!("{} is no policy document", path.display()))
}

/// The descriptor tree at `path` (`-` is standard input), with its text.
pub(crate) fn read_tree(path: &Path) -> Result<(DescriptorTree, String)> {
    let text = read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let tree = DescriptorTree::parse(&text);
    Ok((tree.with_context(|| format!("{} is no descriptor tree", path.display()))?, text))
}

/// SHA-256 of `texts` with their lengths, in hexadecimal digits.
pub(crate) fn hash<'t>(texts: impl Iterator<Item = &'t str>) -> String {
    let mut hash = Sha256::new();
    texts.for_each(|text| add(&mut hash, text));
    format!("{:x}", hash.finalize())
}

/// Goes on with `hash`, by a text with its length.
fn add(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
}

/// Prints whether the document or directory at `path` is sound, and if not, every path at which it is
/// not.
pub(crate) fn check(path: PathBuf) -> Result<ExitCode> {
    let shown = path.display().to_string();
    match Source::new(path).check()? {
        Ok(count) => {
            let noun = if count == 1 { "policy" } else { "policies" };
            let found = format!("{shown}: {count} {noun}, no errors\n");
            say::print(found.as_bytes()).context("standard output")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(errors) => {
            errors.iter().for_each(|error| say::note(format_args!("{error}")));
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Prints the JSON Schema of policy documents.
pub(crate) fn print_schema() -> Result<ExitCode> {
    let mut schema = serde_json::to_vec_pretty(&sluicegate_policy::schema::document())?;
    schema.push(b'\n');
    say::print(&schema).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// The text at `path`, of which no more is read than shows that it is too long.
fn read(path: &Path) -> Result<String> {
    let source: Box<dyn Read> = match path.to_str() {
        Some("-") => Box::new(io::stdin().lock()),
        _ => Box::new(File::open(path)?),
    };
    let mut bytes = Vec::new();
    source.take(DOCUMENT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > DOCUMENT_BYTES_MAX {
        bail!("more than {DOCUMENT_BYTES_MAX} bytes");
    }
    String::from_utf8(bytes)
        .map_err(|error| anyhow!("byte {} is not UTF-8", error.utf8_error().valid_up_to()))
}

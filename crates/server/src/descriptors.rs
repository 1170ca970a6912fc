//! Descriptor trees: read for `serve`, and made of the configurations of others by `import`.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;
use sluicegate_policy::descriptor::envoy::{self, Import};
use sluicegate_policy::limits::DOCUMENT_BYTES_MAX;
use sluicegate_policy::{DescriptorTree, Document};

use crate::config::Config;
use crate::{policies, say};

/// Most files of one configuration: each is a domain, and people have a handful.
const FILES_MAX: usize = 1_000;

/// What leads descriptors to policies, as it was read at start.
#[derive(Debug, Default)]
pub(crate) struct Descriptors {
    /// The policies that came along, if any did.
    pub(crate) imported: Option<Document>,
    pub(crate) tree: DescriptorTree,
    /// Where it comes from; none: there are no descriptors.
    pub(crate) origin: Option<Origin>,
}

/// Where something was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Origin {
    pub(crate) source: String,
    /// SHA-256 of all texts with their lengths, in hexadecimal digits.
    pub(crate) hash: String,
}

/// What the configuration says of descriptors.
pub(crate) fn load(config: &Config) -> Result<Descriptors> {
    let origin = |path: &Path, hash| Some(Origin { source: path.display().to_string(), hash });
    if let Some(path) = &config.rls.envoy_config {
        let (import, hash) = import(path)?;
        let (imported, tree) = documents(&import)?;
        return Ok(Descriptors { imported: Some(imported), tree, origin: origin(path, hash) });
    }
    let Some(path) = &config.rls.descriptors else { return Ok(Descriptors::default()) };
    let (tree, text) = policies::read_tree(path)?;
    let hash = policies::hash([&*text].into_iter());
    Ok(Descriptors { imported: None, tree, origin: origin(path, hash) })
}

/// `sluicegate import envoy`: prints the policies, or with `descriptors` the tree that leads to them.
pub(crate) fn print_import(path: &Path, descriptors: bool) -> Result<ExitCode> {
    let (import, _) = import(path)?;
    // Whoever reads the text shall be able to rely on it.
    documents(&import)?;
    let text = if descriptors { import.descriptors } else { import.policies };
    say::print(text.as_bytes()).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// The configuration at `path`, imported, with the hash of its files. What has no effect here is noted.
fn import(path: &Path) -> Result<(Import, String)> {
    let files = files(path).with_context(|| format!("cannot read {}", path.display()))?;
    let import = envoy::import(files.iter().map(|(name, text)| (name.as_str(), text.as_str())));
    let import = import.map_err(|errors| anyhow!("{}: not imported\n{errors}", path.display()))?;
    for note in &import.notes {
        say::note(format_args!("note: {}", say::escaped(note)));
    }
    let hash = policies::hash(files.iter().map(|(_, text)| text.as_str()));
    Ok((import, hash))
}

/// What an import says, read as everybody reads it.
fn documents(import: &Import) -> Result<(Document, DescriptorTree)> {
    let policies = Document::parse(&import.policies).context("the limits are no policies")?;
    let tree = DescriptorTree::parse(&import.descriptors).context("the descriptors are no tree")?;
    Ok((policies, tree))
}

/// The YAML files of a directory, by name, or the one file.
fn files(path: &Path) -> Result<Vec<(String, String)>> {
    let mut paths = Vec::new();
    if fs::metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            let path = entry?.path();
            if is_yaml(&path) {
                paths.push(path);
            }
            if paths.len() > FILES_MAX {
                bail!("more than {FILES_MAX} files");
            }
        }
        paths.sort();
    } else {
        paths.push(path.to_owned());
    }
    if paths.is_empty() {
        bail!("no file there ends in .yaml or .yml");
    }
    paths.iter().map(|path| Ok((name(path), read(path)?))).collect()
}

/// Whether it is a file of a configuration; hidden ones are not.
fn is_yaml(path: &Path) -> bool {
    let ends = path.extension().is_some_and(|end| end == "yaml" || end == "yml");
    ends && !name(path).starts_with('.') && path.is_file()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn read(path: &Path) -> Result<String> {
    let name = name(path);
    let mut text = String::new();
    let file = File::open(path).with_context(|| name.clone())?;
    file.take(DOCUMENT_BYTES_MAX as u64 + 1).read_to_string(&mut text).context(name)?;
    Ok(text)
}

//! Descriptor trees: read for `serve`, and imported from configurations of Envoy by `import`.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;
use sluicegate_policy::descriptor::envoy::{self, Import};
use sluicegate_policy::limits::DOCUMENT_BYTES_MAX;
use sluicegate_policy::{DescriptorTree, Document};
use sluicegate_text::files::{Fingerprint, fingerprint, hash, read};
use sluicegate_text::terminal;

use crate::config::{Config, RlsConfig};

/// Maximum number of files of one configuration: each is a domain, and most users have a handful.
const FILES_MAX: usize = 1_000;

/// A descriptor tree, and the policies that were imported with it.
#[derive(Debug, Default)]
pub(crate) struct Descriptors {
    /// The policies of an imported configuration; absent if only a tree was read.
    pub(crate) imported: Option<Document>,
    pub(crate) tree: DescriptorTree,
    /// The source of the tree. `None`: there are no descriptors.
    pub(crate) origin: Option<DescriptorOrigin>,
    /// The parts of a configuration that have no effect here, one line each.
    pub(crate) notes: Vec<String>,
}

/// The source of descriptors, with a hash of their texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DescriptorOrigin {
    pub(crate) source: String,
    /// SHA-256 of all texts with their lengths, in hexadecimal digits.
    pub(crate) hash: String,
}

/// A source that descriptors can be read from.
#[derive(Clone, Debug)]
pub(crate) enum DescriptorSource {
    /// A configuration of `envoyproxy/ratelimit`.
    Envoy(Configuration),
    /// A file with a tree; `-` is standard input.
    Tree(PathBuf),
}

/// A configuration of `envoyproxy/ratelimit`.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// A directory, or one file.
    pub path: PathBuf,
    /// Several files may have the same domain; their descriptors are merged.
    pub merge_domains: bool,
}

impl DescriptorSource {
    /// Returns the source that `config` names. `None`: there are no descriptors.
    pub(crate) fn of(config: &Config) -> Option<Self> {
        let RlsConfig { descriptors, envoy_config, envoy_merge_domains, .. } = &config.rls;
        let envoy = envoy_config
            .clone()
            .map(|path| Self::Envoy(Configuration { path, merge_domains: *envoy_merge_domains }));
        envoy.or_else(|| descriptors.clone().map(Self::Tree))
    }

    /// Returns whether the source can change: standard input cannot.
    pub(crate) fn is_watched(&self) -> bool {
        !matches!(self, Self::Tree(path) if path.as_os_str() == "-")
    }

    /// Returns a fingerprint of the files as they are now.
    ///
    /// # Errors
    /// If the files are missing or cannot be inspected.
    pub(crate) fn fingerprint(&self) -> Result<Fingerprint> {
        match self {
            Self::Envoy(configuration) => fingerprint(configuration.files()?),
            Self::Tree(path) => fingerprint(vec![path.clone()]),
        }
    }

    /// Reads and checks the descriptors.
    ///
    /// # Errors
    /// What is wrong with the files.
    pub(crate) fn load(&self) -> Result<Descriptors> {
        let origin =
            |path: &Path, hash| Some(DescriptorOrigin { source: path.display().to_string(), hash });
        match self {
            Self::Envoy(configuration) => {
                let (import, hash) = configuration.import()?;
                let (imported, tree) = documents(&import)?;
                let origin = origin(&configuration.path, hash);
                Ok(Descriptors { imported: Some(imported), tree, origin, notes: import.notes })
            }
            Self::Tree(path) => {
                let (tree, text) = read_tree(path)?;
                let hash = hash([&*text].into_iter());
                Ok(Descriptors { tree, origin: origin(path, hash), ..Descriptors::default() })
            }
        }
    }
}

impl Descriptors {
    /// Prints the notes on standard error.
    pub(crate) fn print_notes(&self) {
        self.notes.iter().for_each(|note| {
            terminal::print_error_line(format_args!("note: {}", terminal::escaped(note)));
        });
    }
}

/// Reads the descriptor tree at `path` (`-` is standard input). Returns it with its text.
fn read_tree(path: &Path) -> Result<(DescriptorTree, String)> {
    let text = read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let tree = DescriptorTree::parse(&text);
    Ok((tree.with_context(|| format!("{} is not a valid descriptor tree", path.display()))?, text))
}

impl Configuration {
    /// Imports the configuration, and checks that policies and tree are valid documents.
    ///
    /// # Errors
    /// What is wrong with the files.
    pub fn checked_import(&self) -> Result<Import> {
        let (import, _) = self.import()?;
        documents(&import)?;
        Ok(import)
    }

    /// Imports the configuration. Returns the result with the hash of its files.
    fn import(&self) -> Result<(Import, String)> {
        let Self { path, merge_domains } = self;
        let files = self.files()?;
        let texts = files.iter().map(|path| Ok((name(path), read_named(path)?)));
        let texts: Vec<_> = texts.collect::<Result<_>>().with_context(|| self.cannot_read())?;
        let named = texts.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        let import =
            if *merge_domains { envoy::import_merged(named) } else { envoy::import(named) };
        let import =
            import.map_err(|errors| anyhow!("{}: not imported\n{errors}", path.display()))?;
        Ok((import, hash(texts.iter().map(|(_, text)| text.as_str()))))
    }

    /// The YAML files of the directory, by name, or the one file.
    fn files(&self) -> Result<Vec<PathBuf>> {
        files(&self.path).with_context(|| self.cannot_read())
    }

    fn cannot_read(&self) -> String {
        format!("cannot read {}", self.path.display())
    }
}

/// Parses policies and tree of `import` as any other documents.
fn documents(import: &Import) -> Result<(Document, DescriptorTree)> {
    let policies =
        Document::parse(&import.policies).context("the limits do not form valid policies")?;
    let tree = DescriptorTree::parse(&import.descriptors)
        .context("the descriptors do not form a valid tree")?;
    Ok((policies, tree))
}

fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if !fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut paths = Vec::new();
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        if is_yaml(&path) {
            paths.push(path);
        }
        if paths.len() > FILES_MAX {
            bail!("more than {FILES_MAX} files");
        }
    }
    if paths.is_empty() {
        bail!("no *.yaml or *.yml files found");
    }
    paths.sort();
    Ok(paths)
}

/// Returns whether `path` is a file of a configuration; hidden files are not.
fn is_yaml(path: &Path) -> bool {
    let ends = path.extension().is_some_and(|end| end == "yaml" || end == "yml");
    ends && !name(path).starts_with('.') && path.is_file()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn read_named(path: &Path) -> Result<String> {
    let name = name(path);
    let mut text = String::new();
    let file = File::open(path).with_context(|| name.clone())?;
    file.take(DOCUMENT_BYTES_MAX as u64 + 1).read_to_string(&mut text).context(name)?;
    Ok(text)
}

//! Where policies come from: a document, or a directory of them.

use std::fmt::{self, Display};
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use sluicegate_policy::{Document, DocumentError};

use crate::files::{Fingerprint, add, fingerprint, read};

/// Most documents of one directory: a file for each of the teams of a large company.
const FILES_MAX: usize = 1_000;

/// The endings of documents; other files of a directory are not looked at.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// The document at `path` (`-` is standard input).
pub fn load(path: &Path) -> Result<Document> {
    let text = read(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(path, &text)
}

fn parse(path: &Path, text: &str) -> Result<Document> {
    let document = Document::parse(text);
    document.with_context(|| format!("{} is not a valid policy document", path.display()))
}

/// A document, or a directory of them.
#[derive(Clone, Debug)]
pub struct DocumentSource {
    path: PathBuf,
}

/// What was there when it was read.
#[derive(Debug)]
pub struct Loaded {
    /// The policies of all files.
    pub document: Document,
    /// SHA-256 of all texts with their lengths, in hexadecimal digits.
    pub hash: String,
}

impl Loaded {
    /// The document and the hash, which is empty if nothing was read.
    pub fn parts(loaded: Option<Self>) -> (Option<Document>, String) {
        loaded.map(|Self { document, hash }| (Some(document), hash)).unwrap_or_default()
    }
}

/// A file, and the policies in it as they are written.
pub type WrittenFile = (PathBuf, Vec<Value>);

/// Something that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Located {
    /// In which file; empty if it is in none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// Where in it: `policies[2].rules[0].token_bucket.rate`.
    pub path: String,
    /// What is wrong.
    pub problem: String,
}

impl DocumentSource {
    /// The document or the directory at `path`.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it looks like now.
    ///
    /// # Errors
    /// If it is not there or cannot be looked at.
    pub fn fingerprint(&self) -> Result<Fingerprint> {
        fingerprint(self.files()?)
    }

    /// Reads and checks all of it.
    ///
    /// # Errors
    /// What is wrong, with the file and the path in it.
    pub fn load(&self) -> Result<Loaded> {
        let files = self.files()?;
        let mut hash = Sha256::new();
        let mut documents = Vec::with_capacity(files.len());
        for file in &files {
            let text = read(file).with_context(|| cannot_read(file))?;
            add(&mut hash, &text);
            documents.push(parse(file, &text)?);
        }
        let document = Document::joined(documents).map_err(|(place, error)| {
            anyhow!(error)
                .context(format!("{} is not a valid policy document", files[place].display()))
        })?;
        Ok(Loaded { document, hash: format!("{:x}", hash.finalize()) })
    }

    /// How many policies there are, or all that is wrong, a line for each path in a file.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn check(&self) -> Result<std::result::Result<usize, Vec<String>>> {
        let files = self.files()?;
        let (mut documents, mut wrong) = (Vec::new(), Vec::new());
        for file in &files {
            let text = read(file).with_context(|| cannot_read(file))?;
            match Document::parse(&text) {
                Ok(document) => documents.push(document),
                Err(errors) => wrong.extend(lines(file, &errors)),
            }
        }
        if !wrong.is_empty() {
            return Ok(Err(wrong));
        }
        let joined = Document::joined(documents);
        Ok(joined
            .map(|document| document.policies().len())
            .map_err(|(place, error)| lines(&files[place], &error)))
    }

    /// The policies of each file as they are written there, or all that is wrong.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn written(&self) -> Result<std::result::Result<Vec<WrittenFile>, Vec<Located>>> {
        let files = self.files()?;
        let (mut documents, mut written, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
        for file in &files {
            let text = read(file).with_context(|| cannot_read(file))?;
            match (Document::parse(&text), Document::written(&text)) {
                (Ok(document), Ok(policies)) => {
                    documents.push(document);
                    written.push((file.clone(), policies));
                }
                (Err(errors), _) | (_, Err(errors)) => {
                    wrong.extend(errors.errors().iter().map(|error| Located::new(file, error)));
                }
            }
        }
        if wrong.is_empty()
            && let Err((place, error)) = Document::joined(documents)
        {
            wrong.push(Located::new(&files[place], &error));
        }
        Ok(if wrong.is_empty() { Ok(written) } else { Err(wrong) })
    }

    /// The documents, in the order of their names.
    pub fn files(&self) -> Result<Vec<PathBuf>> {
        // `-` is standard input: read once, and no file.
        if self.path.as_os_str() == "-" {
            return Ok(vec![self.path.clone()]);
        }
        let is_dir = fs::metadata(&self.path).map(|metadata: Metadata| metadata.is_dir());
        if !is_dir.with_context(|| cannot_read(&self.path))? {
            return Ok(vec![self.path.clone()]);
        }
        let entries = fs::read_dir(&self.path).with_context(|| cannot_read(&self.path))?;
        let mut files = Vec::new();
        for entry in entries {
            let path = entry.map(|entry| entry.path()).with_context(|| cannot_read(&self.path))?;
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let ending = path.extension().and_then(|ending| ending.to_str());
            if name.starts_with('.') || !ending.is_some_and(|ending| ENDINGS.contains(&ending)) {
                continue;
            }
            if files.len() == FILES_MAX {
                bail!("{}: more than {FILES_MAX} documents", self.path.display());
            }
            files.push(path);
        }
        files.sort_unstable();
        Ok(files)
    }

    /// The sub-directories that have documents, which are not read; hidden ones are not listed.
    ///
    /// # Errors
    /// If a directory cannot be read, or has more than a thousand documents.
    pub fn unread_folders(&self) -> Result<Vec<PathBuf>> {
        if self.path.as_os_str() == "-" || !self.path.is_dir() {
            return Ok(Vec::new());
        }
        let mut folders = Vec::new();
        for entry in fs::read_dir(&self.path).with_context(|| cannot_read(&self.path))? {
            let path = entry.map(|entry| entry.path()).with_context(|| cannot_read(&self.path))?;
            let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes()[0] == b'.');
            if path.is_dir() && !is_hidden && !Self::new(path.clone()).files()?.is_empty() {
                folders.push(path);
            }
        }
        folders.sort_unstable();
        Ok(folders)
    }
}

impl Located {
    fn new(file: &Path, error: &DocumentError) -> Self {
        let (path, problem) = (error.path().to_owned(), error.problem().to_owned());
        Self { file: file.display().to_string(), path, problem }
    }
}

impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in [&self.file, &self.path] {
            if !part.is_empty() {
                write!(f, "{part}: ")?;
            }
        }
        f.write_str(&self.problem)
    }
}

/// What is wrong with `file`, line by line.
fn lines(file: &Path, errors: &impl Display) -> Vec<String> {
    errors.to_string().lines().map(|error| format!("{}: {error}", file.display())).collect()
}

fn cannot_read(path: &Path) -> String {
    format!("cannot read {}", path.display())
}

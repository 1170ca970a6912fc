//! The sources of policies: a document, or a directory of documents.

use std::fmt;
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use sluicegate_policy::document::{JoinError, PlacedError, placed};
use sluicegate_policy::{Document, DocumentErrors, TextPlace};

use crate::files::{Fingerprint, add, fingerprint, read};
use crate::terminal::escaped;

/// Most documents of one directory: a file for each of the teams of a large company.
const FILES_MAX: usize = 1_000;

/// Extensions of documents; other files of a directory are ignored.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// The document at `path` (`-` is standard input).
pub fn load(path: &Path) -> Result<Document> {
    load_with_text(path).map(|(_, document)| document)
}

/// Like [`load`], and returns the text, too.
pub fn load_with_text(path: &Path) -> Result<(String, Document)> {
    let text = read(path).with_context(|| cannot_read(path))?;
    let document = parse(path, &text)?;
    Ok((text, document))
}

fn parse(path: &Path, text: &str) -> Result<Document> {
    Document::parse(text).map_err(|errors| anyhow!(lines(path, text, &errors).join("\n")))
}

/// A document, or a directory of them.
#[derive(Clone, Debug)]
pub struct DocumentSource {
    path: PathBuf,
}

/// The content of a source when it was read.
#[derive(Debug)]
pub struct Loaded {
    /// The policies of all files.
    pub document: Document,
    /// SHA-256 of all texts with their lengths, in hexadecimal digits.
    pub hash: String,
}

impl Loaded {
    /// The document and the hash, which is empty if nothing was loaded.
    pub fn parts(loaded: Option<Self>) -> (Option<Document>, String) {
        loaded.map(|Self { document, hash }| (Some(document), hash)).unwrap_or_default()
    }
}

/// A file, and the documents of its policies.
pub type WrittenFile = (PathBuf, Vec<Value>);

/// A problem and its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Located {
    /// The file; empty: none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// Line in the file, from 1; `None`: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Column of the line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u64>,
    /// Path in the document: `policies[2] (login).rules[0].token_bucket.rate`.
    pub path: String,
    /// The problem.
    pub problem: String,
}

impl DocumentSource {
    /// The document or the directory at `path`.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether it is standard input, which can be read once.
    pub fn is_standard_input(&self) -> bool {
        self.path.as_os_str() == "-"
    }

    /// Returns the current fingerprint of its files.
    ///
    /// # Errors
    /// If a file is missing or cannot be read.
    pub fn fingerprint(&self) -> Result<Fingerprint> {
        fingerprint(self.files()?)
    }

    /// Reads and checks all of its files.
    ///
    /// # Errors
    /// If a file cannot be read or is invalid; the error names the file and the path in it.
    pub fn load(&self) -> Result<Loaded> {
        let files = self.files()?;
        let mut hash = Sha256::new();
        let mut documents = Vec::with_capacity(files.len());
        for file in &files {
            let text = read(file).with_context(|| cannot_read(file))?;
            add(&mut hash, &text);
            documents.push(parse(file, &text)?);
        }
        let document = Document::joined(documents)
            .map_err(|error| anyhow!(Located::of_joined(&files, &error)))?;
        Ok(Loaded { document, hash: format!("{:x}", hash.finalize()) })
    }

    /// Returns the policies of all files, or all errors, a line for each path in a file.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn check(&self) -> Result<std::result::Result<Document, Vec<String>>> {
        let files = self.files()?;
        let (mut documents, mut wrong) = (Vec::new(), Vec::new());
        for file in &files {
            let text = read(file).with_context(|| cannot_read(file))?;
            match Document::parse(&text) {
                Ok(document) => documents.push(document),
                Err(errors) => wrong.extend(lines(file, &text, &errors)),
            }
        }
        if !wrong.is_empty() {
            return Ok(Err(wrong));
        }
        let joined = Document::joined(documents);
        Ok(joined.map_err(|error| vec![Located::of_joined(&files, &error).to_string()]))
    }

    /// Returns the policies of each file as they are written there, or all errors.
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
                    wrong.extend(located(file, &text, &errors));
                }
            }
        }
        if wrong.is_empty()
            && let Err(error) = Document::joined(documents)
        {
            wrong.push(Located::of_joined(&files, &error));
        }
        Ok(if wrong.is_empty() { Ok(written) } else { Err(wrong) })
    }

    /// The documents, in the order of their names.
    pub fn files(&self) -> Result<Vec<PathBuf>> {
        // `-` is standard input, not a file.
        if self.is_standard_input() {
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
    /// If the directory itself cannot be read.
    pub fn unread_folders(&self) -> Result<Vec<PathBuf>> {
        if self.is_standard_input() || !self.path.is_dir() {
            return Ok(Vec::new());
        }
        let mut folders = Vec::new();
        for entry in fs::read_dir(&self.path).with_context(|| cannot_read(&self.path))? {
            let path = entry.map(|entry| entry.path()).with_context(|| cannot_read(&self.path))?;
            let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes()[0] == b'.');
            // A directory that cannot be read has no documents for this source.
            let files = Self::new(path.clone()).files();
            if path.is_dir() && !is_hidden && files.is_ok_and(|files| !files.is_empty()) {
                folders.push(path);
            }
        }
        folders.sort_unstable();
        Ok(folders)
    }
}

impl Located {
    /// `problem` at `path` of `file`, whose line is unknown.
    pub fn new(file: String, path: String, problem: String) -> Self {
        Self { file, line: None, column: None, path, problem }
    }

    fn placed(file: &Path, error: PlacedError) -> Self {
        let PlacedError { place, path, problem } = error;
        let (line, column) = place.map(|TextPlace { line, column }| (line, column)).unzip();
        Self { line, column, ..Self::new(file.display().to_string(), path, problem) }
    }

    /// An error that `files` have only together; each is valid alone.
    fn of_joined(files: &[PathBuf], error: &JoinError) -> Self {
        let JoinError { document, earlier, error } = error;
        let file = &files[*document];
        let text = read(file).unwrap_or_default();
        let mut placed = placed(&text, [&**error]);
        let mut located = Self::placed(file, placed.remove(0));
        if let Some(earlier) = earlier {
            let earlier = files[*earlier].display().to_string();
            located.problem = format!("{}, in {}", located.problem, escaped(&earlier));
        }
        located
    }
}

impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, path, problem } = self;
        if !file.is_empty() {
            f.write_str(&escaped(file))?;
            for number in [line, column].into_iter().flatten() {
                write!(f, ":{number}")?;
            }
            f.write_str(": ")?;
        }
        if !path.is_empty() {
            write!(f, "{path}: ")?;
        }
        f.write_str(problem)
    }
}

/// `errors` of the text of `file`.
fn located(file: &Path, text: &str, errors: &DocumentErrors) -> impl Iterator<Item = Located> {
    placed(text, errors.errors()).into_iter().map(|error| Located::placed(file, error))
}

/// The errors in the text of `file`, one a line.
fn lines(file: &Path, text: &str, errors: &DocumentErrors) -> Vec<String> {
    let mut lines: Vec<_> = located(file, text, errors).map(|error| error.to_string()).collect();
    if errors.omitted() > 0 {
        lines.push(format!("{}: and {} more", file.display(), errors.omitted()));
    }
    lines
}

fn cannot_read(path: &Path) -> String {
    format!("cannot read {}", escaped(&path.to_string_lossy()))
}

//! Vectors on disk: `spec/vectors/<algorithm>/<name>.json`, one step a line.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::lease::{LeaseStep, LeaseVector};
use crate::policies::Life;
use crate::vector::{RuleSpec, Step, Vector};

/// The error of loading vectors.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file or folder cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file is not a vector.
    #[error("{path}: {source}")]
    Json {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: serde_json::Error,
    },
}

/// The folder of the vectors in this repository.
pub fn vectors_dir() -> PathBuf {
    spec().join("vectors")
}

/// The schema's file in this repository.
pub fn schema_path() -> PathBuf {
    spec().join("vectors.schema.json")
}

/// The file of the vectors about leases in this repository.
pub fn leases_path() -> PathBuf {
    vectors_dir().join("leases.json")
}

fn spec() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec")
}

/// Reads every vector with the file that it comes from, in the order of the files' names.
///
/// # Errors
/// [`LoadError`] naming the file.
pub fn load() -> Result<Vec<(PathBuf, Vector)>, LoadError> {
    let mut paths = Vec::new();
    // The files beside the folders are about something else.
    for folder in entries(&vectors_dir())?.into_iter().filter(|path| path.is_dir()) {
        paths.extend(entries(&folder)?);
    }
    paths.into_iter().map(|path| Ok((path.clone(), read(&path)?))).collect()
}

/// Reads the vector in `<folder>/<name>.json`.
///
/// # Errors
/// [`LoadError`] naming the file.
pub fn load_one(folder: &str, name: &str) -> Result<Vector, LoadError> {
    read(&vectors_dir().join(folder).join(name).with_extension("json"))
}

/// Reads every life of policies in Redis.
///
/// # Errors
/// [`LoadError`] naming the file.
pub fn load_policies() -> Result<Vec<Life>, LoadError> {
    read(&vectors_dir().join("redis-policies.json"))
}

/// Reads every vector about leases.
///
/// # Errors
/// [`LoadError`] naming the file.
pub fn load_leases() -> Result<Vec<LeaseVector>, LoadError> {
    read(&leases_path())
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, LoadError> {
    let text = fs::read_to_string(path)
        .map_err(|source| LoadError::Io { path: path.to_owned(), source })?;
    serde_json::from_str(&text).map_err(|source| LoadError::Json { path: path.to_owned(), source })
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let list = || fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>();
    let mut paths: Vec<_> =
        list().map_err(|source| LoadError::Io { path: folder.to_owned(), source })?;
    paths.sort();
    Ok(paths)
}

/// `vector` in the format of its file: a rule and a step a line.
pub fn to_json(vector: &Vector) -> String {
    let Vector { name, about, rules, steps } = vector;
    let mut text = String::from("{\n");
    let written = write!(
        text,
        "  \"name\": {},\n  \"about\": {},\n  \"rules\": [\n{}\n  ],\n  \"steps\": [\n{}\n  ]\n}}\n",
        one_line(name),
        one_line(about),
        lines::<RuleSpec>(rules, 4),
        lines::<Step>(steps, 4),
    );
    written.expect("a string takes everything that is written to it");
    text
}

/// `vectors` about leases in the format of their file: a rule and a step a line.
pub fn leases_to_json(vectors: &[LeaseVector]) -> String {
    let text = |LeaseVector { name, about, rules, steps }: &LeaseVector| {
        format!(
            "  {{\n    \"name\": {},\n    \"about\": {},\n    \"rules\": [\n{}\n    ],\n    \"steps\": [\n{}\n    ]\n  }}",
            one_line(name),
            one_line(about),
            lines::<RuleSpec>(rules, 6),
            lines::<LeaseStep>(steps, 6),
        )
    };
    let all: Vec<_> = vectors.iter().map(text).collect();
    format!("[\n{}\n]\n", all.join(",\n"))
}

fn lines<T: Serialize>(items: &[T], indent: usize) -> String {
    let line = |item| format!("{:indent$}{}", "", one_line(item));
    let lines: Vec<_> = items.iter().map(line).collect();
    lines.join(",\n")
}

fn one_line(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("a vector has no maps with odd keys")
}

/// The JSON Schema of a vector, in the format of its file.
pub fn schema() -> String {
    let schema = schemars::schema_for!(Vector);
    let text = serde_json::to_string_pretty(&schema).expect("a schema is JSON");
    format!("{text}\n")
}

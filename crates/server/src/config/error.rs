//! Errors of a configuration, with their places.

use std::io;
use std::path::PathBuf;

use super::origin::Origins;

/// An error of a configuration. Values of secrets are not repeated.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        #[source]
        error: io::Error,
    },
    /// A file is not TOML.
    #[error("{}: {problem}", path.display())]
    Syntax {
        /// The path of the file.
        path: PathBuf,
        /// The problem, with its line and column.
        problem: String,
    },
    /// The value at a path is wrong.
    #[error("{}{path}: {problem}", origin.as_ref().map(|origin| format!("{origin}: ")).unwrap_or_default())]
    Value {
        /// The file with the line, or the variable, that set it.
        origin: Option<String>,
        /// The path in the configuration.
        path: String,
        /// The problem, and the permitted values.
        problem: String,
    },
    /// Several values are wrong.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Several(Vec<Self>),
}

impl ConfigError {
    /// Adds the place where the value was set.
    pub(super) fn at(self, origins: &Origins) -> Self {
        match self {
            Self::Value { origin: None, path, problem } => {
                Self::Value { origin: origins.of(&path), path, problem }
            }
            Self::Several(all) => {
                Self::Several(all.into_iter().map(|error| error.at(origins)).collect())
            }
            other => other,
        }
    }
}

/// Returns the error of the value at `path`.
pub(super) fn wrong<T>(path: &str, problem: String) -> Result<T, ConfigError> {
    Err(ConfigError::Value { origin: None, path: path.to_owned(), problem })
}

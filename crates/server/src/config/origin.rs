//! The origins of the values of a configuration, so that an error can name the line or the variable.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use toml::de::{DeTable, DeValue};

use super::secrets::FILE_SUFFIX;

/// The origins of values, by their paths: `http.listen`.
#[derive(Debug, Default)]
pub(super) struct Origins {
    /// The file and its text.
    pub(super) file: Option<(PathBuf, String)>,
    /// Names of variables.
    pub(super) variables: BTreeMap<String, String>,
    /// Paths that were set by a flag.
    pub(super) flags: BTreeSet<String>,
}

impl Origins {
    /// Returns where the value at `path` was set: `sluicegate.toml:7`, or the name of a variable. `None` for a
    /// flag, and for a value that was not set.
    pub(super) fn of(&self, path: &str) -> Option<String> {
        let key = path.split('[').next().unwrap_or(path);
        [key.to_owned(), format!("{key}{FILE_SUFFIX}")].iter().find_map(|key| self.of_key(key))
    }

    fn of_key(&self, key: &str) -> Option<String> {
        if self.flags.contains(key) {
            return None;
        }
        if let Some(name) = self.variables.get(key) {
            return Some(name.clone());
        }
        self.of_line(key).or_else(|| {
            // A section that only a variable names.
            let inner =
                |path: &String| path.strip_prefix(key).is_some_and(|rest| rest.starts_with('.'));
            let mut inner = self.variables.iter().filter(|(path, _)| inner(path));
            inner.next().map(|(_, name)| name.clone())
        })
    }

    fn of_line(&self, key: &str) -> Option<String> {
        let (file, text) = self.file.as_ref()?;
        let before = text.get(..offset(text, key)?)?;
        Some(format!("{}:{}", file.display(), before.matches('\n').count() + 1))
    }
}

/// Returns the offset of the key at `path` in the TOML `text`.
fn offset(text: &str, path: &str) -> Option<usize> {
    let tree = DeTable::parse(text).ok()?;
    let mut table = tree.get_ref();
    let (sections, last) = path.rsplit_once('.').unwrap_or(("", path));
    for section in sections.split('.').filter(|section| !section.is_empty()) {
        let DeValue::Table(inner) = table.get(section)?.get_ref() else { return None };
        table = inner;
    }
    let (key, _) = table.iter().find(|(key, _)| key.get_ref() == last)?;
    Some(key.span().start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_was_set_in_a_line_by_a_variable_or_by_a_flag() {
        let text = "[http]\n\nlisten = '127.0.0.1:1'\ntls.cert = 'c'\n[store]\nurl_file = 'u'\n";
        let origins = Origins {
            file: Some(("s.toml".into(), text.to_owned())),
            variables: [("log.level".to_owned(), "SLUICEGATE__LOG__LEVEL".to_owned())].into(),
            flags: ["resp.listen".to_owned()].into(),
        };
        for (path, expected) in [
            ("http.listen", Some("s.toml:3")),
            ("http.listen[2]", Some("s.toml:3")),
            ("http.tls.cert", Some("s.toml:4")),
            ("http", Some("s.toml:1")),
            ("store.url", Some("s.toml:6")),
            ("log.level", Some("SLUICEGATE__LOG__LEVEL")),
            ("log", Some("SLUICEGATE__LOG__LEVEL")),
            ("resp.listen", None),
            ("rls.listen", None),
            ("http.listen.more", None),
            ("", None),
        ] {
            assert_eq!(origins.of(path).as_deref(), expected, "{path}");
        }
    }
}

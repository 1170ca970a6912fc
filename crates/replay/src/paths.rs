//! The paths of log lines that no policy matches: to compare with the `match` of a policy.

use std::collections::BTreeMap;

use sluicegate_text::human::thousands;
use sluicegate_text::terminal::one_line;

use super::combined::LogLine;

/// Most paths that are counted, the first of the log: those that come often come early.
const PATHS_MAX: usize = 1_000;

/// Most characters that are kept of a path: enough to recognise it.
const PATH_CHARS_MAX: usize = 100;

/// Most paths that are named.
const NAMED_MAX: usize = 3;

/// Paths, each with the number of its lines.
#[derive(Debug, Default)]
pub(crate) struct UnmatchedPaths {
    lines: BTreeMap<Box<str>, u64>,
}

impl UnmatchedPaths {
    /// Counts the path of `line`.
    pub(crate) fn add(&mut self, line: &LogLine<'_>) {
        let attributes = line.attributes();
        let Some(path) = attributes.path else { return };
        let end = path.char_indices().nth(PATH_CHARS_MAX).map_or(path.len(), |(end, _)| end);
        let path = &path[..end];
        if let Some(lines) = self.lines.get_mut(path) {
            *lines += 1;
        } else if self.lines.len() < PATHS_MAX {
            self.lines.insert(path.into(), 1);
        }
    }

    /// The most frequent paths, each with its lines: `` `/shop` (3), `/` (1) ``; empty if no line has a path.
    pub(crate) fn most_frequent(&self) -> String {
        let mut paths: Vec<_> = self.lines.iter().collect();
        paths.sort_by_key(|(_, lines)| std::cmp::Reverse(**lines));
        let named = paths.into_iter().take(NAMED_MAX);
        let named =
            named.map(|(path, lines)| format!("`{}` ({})", one_line(path), thousands(*lines)));
        named.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::combined::LogFormat;

    #[test]
    fn the_most_frequent_paths_come_first_and_many_paths_take_bounded_room() {
        let mut paths = UnmatchedPaths::default();
        let mut add = |path: &str| {
            let line = format!("203.0.113.7 - - [17/May/2015:10:05:03 +0000] \"GET {path}\" 200 1");
            paths.add(&LogFormat::default().parse(line.as_bytes()).expect("a line"));
        };
        add("/a");
        (0..2_000).for_each(|number| add(&format!("/{number}")));
        ["/b", "/a", "/a", "/1", &format!("/{}", "x".repeat(10_000))].into_iter().for_each(add);
        assert_eq!(paths.most_frequent(), "`/a` (3), `/1` (2), `/0` (1)");
        assert_eq!(paths.lines.len(), PATHS_MAX);
        assert_eq!(UnmatchedPaths::default().most_frequent(), "");
    }
}

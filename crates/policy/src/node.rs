//! A document as written: a tree of values, not checked yet.
//!
//! Numbers are kept as they were written, so that `0x10`, `1e400` or `010` can be refused by name
//! instead of arriving as something else. Duplicate keys are kept so that they can be refused with
//! their path.

mod merge_keys;

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Error, Location, Spanned};

use crate::limits::{
    ALIASED_NODES_MIN, DEPTH_MAX, DOCUMENT_BYTES_MAX, NODES_MAX, PROBLEM_BYTES_MAX,
};
use crate::pointer::{pointer_to_field, pointer_to_item};
use crate::quoted::{excerpt, quoted};
use crate::syntax::{comment_in_json, in_words};
use merge_keys::merged;

/// One value of a document.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DocumentNode {
    Null,
    Bool(bool),
    /// A number as it was written.
    Number(String),
    Text(String),
    List(Vec<Self>),
    /// Entries in the order they were written; keys may repeat.
    Map(Vec<(String, Self)>),
}

impl DocumentNode {
    /// Reads JSON or YAML. A text that begins with `{` or `[` is most likely JSON: JSON is tried first, and if it is
    /// neither, the error of JSON is reported.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        Self::read_in(text, Dialect::Document)
    }

    /// Reads JSON, whose text is at most as long as a document.
    pub(crate) fn read_json(text: &str) -> Result<Self, String> {
        let raw = serde_json::from_str(text).map_err(|error| error.to_string())?;
        Json { text, nodes: 0 }.node(raw, 1)
    }

    /// Reads YAML as gopkg.in/yaml.v2 does where text is expected: words such as `True` are text, as written, and merge
    /// keys (`<<`) are merged.
    pub(crate) fn read_yaml_v2(text: &str) -> Result<Self, String> {
        Self::read_in(text, Dialect::YamlV2)
    }

    fn read_in(text: &str, dialect: Dialect) -> Result<Self, String> {
        if text.len() > DOCUMENT_BYTES_MAX {
            return Err(too_long(text));
        }
        match text.trim_start().as_bytes().first() {
            Some(b'{' | b'[') => match serde_json::from_str(text) {
                Ok(raw) => Json { text, nodes: 0 }.node(raw, 1),
                Err(error) => match comment_in_json(text, error.line(), error.column()) {
                    Some(problem) => Err(problem),
                    None if text.trim_start().starts_with("{{") => yaml_node(text, dialect),
                    None => yaml_node(text, dialect).map_err(|_| error.to_string()),
                },
            },
            _ => yaml_node(text, dialect),
        }
    }

    /// Reads YAML, with the place of every value.
    ///
    /// # Errors
    /// The error of its syntax, and its place.
    pub(crate) fn read_placed(text: &str) -> Result<(Self, Places), (String, Option<TextPlace>)> {
        if text.len() > DOCUMENT_BYTES_MAX {
            return Err((too_long(text), None));
        }
        let tree = yaml(text).map_err(|error| (yaml_problem(&error, text), place_of(&error)))?;
        let mut places = Places::default();
        places.add(&tree, String::new());
        let source = Source { text, dialect: Dialect::Document };
        Ok((tree.value.into_node(tree.defined, source), places))
    }

    /// The value of the first entry called `key`.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        let Self::Map(entries) = self else { return None };
        entries.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    pub(crate) const fn is_map(&self) -> bool {
        matches!(self, Self::Map(_))
    }

    /// Describes it in a message about an unexpected value.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Null => "nothing".to_owned(),
            Self::Bool(value) => alloc::format!("`{value}`"),
            Self::Number(text) => alloc::format!("the number {}", quoted(text)),
            Self::Text(text) => alloc::format!("the text {}", quoted(text)),
            Self::List(_) => "a list".to_owned(),
            Self::Map(_) => "a map".to_owned(),
        }
    }
}

/// Reads JSON whose syntax has been checked, level by level. Each level is scanned once more for
/// every level above it, which [`DEPTH_MAX`] bounds.
struct Json<'t> {
    text: &'t str,
    nodes: usize,
}

impl<'t> Json<'t> {
    fn node(&mut self, raw: &'t RawValue, depth: usize) -> Result<DocumentNode, String> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(alloc::format!("more than {NODES_MAX} values"));
        }
        let text = raw.get();
        Ok(match text.as_bytes().first() {
            Some(b'{' | b'[') if depth > DEPTH_MAX => {
                let place = self.place(raw);
                return Err(alloc::format!("nested more than {DEPTH_MAX} deep {place}"));
            }
            Some(b'{') => {
                let Entries(entries) = self.parse(raw)?;
                let node = |(key, raw)| Ok((key, self.node(raw, depth + 1)?));
                DocumentNode::Map(entries.into_iter().map(node).collect::<Result<_, String>>()?)
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = self.parse(raw)?;
                let node = |raw| self.node(raw, depth + 1);
                DocumentNode::List(items.into_iter().map(node).collect::<Result<_, String>>()?)
            }
            Some(b'"') => DocumentNode::Text(self.parse(raw)?),
            Some(b't') => DocumentNode::Bool(true),
            Some(b'f') => DocumentNode::Bool(false),
            Some(b'n') => DocumentNode::Null,
            _ => DocumentNode::Number(text.to_owned()),
        })
    }

    /// `raw` as a `T`. The only error that remains possible is an escape that is half a character.
    fn parse<T: Deserialize<'t>>(&self, raw: &'t RawValue) -> Result<T, String> {
        serde_json::from_str(raw.get())
            .map_err(|_| alloc::format!("an escape that is not a character {}", self.place(raw)))
    }

    fn place(&self, raw: &RawValue) -> String {
        let offset = (raw.get().as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        let before = self.text.get(..offset).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|char| *char != '\n').count() + 1;
        alloc::format!("at line {line} column {column}")
    }
}

/// The entries of a JSON object, repeated keys included.
struct Entries<'t>(Vec<(String, &'t RawValue)>);

impl<'t> Deserialize<'t> for Entries<'t> {
    fn deserialize<D: Deserializer<'t>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'t> Visitor<'t> for EntriesVisitor {
    type Value = Entries<'t>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Entries<'t>, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Entries(entries))
    }
}

fn too_long(text: &str) -> String {
    alloc::format!("{} bytes, expected at most {DOCUMENT_BYTES_MAX}", text.len())
}

/// The dialect of a text of YAML.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    /// The dialect of this project.
    Document,
    /// The dialect of gopkg.in/yaml.v2, which `envoyproxy/ratelimit` uses.
    YamlV2,
}

/// A text with its dialect.
#[derive(Clone, Copy)]
struct Source<'t> {
    text: &'t str,
    dialect: Dialect,
}

fn yaml_node(text: &str, dialect: Dialect) -> Result<DocumentNode, String> {
    let tree = yaml(text).map_err(|error| {
        let problem = yaml_problem(&error, text);
        match place_of(&error) {
            Some(TextPlace { line, column }) => {
                alloc::format!("{problem} at line {line} column {column}")
            }
            None => problem,
        }
    })?;
    Ok(tree.value.into_node(tree.defined, Source { text, dialect }))
}

fn yaml(text: &str) -> Result<Spanned<Yaml>, Error> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEPTH_MAX,
            max_nodes: NODES_MAX,
            max_documents: 1,
            max_events: 2 * NODES_MAX,
            max_total_scalar_bytes: DOCUMENT_BYTES_MAX,
            // A set of policies may share one anchor as often as it likes: the growth by aliases is bounded below.
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: aliased_nodes_max(text),
            max_replay_stack_depth: DEPTH_MAX,
        },
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        merge_keys: MergeKeyPolicy::AsOrdinary,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        reject_unsupported_tags: true,
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options)
}

/// The most values that aliases can add. It grows with the text, so that a few bytes cannot take a second to read.
fn aliased_nodes_max(text: &str) -> usize {
    text.len().saturating_mul(2).clamp(ALIASED_NODES_MIN, NODES_MAX)
}

fn place_of(error: &Error) -> Option<TextPlace> {
    match error {
        Error::AliasError { error: inner, .. } => place_of(inner),
        other => other.location().map(TextPlace::of),
    }
}

/// `error` in the words of this crate where a bound was passed, else in those of the library.
fn yaml_problem(error: &Error, text: &str) -> String {
    match error {
        Error::Budget { breach: BudgetBreach::Depth { .. }, .. } => {
            alloc::format!("nested more than {DEPTH_MAX} deep")
        }
        Error::Budget { breach: BudgetBreach::Documents { .. }, .. } => {
            "more than one document".to_owned()
        }
        Error::Budget {
            breach: BudgetBreach::Events { .. } | BudgetBreach::Nodes { .. }, ..
        } => {
            alloc::format!("more than {NODES_MAX} values")
        }
        Error::Budget { .. } | Error::AliasReplayLimitExceeded { .. } => {
            "anchors and aliases expand to too large a document".to_owned()
        }
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            "an alias that contains itself".to_owned()
        }
        Error::AliasError { error, .. } => yaml_problem(error, text),
        other => {
            let problem = other.to_string().replace(", column", " column");
            let place = other.location().map(TextPlace::of);
            if let Some(words) = place.and_then(|at| in_words(&problem, text, at.line)) {
                return words;
            }
            let place = place.map(|at| alloc::format!(" at line {} column {}", at.line, at.column));
            let problem = place.and_then(|at| problem.strip_suffix(&at)).unwrap_or(&problem);
            if problem.len() <= PROBLEM_BYTES_MAX {
                return problem.to_owned();
            }
            // Such as a tag of several pages.
            excerpt(problem)
        }
    }
}

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextPlace {
    /// Line, from 1.
    pub line: u64,
    /// Column in characters, from 1.
    pub column: u64,
}

impl TextPlace {
    fn of(location: Location) -> Self {
        Self { line: location.line(), column: location.column() }
    }
}

/// The places of a document's values in its text, by JSON pointers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places(BTreeMap<String, TextPlace>);

impl Places {
    /// The place of the value at a JSON pointer. A value that is not in the text has the place of the one that it would
    /// be a part of.
    pub fn of(&self, pointer: &str) -> Option<TextPlace> {
        let mut pointer = pointer;
        loop {
            match self.0.get(pointer) {
                Some(place) => return Some(*place),
                None => pointer = pointer.rsplit_once('/')?.0,
            }
        }
    }

    fn add(&mut self, tree: &Spanned<Yaml>, pointer: String) {
        match &tree.value {
            Yaml::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.add(item, pointer_to_item(pointer.clone(), index));
                }
            }
            Yaml::Map(entries) => {
                for (name, value) in entries {
                    self.add(value, pointer_to_field(pointer.clone(), name));
                }
            }
            _ => {}
        }
        self.0.insert(pointer, TextPlace::of(tree.referenced));
    }
}

/// A YAML value with the places of its children, from which numbers are read as written.
enum Yaml {
    Null,
    Bool(bool),
    /// A number as YAML understands it.
    Number(String),
    Text(String),
    List(Vec<Spanned<Self>>),
    Map(Vec<(String, Spanned<Self>)>),
}

impl Yaml {
    fn into_node(self, place: Location, source: Source<'_>) -> DocumentNode {
        let Source { text, dialect } = source;
        let child = |child: Spanned<Self>| child.value.into_node(child.defined, source);
        match self {
            Self::Null => DocumentNode::Null,
            Self::Bool(value) => {
                match written(place, text).filter(|_| dialect == Dialect::YamlV2) {
                    Some(written) => DocumentNode::Text(written.to_owned()),
                    None => DocumentNode::Bool(value),
                }
            }
            Self::Number(understood) => {
                let number = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+');
                let written = written(place, text);
                let written = written.filter(|written| written.bytes().next().is_some_and(number));
                DocumentNode::Number(written.map_or(understood, str::to_owned))
            }
            Self::Text(value) => DocumentNode::Text(value),
            Self::List(items) => DocumentNode::List(items.into_iter().map(child).collect()),
            Self::Map(entries) => {
                let entry = |(key, value)| (key, child(value));
                let entries = entries.into_iter().map(entry).collect();
                match dialect {
                    Dialect::Document => DocumentNode::Map(entries),
                    Dialect::YamlV2 => DocumentNode::Map(merged(entries)),
                }
            }
        }
    }
}

/// The text at `place` of `text`; `None` if that is not known.
fn written(place: Location, text: &str) -> Option<&str> {
    let start = usize::try_from(place.span().byte_offset()?).ok()?;
    let len = usize::try_from(place.span().byte_len()?).ok()?;
    text.get(start..start.checked_add(len)?).map(str::trim)
}

impl<'de> Deserialize<'de> for Yaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(YamlVisitor)
    }
}

struct YamlVisitor;

impl<'de> Visitor<'de> for YamlVisitor {
    type Value = Yaml;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Yaml, E> {
        Ok(Yaml::Null)
    }

    fn visit_none<E>(self) -> Result<Yaml, E> {
        Ok(Yaml::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Yaml, E> {
        Ok(Yaml::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Yaml, E> {
        Ok(Yaml::Number(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Yaml, E> {
        Ok(Yaml::Number(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Yaml, E> {
        Ok(Yaml::Number(alloc::format!("{value:?}")))
    }

    fn visit_str<E>(self, value: &str) -> Result<Yaml, E> {
        Ok(Yaml::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Yaml, E> {
        Ok(Yaml::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Yaml, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Yaml::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Yaml, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Yaml::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALIASES: &str = "anchors and aliases expand to too large a document";

    fn check(text: &str, expected: &str) {
        let found = match DocumentNode::read(text) {
            Ok(node) => alloc::format!("{node:?}"),
            Err(problem) => problem,
        };
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn numbers_are_kept_as_written() {
        for number in ["0", "-5", "1e400", "9223372036854775808", "1.50", "-0"] {
            check(&alloc::format!("[{number}]"), &alloc::format!("List([Number({number:?})])"));
        }
        for number in [
            "0",
            "-5",
            "1e400",
            "9223372036854775808",
            "1.50",
            "-0",
            "0x10",
            "0o17",
            "010",
            "+5",
            ".nan",
            "-.inf",
            "1_000",
            "184467440737095516160",
        ] {
            check(
                &alloc::format!("- {number} # it"),
                &alloc::format!("List([Number({number:?})])"),
            );
            let flow = alloc::format!("é: {{ a: &n {number} , b: *n }}");
            let both = alloc::format!("(\"a\", Number({number:?})), (\"b\", Number({number:?}))");
            check(&flow, &alloc::format!("Map([(\"é\", Map([{both}]))])"));
        }
    }

    #[test]
    fn a_byte_order_mark_moves_nothing() {
        check("\u{feff}- 0x10", r#"List([Number("0x10")])"#);
        check("\u{feff}{\"a\": [0x10, 1]}", r#"Map([("a", List([Number("0x10"), Number("1")]))])"#);
        check("\r\n- 0x10\r\n- 010", r#"List([Number("0x10"), Number("010")])"#);
    }

    #[test]
    fn keys_may_repeat_and_merge_keys_are_keys() {
        check(r#"{"a":1,"a":2}"#, r#"Map([("a", Number("1")), ("a", Number("2"))])"#);
        check("a: 1\na: x\n", r#"Map([("a", Number("1")), ("a", Text("x"))])"#);
        check("<<: { a: b }", r#"Map([("<<", Map([("a", Text("b"))]))])"#);
    }

    #[test]
    fn words_are_text_unless_they_are_true_false_or_null() {
        check(
            "- yes\n- 'true'\n- true\n- ~\n- 203.0.113.7\n- 10/min\n- ''",
            "List([Text(\"yes\"), Text(\"true\"), Bool(true), Null, Text(\"203.0.113.7\"), \
             Text(\"10/min\"), Text(\"\")])",
        );
        check("", "Null");
    }

    #[test]
    fn syntax_errors_have_their_line_and_column() {
        check("{ a: [yes, 1] }", r#"Map([("a", List([Text("yes"), Number("1")]))])"#);
        check("{\n  \"a\": ]", "expected value at line 2 column 8");
        check("[1] 2", "trailing characters at line 1 column 5");
        check("[\n \"\\ud800\"]", "an escape that is not a character at line 2 column 2");
        for text in ["a: [1", "a: 'x", "a:\n\t- b", "- a\n--- \n- b", "a: *b", "? [a]\n: b"] {
            let problem = DocumentNode::read(text).unwrap_err();
            assert!(problem.contains("line ") && problem.contains("column "), "{problem}");
        }
    }

    #[test]
    fn aliases_add_little_to_a_short_text_and_much_to_a_long_one() {
        let bomb = (1..13).fold("x0: &x0 [1,1,1,1,1,1,1,1,1]\n".to_owned(), |text, n| {
            let aliases = alloc::vec![alloc::format!("*x{}", n - 1); 9].join(",");
            text + &alloc::format!("x{n}: &x{n} [{aliases}]\n")
        });
        let problem = DocumentNode::read(&bomb).unwrap_err();
        assert!(problem.starts_with(ALIASES), "{problem}");
        let shared = |count: usize| {
            let uses: alloc::vec::Vec<_> = (0..count).map(|n| alloc::format!("p{n}: *a")).collect();
            alloc::format!("a: &a {{ b: [1, 2, 3], c: d }}\n{}\n", uses.join("\n"))
        };
        for count in [1_000, 10_000] {
            let read = DocumentNode::read(&shared(count));
            assert!(read.is_ok(), "{count}: {read:?}");
        }
    }

    #[test]
    fn an_alias_within_what_it_stands_for_is_refused_with_its_place() {
        check("a: &a [*a]", "an alias that contains itself at line 1 column 8");
        check("- &a\n  b: { c: *a }", "an alias that contains itself at line 2 column 11");
    }

    #[test]
    fn what_the_text_says_is_not_repeated_without_end() {
        let tag = alloc::format!("a: !{} b", "x".repeat(5_000));
        let expected =
            alloc::format!("unsupported tag `!{}… at line 1 column 5006", "x".repeat(42));
        check(&tag, &expected);
    }

    #[test]
    fn depth_size_and_aliases_are_bounded() {
        let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(DocumentNode::read(&deep(DEPTH_MAX)).is_ok());
        check(&deep(DEPTH_MAX + 1), "nested more than 16 deep at line 1 column 17");
        assert!(DocumentNode::read(&alloc::format!("--- {}", deep(DEPTH_MAX + 1))).is_err());
        assert!(DocumentNode::read(&deep(100_000)).is_err());
        assert!(DocumentNode::read(&alloc::format!("--- {}", deep(100_000))).is_err());
        check(&" ".repeat(DOCUMENT_BYTES_MAX + 1), "8388609 bytes, expected at most 8388608");
        let many = alloc::format!("[{}0]", "0,".repeat(NODES_MAX));
        check(&many, "more than 500000 values");
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for level in 1..10 {
            let alias = alloc::format!("*a{},", level - 1).repeat(10);
            bomb += &alloc::format!("a{level}: &a{level} [{alias}]\n");
        }
        assert!(DocumentNode::read(&bomb).unwrap_err().starts_with(ALIASES));
        let text = alloc::format!("- &a {}\n{}", "x".repeat(1 << 20), "- *a\n".repeat(300));
        assert!(DocumentNode::read(&text).unwrap_err().starts_with(ALIASES));
    }
}

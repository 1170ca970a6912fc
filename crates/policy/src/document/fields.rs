//! The fields of a map and the kinds of values: the readers for every part of a document.

use alloc::collections::BTreeSet;
use alloc::string::String;

use sluicegate_kernel::algorithm::algorithms;
use sluicegate_kernel::ruleset::is_name;

use crate::error::At;
use crate::finding;
use crate::finding::Finding;
use crate::nearest;
use crate::node::DocumentNode;
use crate::policy::no_name;
use crate::quoted::{listed, quoted};

/// The fields of a map, all of which are known.
pub(crate) struct Fields<'n>(&'n [(String, DocumentNode)]);

/// A field that people expect elsewhere, and what to write instead.
pub(crate) struct FieldRemedy {
    pub(crate) field: &'static str,
    pub(crate) instead: &'static str,
}

/// A word of documents with its meaning.
pub(crate) struct Word<T> {
    pub(crate) word: &'static str,
    pub(crate) meaning: T,
}

impl<T: Copy> Word<T> {
    pub(crate) const fn new(word: &'static str, meaning: T) -> Self {
        Self { word, meaning }
    }
}

impl<'n> Fields<'n> {
    /// The fields of `node`. Unknown and repeated ones are reported; the others can still be read,
    /// so that their errors are found too.
    pub(crate) fn read(node: &'n DocumentNode, at: &At<'_>, known: &[&str]) -> Option<Self> {
        Self::read_beside(node, at, known, &[])
    }

    /// Reads the fields, with remedies for fields that people expect here, each with its name.
    pub(crate) fn read_beside(
        node: &'n DocumentNode,
        at: &At<'_>,
        known: &[&str],
        elsewhere: &[FieldRemedy],
    ) -> Option<Self> {
        let DocumentNode::Map(entries) = node else {
            return at.expected(
                &alloc::format!("a map with {}", listed(known.iter().copied(), "and")),
                node,
            );
        };
        let mut given = BTreeSet::new();
        for (name, _) in entries {
            if !given.insert(name) {
                at.field(name).report::<()>(given_twice());
            } else if name == "<<" {
                at.field(name).report::<()>(finding!(
                    "merge_key",
                    "merge keys are not supported: repeat the fields"
                ));
            } else if !known.contains(&name.as_str()) {
                let instead = elsewhere.iter().find(|remedy| remedy.field == name);
                at.field(name).report::<()>(match instead {
                    Some(FieldRemedy { instead, .. }) => {
                        finding!("unknown_field_instead", "unknown field, write {instead}", instead)
                    }
                    None => unknown_field(name, known),
                });
            }
        }
        Some(Self(entries))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&'n DocumentNode> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, value)| value)
    }

    /// The field called `name`, whose place is `at`.
    pub(crate) fn required(
        &self,
        name: &str,
        wanted: &str,
        at: &At<'_>,
    ) -> Option<&'n DocumentNode> {
        let value = self.get(name);
        value.or_else(|| at.report(missing(wanted)))
    }
}

/// The error of an unknown field called `name`.
fn unknown_field(name: &str, known: &[&str]) -> Finding {
    match nearest(name, known.iter().copied()) {
        Some(near) => {
            finding!("unknown_field_near", "unknown field, did you mean `{near}`?", near)
        }
        None => {
            let known = listed(known.iter().copied(), "or");
            finding!("unknown_field", "unknown field, expected {known}", known)
        }
    }
}

/// The error of an absent value that is required.
pub(crate) fn missing(wanted: &str) -> Finding {
    finding!("missing", "is missing, expected {wanted}", wanted)
}

/// The error of a name that occurs a second time.
pub(super) fn given_twice() -> Finding {
    finding!("given_twice", "is given twice")
}

/// The error of a value that is in a list a second time.
pub(super) fn listed_twice() -> Finding {
    finding!("listed_twice", "is listed twice")
}

/// The error of two fields exactly one of which is required.
pub(crate) fn either(one: &str, other: &str) -> Finding {
    finding!("either", "expected either `{one}` or `{other}`", one, other)
}

/// The error of a text of `found` bytes that is too long.
pub(crate) fn too_many_bytes(found: usize, max: usize) -> Finding {
    finding!("too_many_bytes", "{found} bytes, expected at most {max}", found, max)
}

/// Longest text that a hint repeats: a name, an attribute, a host, a path.
const HINT_BYTES_MAX: usize = 64;

/// Returns whether `text` means itself everywhere in YAML, so that a hint can repeat it.
pub(crate) fn is_plain(text: &str) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'/' | b'-');
    (1..=HINT_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain)
}

/// The items of a list of `min` to `max` `things`.
pub(crate) fn list<'n>(
    node: &'n DocumentNode,
    at: &At<'_>,
    things: &str,
    min: usize,
    max: usize,
) -> Option<&'n [DocumentNode]> {
    let items = match node {
        DocumentNode::List(items) => items,
        DocumentNode::Text(item) if is_plain(item) => {
            return at.report(finding!(
                "text_for_list",
                "expected a list of {things}: write `[{item}]`",
                things,
                item
            ));
        }
        DocumentNode::Map(fields)
            if let Some((name, value)) = fields.first()
                && let Some(item) = item_of(things, name, value) =>
        {
            return at.report(finding!(
                "map_for_list",
                "expected a list of {things}, found a map: write `- {item}`",
                things,
                item
            ));
        }
        _ => return at.expected(&alloc::format!("a list of {things}"), node),
    };
    if !(min..=max).contains(&items.len()) {
        let found = items.len();
        return at.report(finding!(
            "wrong_count",
            "expected {min} to {max} {things}, found {found}",
            min,
            max,
            things,
            found
        ));
    }
    Some(items)
}

/// The first field, `name` with its `value`, of the first item that a map of `things` by their names was meant to be, such as `name: login`.
fn item_of(things: &str, name: &str, value: &DocumentNode) -> Option<String> {
    let id = match things {
        "policies" | "rules" => "name",
        "overrides" => "key",
        _ => return None,
    };
    match value {
        DocumentNode::Text(value) if name == id && is_plain(value) => {
            Some(alloc::format!("{id}: {value}"))
        }
        DocumentNode::Map(_) if things == "rules" && is_algorithm(name) => {
            Some(alloc::format!("{name}: {{ … }}"))
        }
        DocumentNode::Map(_) if is_plain(name) => Some(alloc::format!("{id}: {name}")),
        _ => None,
    }
}

fn is_algorithm(name: &str) -> bool {
    algorithms().iter().any(|algorithm| algorithm.name == name)
}

/// Returns the text of `node`.
pub(crate) fn text<'n>(node: &'n DocumentNode, at: &At<'_>, wanted: &str) -> Option<&'n str> {
    match node {
        DocumentNode::Text(text) => Some(text),
        DocumentNode::Number(_) | DocumentNode::Bool(_) => {
            let found = node.describe();
            at.report(finding!(
                "needs_quotes",
                "expected {wanted}, found {found}: put it in quotes",
                wanted,
                found
            ))
        }
        _ => at.expected(wanted, node),
    }
}

/// Returns the text of `node`: 1 to `max` bytes without control characters.
pub(crate) fn line<'n>(
    node: &'n DocumentNode,
    at: &At<'_>,
    wanted: &str,
    max: usize,
) -> Option<&'n str> {
    let text = text(node, at, wanted)?;
    if text.is_empty() || text.len() > max || text.contains(char::is_control) {
        let given = quoted(text);
        return at.report(finding!(
            "bad_line",
            "{given} is not {wanted}: expected 1 to {max} bytes without control characters",
            given,
            wanted,
            max
        ));
    }
    Some(text)
}

/// Returns the text of `node` as the name of a policy, a rule, an app or a tag.
pub(crate) fn name<'n>(node: &'n DocumentNode, at: &At<'_>) -> Option<&'n str> {
    let name = text(node, at, "a name")?;
    if is_name(name) { Some(name) } else { at.report(no_name(name)) }
}

/// Returns the meaning of one of `words`.
pub(crate) fn word<T: Copy>(node: &DocumentNode, at: &At<'_>, words: &[Word<T>]) -> Option<T> {
    let found = match node {
        DocumentNode::Text(text) => words.iter().find(|known| known.word == text),
        _ => None,
    };
    match found {
        Some(known) => Some(known.meaning),
        None if let DocumentNode::Text(text) = node
            && let Some(near) = near_word(text, words.iter().map(|known| known.word)) =>
        {
            let found = node.describe();
            at.report(finding!(
                "expected_near",
                "expected {wanted}, found {found}; did you mean `{near}`?",
                wanted = listed(words.iter().map(|known| known.word), "or"),
                found,
                near
            ))
        }
        None => at.expected(&listed(words.iter().map(|known| known.word), "or"), node),
    }
}

/// The word that `given` is most likely a slip or another form of, such as `month` of `monthly`.
fn near_word<'w>(given: &str, mut words: impl Iterator<Item = &'w str> + Clone) -> Option<&'w str> {
    nearest(given, words.clone()).or_else(|| words.find(|word| given.starts_with(word)))
}

/// The items of a list that `read` makes of its nodes, none of them twice. All items are read, so
/// that all errors are found.
pub(crate) fn distinct<'n, T: Ord + Clone>(
    items: &'n [DocumentNode],
    at: &At<'_>,
    mut read: impl FnMut(&'n DocumentNode, &At<'_>) -> Option<T>,
) -> Option<BTreeSet<T>> {
    let mut values = BTreeSet::new();
    for (place, item) in items.iter().enumerate() {
        let at = at.index(place);
        if let Some(value) = read(item, &at)
            && !values.insert(value)
        {
            at.report::<()>(listed_twice());
        }
    }
    (values.len() == items.len()).then_some(values)
}

/// Reads the field called `name` with `read`: `None` if that failed, `Some(None)` if the field is absent.
pub(super) fn optional<'n, T>(
    fields: &Fields<'n>,
    at: &At<'_>,
    name: &str,
    read: impl FnOnce(&'n DocumentNode, &At<'_>) -> Option<T>,
) -> Option<Option<T>> {
    match fields.get(name) {
        Some(node) => read(node, &at.field(name)).map(Some),
        None => Some(None),
    }
}

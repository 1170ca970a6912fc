//! Merge keys of YAML 1.1: `<<: *limit` has the entries of another map.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::DocumentNode;

/// The key by which YAML merges maps.
const MERGE_KEY: &str = "<<";

/// `entries` with those of their merge keys, as in gopkg.in/yaml.v2: an entry replaces an earlier one, and in a list of
/// maps the first has precedence. A merge key of anything but maps stays.
pub(crate) fn merged(entries: Vec<(String, DocumentNode)>) -> Vec<(String, DocumentNode)> {
    if !entries.iter().any(|(key, _)| key == MERGE_KEY) {
        return entries;
    }
    let mut found: Vec<(String, DocumentNode)> = Vec::new();
    // Where each name is, and whether it stands in the map itself: a second one of those is an error.
    let mut places: BTreeMap<String, (usize, bool)> = BTreeMap::new();
    let mut put = |key: String, value: DocumentNode, is_own: bool| match places.get_mut(&key) {
        Some((place, was_own)) if !(is_own && *was_own) => {
            found[*place].1 = value;
            *was_own |= is_own;
        }
        _ => {
            places.insert(key.clone(), (found.len(), is_own));
            found.push((key, value));
        }
    };
    for (key, value) in entries {
        let maps = match value {
            DocumentNode::Map(map) if key == MERGE_KEY => vec![DocumentNode::Map(map)],
            DocumentNode::List(maps)
                if key == MERGE_KEY && maps.iter().all(DocumentNode::is_map) =>
            {
                maps
            }
            value => {
                put(key, value, true);
                continue;
            }
        };
        for map in maps.into_iter().rev() {
            let DocumentNode::Map(entries) = map else { continue };
            entries.into_iter().for_each(|(key, value)| put(key, value, false));
        }
    }
    found
}

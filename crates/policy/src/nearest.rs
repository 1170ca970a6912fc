//! What a misspelt word was most likely meant to be.

use alloc::vec::Vec;

/// Longest word that is compared: no name of a field, an algorithm or a setting is longer.
const WORD_BYTES_MAX: usize = 64;

/// The word of `known` that `given` is most likely a slip of: equal but for case, `-`, `_` and spaces, or at
/// most a third of its letters away (inserted, left out, replaced, or swapped with the next). `None` if no
/// word is that near.
///
/// ```
/// use sluicegate_policy::nearest;
///
/// assert_eq!(nearest("token_buckt", ["token_bucket", "leaky_bucket"]), Some("token_bucket"));
/// assert_eq!(nearest("Token-Bucket", ["token_bucket"]), Some("token_bucket"));
/// assert_eq!(nearest("gcra", ["token_bucket"]), None);
/// ```
pub fn nearest<'w>(given: &str, known: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    if given.len() > WORD_BYTES_MAX {
        return None;
    }
    let letters = letters_of(given);
    known
        .into_iter()
        .filter(|word| word.len() <= WORD_BYTES_MAX)
        .map(|word| (distance(&letters, &letters_of(word)), word))
        .filter(|(away, word)| *away <= (word.len() / 3).min(letters.len() / 2))
        .min_by_key(|(away, _)| *away)
        .map(|(_, word)| word)
}

/// The letters and digits of `word`, in lower case.
fn letters_of(word: &str) -> Vec<char> {
    word.chars().filter(|char| char.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// The optimal string alignment distance.
fn distance(one: &[char], other: &[char]) -> usize {
    let width = other.len() + 1;
    let (mut before, mut above): (Vec<usize>, Vec<usize>) = (Vec::new(), (0..width).collect());
    for (row, char) in one.iter().enumerate() {
        let mut now = alloc::vec![row + 1; width];
        for (column, its) in other.iter().enumerate() {
            let replaced = above[column] + usize::from(char != its);
            now[column + 1] = replaced.min(above[column + 1] + 1).min(now[column] + 1);
            let swapped = row > 0 && column > 0 && *char == other[column - 1];
            if swapped && one[row - 1] == *its {
                now[column + 1] = now[column + 1].min(before[column - 1] + 1);
            }
        }
        before = core::mem::replace(&mut above, now);
    }
    above[width - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_other_words_are_not() {
        let fields = ["name", "rules", "overflow", "on_store_failure", "match", "key"];
        for (given, expected) in [
            ("rule", Some("rules")),
            ("ruels", Some("rules")),
            ("nmae", Some("name")),
            ("Name", Some("name")),
            ("onStoreFailure", Some("on_store_failure")),
            ("on-store-failure", Some("on_store_failure")),
            ("keys", Some("key")),
            ("about", None),
            ("k", None),
            ("", None),
        ] {
            assert_eq!(nearest(given, fields), expected, "{given}");
        }
    }

    #[test]
    fn a_long_word_is_not_compared() {
        let long = "a".repeat(WORD_BYTES_MAX + 1);
        assert_eq!(nearest(&long, [long.as_str()]), None);
    }

    #[test]
    fn the_nearest_of_several_is_taken() {
        assert_eq!(nearest("tokens", ["takes", "token", "tokenz"]), Some("token"));
    }
}

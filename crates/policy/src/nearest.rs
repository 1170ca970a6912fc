//! The most likely meaning of a misspelt word.

use alloc::vec::Vec;

/// Longest word that is compared: no name of a field, an algorithm or a setting is longer.
const WORD_BYTES_MAX: usize = 64;

/// Most letters in which a misspelt word differs: one that is further away is another word.
const SLIPS_MAX: usize = 4;

/// The word of `known` that `given` most likely misspells: equal but for case, `-`, `_` and spaces, or at most a third
/// of its letters away, and at most four (inserted, left out, replaced, or swapped with the next). `None` if no word is
/// that near. It takes some 2 µs for each word.
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
    let near = |word: &'w str| {
        let most = (word.len() / 3).min(letters.len() / 2).min(SLIPS_MAX);
        // Letters are at most as many as bytes.
        let is_too_long = word.len() > WORD_BYTES_MAX || letters.len() > word.len() + most;
        let away = if is_too_long { None } else { distance(&letters, &letters_of(word), most) };
        away.map(|away| (away, word))
    };
    known.into_iter().filter_map(near).min_by_key(|(away, _)| *away).map(|(_, word)| word)
}

/// The letters and digits of `word`, in lower case.
fn letters_of(word: &str) -> Vec<char> {
    word.chars().filter(|char| char.is_alphanumeric()).map(lower).collect()
}

/// `char` in lower case, where that is one letter.
fn lower(char: char) -> char {
    let mut lower = char.to_lowercase();
    match (lower.next(), lower.next()) {
        (Some(one), None) => one,
        _ => char,
    }
}

/// The optimal string alignment distance, if it is at most `most`: so only cells that near to the diagonal count.
fn distance(one: &[char], other: &[char], most: usize) -> Option<usize> {
    if one.len().abs_diff(other.len()) > most {
        return None;
    }
    let (width, far) = (other.len() + 1, most + 1);
    let mut before = alloc::vec![far; width];
    let mut above: Vec<usize> = (0..width).map(|column| column.min(far)).collect();
    let mut now = alloc::vec![far; width];
    for (row, char) in one.iter().enumerate() {
        let (from, to) = (row.saturating_sub(most), other.len().min(row + most + 1));
        now[from] = if from == 0 { (row + 1).min(far) } else { far };
        for column in from..to {
            let its = &other[column];
            let replaced = above[column] + usize::from(char != its);
            let mut away = replaced.min(above[column + 1] + 1).min(now[column] + 1);
            let swapped = row > 0 && column > 0 && *char == other[column - 1];
            if swapped && one[row - 1] == *its {
                away = away.min(before[column - 1] + 1);
            }
            now[column + 1] = away.min(far);
        }
        // The next row looks one column further than this one went.
        if let Some(beyond) = now.get_mut(to + 1) {
            *beyond = far;
        }
        core::mem::swap(&mut before, &mut above);
        core::mem::swap(&mut above, &mut now);
    }
    Some(above[width - 1]).filter(|away| *away <= most)
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

    /// The distance without a band: every cell, as in the definition.
    fn whole_distance(one: &[char], other: &[char]) -> usize {
        let mut rows = alloc::vec![alloc::vec![0; other.len() + 1]; one.len() + 1];
        for row in 0..=one.len() {
            for column in 0..=other.len() {
                if row == 0 || column == 0 {
                    rows[row][column] = row + column;
                    continue;
                }
                let is_other = one[row - 1] != other[column - 1];
                let mut away = (rows[row - 1][column] + 1)
                    .min(rows[row][column - 1] + 1)
                    .min(rows[row - 1][column - 1] + usize::from(is_other));
                if row > 1
                    && column > 1
                    && one[row - 1] == other[column - 2]
                    && one[row - 2] == other[column - 1]
                {
                    away = away.min(rows[row - 2][column - 2] + 1);
                }
                rows[row][column] = away;
            }
        }
        rows[one.len()][other.len()]
    }

    #[test]
    fn a_distance_within_the_band_is_the_whole_distance() {
        // All pairs of words of at most five letters of two, and every band.
        let words = (0..6_u32).flat_map(|letters| {
            (0..1_u32 << letters).map(move |bits| {
                (0..letters).map(move |at| if bits >> at & 1 == 1 { 'a' } else { 'b' })
            })
        });
        let words: Vec<Vec<char>> = words.map(Iterator::collect).collect();
        for (one, other) in words.iter().flat_map(|one| words.iter().map(move |other| (one, other)))
        {
            let whole = whole_distance(one, other);
            for most in 0..=SLIPS_MAX {
                let expected = Some(whole).filter(|whole| *whole <= most);
                assert_eq!(distance(one, other, most), expected, "{one:?} {other:?} {most}");
            }
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

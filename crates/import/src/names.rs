//! Names of policies and rules, made from those that others use.

use std::collections::BTreeMap;

/// Most bytes of a name that is made; a number may follow.
const NAME_BYTES_MAX: usize = 100;

/// The names that were made, each once, with the number of the next one like it.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeMap<String, u32>);

impl Names {
    /// A name like `wanted` that was not made before: small letters, digits, `.`, `_` and `-`.
    pub(crate) fn make(&mut self, wanted: &str) -> String {
        let plain = plain(wanted);
        let mut name = plain.clone();
        while self.0.contains_key(&name) {
            let number = self.0.entry(plain.clone()).or_insert(2);
            name = format!("{plain}-{number}");
            *number += 1;
        }
        self.0.insert(name.clone(), 2);
        name
    }
}

/// `wanted` in the letters that names have.
pub(crate) fn plain(wanted: &str) -> String {
    let mut name = String::new();
    for letter in wanted.chars() {
        let letter = letter.to_ascii_lowercase();
        let fits = matches!(letter, 'a'..='z' | '0'..='9' | '.' | '_' | '-');
        let letter = if fits { letter } else { '-' };
        if name.len() == NAME_BYTES_MAX {
            break;
        }
        if letter != '-' || !name.is_empty() && !name.ends_with('-') {
            name.push(letter);
        }
    }
    let name = name.trim_matches(['-', '.']);
    if name.is_empty() { "imported".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_thousand_equal_names_are_made_one_after_the_other() {
        let mut names = Names::default();
        let last = (0..100_000).map(|_| names.make("api")).last();
        assert_eq!(last.as_deref(), Some("api-100000"));
        assert_eq!(names.make("api-7"), "api-7-2");
    }

    #[test]
    fn names_are_plain_and_differ() {
        let mut names = Names::default();
        let made = ["/Orders/{id}", "orders.id", "/orders/{ID}", "订单", "..", &"x".repeat(500)];
        let made = made.map(|wanted| names.make(wanted));
        let long = "x".repeat(NAME_BYTES_MAX);
        assert_eq!(made[..5], ["orders-id", "orders.id", "orders-id-2", "imported", "imported-2"]);
        assert_eq!(made[5], long);
    }
}

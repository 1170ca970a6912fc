//! Names of policies and rules, made of those that others use.

use std::collections::BTreeSet;

/// Most bytes of what is made; a number may follow.
const NAME_BYTES_MAX: usize = 100;

/// The names that were made, each once.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeSet<String>);

impl Names {
    /// A name like `wanted` that was not made before: small letters, digits, `.`, `_` and `-`.
    pub(crate) fn make(&mut self, wanted: &str) -> String {
        let plain = plain(wanted);
        let mut name = plain.clone();
        let mut number = 2_u32;
        while !self.0.insert(name.clone()) {
            name = format!("{plain}-{number}");
            number += 1;
        }
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
    fn names_are_plain_and_differ() {
        let mut names = Names::default();
        let made = ["/Orders/{id}", "orders.id", "/orders/{ID}", "订单", "..", &"x".repeat(500)];
        let made = made.map(|wanted| names.make(wanted));
        let long = "x".repeat(NAME_BYTES_MAX);
        assert_eq!(made[..5], ["orders-id", "orders.id", "orders-id-2", "imported", "imported-2"]);
        assert_eq!(made[5], long);
    }
}

//! JSON that is safe to display: invisible characters, and those that change the direction of text, are escaped.
//!
//! Keys, reasons and names are chosen by others, and people read answers and exports in terminals. In JSON such a
//! character stands inside a string only, where `\u202e` means the same.

use std::fmt::Write as _;

use serde::Serialize;

/// Returns `value` as JSON.
pub(crate) fn text(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).expect("texts and numbers are always JSON");
    if json.is_ascii() && !json.contains('\u{7f}') {
        return json;
    }
    let mut safe = String::with_capacity(json.len());
    for char in json.chars() {
        if is_unseen(char) {
            for unit in char.encode_utf16(&mut [0; 2]) {
                write!(safe, "\\u{unit:04x}").expect("a String takes everything");
            }
        } else {
            safe.push(char);
        }
    }
    safe
}

/// Returns whether a character is invisible: controls that JSON does not escape itself, marks of direction, and such.
fn is_unseen(char: char) -> bool {
    matches!(char,
        '\u{7f}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_escaped_and_means_the_same() {
        let text_of_others = "ann\u{202e}gnp\u{7f}\u{9b}31m 张三 \u{e0041}\u{ad}é";
        let json = text(&text_of_others);
        assert_eq!(json, r#""ann\u202egnp\u007f\u009b31m 张三 \udb40\udc41\u00adé""#);
        assert_eq!(serde_json::from_str::<String>(&json).ok().as_deref(), Some(text_of_others));
    }
}

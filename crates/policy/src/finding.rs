//! Sentences about errors and risks, with the data that programs need to write them in other languages.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// An error or a risk: an English sentence, its code, and the parameters in it.
///
/// `docs/findings.json` lists the codes of all crates with their sentences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    code: &'static str,
    params: Vec<(&'static str, String)>,
    text: String,
}

impl Finding {
    #[doc(hidden)]
    pub const fn new(
        code: &'static str,
        params: Vec<(&'static str, String)>,
        text: String,
    ) -> Self {
        Self { code, params, text }
    }

    /// The code: it is the same for all sentences that differ in their parameters only.
    pub const fn code(&self) -> &'static str {
        self.code
    }

    /// The parameters by name, as in the sentence.
    pub fn params(&self) -> &[(&'static str, String)] {
        &self.params
    }

    /// The sentence.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A [`Finding`]: its code, its sentence, and the parameters of the sentence, `name` or `name = value`.
///
/// ```
/// use sluicegate_policy::finding;
///
/// let found = finding!("outside", "`{value}` is outside 1..={max}", value = 0, max = 5);
/// assert_eq!(found.text(), "`0` is outside 1..=5");
/// assert_eq!(found.params()[1], ("max", "5".to_owned()));
/// ```
#[macro_export]
macro_rules! finding {
    ($code:literal, $text:literal $(, $name:ident $(= $value:expr)?)* $(,)?) => {{
        $(let $name = $crate::finding::text_of(&$crate::finding!(@value $name $($value)?));)*
        let text = $crate::finding::format!($text);
        $crate::Finding::new($code, $crate::finding::vec![$((stringify!($name), $name)),*], text)
    }};
    (@value $name:ident $value:expr) => { $value };
    (@value $name:ident) => { $name };
}

#[doc(hidden)]
pub use alloc::{format, string::ToString, vec};

#[doc(hidden)]
pub fn text_of(value: &impl fmt::Display) -> String {
    value.to_string()
}

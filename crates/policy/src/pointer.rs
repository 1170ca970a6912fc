//! JSON pointers (RFC 6901) to places in a document.

use alloc::string::String;
use core::fmt::Write;

use crate::limits::EXCERPT_CHARS_MAX;

/// The pointer to a field of the map at `pointer`.
pub(crate) fn pointer_to_field(mut pointer: String, name: &str) -> String {
    if name.len() <= EXCERPT_CHARS_MAX {
        pointer.push('/');
        pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
    }
    pointer
}

/// The pointer to an item of the list at `pointer`.
pub(crate) fn pointer_to_item(mut pointer: String, index: usize) -> String {
    let _ = write!(pointer, "/{index}");
    pointer
}

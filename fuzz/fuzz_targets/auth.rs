//! Any target of a request has either one path, which has no other spelling, or none.

#![no_main]

use sluicegate_server::wire::http::path_of;

libfuzzer_sys::fuzz_target!(|target: &[u8]| {
    let Some(path) = path_of(target) else { return };
    assert!(path.starts_with('/') && !path.contains(['?', '#']) && !path.contains("//"));
    assert!(!path.split('/').any(|segment| segment == "." || segment == ".."));
    assert_eq!(path_of(path.as_bytes()), Some(path));
});

//! Any bytes are a body of the http wire that asks something, or are refused.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = sluicegate_server::wire::http::requests_in(bytes);
});

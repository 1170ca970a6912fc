//! Any bytes are a body of the http wire with requests, or are refused.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = sluicegate_server::wire::http::requests_in(bytes);
});

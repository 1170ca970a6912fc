//! Any bytes are an event of `replay` or an error.

#![no_main]

libfuzzer_sys::fuzz_target!(|line: &[u8]| {
    let _ = sluicegate_server::replay::jsonl::parse(line);
});

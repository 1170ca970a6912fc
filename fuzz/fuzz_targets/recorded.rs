//! Any bytes are an event of `replay`, or a line of an access log, or an error.

#![no_main]

libfuzzer_sys::fuzz_target!(|line: &[u8]| {
    let _ = sluicegate_replay::jsonl::parse(line);
    let _ = sluicegate_replay::combined::parse(line);
});

//! Any text is a rate or a duration or an error; what is accepted is written back the same.

#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = sluicegate_policy::text::rate(text);
    let _ = sluicegate_policy::text::span(text);
});

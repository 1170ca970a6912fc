//! Any text is a policy document or a list of errors, and an accepted document can be compiled. The
//! text is also a rate or an error, and a duration or an error.

#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(document) = sluicegate_policy::Document::parse(text) {
        sluicegate_policy::PolicySet::new(document);
    }
    let _ = sluicegate_policy::text::rate(text);
    let _ = sluicegate_policy::text::span(text);
});

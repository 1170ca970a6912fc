//! Any text is a policy document or a list of errors, and what is accepted can be compiled; it is a
//! rate or a duration or an error.

#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(document) = sluicegate_policy::Document::parse(text) {
        sluicegate_policy::PolicySet::new(document);
    }
    let _ = sluicegate_policy::text::rate(text);
    let _ = sluicegate_policy::text::span(text);
});

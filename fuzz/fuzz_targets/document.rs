//! Any text is a policy document or a list of errors; what is accepted can be compiled.

#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(document) = sluicegate_policy::Document::parse(text) {
        sluicegate_policy::PolicySet::new(document);
    }
});

//! Any text is a configuration or an error.

#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Err(problem) = sluicegate_server::config::of_text(text) {
        assert!(!problem.is_empty());
    }
});

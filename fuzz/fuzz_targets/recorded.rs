//! Any bytes are an event of `replay`, or a line of an access log, or an error.

#![no_main]

use sluicegate_replay::combined::LogFormat;

libfuzzer_sys::fuzz_target!(|line: &[u8]| {
    let _ = sluicegate_replay::jsonl::parse(line);
    for has_host in [false, true] {
        let format = LogFormat { has_host, has_client_names: true, proxies: None };
        let _ = format.parse(line);
    }
});

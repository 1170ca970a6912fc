//! The picture: written for any input.

use std::fs;

use crate::replay::{file, replay};

const POLICY: &str = "policies: [{ name: p, rules: [{ token_bucket: { rate: 1/s, burst: 1 } }] }]";

fn picture(input: &str) -> String {
    let path = file("picture.svg", "");
    let replayed = replay(POLICY, input, &["--svg", path.to_str().unwrap()]);
    assert_eq!(replayed.code, 0, "{}", replayed.stderr);
    fs::read_to_string(path).unwrap()
}

#[test]
fn no_event_and_one_event_make_a_picture() {
    assert!(picture("").contains("no requests in the input"));
    let one = picture(r#"{"at_us":0,"policy":"p"}"#);
    assert!(one.contains("allowed at once: 1") && one.contains("virtual time (µs)"), "{one}");
}

#[test]
fn a_span_of_all_of_time_makes_a_picture_of_bounded_size() {
    let events: String = (0..20_000_u64)
        .map(|event| format!("{{\"at_us\":{},\"policy\":\"p\"}}\n", event * 450_359_962_737))
        .collect();
    let svg = picture(&events);
    assert!(svg.len() < 100_000, "{} bytes", svg.len());
    assert!(svg.contains("allowed at once: 20,000"));
}

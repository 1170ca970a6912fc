//! The picture: written for any input.

use std::fs;

use crate::replay::{file, replay};

const POLICY: &str = "policies: [{ name: p, rules: [{ token_bucket: { rate: 1/s, burst: 1 } }] }]";

fn picture(input: &str) -> String {
    picture_of(POLICY, input, &[])
}

fn picture_of(policies: &str, input: &str, options: &[&str]) -> String {
    let path = file("picture.svg", "");
    let options = [&["--svg", path.to_str().unwrap()], options].concat();
    let replayed = replay(policies, input, &options);
    assert_eq!(replayed.code, i32::from(input.is_empty()), "{}", replayed.stderr);
    fs::read_to_string(path).unwrap()
}

#[test]
fn no_event_and_one_event_make_a_picture() {
    assert!(picture("").contains("no requests in the input"));
    let one = picture(r#"{"at_us":0,"policy":"p"}"#);
    assert!(one.contains("allowed at once 1<") && one.contains("time (µs)"), "{one}");
}

#[test]
fn a_span_of_all_of_time_makes_a_picture_of_bounded_size() {
    let events: String = (0..20_000_u64)
        .map(|event| format!("{{\"at_us\":{},\"policy\":\"p\"}}\n", event * 450_359_962_737))
        .collect();
    let svg = picture(&events);
    assert!(svg.len() < 100_000, "{} bytes", svg.len());
    assert!(svg.contains("allowed at once 20,000"));
}

#[test]
fn the_title_names_the_policy_that_decided_and_the_attributes_of_its_key() {
    let policies = "policies: [\
        { name: all, rules: [{ sliding_log: { limit: 1, window: 1h } }] },\
        { name: orders, match: { path: { prefix: /orders } }, key: [method, path], \
          rules: [{ leaky_bucket: { burst: 4, rate: 6/min } }] }]";
    let line = "192.0.2.1 - - [17/May/2015:10:00:00 +0000] \"GET /orders HTTP/1.1\" 200 1\n";
    let svg = picture_of(policies, &line.repeat(10), &[]);
    let title = "<title>orders: leaky_bucket 6/min, burst 4, by method, path. 50.0 % refused of 10 requests";
    assert!(svg.contains(title) && svg.contains("limit 6/min"), "{svg}");
    let svg = picture_of(policies, &line.repeat(10), &["--policy", "all", "--key", "remote_ip"]);
    assert!(
        svg.contains("<title>all: sliding_log 1 per 1h, by remote_ip. 90.0 % refused"),
        "{svg}"
    );
}

#[test]
fn events_of_several_policies_have_no_common_rule() {
    let policies = "policies: [\
        { name: p, rules: [{ token_bucket: { rate: 1/s } }] },\
        { name: q, rules: [{ token_bucket: { rate: 2/s } }] }]";
    let events = "{\"at_us\":0,\"policy\":\"p\"}\n{\"at_us\":0,\"policy\":\"q\"}\n";
    let svg = picture_of(policies, events, &[]);
    assert!(svg.contains("<title>Replay of standard input. 0.0 % refused"), "{svg}");
    assert!(!svg.contains("class=\"limit"), "{svg}");
}

#[test]
fn the_same_replay_makes_the_same_picture() {
    let events: String = (0..2_000_u64)
        .map(|event| {
            format!("{{\"at_us\":{},\"policy\":\"p\",\"key\":\"{}\"}}\n", event * 1_000, event % 7)
        })
        .collect();
    let svg = picture(&events);
    assert_eq!(svg, picture(&events));
    assert!(svg.contains("Most refused keys"), "{svg}");
}

#[test]
fn rules_that_changed_while_it_ran_are_not_in_the_title() {
    let document = r#"{"name":"p","rules":[{"token_bucket":{"rate":"9/s"}}]}"#;
    let asked = r#"{"at_us":0,"policy":"p"}"#;
    let configure = format!(r#"{{"at_us":0,"op":"configure","document":{document}}}"#);
    let svg = picture(&[asked, &configure, asked].join("\n"));
    assert!(svg.contains("<title>Replay of standard input. "), "{svg}");
}

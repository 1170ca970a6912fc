//! Configurations of `envoyproxy/ratelimit` are read as gopkg.in/yaml.v2 reads them.

use sluicegate_policy::descriptor::envoy::{Import, import};

use crate::envoy::{Served, imported};

/// Texts as YAML, with the values that gopkg.in/yaml.v2 2.4.0 reads where it expects text, and where it expects true or
/// false.
const YAML_V2: [(&str, &str, Option<bool>); 38] = [
    ("True", "True", Some(true)),
    ("true", "true", Some(true)),
    ("TRUE", "TRUE", Some(true)),
    ("FALSE", "FALSE", Some(false)),
    ("False", "False", Some(false)),
    ("Yes", "Yes", Some(true)),
    ("yes", "yes", Some(true)),
    ("y", "y", Some(true)),
    ("n", "n", Some(false)),
    ("No", "No", Some(false)),
    ("on", "on", Some(true)),
    ("OFF", "OFF", Some(false)),
    ("1.0", "1.0", None),
    ("0x10", "0x10", None),
    ("0o17", "0o17", None),
    ("010", "010", None),
    ("0b101", "0b101", None),
    ("1_000", "1_000", None),
    ("+5", "+5", None),
    ("-5", "-5", None),
    ("1e3", "1e3", None),
    (".5", ".5", None),
    (".inf", ".inf", None),
    ("~", "", Some(false)),
    ("null", "", Some(false)),
    ("Null", "", Some(false)),
    ("NULL", "", Some(false)),
    ("'~'", "~", None),
    ("'null'", "null", None),
    ("'5'", "5", None),
    ("\"1.0\"", "1.0", None),
    ("2001-01-01", "2001-01-01", None),
    ("12:30:45", "12:30:45", None),
    ("4294967295", "4294967295", None),
    ("5.7", "5.7", None),
    ("", "", Some(false)),
    ("''", "", None),
    ("a b", "a b", None),
];

#[test]
fn plain_words_are_text_as_yaml_v2_reads_them() {
    for (written, text, flag) in YAML_V2 {
        let limit = "rate_limit: { unit: minute, requests_per_unit: 5 }";
        let value = format!("domain: d\ndescriptors:\n- key: k\n  value: {written}\n  {limit}\n");
        let expected = match text {
            "" => "{ key: \"k\" }".to_owned(),
            text => format!("{{ key: \"k\", value: {text:?} }}"),
        };
        let Import { descriptors, .. } = imported(&[("c.yaml", &value)]);
        assert!(descriptors.contains(&expected), "{written}: {descriptors}");
        let shadow =
            format!("domain: d\ndescriptors:\n- key: k\n  shadow_mode: {written}\n  {limit}\n");
        let found = import([("c.yaml", shadow.as_str())]);
        let found = found.ok().map(|found| found.policies.contains("overflow: shadow"));
        assert_eq!(found, flag, "{written}");
    }
}

#[test]
fn merge_keys_are_merged_as_yaml_v2_does() {
    for (limit, expected) in [
        ("{ <<: *r, requests_per_unit: 9 }", "9 per 60 s for x"),
        ("{ requests_per_unit: 9, <<: *r }", "5 per 60 s for x"),
        ("{ <<: [*r, *q] }", "5 per 60 s for x"),
        ("{ <<: [*q, *r], unit: minute }", "7 per 60 s for x"),
        ("{ <<: { <<: *q, requests_per_unit: 4 } }", "4 per 3600 s for x"),
        ("{ <<: *r, <<: *q }", "7 per 3600 s for x"),
    ] {
        let text = format!(
            "domain: m
descriptors:
  - key: a
    rate_limit: &r {{ unit: minute, requests_per_unit: 5 }}
  - key: q
    rate_limit: &q {{ unit: hour, requests_per_unit: 7 }}
  - key: b
    rate_limit: {limit}
"
        );
        assert_eq!(Served::new(&text).says("m", &[("b", "x")]), expected, "{limit}");
    }
    for wrong in ["{ <<: 5 }", "{ <<: ~ }", "{ <<: [5] }", "{ unit: day, unit: day }"] {
        let text = format!("domain: m\ndescriptors:\n  - key: b\n    rate_limit: {wrong}\n");
        assert!(import([("c.yaml", text.as_str())]).is_err(), "{wrong}");
    }
}

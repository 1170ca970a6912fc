//! A table of decisions of `envoyproxy/ratelimit`: one line a case, in configurations and words of our own.
//!
//! A request is written as its descriptors, parted by ` + `, each a path of `key=value`, parted by ` > `;
//! `@5/minute` behind them is a limit that the descriptor sends along, `#3` its hits. The answer is the
//! code of the request and of each descriptor, with what remains of the limit: `OK ok(4 of 5/minute)`.

use sluicegate_policy::descriptor::envoy::import;

use super::*;

/// A claim, the descriptors of a configuration, and requests with their answers.
type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

/// Requests, and the limits that they find.
const LOOKUP: &[Case<'_>] = &[
    (
        "a value has its limit",
        "- { key: a, value: b, rate_limit: { unit: minute, requests_per_unit: 2 } }",
        &[
            ("a=b", "OK ok(1 of 2/minute)"),
            ("a=b", "OK ok(0 of 2/minute)"),
            ("a=b", "OVER over(0 of 2/minute)"),
        ],
    ),
    (
        "another value has none",
        "- { key: a, value: b, rate_limit: { unit: minute, requests_per_unit: 2 } }",
        &[("a=c", "OK ok(0)")],
    ),
    (
        "another key has none",
        "- { key: a, rate_limit: { unit: minute, requests_per_unit: 2 } }",
        &[("b=c", "OK ok(0)")],
    ),
    (
        "a key alone limits each value by itself",
        "- { key: a, rate_limit: { unit: minute, requests_per_unit: 1 } }",
        &[
            ("a=b", "OK ok(0 of 1/minute)"),
            ("a=c", "OK ok(0 of 1/minute)"),
            ("a=b", "OVER over(0 of 1/minute)"),
        ],
    ),
    (
        "a value comes before its key alone",
        "- { key: a, rate_limit: { unit: minute, requests_per_unit: 2 } }\n- { key: a, value: b, rate_limit: { unit: hour, requests_per_unit: 3 } }",
        &[("a=b", "OK ok(2 of 3/hour)"), ("a=c", "OK ok(1 of 2/minute)")],
    ),
    (
        "a nested descriptor has its limit",
        "- { key: a, value: b, descriptors: [{ key: c, rate_limit: { unit: day, requests_per_unit: 4 } }] }",
        &[
            ("a=b > c=d", "OK ok(3 of 4/day)"),
            ("a=b > c=e", "OK ok(3 of 4/day)"),
            ("a=b > c=d", "OK ok(2 of 4/day)"),
        ],
    ),
    (
        "a shorter request meets no nested limit",
        "- { key: a, descriptors: [{ key: c, rate_limit: { unit: day, requests_per_unit: 4 } }] }",
        &[("a=b", "OK ok(0)")],
    ),
    (
        "a longer request meets no limit above",
        "- { key: a, rate_limit: { unit: day, requests_per_unit: 4 } }",
        &[("a=b > c=d", "OK ok(0)")],
    ),
    (
        "limits above and below are two",
        "- { key: a, rate_limit: { unit: day, requests_per_unit: 4 }, descriptors: [{ key: c, rate_limit: { unit: hour, requests_per_unit: 2 } }] }",
        &[
            ("a=b", "OK ok(3 of 4/day)"),
            ("a=b > c=d", "OK ok(1 of 2/hour)"),
            ("a=b", "OK ok(2 of 4/day)"),
        ],
    ),
    (
        "a key below is not that key above",
        "- { key: a, value: x, descriptors: [{ key: b, rate_limit: { unit: day, requests_per_unit: 4 } }] }\n- { key: b, rate_limit: { unit: day, requests_per_unit: 9 } }",
        &[("a=x > b=1", "OK ok(3 of 4/day)"), ("b=1", "OK ok(8 of 9/day)")],
    ),
    (
        "a branch that is taken is not left again",
        "- { key: a, value: x, descriptors: [{ key: b, rate_limit: { unit: day, requests_per_unit: 4 } }] }\n- { key: a, descriptors: [{ key: c, rate_limit: { unit: day, requests_per_unit: 4 } }] }",
        &[("a=x > c=1", "OK ok(0)"), ("a=y > c=1", "OK ok(3 of 4/day)")],
    ),
    (
        "an empty value is the key alone",
        "- { key: a, value: '', rate_limit: { unit: day, requests_per_unit: 4 } }",
        &[("a=b", "OK ok(3 of 4/day)")],
    ),
    (
        "a number is its text",
        "- { key: a, value: 404, rate_limit: { unit: day, requests_per_unit: 4 } }",
        &[("a=404", "OK ok(3 of 4/day)")],
    ),
    (
        "a domain that is not known has no limit",
        "- { key: a, rate_limit: { unit: day, requests_per_unit: 4 } }",
        &[("else: a=b", "OK ok(0)")],
    ),
    (
        "a value without a limit is left alone",
        "- { key: a, rate_limit: { unit: day, requests_per_unit: 1 } }\n- { key: a, value: b }",
        &[("a=b", "OK ok(0)"), ("a=b", "OK ok(0)"), ("a=c", "OK ok(0 of 1/day)")],
    ),
    (
        "a nested value without a limit is left alone",
        "- { key: a, descriptors: [{ key: b, rate_limit: { unit: day, requests_per_unit: 1 } }, { key: b, value: c }] }",
        &[("a=x > b=c", "OK ok(0)"), ("a=x > b=c", "OK ok(0)")],
    ),
];

/// Limits of every kind.
const LIMITS: &[Case<'_>] = &[
    (
        "a second is a unit",
        "- { key: a, rate_limit: { unit: second, requests_per_unit: 7 } }",
        &[("a=b", "OK ok(6 of 7/second)")],
    ),
    (
        "a minute is a unit",
        "- { key: a, rate_limit: { unit: minute, requests_per_unit: 7 } }",
        &[("a=b", "OK ok(6 of 7/minute)")],
    ),
    (
        "an hour is a unit",
        "- { key: a, rate_limit: { unit: hour, requests_per_unit: 7 } }",
        &[("a=b", "OK ok(6 of 7/hour)")],
    ),
    (
        "a day is a unit",
        "- { key: a, rate_limit: { unit: day, requests_per_unit: 7 } }",
        &[("a=b", "OK ok(6 of 7/day)")],
    ),
    (
        "a week is a unit",
        "- { key: a, rate_limit: { unit: week, requests_per_unit: 7 } }",
        &[("a=b", "OK ok(6 of 7/week)")],
    ),
    (
        "a month is a unit",
        "- { key: a, rate_limit: { unit: month, requests_per_unit: 7 } }",
        &[("a=b", "OK ok(6 of 7/month)")],
    ),
    (
        "a year is a unit",
        "- { key: a, rate_limit: { unit: year, requests_per_unit: 7 } }",
        &[("a=b", "OK ok(6 of 7/year)")],
    ),
    (
        "a unit is one in capitals",
        "- { key: a, rate_limit: { unit: MINUTE, requests_per_unit: 7 } }",
        &[("a=b", "OK ok(6 of 7/minute)")],
    ),
    (
        "a limit of zero refuses, and tells its unit",
        "- { key: a, rate_limit: { unit: hour, requests_per_unit: 0 } }",
        &[("a=b", "OVER over(0 of 0/hour)")],
    ),
    (
        "a limit of zero tells its name",
        "- { key: a, rate_limit: { name: n, unit: hour, requests_per_unit: 0 } }",
        &[("a=b", "OVER over(0 of 0/hour n)")],
    ),
    (
        "a limit of zero in the shadow passes, and the answer names it",
        "- { key: a, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 0 } }",
        &[("a=b", "OK ok(0 of 0/hour)")],
    ),
    (
        "what is unlimited has all there is",
        "- { key: a, rate_limit: { unlimited: true } }",
        &[("a=b", "OK ok(max)")],
    ),
    (
        "a value may be unlimited where its key is not",
        "- { key: a, rate_limit: { unit: day, requests_per_unit: 1 } }\n- { key: a, value: b, rate_limit: { unlimited: true } }",
        &[("a=b", "OK ok(max)"), ("a=c", "OK ok(0 of 1/day)")],
    ),
    (
        "what says that it is not unlimited is not",
        "- { key: a, rate_limit: { unlimited: false, unit: day, requests_per_unit: 1 } }",
        &[("a=b", "OK ok(0 of 1/day)")],
    ),
    (
        "in the shadow a request is counted, and passes",
        "- { key: a, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 2 } }",
        &[("a=b", "OK ok(1 of 2/day)"), ("a=b", "OK ok(0 of 2/day)"), ("a=b", "OK ok(0 of 2/day)")],
    ),
    (
        "what is in the shadow does not excuse what is not",
        "- { key: a, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }\n- { key: b, rate_limit: { unit: day, requests_per_unit: 1 } }",
        &[
            ("a=1 + b=1", "OK ok(0 of 1/day) ok(0 of 1/day)"),
            ("a=1 + b=1", "OVER ok(0 of 1/day) over(0 of 1/day)"),
        ],
    ),
    (
        "metrics by value change no decision",
        "- { key: a, detailed_metric: true, value_to_metric: true, rate_limit: { unit: day, requests_per_unit: 1 } }",
        &[("a=b", "OK ok(0 of 1/day)")],
    ),
    (
        "metadata changes no decision",
        "- { key: a, metadata: { x: { y: [1] } }, rate_limit: { unit: day, requests_per_unit: 1 } }",
        &[("a=b", "OK ok(0 of 1/day)")],
    ),
    (
        "the answer has the name",
        "- { key: a, rate_limit: { name: n, unit: day, requests_per_unit: 2 } }",
        &[("a=b", "OK ok(1 of 2/day n)")],
    ),
    (
        "a limit that is replaced is neither counted nor told",
        "- { key: a, rate_limit: { name: n, unit: day, requests_per_unit: 2 } }\n- { key: b, rate_limit: { replaces: [{ name: n }], unit: day, requests_per_unit: 5 } }",
        &[("a=1 + b=1", "OK ok(0) ok(4 of 5/day)"), ("a=1", "OK ok(1 of 2/day n)")],
    ),
    (
        "what replaces may come first",
        "- { key: a, rate_limit: { name: n, unit: day, requests_per_unit: 2 } }\n- { key: b, rate_limit: { replaces: [{ name: n }], unit: day, requests_per_unit: 5 } }",
        &[("b=1 + a=1", "OK ok(4 of 5/day) ok(0)")],
    ),
    (
        "what is unlimited replaces as well",
        "- { key: a, rate_limit: { name: n, unit: day, requests_per_unit: 2 } }\n- { key: b, rate_limit: { replaces: [{ name: n }], unlimited: true } }",
        &[("a=1 + b=1", "OK ok(0) ok(max)")],
    ),
];

/// Patterns.
const PATTERNS: &[Case<'_>] = &[
    (
        "a star at the end",
        "- { key: a, value: b*, rate_limit: { unit: day, requests_per_unit: 1 } }",
        &[("a=bc", "OK ok(0 of 1/day)"), ("a=b", "OK ok(0 of 1/day)"), ("a=cb", "OK ok(0)")],
    ),
    (
        "a star at the beginning",
        "- { key: a, value: '*suffix', rate_limit: { unit: day, requests_per_unit: 1 } }",
        &[("a=a-suffix", "OK ok(0 of 1/day)"), ("a=suffix-a", "OK ok(0)")],
    ),
    (
        "a star in the middle",
        "- { key: a, value: /api/*/action, rate_limit: { unit: day, requests_per_unit: 1 } }",
        &[("a=/api/1/action", "OK ok(0 of 1/day)"), ("a=/api/action", "OK ok(0)")],
    ),
    (
        "two stars with something between",
        "- { key: a, value: foo*bar*baz, rate_limit: { unit: day, requests_per_unit: 1 } }",
        &[("a=foo123bar456baz", "OK ok(0 of 1/day)")],
    ),
    (
        "stars that stand for nothing",
        "- { key: a, value: foo*bar*baz, rate_limit: { unit: day, requests_per_unit: 1 } }",
        &[("a=foobarbaz", "OK ok(0 of 1/day)")],
    ),
    (
        "something between two stars is needed",
        "- { key: a, value: foo*bar*baz, rate_limit: { unit: day, requests_per_unit: 1 } }",
        &[("a=foobaz", "OK ok(0)")],
    ),
    (
        "beginning and end in a short text",
        "- { key: a, value: bar*b, rate_limit: { unit: day, requests_per_unit: 1 } }",
        &[
            ("a=barb", "OK ok(0 of 1/day)"),
            ("a=barab", "OK ok(0 of 1/day)"),
            ("a=bar123b", "OK ok(0 of 1/day)"),
        ],
    ),
    (
        "beginning and end do not overlap",
        "- { key: a, value: aba*aba, rate_limit: { unit: day, requests_per_unit: 1 } }",
        &[("a=ababa", "OK ok(0)"), ("a=abaaba", "OK ok(0 of 1/day)")],
    ),
    (
        "a star alone is any value",
        "- { key: a, value: '*', rate_limit: { unit: day, requests_per_unit: 1 } }",
        &[("a=b", "OK ok(0 of 1/day)"), ("a=c", "OK ok(0 of 1/day)")],
    ),
    (
        "a value comes before a pattern",
        "- { key: a, value: b*, rate_limit: { unit: day, requests_per_unit: 1 } }\n- { key: a, value: bc, rate_limit: { unit: day, requests_per_unit: 9 } }",
        &[("a=bc", "OK ok(8 of 9/day)")],
    ),
    (
        "a pattern comes before the key alone",
        "- { key: a, rate_limit: { unit: day, requests_per_unit: 9 } }\n- { key: a, value: '*c', rate_limit: { unit: day, requests_per_unit: 1 } }",
        &[("a=bc", "OK ok(0 of 1/day)"), ("a=b", "OK ok(8 of 9/day)")],
    ),
    (
        "the first pattern of the file, not the longest",
        "- { key: a, value: b*, rate_limit: { unit: day, requests_per_unit: 1 } }\n- { key: a, value: bc*, rate_limit: { unit: day, requests_per_unit: 9 } }",
        &[("a=bcd", "OK ok(0 of 1/day)")],
    ),
    (
        "a pattern below",
        "- { key: a, descriptors: [{ key: b, value: '*x*', rate_limit: { unit: day, requests_per_unit: 1 } }] }",
        &[("a=1 > b=axa", "OK ok(0 of 1/day)"), ("a=1 > b=aa", "OK ok(0)")],
    ),
    (
        "a pattern above",
        "- { key: a, value: '*x', descriptors: [{ key: b, rate_limit: { unit: day, requests_per_unit: 1 } }] }",
        &[
            ("a=1x > b=c", "OK ok(0 of 1/day)"),
            ("a=2x > b=c", "OK ok(0 of 1/day)"),
            ("a=1x > b=c", "OVER over(0 of 1/day)"),
        ],
    ),
    (
        "a pattern in a key",
        "- { key: x-*, value: b, rate_limit: { unit: day, requests_per_unit: 1 } }",
        &[
            ("x-1=b", "OK ok(0 of 1/day)"),
            ("x-2=b", "OK ok(0 of 1/day)"),
            ("x-1=b", "OVER over(0 of 1/day)"),
            ("x-1=c", "OK ok(0)"),
        ],
    ),
    (
        "a pattern in a key without a value",
        "- { key: '*-id', rate_limit: { unit: day, requests_per_unit: 1 } }",
        &[("a-id=b", "OK ok(0 of 1/day)"), ("a-id=c", "OK ok(0 of 1/day)"), ("a-ip=b", "OK ok(0)")],
    ),
    (
        "patterns in key and value",
        "- { key: x-*, value: '*y', rate_limit: { unit: day, requests_per_unit: 1 } }",
        &[("x-1=by", "OK ok(0 of 1/day)"), ("x-1=cy", "OK ok(0 of 1/day)"), ("x-1=yb", "OK ok(0)")],
    ),
    (
        "each value of a pattern has a counter",
        "- { key: a, value: b*c, rate_limit: { unit: day, requests_per_unit: 1 } }",
        &[
            ("a=b1c", "OK ok(0 of 1/day)"),
            ("a=b2c", "OK ok(0 of 1/day)"),
            ("a=b1c", "OVER over(0 of 1/day)"),
        ],
    ),
    (
        "a shared threshold is one counter",
        "- { key: a, value: b*, share_threshold: true, rate_limit: { unit: day, requests_per_unit: 1 } }",
        &[("a=b1", "OK ok(0 of 1/day)"), ("a=b2", "OVER over(0 of 1/day)")],
    ),
    (
        "a shared threshold with a star in the middle",
        "- { key: a, value: b*c, share_threshold: true, rate_limit: { unit: day, requests_per_unit: 1 } }",
        &[("a=b1c", "OK ok(0 of 1/day)"), ("a=b2c", "OVER over(0 of 1/day)")],
    ),
    (
        "what is shared above is shared below",
        "- { key: a, value: b*, share_threshold: true, descriptors: [{ key: c, rate_limit: { unit: day, requests_per_unit: 1 } }] }",
        &[
            ("a=b1 > c=d", "OK ok(0 of 1/day)"),
            ("a=b2 > c=d", "OVER over(0 of 1/day)"),
            ("a=b2 > c=e", "OK ok(0 of 1/day)"),
        ],
    ),
    (
        "what is shared below is not shared above",
        "- { key: a, value: b*, descriptors: [{ key: c, value: d*, share_threshold: true, rate_limit: { unit: day, requests_per_unit: 1 } }] }",
        &[
            ("a=b1 > c=d1", "OK ok(0 of 1/day)"),
            ("a=b1 > c=d2", "OVER over(0 of 1/day)"),
            ("a=b2 > c=d2", "OK ok(0 of 1/day)"),
        ],
    ),
    (
        "what is shared at both depths is one counter",
        "- { key: a, value: '*b', share_threshold: true, descriptors: [{ key: c, value: '*d', share_threshold: true, rate_limit: { unit: day, requests_per_unit: 1 } }] }",
        &[("a=1b > c=1d", "OK ok(0 of 1/day)"), ("a=2b > c=2d", "OVER over(0 of 1/day)")],
    ),
    (
        "another pattern that is not shared is apart",
        "- { key: a, value: b*, share_threshold: true, rate_limit: { unit: day, requests_per_unit: 1 } }\n- { key: a, value: c*, rate_limit: { unit: day, requests_per_unit: 1 } }",
        &[
            ("a=b1", "OK ok(0 of 1/day)"),
            ("a=c1", "OK ok(0 of 1/day)"),
            ("a=c2", "OK ok(0 of 1/day)"),
        ],
    ),
];

/// Requests of several descriptors, limits that they send along, hits, and quotas.
const REQUESTS: &[Case<'_>] = &[
    (
        "one that is over is enough",
        "- { key: a, rate_limit: { unit: day, requests_per_unit: 1 } }\n- { key: b, rate_limit: { unit: day, requests_per_unit: 9 } }",
        &[
            ("a=1 + b=1", "OK ok(0 of 1/day) ok(8 of 9/day)"),
            ("a=1 + b=1", "OVER over(0 of 1/day) ok(7 of 9/day)"),
        ],
    ),
    (
        "what meets no limit does not count",
        "- { key: a, rate_limit: { unit: day, requests_per_unit: 1 } }",
        &[("b=1 + a=1", "OK ok(0) ok(0 of 1/day)")],
    ),
    (
        "hits of a descriptor",
        "- { key: a, rate_limit: { unit: day, requests_per_unit: 9 } }",
        &[("a=1#3", "OK ok(6 of 9/day)"), ("a=1#6", "OK ok(0 of 9/day)")],
    ),
    (
        "more hits than are left use up what is left",
        "- { key: a, rate_limit: { unit: day, requests_per_unit: 9 } }",
        &[
            ("a=1#3", "OK ok(6 of 9/day)"),
            ("a=1#7", "OVER over(0 of 9/day)"),
            ("a=1", "OVER over(0 of 9/day)"),
        ],
    ),
    (
        "no hits look and take nothing",
        "- { key: a, rate_limit: { unit: day, requests_per_unit: 9 } }",
        &[("a=1#3", "OK ok(6 of 9/day)"), ("a=1#0", "OK ok(6 of 9/day)")],
    ),
    (
        "a limit that is brought along holds",
        "- { key: x, rate_limit: { unit: day, requests_per_unit: 9 } }",
        &[("a=1@1/hour", "OK ok(0 of 1/hour)"), ("a=1@1/hour", "OVER over(0 of 1/hour)")],
    ),
    (
        "it takes the place of the configured one",
        "- { key: a, rate_limit: { unit: day, requests_per_unit: 9 } }",
        &[("a=1@2/hour", "OK ok(1 of 2/hour)"), ("a=1", "OK ok(8 of 9/day)")],
    ),
    (
        "it is not in the shadow",
        "- { key: a, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 9 } }",
        &[("a=1@1/hour", "OK ok(0 of 1/hour)"), ("a=1@1/hour", "OVER over(0 of 1/hour)")],
    ),
    (
        "it holds in a domain without descriptors",
        "[]",
        &[("a=1@1/hour", "OK ok(0 of 1/hour)"), ("a=1@1/hour", "OVER over(0 of 1/hour)")],
    ),
    (
        "it does not hold in a domain that is not known",
        "[]",
        &[("else: a=1@1/hour", "OK ok(0)"), ("else: a=1@1/hour", "OK ok(0)")],
    ),
    (
        "its units are counted apart",
        "[]",
        &[
            ("a=1@3/hour", "OK ok(2 of 3/hour)"),
            ("a=1@3/day", "OK ok(2 of 3/day)"),
            ("a=1@3/hour", "OK ok(1 of 3/hour)"),
        ],
    ),
    (
        "its number may change",
        "[]",
        &[("a=1@3/hour", "OK ok(2 of 3/hour)"), ("a=1@9/hour", "OK ok(7 of 9/hour)")],
    ),
    (
        "its entries are counted apart",
        "[]",
        &[
            ("a=1@1/hour", "OK ok(0 of 1/hour)"),
            ("a=2@1/hour", "OK ok(0 of 1/hour)"),
            ("a=1 > b=1@1/hour", "OK ok(0 of 1/hour)"),
        ],
    ),
    ("it may be zero, and tells its unit", "[]", &[("a=1@0/hour", "OVER over(0 of 0/hour)")]),
    (
        "a quota that is over does not refuse by itself",
        "- { key: a, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 0 } }\n- { key: b, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }",
        &[("a=1 + b=1", "OK over(0 of 0/day) ok(0 of 1/day)")],
    ),
    (
        "all quotas together refuse",
        "- { key: a, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }\n- { key: b, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }",
        &[
            ("a=1 + b=1", "OK ok(0 of 1/day) ok(0 of 1/day)"),
            ("a=1 + b=1", "OVER over(0 of 1/day) over(0 of 1/day)"),
        ],
    ),
    (
        "an ordinary limit refuses whatever quotas say",
        "- { key: a, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 9 } }\n- { key: b, rate_limit: { unit: day, requests_per_unit: 0 } }",
        &[("a=1 + b=1", "OVER ok(8 of 9/day) over(0 of 0/day)")],
    ),
];

/// Invalid configurations: a claim, the file, and a part of the message.
const WRONG: &[(&str, &str, &str)] = &[
    ("a file needs a domain", "descriptors: []", "domain: is missing"),
    ("a domain is not empty", "domain: ''", "domain: `` is not a domain"),
    (
        "a descriptor needs a key",
        "domain: d\ndescriptors: [{ value: a }]",
        "descriptors[0].key: is missing",
    ),
    (
        "a descriptor is there once",
        "domain: d\ndescriptors: [{ key: a, value: b }, { key: a, value: b }]",
        "descriptors[1]: duplicate of [0]: same key and value",
    ),
    (
        "a unit is one that there is",
        "domain: d\ndescriptors: [{ key: a, rate_limit: { unit: foo, requests_per_unit: 1 } }]",
        "descriptors[0].rate_limit.unit: expected `second`",
    ),
    (
        "an unknown word is an error",
        "domain: d\ndescriptors: [{ key: a, ratelimit: { unit: day, requests_per_unit: 1 } }]",
        "descriptors[0].ratelimit: unknown field",
    ),
    (
        "what is unlimited has no unit",
        "domain: d\ndescriptors: [{ key: a, rate_limit: { unlimited: true, unit: day } }]",
        "descriptors[0].rate_limit.unit: cannot be combined with `unlimited`",
    ),
    ("a list is one of maps", "domain: d\ndescriptors: [a]", "descriptors[0]: expected a map"),
    ("a file is YAML", "domain: [a", "unclosed bracket"),
    (
        "a limit does not replace itself",
        "domain: d\ndescriptors: [{ key: a, rate_limit: { name: n, replaces: [{ name: n }], unit: day, requests_per_unit: 1 } }]",
        "replaces[0].name: `n` is the name of this limit itself",
    ),
    (
        "what is replaced has a name",
        "domain: d\ndescriptors: [{ key: a, rate_limit: { replaces: [{ name: '' }], unit: day, requests_per_unit: 1 } }]",
        "replaces[0].name: `` is not a name",
    ),
];

/// The request that `text` writes.
fn request(text: &str) -> RateLimitRequest {
    let (domain, descriptors) = text.split_once(": ").unwrap_or(("shop", text));
    message(domain, descriptors.split(" + ").map(one).collect())
}

fn one(text: &str) -> RateLimitDescriptor {
    let (text, hits) = match text.split_once('#') {
        Some((text, hits)) => (text, Some(hits.parse().expect("hits are a number"))),
        None => (text, None),
    };
    let (text, limit) = match text.split_once('@') {
        Some((text, limit)) => (text, limit.split_once('/')),
        None => (text, None),
    };
    let limit = limit.map(|(requests, unit)| RateLimitOverride {
        requests_per_unit: requests.parse().expect("a limit is a number"),
        unit: Unit::from_str_name(&unit.to_uppercase()).expect("it is a unit").into(),
    });
    let entries: Vec<_> =
        text.split(" > ").map(|entry| entry.split_once('=').expect("a key and a value")).collect();
    RateLimitDescriptor { limit, hits_addend: hits, ..descriptor(&entries) }
}

/// An answer as the table writes it.
fn text(response: &RateLimitResponse) -> String {
    let mut text = if response.overall_code() == Code::Ok { "OK" } else { "OVER" }.to_owned();
    for status in &response.statuses {
        let code = if status.code() == Code::Ok { "ok" } else { "over" };
        let limit = status.current_limit.as_ref().map_or(String::new(), |limit| {
            let unit = limit.unit().as_str_name().to_lowercase();
            let name = format!(" {}", limit.name);
            format!(" of {}/{unit}{}", limit.requests_per_unit, name.trim_end())
        });
        let remaining = match status.limit_remaining {
            u32::MAX => "max".to_owned(),
            remaining => remaining.to_string(),
        };
        text += &format!(" {code}({remaining}{limit})");
    }
    text
}

/// The difference between a case and the table, if there is one.
async fn differs(&(claim, descriptors, asked): &Case<'_>) -> Option<String> {
    let config = format!("domain: shop\ndescriptors:\n{descriptors}");
    let config = config.replace("descriptors:\n[]", "descriptors: []");
    if let Err(errors) = import([("c.yaml", &*config)]) {
        return Some(format!("{claim}: {errors}"));
    }
    let subject = Subject::serving(&config);
    for (asked, expected) in asked {
        let found = text(&subject.ask(&request(asked)).await);
        if found != *expected {
            return Some(format!("{claim}: {asked} is {found}, expected {expected}"));
        }
    }
    None
}

async fn check(cases: &[Case<'_>]) {
    let mut wrong = Vec::new();
    for case in cases {
        wrong.extend(differs(case).await);
    }
    let (failed, all) = (wrong.len(), cases.len());
    assert!(wrong.is_empty(), "{failed} of {all} cases differ:\n{}", wrong.join("\n"));
}

#[tokio::test]
async fn requests_find_their_limits_as_in_the_table() {
    check(LOOKUP).await;
}

#[tokio::test]
async fn limits_of_every_kind_are_decided_and_told_as_in_the_table() {
    check(LIMITS).await;
}

#[tokio::test]
async fn patterns_are_matched_and_counted_as_in_the_table() {
    check(PATTERNS).await;
}

#[tokio::test]
async fn requests_of_several_descriptors_are_decided_as_in_the_table() {
    check(REQUESTS).await;
}

#[test]
fn what_is_wrong_with_a_configuration_is_said_as_in_the_table() {
    for (claim, file, problem) in WRONG {
        let errors = import([("c.yaml", *file)]).expect_err(claim).to_string();
        assert!(errors.contains(problem), "{claim}: {errors}");
    }
}

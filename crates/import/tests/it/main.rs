//! Configurations of other limiters, and the policies that they become.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod nginx;
mod sentinel;

use proptest::prelude::*;
use serde_json::Value;
use sluicegate_import::{ImportSource, Imported, Note, import};
use sluicegate_policy::Document;

/// The policies, and the codes of notes with their lines.
fn imported(source: ImportSource, text: &str) -> (Vec<Value>, Vec<(Option<u64>, &'static str)>) {
    let Imported { policies, notes, .. } = import(source, text).unwrap_or_else(|e| panic!("{e:?}"));
    let notes = notes.iter().map(|note| (note.line, note.finding.code())).collect();
    (policies.into_iter().map(|policy| policy.document).collect(), notes)
}

#[test]
fn envoy_has_a_tree_that_leads_to_its_policies() {
    let text = "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: { unit: minute, requests_per_unit: 3 }\n";
    let found = import(ImportSource::Envoy, text).unwrap();
    assert_eq!(found.policies.len(), 1, "{found:?}");
    assert!(found.descriptors.unwrap().contains("user"));
    assert_eq!(found.notes[0].finding.code(), "import_descriptors");
    assert!(import(ImportSource::Envoy, "domain: [").is_err());
}

#[test]
fn rows_of_a_table_are_named_by_their_lines() {
    let rows = "name,apps,max_permits,rate\npay,shop,20,0.5\n";
    let (policies, _) = imported(ImportSource::RateLimiterInfo, rows);
    assert_eq!(policies[0]["rules"][0]["token_bucket"]["rate"], "1/2s");
    let wrong = import(ImportSource::RateLimiterInfo, &rows.replace("20", "x")).unwrap_err();
    assert_eq!((wrong[0].line, wrong[0].finding.code()), (Some(2), "import_cell"));
}

#[test]
fn an_import_is_bounded() {
    let long = " ".repeat((2 << 20) + 1);
    for source in ImportSource::ALL {
        assert_eq!(import(source, &long).unwrap_err()[0].finding.code(), "import_too_long");
    }
    let many: String =
        (0..1_500).map(|n| format!("location /{n} {{ limit_req zone=z{n}; }}\n")).collect();
    let found = import(ImportSource::Nginx, &many).unwrap();
    assert_eq!(found.notes.len(), 1_001);
    assert_eq!(found.notes[1_000].finding.text(), "and 501 more");
    assert_eq!(found.unless_wider(false).unwrap_err().len(), 1_001);

    let locations = |count: usize, inherited: usize| {
        let zone = "limit_req_zone $host zone=a:1m rate=1r/s;\nserver {\n";
        let location = |n| format!("location /a{n} {{ limit_req zone=a burst={n}; }}\n");
        let bare = |n| format!("location /b{n} {{ root /; }}\n");
        let all: String = (0..count).map(location).chain((0..inherited).map(bare)).collect();
        format!("{zone}{all}}}\n")
    };
    let found = import(ImportSource::Nginx, &locations(12_000, 9_000)).unwrap();
    let notes: Vec<_> = found.notes.iter().map(|note| note.finding.text()).collect();
    assert_eq!(found.policies.len(), 10_000);
    assert_eq!(notes[0], "2000 more policies were not imported: at most 10000", "{notes:?}");
    let refused = import(ImportSource::Nginx, &locations(30_000, 0)).unwrap_err();
    assert_eq!(refused[0].finding.text(), "more than 50000 directives");
    let servers = "server { server_name a; listen 1; }\n".repeat(10_000);
    let found = import(ImportSource::Nginx, &servers).unwrap();
    assert_eq!(found.notes[0].finding.text(), "more than 1000 servers");
}

#[test]
fn what_lets_more_pass_stops_an_import_unless_it_may_be_lossy() {
    let zone = "limit_req_zone $host zone=a:1m rate=1r/s;\n";
    let wider = format!(
        "{zone}limit_req zone=b;\nlimit_conn_log_level info;\nlimit_rate 5k;\nlimit_req zone=a;\n"
    );
    let found = import(ImportSource::Nginx, &wider).unwrap();
    let stops = found.clone().unless_wider(false).unwrap_err();
    let lines = |notes: &[Note]| notes.iter().map(|note| note.line).collect::<Vec<_>>();
    assert_eq!(lines(&stops), [Some(2), Some(4)]);
    let lossy = found.unless_wider(true).unwrap();
    assert_eq!((lossy.policies.len(), lossy.notes.len()), (1, 4), "{lossy:?}");
    let other = import(ImportSource::Nginx, &format!("{zone}limit_req zone=a;\n")).unwrap();
    assert_eq!(other.notes.len(), 1, "another status is a difference: {other:?}");
    assert!(other.unless_wider(false).is_ok());
}

#[test]
fn notes_that_stop_an_import_are_not_lost_among_others() {
    let zone = "limit_req_zone $host zone=a:1m rate=1r/s;\n";
    let others = "limit_rate_after 1;\n".repeat(2_000);
    let found = import(ImportSource::Nginx, &format!("{zone}{others}limit_rate 5k;\n")).unwrap();
    assert_eq!(found.unless_wider(false).unwrap_err().len(), 1);
}

/// Texts made of the words of all sources, so that they often mean something.
fn text() -> impl Strategy<Value = String> {
    let words = [
        "http",
        "server",
        "location",
        "limit_req_zone",
        "limit_req",
        "limit_conn_zone",
        "limit_conn",
        "server_name",
        "a.b",
        "*.b",
        ".c",
        "~^x",
        "listen",
        "80",
        "zone=a:1m",
        "zone=a",
        "rate=1r/s",
        "rate=0r/m",
        "burst=5",
        "burst=99999999999",
        "nodelay",
        "delay=3",
        "$uri",
        "${host}",
        "$binary_remote_addr",
        "/a",
        "= /b",
        "~ ^/x",
        "{",
        "}",
        ";",
        "\"",
        "'",
        "\\",
        "#",
        "\n",
        " ",
        "[",
        "]",
        ",",
        ":",
        "{\"resource\":\"/a\"",
        "\"count\":1.5",
        "\"count\":1e300",
        "\"grade\":0",
        "\"controlBehavior\":2",
        "}",
        "\"maxQueueingTimeMs\":18446744073709551615",
        "name,apps,max_permits,rate\n",
        "a,b,1,1\n",
        "domain: d\n",
        "descriptors:\n",
        "- key: k\n",
        "\u{202e}",
        "\u{0}",
        "订单",
    ];
    prop::collection::vec(prop::sample::select(words.to_vec()), 0..40).prop_flat_map(|words| {
        prop::sample::select(vec!["", " "]).prop_map(move |by| words.join(by))
    })
}

proptest! {
    #[test]
    fn whatever_is_imported_is_a_document(text in prop_oneof![text(), any::<String>()]) {
        for source in ImportSource::ALL {
            if let Ok(Imported { policies, .. }) = import(source, &text) {
                let policies: Vec<_> = policies.into_iter().map(|policy| policy.document).collect();
                let document = serde_json::json!({ "policies": policies }).to_string();
                prop_assert!(Document::parse(&document).is_ok(), "{document}");
            }
        }
    }
}

//! `sluicegate policies check` and `compile` for a document.

use std::fs;
use std::process::Output;

use serde_json::Value;

use crate::program::program;

/// The output for a file of this content and name, without the folder, and whether the document is
/// valid.
fn check(name: &str, document: &[u8]) -> (String, bool) {
    let folder = env!("CARGO_TARGET_TMPDIR");
    let path = format!("{folder}/{}-{name}", std::process::id());
    fs::write(&path, document).expect("the folder is for tests");
    let mut command = program();
    let checked = command.args(["policies", "check", &path]).output();
    let Output { status, stdout, stderr } = checked.expect("the program starts");
    let said = String::from_utf8([stdout, stderr].concat()).expect("it says text");
    (said.replace(&path, name), status.success())
}

#[test]
fn a_sound_document_is_told_with_its_name_and_the_number_of_its_policies() {
    let (said, is_sound) = check("one.yaml", b"policies: []");
    assert_eq!((said.as_str(), is_sound), ("one.yaml: 0 policies, no errors\n", true));
}

#[test]
fn a_policy_that_clients_can_walk_around_is_warned_about() {
    let rules = "rules: [ { token_bucket: { rate: 1/s } } ]";
    let document = format!(
        "policies: [ {{ name: a, match: {{ path: {{ exact: /login.php }} }}, key: [header:x-api-key], {rules} }} ]"
    );
    let (said, is_sound) = check("advice.yaml", document.as_bytes());
    assert!(is_sound && said.starts_with("advice.yaml: 1 policy, no errors\n"), "{said}");
    assert!(
        said.contains("warning: policy a: match.path.exact: servers run `/login.php/x`"),
        "{said}"
    );
    assert!(
        said.contains("warning: policy a: key: clients choose the value of `header:x-api-key`")
    );
}

#[test]
fn parts_of_a_policy_without_effect_are_warned_about() {
    let rules = "rules: [ { token_bucket: { rate: 1/s } } ]";
    let document = format!(
        "policies: [ {{ name: a, match: {{ path: {{ prefix: '/api/*' }} }}, key: [remote_ip], {rules}, overrides: [ \
         {{ key: '10.0.0.*', {rules} }}, {{ key: b, until: '2024-01-01T00:00:00Z', {rules} }} ] }} ]"
    );
    let (said, is_sound) = check("patterns.yaml", document.as_bytes());
    assert!(is_sound, "{said}");
    for expected in [
        "warning: policy a: match.path.prefix: `*` in `/api/*` stands for itself",
        "warning: policy a: overrides: the key `10.0.0.*` is compared as a whole",
        "warning: policy a: overrides: the override of `b` ended at 2024-01-01T00:00:00Z",
    ] {
        assert!(said.contains(expected), "{said}\nlacks {expected}");
    }
}

#[test]
fn every_error_names_the_file_and_the_path_in_it() {
    let (said, is_sound) = check("two.yaml", b"policies: [{ name: A }]");
    let expected = "\
        two.yaml:1:20: policies[0].name: invalid name `A`: expected 1 to 128 bytes of `[a-z0-9._-]`, such as `a`\n\
        two.yaml:1:12: policies[0] (A).rules: is missing, expected a list of rules\n";
    assert_eq!((said.as_str(), is_sound), (expected, false));
    let (said, _) = check("cycle.yaml", b"a: &a [*a]");
    assert_eq!(said, "cycle.yaml:1:8: an alias that contains itself: `a: &a [*a]`\n");
}

#[test]
fn a_directory_is_checked_as_serve_reads_it() {
    let folder = tempfile::tempdir().expect("there is room for files");
    let put = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).expect("the folder is for tests");
    };
    let check = || {
        let mut command = program();
        let checked = command.args(["policies", "check"]).arg(folder.path()).output();
        let Output { status, stdout, stderr } = checked.expect("the program starts");
        let said = String::from_utf8([stdout, stderr].concat()).expect("it says text");
        (said.replace(folder.path().to_str().expect("it is text"), "D"), status.success())
    };
    let of = |name: &str| {
        format!(
            "policies: [{{ name: {name}, rules: [{{ fixed_window: {{ limit: 1, window: 1s }} }}] }}]"
        )
    };
    put("a.yaml", &of("a"));
    put("b.json", &of("b"));
    put("notes.txt", "none of them");
    assert_eq!(check(), ("D: 2 policies, no errors\n".to_owned(), true));
    put("b.json", &of("a"));
    let (said, is_sound) = check();
    let taken =
        "D/b.json:1:20: policies[0].name: `a` is already the name of another policy, in D/a.yaml\n";
    assert_eq!((&*said, is_sound), (taken, false));
    put("a.yaml", "policies: [{ name: a }]");
    put("b.json", "policies: [{ name: b }]");
    let wrong = |file: &str, name: &str| {
        format!("D/{file}:1:12: policies[0] ({name}).rules: is missing, expected a list of rules\n")
    };
    assert_eq!(check(), (wrong("a.yaml", "a") + &wrong("b.json", "b"), false));
}

#[test]
fn a_document_that_is_too_long_or_no_text_is_told_as_such() {
    let long = "\u{20ac}".repeat(4_000_000);
    for (document, problem) in [
        (long.as_bytes(), "more than 8388608 bytes"),
        (
            b"policies: []\n# \xff",
            "line 2 is not UTF-8: if the file is in Latin-1, convert it with `iconv -f LATIN1 -t UTF-8`",
        ),
    ] {
        let (said, is_sound) = check("bytes.yaml", document);
        let expected = format!("error: cannot read bytes.yaml: {problem}\n");
        assert_eq!((said, is_sound), (expected, false));
    }
}

#[test]
fn sub_directories_with_documents_are_reported_as_not_checked() {
    let folder = tempfile::tempdir().expect("there is room for files");
    for name in ["team", "empty", ".hidden"] {
        fs::create_dir(folder.path().join(name)).expect("it is new");
    }
    for name in ["a.yaml", "team/b.yaml", ".hidden/c.yaml", "empty/notes.txt"] {
        let policy = "policies: [{ name: a, rules: [{ token_bucket: { rate: 1/s } }] }]";
        fs::write(folder.path().join(name), policy).expect("it can be written");
    }
    // More files than are read of one directory.
    fs::create_dir(folder.path().join("many")).expect("it is new");
    for number in 0..=1_000 {
        let file = format!("many/{number}.yaml");
        fs::write(folder.path().join(file), "").expect("it can be written");
    }
    let mut command = program();
    let checked = command.args(["policies", "check"]).arg(folder.path()).output();
    let Output { status, stderr, .. } = checked.expect("the program starts");
    let team = folder.path().join("team").display().to_string();
    let expected = format!("note: {team}: not checked, because sub-directories are not read\n");
    assert_eq!(String::from_utf8(stderr).expect("it says text"), expected);
    assert!(status.success(), "what is not read cannot be wrong");
}

#[test]
fn records_are_printed_in_the_order_of_names_and_nothing_is_of_a_wrong_document() {
    let folder = tempfile::tempdir().unwrap();
    let rules = "rules: [ { token_bucket: { rate: 1/s } } ]";
    let write = |name, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("b.yaml", &format!("policies: [ {{ name: one, {rules} }} ]"));
    write("a.yaml", &format!("policies: [ {{ name: two, {rules}, overflow: shadow }} ]"));
    let compile = || program().args(["policies", "compile"]).arg(folder.path()).output().unwrap();
    let compiled = compile();
    let text = String::from_utf8(compiled.stdout).unwrap();
    let names: Vec<_> = text.lines().filter_map(|line| line.split('"').nth(1)).collect();
    assert_eq!(names, ["#format", "one", "two"]);
    let read: Value = serde_json::from_str(&text).unwrap();
    let kind = |name: &str| read[name]["overflow"]["kind"].clone();
    assert_eq!((kind("one"), kind("two")), ("reject".into(), "shadow".into()));
    assert_eq!(read["one"]["version"], 1);

    write("c.yaml", "policies: [ { name: three, rules: [] } ]");
    let Output { status, stdout, stderr } = compile();
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert_eq!((status.code(), stdout.as_str()), (Some(1), ""));
    assert!(
        stderr.contains("c.yaml:1:") && stderr.contains("policies[0] (three).rules"),
        "{stderr}"
    );
}

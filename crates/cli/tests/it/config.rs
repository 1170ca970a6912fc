//! `sluicegate config`: errors of invalid files, the effective configuration, and its schema.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use jsonschema::Validator;
use serde_json::Value;
use sluicegate_testkit::TlsFiles;
use tempfile::TempDir;

use crate::program::program;

/// Standard output and standard error of `sluicegate config`.
fn config(arguments: &[&str]) -> (String, String) {
    let mut command = program();
    let ran = command.arg("config").args(arguments).current_dir(root()).output();
    let Output { stdout, stderr, .. } = ran.expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("it says text");
    (text(stdout), text(stderr))
}

fn root() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", ".."].iter().collect()
}

fn schema() -> Value {
    serde_json::from_str(&config(&["schema"]).0).expect("it is JSON")
}

/// Checks that `schema` permits `text`; the error says why not.
fn is_permitted(schema: &Validator, text: &str) -> Result<(), String> {
    let tree: Value = toml::from_str(text).expect("it is TOML");
    let errors: Vec<_> = schema.iter_errors(&tree).map(|error| error.to_string()).collect();
    if errors.is_empty() { Ok(()) } else { Err(format!("{errors:?}: {text}")) }
}

/// The pages of documentation for users.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(folder).expect("it is there") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            pages.extend(self::pages(&path));
        } else if path.extension().is_some_and(|end| end == "md") {
            pages.push(path);
        }
    }
    pages
}

/// The required settings of an identity provider, to which tests add others.
const OIDC: &str = "[catalog]\nurl = 'sqlite:c.db'\n[catalog.oidc]\nissuer = 'https://id.example.org'\n\
                    client_id = 'c'\nclient_secret = 's'\n\
                    redirect_url = 'https://h/v1/admin/oidc/callback'\n";

#[test]
fn what_serve_refuses_is_told_by_check() {
    let folder = tempfile::tempdir().unwrap();
    let TlsFiles { server_cert, server_key, .. } = TlsFiles::write(folder.path()).unwrap();
    let (cert, key) = (server_cert.display(), server_key.display());
    let readable = folder.path().join("readable");
    fs::write(&readable, "hunter2").unwrap();
    fs::set_permissions(&readable, fs::Permissions::from_mode(0o644)).unwrap();
    let dear = folder.path().join("dear.yaml");
    let log = "{ sliding_log: { limit: 9000, window: 1h } }";
    fs::write(&dear, format!("policies: [{{ name: dear, rules: [{log}] }}]")).unwrap();
    for (text, problem) in [
        ("[policies]\npath = '/none.yaml'".to_owned(), "cannot read /none.yaml"),
        ("[rls]\ndescriptors = '/none.yaml'".to_owned(), "cannot read /none.yaml"),
        ("[rls]\nenvoy_config = '/none'".to_owned(), "cannot read /none"),
        (
            "[rls]\ndescriptors = 'a'\nenvoy_config = 'b'".to_owned(),
            "rls.descriptors: cannot be combined with `rls.envoy_config`",
        ),
        (format!("[resp.tls]\ncert = '{cert}'\nkey = '/none'"), "resp.tls.key: cannot read /none"),
        (format!("[resp.tls]\ncert = '{cert}'\nkey = '{cert}'"), "resp.tls.key: "),
        (format!("[resp.tls]\ncert = '{cert}'\nkey = '{key}'"), ""),
        (format!("{OIDC}ca = '/none'"), "catalog.oidc.ca: /none: "),
        (format!("{OIDC}ca = '{key}'"), "catalog.oidc.ca: "),
        (format!("{OIDC}ca = '{cert}'"), ""),
        ("[http]\nlisten = '0.0.0.0:0'".to_owned(), "http.listen: `0.0.0.0:0` can be reached"),
        ("[store]\nurl = 'rediss://h?ca_file=/none'".to_owned(), "store.url: ca_file: /none: "),
        (
            "[store]\nurl = 'redis://h'".to_owned(),
            "store.url: the connection to a Redis on another machine",
        ),
        (
            "[catalog]\nurl = 'mysql://u@h/c'".to_owned(),
            "catalog.url: the certificate of a database on another machine",
        ),
        (
            format!("[resp]\npassword_file = '{}'", readable.display()),
            &format!("cannot read {}: mode 0644", readable.display()),
        ),
        (
            format!("[rls.tls]\ncert = '{cert}'\nkey = '{}'", readable.display()),
            &format!("rls.tls.key: cannot read {}: mode 0644", readable.display()),
        ),
        (
            format!("[store]\nurl = 'redis://127.0.0.1'\n[policies]\npath = '{}'", dear.display()),
            "policy `dear`: rules: sliding_log.sliding_log.limit: `9000` could take Redis over",
        ),
        (format!("[policies]\npath = '{}'", dear.display()), ""),
        ("[policies]\npath = 'examples/policies.yaml'".to_owned(), ""),
        ("[rls]\nverbs = ['renew']".to_owned(), "rls.verbs: has no verb that gateways send"),
        ("[rls]\nverbs = ['renew', 'acquire']".to_owned(), ""),
        (
            "[catalog]\nchanges_per_minute = 0".to_owned(),
            "catalog.changes_per_minute: `0` is outside 1..=100000",
        ),
        ("[rls]\nenvoy_config = 'examples/envoyproxy-ratelimit'".to_owned(), ""),
    ] {
        assert_told(&folder, &text, problem);
    }
}

/// Checks that a configuration is valid if `problem` is empty, else that the check reports `problem`.
fn assert_told(folder: &TempDir, text: &str, problem: &str) {
    let (said, told) = check(folder, text);
    match problem {
        "" => {
            let file = folder.path().join("sluicegate.toml").display().to_string();
            let is_sound = said.starts_with(&format!("{file}: no errors, "));
            assert!(is_sound && told.is_empty(), "{text}: {said}{told}");
        }
        problem => {
            // The file and the line may come before it.
            assert!(told.starts_with("error: ") && told.contains(problem), "{text}: {told}");
            assert_eq!(said, "");
        }
    }
}

#[test]
fn a_file_that_is_no_certificate_is_named_by_the_check() {
    let folder = tempfile::tempdir().unwrap();
    let TlsFiles { server_cert, server_key, .. } = TlsFiles::write(folder.path()).unwrap();
    let (cert, key) = (server_cert.display(), server_key.display());
    let (empty, damaged) = (folder.path().join("empty.pem"), folder.path().join("damaged.pem"));
    fs::write(&empty, "").unwrap();
    let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    fs::write(&damaged, pem).unwrap();
    for (text, problem) in [
        (
            format!("[http.tls]\ncert = '{cert}'\nkey = '{key}'\nclient_ca = '{key}'"),
            ": is a private key, expected certificates in PEM",
        ),
        (
            format!("[http.tls]\ncert = '{}'\nkey = '{key}'", empty.display()),
            "empty.pem: is empty, expected certificates in PEM",
        ),
        (
            format!("[http.tls]\ncert = '{}'\nkey = '{key}'", damaged.display()),
            "damaged.pem: certificate 1 of the file is damaged: ",
        ),
    ] {
        assert_told(&folder, &text, problem);
    }
}

#[test]
fn what_the_start_warns_of_is_a_warning_of_the_check() {
    let folder = tempfile::tempdir().unwrap();
    let none = folder.path().join("policies");
    fs::create_dir(&none).unwrap();
    let away = folder.path().join("away");
    for (text, warning) in [
        (
            format!("[policies]\npath = '{}'", none.display()),
            format!(
                "policies.path: no policies: checks that are authorized are answered with 404 (code 0); {} has none: put *.yaml, ",
                none.display()
            ),
        ),
        (
            format!(
                "[catalog]\nurl = 'sqlite:c.db'\nsetup_token_file = '{}'",
                away.join("token").display()
            ),
            format!("catalog.setup_token_file: the folder {} does not exist; ", away.display()),
        ),
    ] {
        let (said, told) = check(&folder, &text);
        assert!(said.contains(": no errors, "), "{said}{told}");
        assert!(told.starts_with(&format!("warning: {warning}")), "{told}");
    }
}

/// Standard output and standard error of a check of this configuration.
fn check(folder: &TempDir, text: &str) -> (String, String) {
    let file = folder.path().join("sluicegate.toml");
    fs::write(&file, text).expect("the folder is for tests");
    config(&["check", "--config", file.to_str().expect("it is text")])
}

#[test]
fn what_holds_and_what_pages_show_is_what_the_schema_permits() {
    let schema = jsonschema::validator_for(&schema()).unwrap();
    for options in [&[][..], &["--store", "rediss://:48151623@h/1"]] {
        let (holds, _) = config(&[&["print"], options].concat());
        is_permitted(&schema, &holds).unwrap();
        let url = if options.is_empty() { "memory://" } else { "rediss://:***@h/1" };
        assert!(holds.contains(&format!("\nurl = \"{url}\"\n")), "{holds}");
    }
    let mut shown = 0;
    for page in pages(&root().join("docs")).into_iter().chain([root().join("README.md")]) {
        let page = fs::read_to_string(page).unwrap();
        for block in page.split("\n```toml\n").skip(1) {
            is_permitted(&schema, block.split("\n```").next().unwrap()).unwrap();
            shown += 1;
        }
    }
    assert!(shown >= 3, "{shown} examples");
    for text in [
        "[resp]\npassword_file = '/run/secrets/p'",
        "[store]\nurl_file = '/run/secrets/u'",
        "[http]\nheaders = 'off'",
        "[http]\nheaders = ''",
        "[http]\nheaders = 'ratelimit, x-ratelimit'",
        "[rls]\nheaders = ['ratelimit', 'x-ratelimit']\nlisten = 'off'",
        "[http]\nlisten = ['127.0.0.1:1', 'unix:/run/s']",
    ] {
        is_permitted(&schema, text).unwrap();
    }
    for text in [
        "[http]\nheaders = 'rate-limit'",
        "[http]\nheaders = ['off']",
        "[resp]\npassword = 1",
        "[resp]\npasswords = 'a'",
        "[server]\nworkers = 257",
        "[store]\nkeys_max = 0",
    ] {
        is_permitted(&schema, text).unwrap_err();
    }
}

/// The tables of `docs/configuration.md`, made from the schema: a heading for each section, a row for each key.
fn tables(schema: &Value) -> String {
    let mut tables = String::new();
    let sections = schema["properties"].as_object().expect("it has sections");
    for (section, of) in sections {
        let line = of["description"].as_str().expect("a section is described");
        let head = "| Key | Default | Meaning |\n|---|---|---|";
        write!(tables, "\n## {section}\n\n{line}\n\n{head}\n").expect("texts grow");
        rows(schema, resolved(schema, of), "", &mut tables);
    }
    tables
}

fn rows(schema: &Value, section: &Value, before: &str, rows_of: &mut String) {
    for (key, of) in section["properties"].as_object().expect("it has keys") {
        let means = of["description"].as_str().expect("a key is described");
        let means = means.replace('\n', " ");
        let kind = resolved(schema, of);
        let default = match &of["default"] {
            Value::Null if section["required"].as_array().is_some_and(|all| has(all, key)) => {
                "required".to_owned()
            }
            Value::Null => "–".to_owned(),
            Value::Array(all) if all.is_empty() => "`[]`".to_owned(),
            default => format!("`{default}`"),
        };
        writeln!(rows_of, "| `{before}{key}` | {default} | {means}{} |", choices(kind))
            .expect("texts grow");
        if kind["properties"].is_object() {
            rows(schema, kind, &format!("{before}{key}."), rows_of);
        }
    }
}

fn has(all: &[Value], key: &str) -> bool {
    all.iter().any(|one| one == key)
}

/// The schema that `of` refers to; of an alternative, its first choice; else `of` itself.
fn resolved<'a>(schema: &'a Value, of: &'a Value) -> &'a Value {
    let found = match (&of["$ref"], &of["anyOf"][0]) {
        (Value::String(reference), _) => schema.pointer(reference.trim_start_matches('#')),
        (_, first @ Value::Object(_)) => Some(first),
        _ => return of,
    };
    resolved(schema, found.expect("it refers to something"))
}

/// The values that `kind` permits, with their descriptions.
fn choices(kind: &Value) -> String {
    let one = |one: &Value| {
        let means = one["description"].as_str().unwrap_or_default().replace('\n', " ");
        format!(" `{}`: {means}", one["const"].as_str().expect("a name"))
    };
    kind["oneOf"].as_array().map_or_else(String::new, |all| all.iter().map(one).collect())
}

#[test]
fn the_page_of_the_configuration_has_every_key_as_it_is() {
    let path = root().join("docs/configuration.md");
    let mut page = fs::read_to_string(&path).unwrap();
    let tables = tables(&schema());
    if std::env::var_os("SLUICEGATE_WRITE").is_some() {
        let text = page.find("\n## ").map_or(page.as_str(), |end| &page[..end]);
        page = format!("{text}{tables}");
        fs::write(path, &page).unwrap();
    }
    assert!(page.ends_with(&tables), "expected at its end:\n{tables}");
}

#[test]
fn a_wrong_configuration_ends_with_78_and_what_may_pass_by_itself_with_1() {
    let folder = tempfile::tempdir().expect("there is room for files");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("it can be written");
        path.display().to_string()
    };
    let status = |arguments: &[&str]| {
        let ran = program().args(arguments).current_dir(folder.path()).output();
        ran.expect("the program starts").status.code()
    };
    let typo = file("typo.toml", "[http]\nlisen = '127.0.0.1:0'\n");
    let policies = file("policies.yaml", "policies: [{ name: A }]");
    let no_certificate =
        file("tls.toml", "[http]\ntls = { cert = 'none.pem', key = 'none.key' }\n");
    for wrong in [["--config", &typo], ["--policies", &policies], ["--config", &no_certificate]] {
        for command in [&["serve"][..], &["config", "check"][..]] {
            assert_eq!(status(&[command, &wrong].concat()), Some(78), "{command:?} {wrong:?}");
        }
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = listener.local_addr().expect("it listens").to_string();
    assert_eq!(status(&["serve", "--listen", &taken]), Some(1));
    let unit = fs::read_to_string(root().join("deploy/systemd/sluicegate.service"));
    assert!(unit.expect("it is there").contains("\nRestartPreventExitStatus=78\n"));
}

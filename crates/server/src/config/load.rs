//! Loading a configuration from its file, the environment, flags and files with secrets.

use std::fs::File;
use std::io;
use std::path::Path;

use sluicegate_text::private;
use toml::{Table, Value};

use super::check::check;
use super::error::{ConfigError, wrong};
use super::origin::Origins;
use super::secrets::{FILE_SUFFIX, SECRETS};
use super::{Config, schema, words};

/// The prefix of environment variables.
const PREFIX: &str = "SLUICEGATE__";

/// Largest file of a configuration or a secret, bytes: nobody writes more by hand.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Values of the command line with their paths; the last value of a path counts.
pub type Flags = Vec<(&'static [&'static str], Value)>;

/// Most errors of a configuration that are reported together: more are not read.
const ERRORS_MAX: usize = 20;

/// The configuration of `file`, with `environment` and then `flags` over it.
///
/// # Errors
/// [`ConfigError`], with the path in the configuration where there is one.
pub fn load(
    file: Option<&Path>,
    environment: impl Iterator<Item = (String, String)>,
    flags: Flags,
) -> Result<Config, ConfigError> {
    let mut origins = Origins::default();
    let mut tree = Table::new();
    if let Some(path) = file {
        let text = read(path)?;
        tree = tree_of(&text)
            .map_err(|problem| ConfigError::Syntax { path: path.to_owned(), problem })?;
        origins.file = Some((path.to_owned(), text));
    }
    for (name, value) in environment {
        let Some(path) = name.strip_prefix(PREFIX) else {
            check_variable(&name)?;
            continue;
        };
        let path = path.to_ascii_lowercase();
        let path: Vec<_> = path.split("__").collect();
        origins.variables.insert(path.join("."), name.clone());
        put(&mut tree, &path, of_variable(&path, value)).map_err(|error| error.at(&origins))?;
    }
    for (path, value) in flags {
        origins.flags.insert(path.join("."));
        put(&mut tree, path, value)?;
    }
    for path in SECRETS {
        read_secret(&mut tree, path).map_err(|error| error.at(&origins))?;
    }
    of_tree(tree).map_err(|error| error.at(&origins))
}

/// Variables of other commands, which look like keys.
const OTHER_VARIABLES: [&str; 1] = ["SLUICEGATE_CATALOG_URL"];

/// Refuses a variable that has one underscore where a key has two: it would be ignored. Other variables may
/// begin alike by accident, such as those that Kubernetes creates for a service.
fn check_variable(name: &str) -> Result<(), ConfigError> {
    let Some(rest) = name.strip_prefix("SLUICEGATE_").map(str::to_ascii_lowercase) else {
        return Ok(());
    };
    if OTHER_VARIABLES.contains(&name) {
        return Ok(());
    }
    let schema = schema().to_value();
    let Some(sections) = schema["properties"].as_object() else { return Ok(()) };
    for (section, of) in sections {
        let Some(key) = rest.strip_prefix(section.as_str()).and_then(|key| key.strip_prefix('_'))
        else {
            continue;
        };
        let pointer = of["$ref"].as_str().unwrap_or_default().trim_start_matches('#');
        let keys = schema.pointer(pointer).map(|of| &of["properties"]);
        if keys.is_some_and(|keys| keys.get(key).is_some()) {
            let right = format!("{PREFIX}{section}__{key}").to_ascii_uppercase();
            return wrong(name, format!("unknown variable; did you mean `{right}`?"));
        }
    }
    Ok(())
}

/// Checks that `text` is a configuration, for the fuzzer. Files of secrets are not read.
///
/// # Errors
/// What is wrong with the text.
pub fn of_text(text: &str) -> Result<(), String> {
    let tree = tree_of(text)?;
    of_tree(tree).map(drop).map_err(|error| error.to_string())
}

fn of_tree(mut tree: Table) -> Result<Config, ConfigError> {
    let mut wrong = Vec::new();
    loop {
        let error = match read_tree(&tree) {
            Ok(config) if wrong.is_empty() => {
                check(&config)?;
                return Ok(config);
            }
            Ok(_) => break,
            Err(error) => error,
        };
        let ConfigError::Value { path, .. } = &error else { return Err(error) };
        // A section lacks a value that was removed from it as wrong.
        let is_of_section = |error: &ConfigError| matches!(error, ConfigError::Value { path: inner, .. } if inner.starts_with(&format!("{path}.")));
        if wrong.iter().any(is_of_section) {
            if remove(&mut tree, path) {
                continue;
            }
            break;
        }
        // Without what is wrong, the rest can be read.
        let is_rest = remove(&mut tree, path);
        wrong.push(error);
        if !is_rest || wrong.len() == ERRORS_MAX {
            break;
        }
    }
    match wrong.len() {
        1 => Err(wrong.remove(0)),
        _ => Err(ConfigError::Several(wrong)),
    }
}

/// Deserializes `tree`. The error names the first wrong value.
fn read_tree(tree: &Table) -> Result<Config, ConfigError> {
    serde_path_to_error::deserialize(Value::Table(tree.clone())).map_err(|error| {
        let path = error.path().to_string();
        let problem = error.into_inner().message().trim().to_owned();
        let problem = words::in_words(&path, problem, value_at(tree, &path));
        ConfigError::Value { origin: None, path, problem }
    })
}

/// The value at `path` of `tree`, if it is there and not in a list.
fn value_at<'t>(tree: &'t Table, path: &str) -> Option<&'t Value> {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let value = tree.get(first)?;
    if rest.is_empty() { Some(value) } else { value_at(value.as_table()?, rest) }
}

/// Takes the value at `path` out of `tree`. Returns whether it was there.
fn remove(tree: &mut Table, path: &str) -> bool {
    let path = path.split('[').next().unwrap_or(path);
    let (sections, last) = path.rsplit_once('.').unwrap_or(("", path));
    let mut table = tree;
    for section in sections.split('.').filter(|section| !section.is_empty()) {
        let Some(inner) = table.get_mut(section).and_then(Value::as_table_mut) else {
            return false;
        };
        table = inner;
    }
    table.remove(last).is_some()
}

/// Parses `text`. An error has the place of the problem, not the text: there may be a password in it.
fn tree_of(text: &str) -> Result<Table, String> {
    text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        format!("line {line}, column {column}: {}", error.message().trim())
    })
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let bytes = File::open(path).and_then(|file| private::read_at_most(file, FILE_BYTES_MAX));
    let text = bytes.and_then(|bytes| {
        String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    });
    text.map_err(|error| ConfigError::Read { path: path.to_owned(), error })
}

/// The value of a variable: a number or a truth value where `text` reads as one, else a text. Secrets are always texts.
fn of_variable(path: &[&str], text: String) -> Value {
    if SECRETS.contains(&path) {
        return Value::String(text);
    }
    let number = text.parse().map(Value::Integer).ok();
    let number = number.or_else(|| text.parse().map(Value::Boolean).ok());
    let number =
        number.or_else(|| text.parse::<f64>().ok().filter(|f| f.is_finite()).map(Value::Float));
    number.unwrap_or(Value::String(text))
}

fn put(tree: &mut Table, path: &[&str], value: Value) -> Result<(), ConfigError> {
    let Some((last, sections)) = path.split_last() else { return Ok(()) };
    let mut table = tree;
    for section in sections {
        let entry = table.entry((*section).to_owned()).or_insert_with(|| Table::new().into());
        table = entry.as_table_mut().ok_or_else(|| ConfigError::Value {
            origin: None,
            path: path.join("."),
            problem: format!("unknown section `{section}`"),
        })?;
    }
    table.insert((*last).to_owned(), value);
    Ok(())
}

/// Sets `KEY` to the contents of the file that `KEY_file` names.
fn read_secret(tree: &mut Table, path: &[&str]) -> Result<(), ConfigError> {
    let Some((key, sections)) = path.split_last() else { return Ok(()) };
    let mut table = tree;
    for section in sections {
        let Some(inner) = table.get_mut(*section).and_then(Value::as_table_mut) else {
            return Ok(());
        };
        table = inner;
    }
    let name = format!("{key}{FILE_SUFFIX}");
    let Some(file) = table.remove(&name) else { return Ok(()) };
    let at = |problem: &str| ConfigError::Value {
        origin: None,
        path: format!("{}.{name}", sections.join(".")),
        problem: problem.to_owned(),
    };
    if table.contains_key(*key) {
        return Err(at(&format!("cannot be combined with `{key}`")));
    }
    let file = file.as_str().ok_or_else(|| at("expected a file path"))?;
    let path = Path::new(file);
    let secret = private::read_text(path, FILE_BYTES_MAX);
    let secret = secret.map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
    let secret = secret.trim_end_matches(['\r', '\n']);
    if *key == "url" {
        // It is not repeated: there may be a password in it.
        let name = secret.split_once('=').map(|(name, _)| name.trim_start_matches("export "));
        let is_name = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        if let Some(name) = name.filter(|name| !name.is_empty() && name.bytes().all(is_name)) {
            return Err(at(&format!("expected a file with the URL alone, without `{name}=`")));
        }
        if secret.starts_with(['"', '\'']) {
            return Err(at("expected a file with the URL alone, without quotation marks"));
        }
    }
    table.insert((*key).to_owned(), secret.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use std::fs;
    use std::iter;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::config::{ConfigSecret, Listen};

    fn from_text(text: &str, environment: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let path = folder.path().join("sluicegate.toml");
        fs::write(&path, text).expect("a file for the test");
        let environment =
            environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        load(Some(&path), environment, Flags::new())
    }

    fn problem(text: &str) -> String {
        let error = anyhow::Error::from(from_text(text, &[]).expect_err("it is wrong"));
        let problem = format!("{error:#}");
        // Without the folder of the test, and without the line, which has its own test.
        match problem.split_once("sluicegate.toml:") {
            Some((_, rest)) if rest.starts_with(|char: char| char.is_ascii_digit()) => {
                rest.split_once(": ").expect("what is wrong").1.to_owned()
            }
            _ => problem,
        }
    }

    /// A file that nobody else can read.
    fn write_secret(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    #[test]
    fn nothing_at_all_is_a_configuration() {
        assert_eq!(load(None, iter::empty(), Flags::new()).unwrap(), Config::default());
        assert_eq!(from_text("", &[]).unwrap(), Config::default());
    }

    #[test]
    fn the_environment_is_over_the_file_and_flags_over_both() {
        let text = "[server]\nworkers = 1\n[store]\nkeys_max = 10\nnodes = 2\n[http]\nlisten = '127.0.0.1:1'";
        let environment = [
            ("SLUICEGATE__STORE__KEYS_MAX", "20"),
            ("SLUICEGATE__HTTP__LISTEN", "127.0.0.1:2, unix:/run/s"),
            ("SLUICEGATE_OTHER", "x"),
        ];
        let config = from_text(text, &environment).unwrap();
        assert_eq!((config.server.workers, config.store.keys_max), (1, Some(20)));
        assert_eq!(config.store.nodes.map(NonZeroU32::get), Some(2));
        let listen = [Listen::Tcp("127.0.0.1:2".parse().unwrap()), Listen::Unix("/run/s".into())];
        assert_eq!(config.http.listen.as_slice(), listen);

        let flags: Flags = vec![(&["store", "keys_max"], 30.into())];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let config = load(None, environment.into_iter(), flags).unwrap();
        assert_eq!(config.store.keys_max, Some(30));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_path() {
        for (text, path) in [
            ("[htp]", "htp: unknown field, did you mean `http`?"),
            ("[http]\nlsten = 1", "http.lsten: unknown field, did you mean `listen`?"),
            ("[http]\nlisten = 'x'", "http.listen: invalid address `x`"),
            ("[http]\nlisten = ['127.0.0.1:1', 'x']", "http.listen[1]: invalid address `x`"),
            ("[store]\nnodes = 0", "store.nodes: `0` is outside 1..=4294967295"),
            ("[store]\nnodes = 'two'", "store.nodes: `two` is not a whole number 1..=4294967295"),
            ("[server]\nworkers = 100000", "server.workers: `100000` is outside 0..=65535"),
            ("[server]\nworkers = -1", "server.workers: `-1` is outside 0..=65535"),
            ("[resp]\ninsecure = 'yes'", "resp.insecure: `yes` is neither `true` nor `false`"),
            (
                "[store]\nkeys_per_policy_max = 0",
                "store.keys_per_policy_max: `0` is outside 1..=4294967295",
            ),
            ("[store]\nstate_bytes_max = 1000", "store.state_bytes_max: `1000` is below 1048576"),
            (
                "[store]\nkeys_max = '1M'",
                "store.keys_max: `1M` is not a whole number 1..=4294967295",
            ),
            ("[store]\nkeys_max = -1", "store.keys_max: `-1` is outside 1..=4294967295"),
            (
                "[store]\nstate_bytes_max = '1GiB'",
                "store.state_bytes_max: `1GiB` is not a whole number 1048576..=",
            ),
            (
                "[http]\ntrusted_hops = 'one'",
                "http.trusted_hops: `one` is not a whole number 1..=64",
            ),
            ("[trace]\nsample = 'all'", "trace.sample: `all` is not a number, such as `0.1`"),
            (
                "[store]\nsnapshot_every = 60",
                "store.snapshot_every: `60` is not a text: expected quotes, such as \"250ms\"",
            ),
            ("[store]\nsnapshot_every = '60'", "store.snapshot_every: "),
            ("[store]\nsnapshot_every = '60s'", "store.snapshot_every: requires `store.snapshot`"),
            ("[server]\nworkers = 257", "server.workers: `257` is outside 0..=256"),
            ("[admin]\nlisten = '0.0.0.0:1'", "admin.listen: `0.0.0.0:1` can be reached"),
            ("[http]\ntrusted_hops = 0", "http.trusted_hops: `0` is outside 1..=64"),
            ("[http]\ntrusted_hops = 65", "http.trusted_hops: `65` is outside 1..=64"),
            ("[trace]\nsample = 1.5", "trace.sample: `1.5` is outside 0..=1"),
            ("[trace]\nendpoint = 'h:1'", "trace.endpoint: expected `http://HOST:PORT`"),
        ] {
            let problem = problem(text);
            assert!(problem.starts_with(path), "{text}: {problem}");
        }
    }

    #[test]
    fn a_value_of_another_kind_is_told_with_what_is_expected() {
        for (text, path) in [
            ("[log]\nlevel = 'loud'", "log.level: unknown value `loud`"),
            (
                "[log]\nlevel = 'wran'",
                "log.level: unknown value `wran`, expected one of `off`, `error`, `warn`, `info`, `debug`; did you mean `warn`?",
            ),
            (
                "[log]\nformat = 3",
                "log.format: `3` is not a text: expected one of `text`, `json`, in quotes",
            ),
            (
                "[catalog]\nurl = 'sqlite:c.db'\ntokens_required = true",
                "catalog.tokens_required: `true` is not a text: expected one of `remote`, `always`, `never`, in quotes",
            ),
            (
                "[catalog]\ntokens_required = 'always'",
                "catalog.tokens_required: requires `catalog.url`",
            ),
            (
                "[http]\nverbs = true",
                "http.verbs: `true` is not a text: expected quotes, or a list of strings",
            ),
            (
                "[http]\nverbs = ['peek', 5]",
                "http.verbs[1]: the value is not a text: expected a word in quotes",
            ),
            (
                "[http]\nlisten = { a = 1 }",
                "http.listen: a section is not a text: expected quotes, such as \"127.0.0.1:8080\"",
            ),
            (
                "[resp]\nlisten = '127.0.0.1:7'\n[store]\nurl = 'redis://u:p@localhost:7/1'",
                "store.url: `127.0.0.1:7` is an address of `resp.listen`: this server cannot be its own store",
            ),
            ("[http]\napp = 5", "http.app: `5` is not a text: expected quotes"),
            ("[http]\ninsecure = 'yes'", "http.insecure: `yes` is neither `true` nor `false`"),
            (
                "[http]\ntrusted_hops = [1]",
                "http.trusted_hops: a list is not a whole number 1..=64",
            ),
            (
                "[policies]\npath = ['a']",
                "policies.path: a list is not a path: expected a text in quotes",
            ),
            ("server = 1", "server: expected a section"),
            (
                "[rls]\nenvoy_merge_domains = true",
                "rls.envoy_merge_domains: requires `rls.envoy_config`",
            ),
            (
                "[rls]\ndescriptors = 'd'\nenvoy_config = 'e'",
                "rls.descriptors: cannot be combined with `rls.envoy_config`",
            ),
            ("[http]\ntls = { cert = 'c' }", "http.tls: missing field `key`"),
            ("[resp.tls]\ncert = 'c'\nkey = 'k'\nca = 'a'", "resp.tls.ca: unknown field `ca`"),
        ] {
            let problem = problem(text);
            assert!(problem.starts_with(path), "{text}: {problem}");
        }
        let only = problem("[http]\ntls = { cert = 5, key = 'k' }");
        assert_eq!(only, "http.tls.cert: `5` is not a path: expected a text in quotes");
        let problem = problem("[store]\nnodes = 1\nnodes = 2");
        assert!(problem.contains("sluicegate.toml: line 3, column 1: duplicate key"), "{problem}");
    }

    #[test]
    fn operators_with_certificates_may_come_from_elsewhere() {
        let tls = "[admin]\nlisten = '0.0.0.0:1'\n[admin.tls]\ncert = 'c'\nkey = 'k'";
        assert!(problem(tls).starts_with("admin.listen: `0.0.0.0:1` can be reached"));
        from_text(tls, &[("SLUICEGATE__ADMIN__TLS__CLIENT_CA", "a")]).unwrap();
        from_text(tls, &[("SLUICEGATE__ADMIN__INSECURE", "true")]).unwrap();
    }

    #[test]
    fn a_secret_may_be_a_file_and_is_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        write_secret(&file, "hunter2\n");
        let file = file.to_str().unwrap();
        let config = from_text("", &[("SLUICEGATE__RESP__PASSWORD_FILE", file)]).unwrap();
        assert_eq!(config.resp.password, Some(ConfigSecret::new("hunter2")));
        assert!(!format!("{config:?}").contains("hunter2"));
        assert!(!toml::to_string(&config).unwrap().contains("hunter2"));
        let both = format!("[resp]\npassword = 'a'\npassword_file = '{file}'");
        assert!(
            problem(&both).starts_with("resp.password_file: cannot be combined with `password`")
        );
        assert!(problem("[resp]\npassword_file = '/none'").starts_with("cannot read /none"));
        fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
        let readable = problem(&format!("[resp]\npassword_file = '{file}'"));
        assert!(readable.starts_with(&format!("cannot read {file}: mode 0644 gives")));
    }

    #[test]
    fn a_file_with_a_url_has_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("url");
        for (text, says) in [
            ("REDIS_URL=redis://:hunter2@h", "the URL alone, without `REDIS_URL=`"),
            ("export URL=redis://:hunter2@h\n", "the URL alone, without `URL=`"),
            ("\"redis://:hunter2@h\"\n", "the URL alone, without quotation marks"),
        ] {
            write_secret(&file, text);
            let problem = problem(&format!("[store]\nurl_file = '{}'", file.display()));
            assert!(problem.starts_with("store.url_file: expected a file with "), "{problem}");
            assert!(problem.contains(says) && !problem.contains("hunter2"), "{problem}");
        }
        write_secret(&file, "redis://:a=b@127.0.0.1\n");
        from_text(&format!("[store]\nurl_file = '{}'", file.display()), &[]).unwrap();
    }

    #[test]
    fn a_misspelt_section_of_a_variable_is_named_with_the_variable() {
        let error = from_text("", &[("SLUICEGATE__HTPP__LISTEN", "127.0.0.1:1")]).unwrap_err();
        let expected = "SLUICEGATE__HTPP__LISTEN: htpp: unknown field, did you mean `http`?";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn no_error_repeats_a_secret() {
        for text in [
            "[resp]\npassword = 48151623",
            "[resp]\npassword = \"48151623",
            "[resp]\npassword = 48151623 x",
            "[resp]\npassword = '''48151623",
            "[resp]\npassword = \"48151623\\q\"",
            "[resp]\npassword = 48151623x",
            "[resp]\npassword = [\"48151623\"]",
            "[resp]\npassword = { is = \"48151623\" }",
            "[store]\nurl = 48151623",
            "[store]\nurl = 'redis://:48151623'",
            "[trace]\nendpoint = 'http://u:48151623@'",
            "[trace]\nendpoint = 'http://u:48151623@h x'",
            "resp = '48151623'",
            "store = 48151623",
            "[catalog]\noidc = \"48151623\"",
            "[http]\ntls = \"48151623\"",
            "trace = 'http://u:48151623@h'",
        ] {
            let problem = problem(text);
            assert!(!problem.contains("48151623"), "{text}: {problem}");
        }
        let unquoted = problem("[resp]\npassword = \"48151623");
        assert!(unquoted.contains("sluicegate.toml: line 2, column "), "{unquoted}");
        let number = problem("[resp]\npassword = 48151623");
        assert_eq!(number, "resp.password: expected a string");
    }

    #[test]
    fn a_provider_is_known_by_urls_that_are_safe_and_a_secret_that_may_be_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        write_secret(&secret, "48151623\n");
        let oidc = format!(
            "issuer = 'https://id.example.org'\nclient_id = 'c'\n\
             redirect_url = 'https://h/v1/admin/oidc/callback'\n\
             client_secret_file = '{}'",
            secret.display()
        );
        let catalog = "[catalog]\nurl = 'sqlite:c.db'\n[catalog.oidc]\n";
        let config = from_text(&format!("{catalog}{oidc}"), &[]).unwrap();
        let of = config.catalog.oidc.clone().unwrap().of_catalog();
        assert_eq!((&*of.client_secret, of.scopes.len()), ("48151623", 2));
        assert_eq!((&*of.groups_claim, of.create_accounts), ("groups", false));
        let printed = toml::to_string(&config).unwrap();
        assert!(!printed.contains("48151623") && !format!("{config:?}").contains("48151623"));
        // A secret from the environment is a text as well, though it looks like a number.
        let variable = [("SLUICEGATE__CATALOG__OIDC__CLIENT_SECRET", "48151623")];
        let bare = oidc.rsplit_once('\n').unwrap().0;
        from_text(&format!("{catalog}{bare}"), &variable).unwrap();

        for (text, says) in [
            (format!("[catalog.oidc]\n{oidc}"), "catalog.oidc: requires `catalog.url`"),
            (format!("{catalog}{bare}"), "catalog.oidc: expected `client_secret` or "),
            (
                format!("{catalog}{oidc}\nclient_secret = '48151623'"),
                "catalog.oidc.client_secret_file: cannot be combined with `client_secret`",
            ),
            (format!("{catalog}{oidc}\nissuers = 'x'"), "catalog.oidc.issuers: unknown field"),
            (
                format!("{catalog}{}", oidc.replace("https://id", "http://id")),
                "catalog.oidc.issuer: invalid URL `http://id.example.org`: expected `https://",
            ),
            (
                format!("{catalog}{oidc}\nroles = [{{ group = 'g', app = 'A', role = 'owner' }}]"),
                "catalog.oidc.roles.0.app: invalid app name `A`",
            ),
            (
                format!("{catalog}{oidc}\nroles = [{{ group = 'g', app = 'a', role = 'admin' }}]"),
                "catalog.oidc.roles[0].role: unknown value `admin`",
            ),
        ] {
            let problem = problem(&text);
            assert!(problem.contains(says), "{text}: {problem}");
            assert!(!problem.contains("48151623"), "{text}: {problem}");
        }
    }

    #[test]
    fn a_secret_of_the_environment_is_a_text_whatever_it_looks_like() {
        for password in ["48151623", "true", "1.50", "1e3", "off"] {
            let config = from_text("", &[("SLUICEGATE__RESP__PASSWORD", password)]).unwrap();
            assert_eq!(config.resp.password, Some(ConfigSecret::new(password)));
        }
    }

    #[test]
    fn who_may_send_spans_is_not_printed() {
        let shown = |endpoint: &str| {
            let config = from_text("", &[("SLUICEGATE__TRACE__ENDPOINT", endpoint)]);
            let config = config.expect("it is an endpoint");
            assert!(!format!("{config:?}").contains("48151623"));
            toml::to_string(&config).expect("it can be written")
        };
        let hidden = shown("http://u:48151623@127.0.0.1:4317");
        assert!(hidden.contains("endpoint = \"http://***@127.0.0.1:4317\""), "{hidden}");
        assert!(shown("http://h:4317").contains("endpoint = \"http://h:4317\""));
    }
}

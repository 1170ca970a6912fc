//! Checks that answers conform to `docs/openapi.json`, for every answer of these tests.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use jsonschema::Validator;
use serde_json::{Value, json};

static DESCRIPTION: LazyLock<Value> = LazyLock::new(|| {
    let text = include_str!("../../../../../docs/openapi.json");
    serde_json::from_str(text).expect("it is JSON")
});

/// The template of `path` in the description.
fn template(path: &str) -> &str {
    if path.starts_with("/v1/auth/") { "/v1/auth/{policy}" } else { path }
}

/// Fails if the answer to `request` does not conform to its description. Paths and methods without
/// a description are ignored.
pub(crate) fn holds(request: &[u8], (status, head, body): (u16, &str, &str)) {
    let line = String::from_utf8_lossy(request);
    let mut words = line.lines().next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = template(target.split('?').next().unwrap_or_default());
    let method = method.to_ascii_lowercase();
    if status == 405 || !DESCRIPTION["paths"][path][&*method].is_object() {
        return;
    }
    let described = &DESCRIPTION["paths"][path][&*method]["responses"][&*status.to_string()];
    assert!(described.is_object(), "{method} {path}: {status} is not described: {body}");
    let media = head
        .lines()
        .find_map(|line| line.to_lowercase().strip_prefix("content-type: ").map(str::to_owned));
    let Some(media) = media.filter(|media| media.ends_with("json")) else { return };
    let at = [path, &method, "responses", &status.to_string(), "content", &media, "schema"]
        .map(|step| step.replace('~', "~0").replace('/', "~1"));
    let answer: Value = serde_json::from_str(body).expect("it is JSON");
    let wrong: Vec<_> = validator(&format!("#/paths/{}", at.join("/")))
        .iter_errors(&answer)
        .map(|error| error.to_string())
        .collect();
    assert!(wrong.is_empty(), "{method} {path}: {status} {media}: {wrong:?}: {body}");
}

/// The validator of the schema at `at`, made once.
fn validator(at: &str) -> Arc<Validator> {
    static MADE: Mutex<BTreeMap<String, Arc<Validator>>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let make = || {
        let mut schema = DESCRIPTION.clone();
        schema["$ref"] = json!(at);
        let validator = jsonschema::draft202012::new(&schema);
        Arc::new(validator.unwrap_or_else(|error| panic!("{at}: {error}")))
    };
    Arc::clone(made.entry(at.to_owned()).or_insert_with(make))
}

#[test]
#[should_panic(expected = "is a required property")]
fn an_answer_that_is_not_as_described_is_noticed() {
    holds(b"POST /v1/check HTTP/1.1", (200, "content-type: application/json", "{}"));
}

//! The script as a file, for clients in other languages: `spec/redis/decide.lua`, and its SHA-1.
//!
//! `cargo xtask script` writes both again, and the name of this version in `spec/redis/scripts.json`.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use sluicegate_store::redis::script;

fn spec(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/redis")).join(name)
}

#[test]
fn the_script_in_spec_is_the_one_that_servers_load() {
    let sha1 = format!("{}\n", script::SHA1);
    let files = [("decide.lua", script::TEXT), ("decide.sha1", &sha1)];
    for (name, text) in files {
        if std::env::var_os("SLUICEGATE_RECORD").is_some() {
            fs::write(spec(name), text).unwrap();
        }
        let found = fs::read_to_string(spec(name)).unwrap_or_default();
        assert!(found == text, "spec/redis/{name} is old: run `cargo xtask script`");
    }
    let digest = sha1_smol::Sha1::from(fs::read(spec("decide.lua")).unwrap()).digest();
    assert_eq!(digest.to_string(), script::SHA1);
}

#[test]
fn each_release_has_its_script_and_what_formats_it_reads_in_the_list() {
    let path = spec("scripts.json");
    let mut list: Vec<Value> = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let release = env!("CARGO_PKG_VERSION");
    let this = json!({ "formats": [script::FORMAT], "release": release, "sha1": script::SHA1 });
    if std::env::var_os("SLUICEGATE_RECORD").is_some() {
        list.retain(|entry| entry["release"] != release);
        list.push(this.clone());
        fs::write(&path, format!("{}\n", serde_json::to_string_pretty(&list).unwrap())).unwrap();
    }
    assert_eq!(
        list.last(),
        Some(&this),
        "spec/redis/scripts.json is old: run `cargo xtask script`"
    );
}

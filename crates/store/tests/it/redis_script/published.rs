//! The script as a file, for clients in other languages: `spec/redis/decide.lua`, and its SHA-1.
//!
//! `cargo xtask script` writes both anew.

use std::fs;
use std::path::PathBuf;

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

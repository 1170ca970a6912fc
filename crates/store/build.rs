//! Joins the prelude, the twins of all algorithms, the steps and the epilogue into the one script of the
//! Redis store, and works out the digests by which Redis knows it and the one that publishes policies.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

use sluicegate_kernel::algorithm::twins;

fn main() {
    println!("cargo::rerun-if-changed=src/redis/prelude.lua");
    println!("cargo::rerun-if-changed=src/redis/steps.lua");
    println!("cargo::rerun-if-changed=src/redis/lease.lua");
    println!("cargo::rerun-if-changed=src/redis/general.lua");
    println!("cargo::rerun-if-changed=src/redis/epilogue.lua");
    println!("cargo::rerun-if-changed=src/redis/publish.lua");
    let script = condense(&joined());
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names the folder"));
    let write = |name: &str, text: &str| {
        fs::write(folder.join(name), text).expect("the folder can be written");
    };
    write("script.sha1", &digest(&script));
    write("script.lua", &script);
    write("fleet.sha1", &digest(include_str!("src/redis/fleet.lua")));
    write("publish.sha1", &digest(include_str!("src/redis/publish.lua")));
}

fn digest(script: &str) -> String {
    sha1_smol::Sha1::from(script).digest().to_string()
}

fn joined() -> String {
    let mut script = String::from(include_str!("src/redis/prelude.lua"));
    let mut branch = "if";
    for (code, _, twin) in twins() {
        writeln!(script, "{branch} what == {code} then\n{twin}").expect("a string takes all");
        branch = "elseif";
    }
    script.push_str("end\n");
    script.push_str(include_str!("src/redis/steps.lua"));
    script.push_str(include_str!("src/redis/lease.lua"));
    let (before, after) = include_str!("src/redis/epilogue.lua")
        .split_once("-- part: general.lua\n")
        .expect("the epilogue names the part that is made where it is wanted");
    script + before + include_str!("src/redis/general.lua") + after
}

/// Returns the script without comments and indentation, and with each constant's number in its place: a
/// local that functions share costs every call.
fn condense(script: &str) -> String {
    let mut constants = HashMap::new();
    let mut condensed = String::new();
    for line in script.lines().map(str::trim).filter(|line| !line.starts_with("--")) {
        let constant = line.strip_prefix("local ").and_then(|rest| rest.split_once(" = "));
        match constant.filter(|(name, _)| name.chars().all(is_of_constants)) {
            Some((name, number)) => drop(constants.insert(name, number)),
            None if line.is_empty() => {}
            None => {
                condensed.push_str(&with_numbers(line, &constants));
                condensed.push('\n');
            }
        }
    }
    condensed
}

fn with_numbers(line: &str, constants: &HashMap<&str, &str>) -> String {
    let mut replaced = String::new();
    let mut rest = line;
    while let Some(start) = rest.find(is_of_words) {
        let end = rest[start..].find(|c| !is_of_words(c)).map_or(rest.len(), |end| start + end);
        let word = &rest[start..end];
        replaced.push_str(&rest[..start]);
        replaced.push_str(constants.get(word).unwrap_or(&word));
        rest = &rest[end..];
    }
    replaced + rest
}

fn is_of_constants(c: char) -> bool {
    c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'
}

fn is_of_words(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

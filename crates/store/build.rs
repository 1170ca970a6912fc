//! Joins the prelude, the twins of all algorithms and the epilogue into the one script of the Redis
//! store, and works out the digest by which Redis knows it.

use std::path::PathBuf;
use std::{env, fs};

use sluicegate_kernel::algorithm::twins;

fn main() {
    println!("cargo::rerun-if-changed=src/redis/prelude.lua");
    println!("cargo::rerun-if-changed=src/redis/epilogue.lua");
    let script = script();
    let digest = sha1_smol::Sha1::from(&script).digest().to_string();
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names the folder"));
    fs::write(folder.join("script.lua"), script).expect("the folder can be written");
    fs::write(folder.join("script.sha1"), digest).expect("the folder can be written");
}

fn script() -> String {
    let mut script = String::from(include_str!("src/redis/prelude.lua"));
    let mut branch = "if";
    for (code, name, twin) in twins() {
        script.push_str(&format!("{branch} code == {code} then -- {name}\n{twin}"));
        branch = "elseif";
    }
    script.push_str("end\n");
    script.push_str(include_str!("src/redis/epilogue.lua"));
    script
}

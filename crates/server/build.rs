//! Makes Rust of the protocols in `spec/proto`, and the descriptors that reflection serves. Nothing
//! but this program is needed: no compiler of protocols on the machine.

use std::path::{Path, PathBuf};
use std::{env, fs};

use protox::prost::Message;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A link to `spec/proto`: cargo packages the files behind it with the crate.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    println!("cargo::rerun-if-changed={}", root.display());
    let descriptors = protox::compile(["envoy/service/ratelimit/v3/rls.proto"], [&root])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("rls.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .build_transport(false)
        .codec_path("crate::wire::rls::protobuf::Protobuf")
        .include_file("envoy.rs")
        .compile_fds(descriptors)?;
    Ok(())
}

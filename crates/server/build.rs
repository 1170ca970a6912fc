//! Generates Rust code from the protocols in `spec/proto`, and the descriptors that reflection
//! serves. No `protoc` is needed on the machine.

use std::path::{Path, PathBuf};
use std::{env, fs};

use protox::prost::Message;
use protox::prost_reflect::prost_types::FileDescriptorSet;
use protox::prost_reflect::prost_types::field_descriptor_proto::Type;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A link to `spec/proto`: cargo packages the files behind it with the crate.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut descriptors = protox::compile(["envoy/service/ratelimit/v3/rls.proto"], [&root])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("rls.bin"), descriptors.encode_to_vec())?;
    read_entries_as_bytes(&mut descriptors);
    tonic_prost_build::configure()
        .build_transport(false)
        .codec_path("crate::wire::rls::protobuf::Protobuf")
        .include_file("envoy.rs")
        .compile_fds(descriptors)?;
    Ok(())
}

/// Makes keys and values of entries bytes: Envoy sends the bytes of a client's header field, and bytes that
/// are not UTF-8 in a text field would be an error, on which Envoy lets the request pass.
fn read_entries_as_bytes(descriptors: &mut FileDescriptorSet) {
    let messages = descriptors.file.iter_mut().flat_map(|file| &mut file.message_type);
    let descriptor = messages.filter(|message| message.name() == "RateLimitDescriptor");
    let entry = descriptor.flat_map(|message| &mut message.nested_type);
    for field in entry.filter(|nested| nested.name() == "Entry").flat_map(|entry| &mut entry.field)
    {
        field.set_type(Type::Bytes);
    }
}

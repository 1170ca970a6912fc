//! `protobuf`: writes the Rust code of the protocols in `spec/proto`, and the descriptors that reflection serves. The
//! server is built from these files, so that its build needs no compiler of protocols.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use protox::prost::Message;
use protox::prost_reflect::prost_types::FileDescriptorSet;
use protox::prost_reflect::prost_types::field_descriptor_proto::Type;

use crate::texts::root;

/// Folder of the written files, below the root of the project.
const FOLDER: &str = "crates/server/src/wire/rls/proto";

const HEAD: &str = "\
//! The messages of `spec/proto` and the service, as Rust has them.
//!
//! Written by `cargo xtask protobuf`: change `spec/proto` instead.

";

/// Writes the files again.
///
/// # Errors
/// If a protocol is wrong, or a file cannot be written.
pub fn write() -> Result<String> {
    for (path, content) in files()? {
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(format!("{FOLDER}: written"))
}

/// Compares the files with the protocols.
///
/// # Errors
/// If they differ, or a file cannot be read.
pub fn check() -> Result<String> {
    for (path, content) in files()? {
        let there = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        ensure!(there == content, "{} is old: run `cargo xtask protobuf`", path.display());
    }
    Ok(format!("{FOLDER} is what the protocols say"))
}

/// The paths and contents of the code and the descriptors.
fn files() -> Result<[(PathBuf, Vec<u8>); 2]> {
    let protocols = root().join("spec/proto");
    let mut descriptors = protox::compile(["envoy/service/ratelimit/v3/rls.proto"], [&protocols])?;
    let encoded = descriptors.encode_to_vec();
    read_entries_as_bytes(&mut descriptors);
    let folder = root().join(FOLDER);
    Ok([
        (folder.join("generated.rs"), code(descriptors)?.into_bytes()),
        (folder.join("descriptors.bin"), encoded),
    ])
}

/// The code as one file, with a module for each part of a package's name.
fn code(descriptors: FileDescriptorSet) -> Result<String> {
    let out = tempfile::tempdir()?;
    tonic_prost_build::configure()
        .build_transport(false)
        .codec_path("crate::wire::rls::protobuf::Protobuf")
        .out_dir(out.path())
        .include_file("all.rs")
        .compile_fds(descriptors)?;
    with_included(out.path(), "all.rs").map(|code| format!("{HEAD}{code}"))
}

/// The text of a file in `folder`, with the files that it includes in their place, without the generator's remarks.
fn with_included(folder: &Path, name: &str) -> Result<String> {
    let mut code = String::new();
    for line in fs::read_to_string(folder.join(name))?.lines() {
        let (indent, rest) = line.split_at(line.len() - line.trim_start().len());
        if let Some(name) =
            rest.strip_prefix("include!(\"").and_then(|rest| rest.strip_suffix("\");"))
        {
            for line in with_included(folder, name)?.lines() {
                code += &format!("{indent}{line}\n");
            }
        } else if !line.starts_with("// ") {
            code += &format!("{line}\n");
        }
    }
    Ok(code)
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

#[cfg(test)]
mod tests {
    #[test]
    fn the_code_of_the_protocols_is_fresh() {
        super::check().unwrap();
    }
}

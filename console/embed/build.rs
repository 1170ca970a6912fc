//! Puts the files of `dist` into the program: as they are, and compressed.
//!
//! `make console` writes `dist`. Without it the program has one page, which says so.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

/// Files that are not served: `scripts/console` keeps them there for itself.
const NOT_SERVED: &[&str] = &[".building", ".gitignore", ".log", "BUILT"];

const WAIT_MAX: Duration = Duration::from_secs(300);

fn main() {
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let dist = package.join("dist");
    println!("cargo::rerun-if-changed={}", dist.display());
    println!("cargo::rerun-if-changed=embed");
    wait_for(&dist.join(".building"));
    let is_built = dist.join("index.html").is_file();
    let mut files = Vec::new();
    if is_built {
        list(&dist, &dist, &mut files);
    } else {
        files.push(("index.html".to_owned(), package.join("embed/missing.html")));
    }
    files.sort();
    let mut code = format!(
        "pub(super) const IS_BUILT: bool = {is_built};\npub(super) static ASSETS: &[Asset] = &[\n"
    );
    for (number, (path, file)) in files.iter().enumerate() {
        add(&mut code, number, path, file, &out);
    }
    code.push_str("];\n");
    fs::write(out.join("assets.rs"), code).expect("the folder of a build can be written");
}

/// Waits while the console is being built beside this: `scripts/console` removes the file when it is done. One
/// that was left behind is waited for no longer than that takes on a slow machine.
#[expect(clippy::disallowed_methods, reason = "another process is waited for, not a clock of ours")]
fn wait_for(building: &Path) {
    for _ in 0..WAIT_MAX.as_secs() {
        if !building.exists() {
            return;
        }
        sleep(Duration::from_secs(1));
    }
}

/// All files below `folder`, with their paths below `root`, parts joined by `/`.
fn list(root: &Path, folder: &Path, files: &mut Vec<(String, PathBuf)>) {
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            list(root, &path, files);
            continue;
        }
        let below = path.strip_prefix(root).expect("it is below");
        let parts = below.iter().map(|part| part.to_str().expect("names are UTF-8"));
        let name = parts.collect::<Vec<_>>().join("/");
        if !NOT_SERVED.contains(&name.as_str()) {
            files.push((name, path));
        }
    }
}

/// Adds a row for `file`, whose compressed form goes into `out`.
fn add(code: &mut String, number: usize, path: &str, file: &Path, out: &Path) {
    let bytes = fs::read(file).expect("the file can be read");
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(&bytes).expect("a Vec takes all bytes");
    let gzip = gzip.finish().expect("a Vec takes all bytes");
    let compressed = out.join(format!("{number}.gz"));
    fs::write(&compressed, gzip).expect("the folder of a build can be written");
    let digest = Sha256::digest(&bytes);
    let mut etag = String::new();
    for byte in &digest[..8] {
        write!(etag, "{byte:02x}").expect("a String takes all text");
    }
    writeln!(
        code,
        "    Asset {{ path: {path:?}, bytes: include_bytes!({file:?}), \
         gzip: include_bytes!({compressed:?}), etag: \"\\\"{etag}\\\"\" }},",
    )
    .expect("a String takes all text");
}

//! The admin console: its files, inside the program.
//!
//! The console is written in TypeScript and Svelte (`src`) and built by `make console` into `dist`, whose files
//! this crate holds, also compressed. The server serves them beside the admin API and adds the header fields
//! that a browser must see; nothing here knows HTTP. Built without `dist`, the crate holds one page that says
//! how to build it, and [`IS_BUILT`] is false.

/// A file of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asset {
    /// Where it is, below the root, without a leading slash: `assets/index.js`.
    pub path: &'static str,
    /// Its bytes.
    pub bytes: &'static [u8],
    /// Its bytes, compressed with gzip.
    pub gzip: &'static [u8],
    /// A tag of its bytes for the header field `ETag`, with its quotation marks.
    pub etag: &'static str,
}

impl Asset {
    /// The file at `path`, below the root and without a leading slash.
    pub fn at(path: &str) -> Option<&'static Self> {
        let found = ASSETS.binary_search_by(|asset| asset.path.cmp(path)).ok()?;
        ASSETS.get(found)
    }

    /// The page that every address of the console begins with.
    ///
    /// # Panics
    /// Never: a build without it fails.
    pub fn index() -> &'static Self {
        Self::at("index.html").expect("there is always an index")
    }

    /// All files, ordered by path.
    pub fn all() -> &'static [Self] {
        ASSETS
    }

    /// Returns its media type, for the header field `Content-Type`.
    pub fn media_type(&self) -> &'static str {
        match self.path.rsplit('.').next() {
            Some("html") => "text/html; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            Some("json" | "webmanifest") => "application/json",
            Some("png") => "image/png",
            Some("woff2") => "font/woff2",
            _ => "text/plain; charset=utf-8",
        }
    }
}

/// `true` if the program has the console, and not the page that says how to build it.
pub const IS_BUILT: bool = assets::IS_BUILT;
use assets::ASSETS;

mod assets {
    use super::Asset;

    include!(concat!(env!("OUT_DIR"), "/assets.rs"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_their_path_and_nothing_else_is() {
        for asset in Asset::all() {
            assert_eq!(Asset::at(asset.path), Some(asset));
            assert!(!asset.bytes.is_empty(), "{}", asset.path);
        }
        for path in ["", "/index.html", "../Cargo.toml", "INDEX.HTML", "index.html/", "BUILT"] {
            assert_eq!(Asset::at(path), None, "{path}");
        }
    }

    #[test]
    fn a_program_that_is_tested_before_a_release_has_the_console() {
        let is_release = std::env::var("CI").is_ok_and(|ci| ci == "true");
        assert!(IS_BUILT || !is_release, "run `make console` before the tests");
    }

    #[test]
    fn the_index_is_a_page() {
        assert_eq!(Asset::index().media_type(), "text/html; charset=utf-8");
        assert!(Asset::index().bytes.starts_with(b"<!doctype html>"));
    }
}

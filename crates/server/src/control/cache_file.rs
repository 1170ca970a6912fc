//! Keeps a copy of the catalog in a file, for a start without the catalog.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sluicegate_control::node::{CatalogCopy, CatalogSnapshot};
use sluicegate_control::{CatalogAddress, Url};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::sync_state::SyncState;

/// Shortest interval between writes: each writes all that is held. A change of tokens is written at
/// once: a revoked token must not be valid again after a start without the catalog.
const EVERY: Duration = Duration::from_secs(1);

/// The ending of a copy beside the file of a SQLite catalog.
const BESIDE: &str = ".kept.json";

/// The default path of the copy of the catalog at `url`: beside its file, or in the folder for state that the
/// environment names, or else in the working directory. No two catalogs have the same path.
pub(super) fn default_path(url: &Url, var: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    if let Some(database) = url.file() {
        let mut path = database.into_os_string();
        path.push(BESIDE);
        return path.into();
    }
    let name = format!("kept-{}.json", CatalogAddress::of(url).file_tag());
    state_directory(var).unwrap_or_default().join(name)
}

/// Creates the folder of a copy at its default path, for its owner only. If that fails, so does the first write,
/// which is logged.
pub(super) fn make_folder(path: &Path) {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).ok();
    }
}

/// The first folder of `STATE_DIRECTORY`, which systemd sets; else the one of XDG. Relative paths are ignored.
fn state_directory(var: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    let of_service = || std::env::split_paths(&var("STATE_DIRECTORY")?).find_map(absolute);
    let of_xdg = || Some(absolute(var("XDG_STATE_HOME")?.into())?.join("sluicegate"));
    let of_home = || Some(absolute(var("HOME")?.into())?.join(".local/state/sluicegate"));
    of_service().or_else(of_xdg).or_else(of_home)
}

/// Writes the snapshot to the file of `copy` when it changes, until `stop`, and once more then. A snapshot
/// that was restored from a file is written once the catalog has answered: until then the file says of which
/// catalog it is a copy, and since when.
pub(super) async fn run(
    copy: &CatalogCopy,
    is_restored: bool,
    mut holding: watch::Receiver<SyncState>,
    stop: &CancellationToken,
) {
    let restored = is_restored.then(|| Arc::clone(&holding.borrow().held));
    let (mut written, mut is_failing) = (None, false);
    let is_there = |holding: &SyncState, written: Option<&Arc<CatalogSnapshot>>| {
        let as_restored = || holding.catalog.is_none() && is_held(holding, restored.as_ref());
        is_held(holding, written) || as_restored()
    };
    loop {
        let is_last = stop.is_cancelled();
        let now = holding.borrow_and_update().clone();
        if !is_there(&now, written.as_ref()) {
            match now.held.write_in_background(copy).await {
                Ok(()) => (written, is_failing) = (Some(Arc::clone(&now.held)), false),
                Err(error) if !is_failing => {
                    is_failing = true;
                    tracing::warn!(
                        "catalog.kept: not saved; a start without the catalog would fail: {error}"
                    );
                }
                Err(_) => {}
            }
        }
        if is_last {
            return;
        }
        let until_new = async {
            tokio::select! {
                () = sleep(EVERY) => {}
                // An error means that no sender is left; then this ends as well.
                _ = holding.wait_for(|holding| holding.tokens != now.tokens) => {}
            }
            holding.wait_for(|holding| !is_there(holding, written.as_ref())).await.ok();
        };
        stop.run_until_cancelled(until_new).await;
    }
}

fn is_held(holding: &SyncState, written: Option<&Arc<CatalogSnapshot>>) -> bool {
    written.is_some_and(|written| Arc::ptr_eq(written, &holding.held))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(url: &str, vars: &[(&str, &str)]) -> String {
        let var = |name: &str| {
            vars.iter().find(|(set, _)| *set == name).map(|(_, value)| OsString::from(value))
        };
        default_path(&url.parse().expect("it is a URL"), var).display().to_string()
    }

    #[test]
    fn a_copy_lies_beside_a_sqlite_file_or_in_the_folder_for_state() {
        let all = [
            ("STATE_DIRECTORY", "/var/lib/a:/var/lib/b"),
            ("XDG_STATE_HOME", "/x"),
            ("HOME", "/h"),
        ];
        assert_eq!(path("sqlite:/nowhere/catalog.db", &all), "/nowhere/catalog.db.kept.json");
        let production = "postgres://u:hunter2@db/production";
        for (vars, folder) in [
            (&all[..], "/var/lib/a/"),
            (&all[1..], "/x/sluicegate/"),
            (&all[2..], "/h/.local/state/sluicegate/"),
            (&[("HOME", "not/absolute")], ""),
            (&[], ""),
        ] {
            let path = path(production, vars);
            assert!(path.starts_with(&format!("{folder}kept-postgres-production-")), "{path}");
            assert!(path.ends_with(".json") && !path.contains("hunter2"), "{path}");
        }
    }

    #[test]
    fn two_catalogs_of_one_working_directory_have_two_copies() {
        let urls =
            ["sqlite:a.db", "sqlite:b.db", "postgres://h/a", "postgres://h/b", "mysql://h/a"];
        let paths: std::collections::BTreeSet<_> = urls.map(|url| path(url, &[])).into();
        assert_eq!(paths.len(), urls.len(), "{paths:?}");
    }
}

//! The mutants of the simulator stay plantable.

use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn every_mutant_names_a_promise_and_applies() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut patches = 0;
    for entry in fs::read_dir(root.join("crates/sim/mutants")).unwrap() {
        let path = entry.unwrap().path().canonicalize().unwrap();
        let patch = fs::read_to_string(&path).unwrap();
        let (promise, rest) = patch.split_once("\n\n").unwrap();
        assert!(promise.ends_with('.') && rest.starts_with("diff --git "), "{}", path.display());
        let checked = Command::new("git")
            .args(["apply", "--check"])
            .arg(&path)
            .current_dir(&root)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success(), "{}: {said}", path.display());
        patches += 1;
    }
    assert!(patches >= 20, "{patches} mutants");
}

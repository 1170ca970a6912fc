//! `completions` and `man`.

use std::io::Write;
use std::process::{Command, Stdio};

use super::{path, run};

#[test]
fn every_shell_gets_a_script_that_knows_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&format!("completions {shell}"));
        assert_eq!((script.status, &*script.err), (Some(0), ""), "{shell}");
        for word in ["bench", "--allow-remote", "completions"] {
            let word = if shell == "fish" { word.trim_start_matches("--") } else { word };
            assert!(script.out.contains(word), "{shell}: {word}");
        }
    }
    let unknown = run("completions tcsh");
    assert_eq!(unknown.status, Some(2));
    assert!(unknown.err.contains("[possible values: bash, elvish, fish, powershell, zsh]"));
}

#[test]
fn bash_completes_what_is_typed() {
    let script = run("completions bash").out;
    let typed = r#"
        COMP_WORDS=(sluicegate ref) COMP_CWORD=1
        "$(complete -p sluicegate | sed 's/.*-F \([^ ]*\).*/\1/')" sluicegate ref sluicegate
        echo "${COMPREPLY[@]}"
    "#;
    let mut bash = Command::new("bash")
        .args(["--norc", "-s"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("there is a bash");
    let mut input = bash.stdin.take().expect("it is piped");
    input.write_all(format!("{script}{typed}").as_bytes()).expect("it reads");
    drop(input);
    let said = bash.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8(said.stdout).unwrap(), "refund\n");
}

#[test]
fn there_is_a_page_for_every_command() {
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("man");
    let written = run(&format!("man {}", path(&pages)));
    assert_eq!((written.status, written.out.as_str()), (Some(0), ""));
    for page in ["sluicegate.1", "sluicegate-check.1", "sluicegate-policies-check.1"] {
        let page = std::fs::read_to_string(pages.join(page)).unwrap();
        assert!(page.contains(".TH sluicegate"), "{page}");
    }
    let no_directory = run(&format!("man {}/sluicegate.1", path(&pages)));
    assert_eq!(no_directory.status, Some(1));
    assert!(no_directory.err.starts_with("error: cannot write to "), "{}", no_directory.err);
}

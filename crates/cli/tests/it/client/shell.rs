//! `completions` and `man`.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use sluicegate::{Clock, MonotonicClock};

use super::{Server, path, run};

#[test]
fn every_shell_gets_a_script_that_asks_the_program() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&format!("completions {shell}"));
        assert_eq!((script.status, &*script.err), (Some(0), ""), "{shell}");
        assert!(script.out.contains("SLUICEGATE_COMPLETE"), "{shell}: {}", script.out);
        if shell == "zsh" {
            let is_of_fpath = script.out.starts_with("#compdef sluicegate\n");
            assert!(is_of_fpath && script.out.contains("$funcstack[1]"), "{}", script.out);
        }
    }
    let unknown = run("completions tcsh");
    assert_eq!(unknown.status, Some(2));
    assert!(unknown.err.contains("[possible values: bash, elvish, fish, powershell, zsh]"));
}

/// The candidates of bash for `typed`, whose last word is the one at the cursor, with these
/// variables.
fn completed(typed: &str, variables: &[(&str, &str)]) -> String {
    let script = run("completions bash").out;
    let ask = r#"
        COMP_WORDS=(@TYPED@) COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_TYPE=9
        _clap_complete_sluicegate sluicegate "${COMP_WORDS[-1]}" ""
        echo "${COMPREPLY[@]}"
    "#;
    let words = typed.split(' ').map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let folder = Path::new(env!("CARGO_BIN_EXE_sluicegate")).parent().expect("it is in a folder");
    let search = std::env::var("PATH").expect("it is set");
    let mut bash = Command::new("bash")
        .args(["--norc", "-s"])
        .env("PATH", format!("{}:{search}", folder.display()))
        .env("SLUICEGATE_ADMIN_URL", "unix:/nonexistent")
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("there is a bash");
    let mut input = bash.stdin.take().expect("it is piped");
    let text = format!("{script}{}", ask.replace("@TYPED@", &words));
    input.write_all(text.as_bytes()).expect("it reads");
    drop(input);
    let said = bash.wait_with_output().expect("it ends");
    assert!(said.status.success(), "{typed}");
    String::from_utf8(said.stdout).expect("it says text").trim().replace(['\u{b}', '\n'], " ")
}

#[test]
fn bash_completes_commands_and_flags() {
    assert_eq!(completed("sluicegate ref", &[]), "refund");
    assert_eq!(completed("sluicegate bench --allow-r", &[]), "--allow-remote");
}

#[test]
fn bash_completes_policies_of_the_server() {
    let server = Server::start();
    let admin = [("SLUICEGATE_ADMIN_URL", server.admin.as_str())];
    assert_eq!(completed("sluicegate check w", &admin), "wide watched");
    let keys = completed("sluicegate check login ", &admin);
    assert!(keys.contains("--cost") && !keys.contains("wide"), "a key is not a policy: {keys}");
    assert_eq!(completed("sluicegate bench --policy lo", &admin), "login");
}

#[test]
fn bash_completes_policies_of_the_file_where_no_server_answers() {
    let folder = tempfile::tempdir().expect("there is room for files");
    let config = folder.path().join("sluicegate.toml");
    let text = format!("[policies]\npath = '{}'\n", crate::program::EXAMPLES);
    std::fs::write(&config, text).expect("it can be written");
    let config = [("SLUICEGATE_CONFIG", path(&config))];
    assert_eq!(completed("sluicegate top lo", &config), "login");
    // A server that accepts and does not answer.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let silent = format!("http://{}", silent.local_addr().expect("it listens"));
    let begin = MonotonicClock.now();
    let hangs = [config[0], ("SLUICEGATE_ADMIN_URL", silent.as_str())];
    assert_eq!(completed("sluicegate top lo", &hangs), "login");
    assert!(MonotonicClock.now().get() - begin.get() < 5_000_000, "a shell waits 300 ms");
}

#[test]
fn bash_completes_no_name_that_it_would_run() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("it listens"));
    // Any user of the machine may listen at the address while the server does not.
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the program asks");
        let mut asked = [0; 1_024];
        let _ = stream.read(&mut asked).expect("it asks");
        let body = r#"{"policies":["go$(touch pwned)","good"]}"#;
        let length = body.len();
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}")
            .expect("it reads");
    });
    assert_eq!(completed("sluicegate top go", &[("SLUICEGATE_ADMIN_URL", &url)]), "good");
    answering.join().expect("it was asked once");
}

#[test]
fn bash_completes_nothing_and_reports_nothing_where_neither_answers() {
    assert_eq!(completed("sluicegate check lo", &[]), "");
    assert_eq!(completed("sluicegate check lo", &[("SLUICEGATE_CONFIG", "/nonexistent")]), "");
}

#[test]
fn names_are_a_thousand_at_most() {
    let names: Vec<_> = (0..1_001).map(|n| format!("{{ name: p{n}, rules: [{RULE}] }}")).collect();
    let server = Server::start_with(&format!("policies: [{}]", names.join(", ")), &[]);
    let found = completed("sluicegate check p", &[("SLUICEGATE_ADMIN_URL", &server.admin)]);
    assert_eq!(found.split(' ').count(), 1_000);
}

const RULE: &str = "{ token_bucket: { rate: 1/s } }";

#[test]
fn there_is_a_page_for_every_command() {
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("man");
    let written = run(&format!("man {}", path(&pages)));
    assert_eq!((written.status, written.out.as_str()), (Some(0), ""));
    for page in ["sluicegate.1", "sluicegate-check.1", "sluicegate-policies-check.1"] {
        let page = std::fs::read_to_string(pages.join(page)).unwrap();
        assert!(page.contains(".TH sluicegate"), "{page}");
        for section in ["EXAMPLES", "\"EXIT STATUS\"", "ENVIRONMENT", "FILES"] {
            assert!(page.contains(&format!("\n.SH {section}\n")), "{section}: {page}");
        }
        assert!(page.contains("\\fB78\\fR"), "{page}");
    }
    let no_directory = run(&format!("man {}/sluicegate.1", path(&pages)));
    assert_eq!(no_directory.status, Some(1));
    assert!(no_directory.err.starts_with("error: cannot write to "), "{}", no_directory.err);
}

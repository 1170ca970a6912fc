//! Commands for operators: status, the most refused keys, events, and explanations of refusals.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use super::*;

fn admin(server: &Server, command: &str) -> Ran {
    run(&format!("{command} --to {}", server.admin))
}

#[test]
fn a_server_shows_its_state_its_most_refused_keys_and_why() {
    let server = Server::start();
    let status = admin(&server, "status");
    assert_eq!(status.status, Some(0), "{status:?}");
    assert!(status.out.starts_with("ready\npolicies: 7 from "), "{status:?}");
    assert!(status.out.contains("\nstore: memory: ok\nkeys: "), "{status:?}");

    let none = admin(&server, "top login");
    assert_eq!(none.out, "login: no key was refused in the last five minutes\n", "{none:?}");
    for _ in 0..7 {
        server.ask("check login alice");
    }
    let top = admin(&server, "top login -n 3");
    assert!(top.out.trim_start().starts_with("2  #"), "keys are hashed: {top:?}");
    assert_eq!(top.err, "keys are hashed; `admin.keys = \"clear\"` shows them\n");
    let unknown = admin(&server, "top nope");
    assert!(unknown.status == Some(1) && unknown.err.contains("nope"), "{unknown:?}");

    let why = server.ask("explain login alice");
    assert_eq!(why.status, Some(1), "{why:?}");
    assert!(
        why.out.starts_with("would be refused: 0 of 5 left in \"tries\"; retry in "),
        "{why:?}"
    );
    assert!(
        why.out.contains("rules of the policy:\n  tries (sliding_log): 0 of 5 left; retry in "),
        "{why:?}"
    );
}

#[test]
fn events_are_printed_as_they_happen() {
    let server = Server::start();
    let mut watching = program();
    watching.args(["events", "--policy", "login", "--result", "refused", "--to", &server.admin]);
    let mut watching = watching.stdout(Stdio::piped()).spawn().expect("the program is built");
    let mut lines = BufReader::new(watching.stdout.take().expect("it is piped")).lines();
    // The stream has begun once an event comes: each further refusal is one.
    let asking = std::thread::spawn(move || {
        for _ in 0..200 {
            server.ask("check login bob");
        }
    });
    let line = lines.next().expect("an event").expect("text");
    assert!(line.starts_with('{') && line.contains(r#""result":"refused""#), "{line}");
    watching.kill().expect("it runs");
    watching.wait().expect("it was not waited for");
    drop(lines);
    asking.join().expect("it asks");
}

#[test]
fn a_new_directory_is_served_as_init_wrote_it() {
    let folder = tempfile::tempdir().expect("there is room for files");
    let run_in = |args: &[&str]| {
        let output = program().current_dir(folder.path()).args(args).output().expect("it runs");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        Ran { out: text(output.stdout), err: text(output.stderr), status: output.status.code() }
    };
    let made = run_in(&["init", "new"]);
    assert_eq!(
        made.out.lines().next_back(),
        Some("then: sluicegate check login alice   (six times: the sixth is refused)")
    );
    let again = run_in(&["init", "new"]);
    assert!(
        again.status == Some(1)
            && again.err.contains("sluicegate.toml exists; nothing was written"),
        "{again:?}"
    );

    let mut serving = program();
    serving.current_dir(folder.path().join("new")).arg("serve");
    for wire in ["HTTP", "RESP", "RLS", "ADMIN"] {
        serving.env(format!("SLUICEGATE__{wire}__LISTEN"), "localhost:0");
    }
    let process = Process::start(&mut serving, 4);
    let http = format!("http://{}", process.address("http"));
    let codes: Vec<_> =
        (0..6).map(|_| run(&format!("check login alice --to {http}")).status).collect();
    assert_eq!(codes, [Some(0), Some(0), Some(0), Some(0), Some(0), Some(1)]);
}

#[test]
fn a_variable_with_one_underscore_for_two_stops_the_start() {
    let check = |name: &str| {
        let output = program().args(["config", "check"]).env(name, "x").output().expect("it runs");
        (output.status.success(), String::from_utf8(output.stderr).expect("text"))
    };
    let (is_fine, told) = check("SLUICEGATE_HTTP_LISTEN");
    let expected =
        "SLUICEGATE_HTTP_LISTEN: unknown variable; did you mean `SLUICEGATE__HTTP__LISTEN`?";
    assert!(!is_fine && told.contains(expected), "{told}");
    // Kubernetes sets such variables for a service of this name.
    for other in [
        "SLUICEGATE_HTTP_SERVICE_HOST",
        "SLUICEGATE_HTTP_PORT",
        "SLUICEGATE_PORT_8080_TCP",
        "SLUICEGATE_URL",
    ] {
        assert_eq!(check(other), (true, String::new()), "{other}");
    }
}

#[test]
fn every_command_asks_the_server_of_the_variable() {
    let (http, admin) = ("unix:/nonexistent/http", "unix:/nonexistent/admin");
    let verbs = ["check login", "peek login", "explain login", "refund login", "reset login"];
    let http_commands = verbs.into_iter().chain(["bench --policy login"]);
    let admin_commands = ["health", "status", "top login", "events", "policies export --app shop"];
    let commands = http_commands.map(|command| (command, http));
    for (command, address) in commands.chain(admin_commands.map(|command| (command, admin))) {
        let mut program = sluicegate(command);
        program.env("SLUICEGATE_URL", http).env("SLUICEGATE_ADMIN_URL", admin);
        let ran = super::finish(program.env("SLUICEGATE_TOKEN", "sgt_0").output());
        assert!(ran.status != Some(0) && ran.err.contains(address), "{command}: {ran:?}");
    }
    let mut bench = sluicegate("bench --policy login");
    let wrong = super::finish(bench.env("SLUICEGATE_URL", "nowhere").output());
    assert!(wrong.err.starts_with("error: SLUICEGATE_URL: `nowhere`: no port: "), "{wrong:?}");
}

//! `redis-cli`, of the Redis project.

use std::fs;
use std::process::Command;

use sluicegate_testkit::need;

use super::{Server, folder, output, tool, write_secret};

/// The output of `redis-cli`: an element a line.
fn ask(cli: &mut Command, server: &Server, words: &[&str]) -> Vec<String> {
    let said = output(cli.args(["-p", &server.port()]).args(words));
    said.lines().map(ToOwned::to_owned).collect()
}

#[test]
fn five_logins_pass_and_the_sixth_is_refused_until_the_key_is_forgotten() {
    let server = Server::start();
    for left in (0..5).rev() {
        let said = ask(&mut need!(tool("redis-cli")), &server, &["SG.CHECK", "login", "alice"]);
        assert_eq!(said, ["1", "5", &left.to_string(), "0", "600000", "0", "tries", "store"]);
    }
    let said = ask(&mut need!(tool("redis-cli")), &server, &["SG.CHECK", "login", "alice"]);
    assert_eq!((&*said[0], &*said[2], &*said[6]), ("-1", "0", "tries"));
    assert!(said[3].parse::<u32>().unwrap() > 500_000, "{said:?}");
    let said = ask(&mut need!(tool("redis-cli")), &server, &["SG.RESET", "login", "alice"]);
    assert_eq!((&*said[0], &*said[2]), ("1", "5"));
}

#[test]
fn cl_throttle_passes_max_burst_and_one() {
    let server = Server::start();
    let throttle = ["CL.THROTTLE", "user123", "15", "30", "3600"];
    // A permit refills in two minutes, also while seventeen processes ask for one.
    let waits = |said: &str, most: u64| {
        assert!((most - 60..=most).contains(&said.parse().unwrap()), "{said} s of {most}");
    };
    for left in (0..16).rev() {
        let said = ask(&mut need!(tool("redis-cli")), &server, &throttle);
        assert_eq!((&*said[0], &*said[1], &*said[3]), ("0", "16", "-1"), "{said:?}");
        assert_eq!(said[2], left.to_string());
        waits(&said[4], (16 - left) * 120);
    }
    let said = ask(&mut need!(tool("redis-cli")), &server, &throttle);
    assert_eq!(said[..3], ["1", "16", "0"]);
    waits(&said[3], 120);
    waits(&said[4], 1_920);
}

#[test]
fn resp3_and_a_password_are_understood() {
    let folder = folder();
    let file = folder.join("password");
    write_secret(&file, "hunter2\n");
    let server = Server::start_with(&["--resp-password-file", file.to_str().unwrap()]);
    let check = ["SG.CHECK", "login", "alice"];
    let said = ask(&mut need!(tool("redis-cli")), &server, &check);
    assert_eq!(said[0], "NOAUTH Authentication required.");
    let with = |protocol: &str, words: &[&str]| {
        let options = [protocol, "--no-auth-warning", "-a", "hunter2"];
        tool("redis-cli").map(|mut cli| ask(&mut cli, &server, &[&options[..], words].concat()))
    };
    assert_eq!(need!(with("-2", &check))[..3], ["1", "5", "4"]);
    assert_eq!(need!(with("-3", &check))[..3], ["1", "5", "3"]);
    let hello = need!(with("-3", &["HELLO", "3"]));
    assert!(hello.contains(&"proto 3".to_owned()), "{hello:?}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn errors_are_printed_as_errors() {
    let server = Server::start();
    let words = ["-e", "SG.CHECK", "login", "alice", "COST", "0"];
    let output = need!(tool("redis-cli")).args(["-p", &server.port()]).args(words).output();
    let output = output.unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(said.contains("NOTCHARGED cost: `0` is outside 1..=2147483648"), "{said}");
}

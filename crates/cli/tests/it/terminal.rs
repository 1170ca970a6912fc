//! The program on a terminal, as people use it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// Runs the program on a terminal of its own, and types `typed` at each prompt. Returns the text that the terminal
/// shows, and standard error.
pub(crate) fn on_terminal(mut command: Command, typed: &[&str]) -> (String, String) {
    let terminal =
        openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("it works on this terminal");
    grantpt(&terminal).expect("it works on this terminal");
    unlockpt(&terminal).expect("it works on this terminal");
    let name = ptsname(&terminal, Vec::new()).expect("it works on this terminal");
    let slave = File::options()
        .read(true)
        .write(true)
        .open(name.to_str().expect("it works on this terminal"))
        .expect("it works on this terminal");
    let output = slave.try_clone().expect("it works on this terminal");
    command.stdin(slave).stdout(output).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it works on this terminal");
    drop(command);
    let mut errors = BufReader::new(child.stderr.take().expect("it works on this terminal"));
    let (mut terminal, mut said) = (File::from(terminal), Vec::new());
    for line in typed {
        // A prompt ends in a space after a colon or a bracket.
        while !said.ends_with(b": ") && !said.ends_with(b"] ") {
            let mut byte = [0];
            errors.read_exact(&mut byte).expect("it works on this terminal");
            said.extend(byte);
        }
        said.extend(b"|");
        writeln!(terminal, "{line}").expect("it works on this terminal");
    }
    errors.read_to_end(&mut said).expect("it works on this terminal");
    child.wait().expect("it works on this terminal");
    let mut shown = String::new();
    // Reads lines until the terminal has no more, which is an error here.
    let mut lines = BufReader::new(terminal);
    while let Ok(1..) = lines.read_line(&mut shown) {}
    (shown, String::from_utf8(said).expect("it works on this terminal"))
}

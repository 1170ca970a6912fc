//! `oracle`: the kernel's answers to vectors of another program, a line for each.
//!
//! An implementation in another language draws histories at random, sends them here, and compares the answers.
//! A line of input is a vector as in `spec/vectors`, on one line; `name`, `about` and every `expect` may
//! be left out. A line of output is `{"answers":[..]}`, one for each step (null for a `configure`), or
//! `{"error":".."}`.

use std::io::{BufRead, Read, Write};

use anyhow::Result;
use sluicegate_conformance::answers_of;

/// Longest line that is read: some ten thousand steps.
const LINE_BYTES_MAX: usize = 4 << 20;

/// Answers each line of `input`.
///
/// # Errors
/// If a line is too long, or cannot be read or written.
pub fn run(mut input: impl BufRead, mut output: impl Write) -> Result<String> {
    let (mut line, mut count) = (String::new(), 0_usize);
    loop {
        line.clear();
        let limit = u64::try_from(LINE_BYTES_MAX)?;
        if Read::take(&mut input, limit).read_line(&mut line)? == 0 {
            return Ok(String::new());
        }
        anyhow::ensure!(line.len() < LINE_BYTES_MAX, "line {}: too long", count + 1);
        writeln!(output, "{}", answers_of(&line))?;
        output.flush()?;
        count += 1;
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_line_has_an_answer_and_what_makes_no_sense_an_error() {
        let rules =
            r#"[{"name":"r","algorithm":"sliding_log","params":{"limit":1,"window_us":5}}]"#;
        let steps = r#"[{"at_us":0,"op":"check"},{"at_us":1,"op":"check"}]"#;
        let input = format!("{{\"rules\":{rules},\"steps\":{steps}}}\n{{}}\nnothing\n");
        let mut output = Vec::new();
        super::run(input.as_bytes(), &mut output).unwrap();
        let output = String::from_utf8(output).unwrap();
        let lines: Vec<_> = output.lines().collect();
        assert!(lines[0].starts_with(r#"{"answers":[{"allowed":true,"#), "{output}");
        assert!(lines[0].contains(r#""retry_after_us":4"#), "{output}");
        assert!(lines[1..].iter().all(|line| line.starts_with(r#"{"error":""#)), "{output}");
    }
}

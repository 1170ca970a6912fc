//! The decisions, one line of JSON each, in the order of the input.
//!
//! ```json
//! {"at_us":0,"policy":"p","key":"k","op":"check","allowed":true,"granted":1,"wait_us":0,"limit":5,
//!  "remaining":4,"retry_after_us":0,"reset_after_us":200000,"rule":"burst"}
//! ```
//!
//! (on one line). `key` is `null` for the budget that all share, `retry_after_us` where the cost can
//! never pass. All spans count from `at_us`. `acquire`, `release` and `renew` end with `"id"`;
//! `configure` is `{"at_us":..,"policy":..,"op":"configure","allowed":true}`; an event that was not
//! decided is `{"at_us":..,"line":..,"error":".."}`.
//!
//! A reservation may be decided long after events that came behind it. Its line keeps its place, and
//! the lines behind it are held back until it is written.

use std::collections::VecDeque;
use std::io::{self, Write};

use sluicegate::{Decision, Micros};

use super::op::OpName;

/// Bytes that are written at a time: large enough that system calls do not slow the replay.
const BUFFER_BYTES: usize = 64 * 1024;

/// Most lines that are held back, about 13 MB of ordinary ones. A request that would hold back more is given up.
pub(crate) const HELD_LINES_MAX: usize = 65_536;

/// The writer of decision lines.
pub(crate) struct DecisionWriter {
    sink: Option<Box<dyn Write>>,
    buffer: Vec<u8>,
    /// Lines from the first one that is not decided yet, which is `None`.
    held: VecDeque<Option<Vec<u8>>>,
    /// The place of `held[0]` among all lines that were ever held.
    first: u64,
    /// The error of a write; nothing is written after it.
    failure: Option<io::Error>,
}

/// The place of a line that will be written later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OutputSlot(u64);

/// The content of a decision line.
pub(crate) struct DecisionLine<'a> {
    pub(crate) at: Micros,
    pub(crate) policy: &'a str,
    pub(crate) key: Option<&'a str>,
    pub(crate) op: OpName,
    /// Time from `at` until an allowed request passes.
    pub(crate) wait: Micros,
    /// Time from `at` to the decision: other than zero only if it was tried again.
    pub(crate) delay: Micros,
    pub(crate) decision: &'a Decision,
    pub(crate) rule: &'a str,
    pub(crate) id: Option<&'a str>,
    /// The verdict of the gateway on a line of a log, and the other policies that let the request pass.
    pub(crate) verdict: Option<(&'static str, &'a [&'a str])>,
}

impl DecisionWriter {
    /// Returns a writer to `sink`; without one nothing is written.
    pub(crate) fn new(sink: Option<Box<dyn Write>>) -> Self {
        Self { sink, buffer: Vec::new(), held: VecDeque::new(), first: 0, failure: None }
    }

    /// Writes the next line.
    pub(crate) fn put(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if !self.held.is_empty() {
            let line = self.line(write);
            self.held.push_back(Some(line));
        } else if self.sink.is_some() {
            write(&mut self.buffer);
            self.flush_if_full();
        }
    }

    /// Leaves a place for a line that comes later.
    pub(crate) fn hold(&mut self) -> OutputSlot {
        self.held.push_back(None);
        OutputSlot(self.first + self.held.len() as u64 - 1)
    }

    /// Writes the line for which `place` was left.
    pub(crate) fn fill(&mut self, place: OutputSlot, write: impl FnOnce(&mut Vec<u8>)) {
        let line = self.line(write);
        let place = usize::try_from(place.0 - self.first).expect("a place within what is held");
        self.held[place] = Some(line);
        while let Some(Some(line)) = self.held.pop_front_if(|line| line.is_some()) {
            self.buffer.extend_from_slice(&line);
            self.first += 1;
        }
        self.flush_if_full();
    }

    /// Returns the place that holds back so many lines that it must be given up.
    pub(crate) fn overdue(&self) -> Option<OutputSlot> {
        (self.held.len() > HELD_LINES_MAX).then_some(OutputSlot(self.first))
    }

    /// Returns whether a line could not be written.
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Writes the rest.
    ///
    /// # Errors
    /// Those of writing, also earlier ones.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.flush();
        match (self.failure.take(), &mut self.sink) {
            (Some(failure), _) => Err(failure),
            (None, Some(sink)) => sink.flush(),
            (None, None) => Ok(()),
        }
    }

    fn line(&self, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut line = Vec::new();
        if self.sink.is_some() {
            write(&mut line);
        }
        line
    }

    fn flush_if_full(&mut self) {
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if let (Some(sink), None) = (&mut self.sink, &self.failure) {
            self.failure = sink.write_all(&self.buffer).err();
        }
        self.buffer.clear();
    }
}

impl DecisionLine<'_> {
    /// Appends the line to `out`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let Self { at, policy, key, op, wait, delay, decision, rule, id, verdict } = self;
        let Decision { outcome: _, limit, remaining, reset_after } = decision;
        number(out, b"{\"at_us\":", at.get());
        text(out, b",\"policy\":", policy);
        match key {
            Some(key) => text(out, b",\"key\":", key),
            None => out.extend_from_slice(b",\"key\":null"),
        }
        out.extend_from_slice(b",\"op\":\"");
        out.extend_from_slice(op.name().as_bytes());
        let allowed = decision.allowed();
        out.extend_from_slice(if allowed {
            b"\",\"allowed\":true"
        } else {
            b"\",\"allowed\":false"
        });
        number(out, b",\"granted\":", decision.granted());
        let wait = if allowed { *wait } else { Micros::ZERO };
        number(out, b",\"wait_us\":", wait.get());
        number(out, b",\"limit\":", *limit);
        number(out, b",\"remaining\":", *remaining);
        match decision.retry_after() {
            Some(Micros::ZERO) if allowed => out.extend_from_slice(b",\"retry_after_us\":0"),
            Some(retry) => number(out, b",\"retry_after_us\":", retry.plus(*delay).get()),
            None => out.extend_from_slice(b",\"retry_after_us\":null"),
        }
        number(out, b",\"reset_after_us\":", reset_after.plus(*delay).get());
        text(out, b",\"rule\":", rule);
        if let Some(id) = id {
            text(out, b",\"id\":", id);
        }
        if let Some((verdict, others)) = verdict {
            text(out, b",\"verdict\":", verdict);
            if !others.is_empty() {
                out.extend_from_slice(b",\"also\":");
                serde_json::to_writer(&mut *out, others).expect("a vector takes everything");
            }
        }
        out.extend_from_slice(b"}\n");
    }
}

/// Appends the line of a `configure` that succeeded.
pub(crate) fn write_configured(out: &mut Vec<u8>, at: Micros, policy: &str) {
    number(out, b"{\"at_us\":", at.get());
    text(out, b",\"policy\":", policy);
    out.extend_from_slice(b",\"op\":\"configure\",\"allowed\":true}\n");
}

/// Appends the line of an event that was not decided.
pub(crate) fn write_error(out: &mut Vec<u8>, at: Option<Micros>, line: u64, error: &str) {
    match at {
        Some(at) => number(out, b"{\"at_us\":", at.get()),
        None => out.extend_from_slice(b"{\"at_us\":null"),
    }
    number(out, b",\"line\":", line);
    text(out, b",\"error\":", error);
    out.extend_from_slice(b"}\n");
}

fn number(out: &mut Vec<u8>, name: &[u8], number: u64) {
    out.extend_from_slice(name);
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn text(out: &mut Vec<u8>, name: &[u8], text: &str) {
    out.extend_from_slice(name);
    if text.bytes().any(|byte| byte < b' ' || matches!(byte, b'"' | b'\\')) {
        serde_json::to_writer(out, text).expect("a vector takes everything");
        return;
    }
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Rc<RefCell<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn letter(letter: u8) -> impl FnOnce(&mut Vec<u8>) {
        move |out| out.push(letter)
    }

    #[test]
    fn lines_come_in_the_order_of_the_input_whenever_they_are_decided() {
        let written = Written::default();
        let mut output = DecisionWriter::new(Some(Box::new(written.clone())));
        output.put(letter(b'a'));
        let second = output.hold();
        output.put(letter(b'c'));
        let fourth = output.hold();
        output.put(letter(b'e'));
        output.fill(fourth, letter(b'd'));
        output.fill(second, letter(b'b'));
        output.put(letter(b'f'));
        let last = output.hold();
        output.fill(last, letter(b'g'));
        output.finish().unwrap();
        assert_eq!(*written.0.borrow(), b"abcdefg");
    }

    #[test]
    fn whoever_holds_too_many_lines_back_is_named() {
        let mut output = DecisionWriter::new(None);
        let place = output.hold();
        for _ in 1..HELD_LINES_MAX {
            output.put(letter(b'x'));
        }
        assert_eq!(output.overdue(), None);
        output.put(letter(b'x'));
        assert_eq!(output.overdue(), Some(place));
        output.fill(place, letter(b'x'));
        assert_eq!(output.overdue(), None);
    }

    #[test]
    fn any_text_comes_out_as_json() {
        for given in ["plain", "q\"\\\n\u{1}", "ü\u{2028}", ""] {
            let mut line = Vec::new();
            write_error(&mut line, None, 3, given);
            let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
            assert_eq!(value["error"], given);
            assert_eq!(value["line"], 3);
            assert!(value["at_us"].is_null());
        }
    }
}

//! The `events` format: decisions of a server, as `/v1/events` streams them and `sluicegate events` prints them.
//!
//! ```json
//! {"at_us":0,"wire":"http","policy":"p","verb":"check","cost":1,"waits":"policy","result":"allowed","key":"k","weight":1}
//! ```
//!
//! Each event is decided again as the server was asked: by its verb, cost, permit and patience, at its instant. A
//! request that was delayed is streamed when it passes, so events are put in the order of their instants. Decisions
//! that the stream left out (`weight`, `event: lag`) are counted, since a replay without them lets more pass than the
//! server did.

use std::borrow::Cow;

use serde::Deserialize;
use sluicegate::{Cost, Micros, Patience, PermitId, Verb};
use sluicegate_kernel::limits::SPAN_MAX_US;
use sluicegate_kernel::param::within;
use sluicegate_text::terminal::one_line;

use super::error::EventError;
use super::op::OpName;
use super::reorder::Reorder;
use super::request::StreamedRequest;
use super::session::ReplaySession;

/// Events on their way to the session.
pub(crate) struct Streamed {
    reorder: Reorder<(u64, StreamedRequest)>,
    /// The chosen policy; events of others are not decided. `None`: all are.
    policy: Option<String>,
    /// Keys are hashes; `None` before the first key.
    are_hashed: Option<bool>,
}

/// The fields of an event that are read; others are for people.
#[derive(Debug, Deserialize)]
struct EventFields<'a> {
    at_us: Option<u64>,
    #[serde(borrow)]
    policy: Option<Cow<'a, str>>,
    #[serde(borrow)]
    key: Option<Cow<'a, str>>,
    #[serde(default)]
    key_is_cut: bool,
    #[serde(borrow)]
    verb: Option<Cow<'a, str>>,
    cost: Option<u64>,
    max_wait_us: Option<u64>,
    #[serde(borrow)]
    permit: Option<Cow<'a, str>>,
    #[serde(borrow)]
    waits: Option<Cow<'a, str>>,
    hold_max_us: Option<u64>,
    #[serde(borrow)]
    result: Option<Cow<'a, str>>,
    weight: Option<u64>,
    /// The data of `event: lag`.
    missed: Option<u64>,
}

/// The content of a line.
#[derive(Debug)]
enum StreamedLine {
    Request(Micros, StreamedRequest),
    Nothing,
}

impl Streamed {
    /// Returns a reader of events of `policy`, or of all, that are up to `window` out of order.
    pub(crate) fn new(policy: Option<String>, window: Micros) -> Self {
        Self { reorder: Reorder::new(window), policy, are_hashed: None }
    }

    /// Takes one line of the stream; it and others are decided when their time has come.
    pub(crate) fn line(&mut self, line: u64, bytes: &[u8], session: &mut ReplaySession) {
        let mut unseen = 0;
        let read = self.read(bytes, &mut unseen);
        session.tally.unseen = session.tally.unseen.saturating_add(unseen);
        match read {
            Ok(StreamedLine::Nothing) => return,
            Ok(StreamedLine::Request(_, request)) if self.is_other(&request) => {
                if session.policies().resolve(&request.policy).is_some() {
                    session.tally.left_undecided(&request.policy);
                }
                return;
            }
            Ok(StreamedLine::Request(at, request)) => self.reorder.push(at, (line, request)),
            Err(error) => return session.failed(line, None, &error),
        }
        while let Some((at, (line, request))) = self.reorder.pop_due() {
            session.streamed_request(line, at, request);
        }
    }

    /// Decides the events that still wait for their turn, at the end of the stream.
    pub(crate) fn finish(&mut self, session: &mut ReplaySession) {
        while let Some((at, (line, request))) = self.reorder.pop() {
            session.streamed_request(line, at, request);
        }
        session.tally.late = self.reorder.late();
    }

    fn is_other(&self, request: &StreamedRequest) -> bool {
        self.policy.as_ref().is_some_and(|policy| *policy != request.policy)
    }

    /// Parses `bytes`; `unseen` grows by the number of other decisions that the line represents.
    fn read(&mut self, bytes: &[u8], unseen: &mut u64) -> Result<StreamedLine, EventError> {
        let text =
            std::str::from_utf8(bytes).map_err(|error| EventError::Utf8(error.valid_up_to()))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if text.starts_with(':') || text.starts_with("event:") {
            return Ok(StreamedLine::Nothing);
        }
        let json = text.strip_prefix("data:").unwrap_or(text);
        let fields: EventFields<'_> = serde_json::from_str(json)
            .map_err(|error| EventError::NotAnEvent(error.to_string()))?;
        if let Some(missed) = fields.missed {
            *unseen = unseen.saturating_add(missed);
            return Ok(StreamedLine::Nothing);
        }
        let weight = fields.weight.ok_or(EventError::Absent("weight"))?;
        *unseen = unseen.saturating_add(weight.saturating_sub(1));
        let at = within("at_us", fields.at_us.ok_or(EventError::Absent("at_us"))?, 0, SPAN_MAX_US)?;
        if fields.key_is_cut {
            return Err(EventError::KeyIsCut);
        }
        if let Some(key) = &fields.key {
            let is_hashed = is_hash(key);
            if *self.are_hashed.get_or_insert(is_hashed) != is_hashed {
                return Err(EventError::MixedKeys);
            }
        }
        Ok(StreamedLine::Request(Micros::new(at), fields.request()?))
    }
}

impl EventFields<'_> {
    fn request(self) -> Result<StreamedRequest, EventError> {
        let verb = self.verb.ok_or(EventError::Absent("verb"))?;
        let op = OpName::named(&verb).ok_or_else(|| EventError::UnknownOp(one_line(&verb)))?;
        let cost = || Ok::<_, EventError>(Cost::new(self.cost.ok_or(EventError::Absent("cost"))?)?);
        let permit = || {
            let text = self.permit.as_deref().ok_or(EventError::Absent("permit"))?;
            let id = u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32);
            id.map(PermitId).ok_or_else(|| EventError::Permit(one_line(text)))
        };
        let verb = match op {
            OpName::Check => Verb::Check { cost: cost()? },
            OpName::Peek => Verb::Peek { cost: cost()? },
            OpName::Refund => Verb::Refund { cost: cost()? },
            OpName::Reset => Verb::Reset,
            OpName::Reserve => {
                let max_wait = self.max_wait_us.ok_or(EventError::Absent("max_wait_us"))?;
                let max_wait = within("max_wait_us", max_wait, 0, SPAN_MAX_US)?;
                Verb::Reserve { cost: cost()?, max_wait: Micros::new(max_wait) }
            }
            OpName::AtMost => Verb::AtMost { cost: cost()? },
            OpName::Acquire => Verb::Acquire { cost: cost()?, permit: permit()? },
            OpName::Release => Verb::Release { permit: permit()? },
            OpName::Renew => Verb::Renew { permit: permit()? },
            OpName::Configure => return Err(EventError::UnknownOp(verb.into_owned())),
        };
        let patience = match self.waits.as_deref() {
            None => Patience::None,
            Some("policy") => Patience::Policy,
            Some("gateway") => {
                let hold_max = self.hold_max_us.ok_or(EventError::Absent("hold_max_us"))?;
                let hold_max = within("hold_max_us", hold_max, 0, SPAN_MAX_US)?;
                Patience::Gateway(Micros::new(hold_max))
            }
            Some("permit") => {
                let max_wait = self.hold_max_us.ok_or(EventError::Absent("hold_max_us"))?;
                Patience::Permit(Micros::new(within("hold_max_us", max_wait, 0, SPAN_MAX_US)?))
            }
            Some(other) => return Err(EventError::Waits(one_line(other))),
        };
        let passed = match self.result.as_deref().ok_or(EventError::Absent("result"))? {
            "error" => None,
            result => Some(matches!(result, "allowed" | "held" | "shadowed")),
        };
        Ok(StreamedRequest {
            policy: self.policy.ok_or(EventError::Absent("policy"))?.into_owned(),
            key: self.key.map(Cow::into_owned),
            op,
            verb,
            patience,
            permit: self.permit.map(Cow::into_owned),
            passed,
        })
    }
}

/// Returns whether `line` is one of a stream of events: framed, or an object with the field `wire`.
pub(crate) fn is_streamed(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Wire<'a> {
        #[serde(borrow, rename = "wire")]
        _wire: Cow<'a, str>,
    }
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    line.starts_with(b"data: {")
        || line.starts_with(b"event: ")
        || serde_json::from_slice::<Wire<'_>>(line).is_ok()
}

/// Returns whether `key` is a hash as servers write it: `#` and 16 hexadecimal digits.
fn is_hash(key: &str) -> bool {
    let digits = key.strip_prefix('#').unwrap_or_default();
    digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: &str = r#"{"at_us":7,"wire":"http","policy":"p","verb":"check","cost":1,"result":"allowed","mode":"store","key":"k","weight":1}"#;

    fn read(line: &str) -> Result<StreamedLine, String> {
        let mut streamed = Streamed::new(None, Micros::ZERO);
        streamed.read(line.as_bytes(), &mut 0).map_err(|error| error.to_string())
    }

    #[test]
    fn an_event_is_asked_as_it_was_asked_with_or_without_the_frame_of_the_stream() {
        for line in [EVENT.to_owned(), format!("data: {EVENT}"), format!("\u{feff}{EVENT}")] {
            let Ok(StreamedLine::Request(at, request)) = read(&line) else { panic!("{line}") };
            assert_eq!((at.get(), request.verb), (7, Verb::Check { cost: Cost::ONE }));
            assert_eq!((request.patience, request.passed), (Patience::None, Some(true)));
        }
        let gateway = EVENT.replace(r#""cost":1"#, r#""cost":1,"waits":"gateway","hold_max_us":5"#);
        let Ok(StreamedLine::Request(_, request)) = read(&gateway) else { panic!("{gateway}") };
        assert_eq!(request.patience, Patience::Gateway(Micros::new(5)));
        for line in [": nothing", "event: lag"] {
            assert!(matches!(read(line), Ok(StreamedLine::Nothing)), "{line}");
        }
    }

    #[test]
    fn what_the_stream_left_out_is_counted() {
        let mut streamed = Streamed::new(None, Micros::ZERO);
        let mut unseen = 0;
        for line in
            [EVENT.replace(r#""weight":1"#, r#""weight":8"#), r#"data: {"missed":3}"#.into()]
        {
            streamed.read(line.as_bytes(), &mut unseen).expect("both are right");
        }
        assert_eq!(unseen, 7 + 3);
    }

    #[test]
    fn hashed_and_clear_keys_do_not_go_together() {
        let hashed = EVENT.replace(r#""key":"k""#, r##""key":"#0123456789abcdef""##);
        let shared = EVENT.replace(r#""key":"k""#, r#""key":null"#);
        for lines in [[EVENT, &hashed], [&hashed, EVENT]] {
            let mut streamed = Streamed::new(None, Micros::ZERO);
            let mut read = |line: &str| streamed.read(line.as_bytes(), &mut 0);
            read(&shared).and_then(|_| read(lines[0])).expect("one kind");
            assert!(matches!(read(lines[1]), Err(EventError::MixedKeys)));
        }
    }

    #[test]
    fn what_is_missing_or_outside_its_range_is_named() {
        for (from, to, expected) in [
            (r#""cost":1,"#, "", "cost: is missing"),
            (r#""cost":1"#, r#""cost":0"#, "cost: `0` is outside 1..=2147483648"),
            (r#""verb":"check""#, r#""verb":"configure""#, "op: unknown op `configure`"),
            (r#""verb":"check""#, r#""verb":"release","permit":"x""#, "permit: `x` is not"),
            (r#""verb":"check""#, r#""verb":"reserve""#, "max_wait_us: is missing"),
            (r#""at_us":7,"#, "", "at_us: is missing"),
            (r#""weight":1"#, r#""weight":1,"waits":"long""#, "waits: `long` is not"),
            (r#""weight":1"#, r#""weight":1,"key_is_cut":true"#, "key: is not whole"),
            (r#","weight":1"#, "", "weight: is missing"),
        ] {
            let error = read(&EVENT.replace(from, to)).expect_err(to);
            assert!(error.starts_with(expected), "{error}");
        }
        assert!(read("{").expect_err("no JSON").starts_with("the line is no event"));
    }
}

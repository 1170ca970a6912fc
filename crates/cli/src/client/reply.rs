//! A server's answer as a line for people.

use std::fmt::Write;

use anstyle::AnsiColor;
use axum::http::StatusCode;
use serde::Deserialize;
use sluicegate::Micros;
use sluicegate_text::human;
use sluicegate_text::terminal;

use super::http::HttpAnswer;

/// Most characters of an error of a server that are repeated.
const PROBLEM_CHARS_MAX: usize = 500;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientVerb {
    Check,
    Peek,
    Explain,
    Refund,
    Settle,
    Acquire,
    Renew,
    Release,
    Reset,
}

/// A decision. Fields of newer servers are only in `--output json`.
#[derive(Debug, Deserialize)]
struct DecisionReply {
    allowed: bool,
    granted: u64,
    wait_us: u64,
    limit: u64,
    remaining: u64,
    retry_after_us: Option<u64>,
    reset_after_us: u64,
    rule: String,
    mode: Option<String>,
    #[serde(default)]
    held_us: u64,
    overflow: Option<String>,
    target: Option<String>,
    tag: Option<String>,
    response: Option<Response>,
    /// The identifier of a permit.
    id: Option<String>,
}

/// The result of a settlement.
#[derive(Debug, Deserialize)]
struct SettlementReply {
    refunded: u64,
    taken: u64,
    missing: u64,
    decision: DecisionReply,
}

/// The answer of `explain`: what each rule of a policy says to a check of a key.
#[derive(Debug, Deserialize)]
struct ExplainReply {
    decision: DecisionReply,
    rules_of: String,
    #[serde(default)]
    rules: Option<Vec<ExplainedRule>>,
    leases: Option<ExplainedLeases>,
    endurance: Option<ExplainedEndurance>,
}

/// Endurance of a full budget under a steady load.
#[derive(Debug, Deserialize)]
struct ExplainedEndurance {
    at: String,
    admitted: u64,
    lasts_us: u64,
    delay_us: u64,
    over: Option<ExplainedOver>,
}

/// The first refusal of a steady load.
#[derive(Debug, Deserialize)]
struct ExplainedOver {
    rule: String,
    full_after_us: u64,
}

/// The leases of permits of the key.
#[derive(Debug, Deserialize)]
struct ExplainedLeases {
    status: String,
    out: Option<u64>,
    holders: Option<u64>,
    left: Option<u64>,
    ends_in_us: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct ExplainedRule {
    name: String,
    algorithm: String,
    limit: u64,
    /// `None` while the store does not answer.
    left: Option<RuleLeft>,
}

#[derive(Debug, Deserialize)]
struct RuleLeft {
    allowed: bool,
    remaining: u64,
    retry_after_us: Option<u64>,
}

impl ExplainReply {
    /// A line for the decision, and one for each rule.
    fn lines(&self) -> String {
        let mut lines = self.decision.line(ClientVerb::Peek);
        add(&mut lines, format_args!("\nrules of the {}:", terminal::one_line(&self.rules_of)));
        for ExplainedRule { name, algorithm, limit, left } in self.rules.iter().flatten() {
            let [name, algorithm] = [name, algorithm].map(|text| terminal::one_line(text));
            let Some(RuleLeft { allowed, remaining, retry_after_us }) = left else {
                add(&mut lines, format_args!("\n  {name} ({algorithm}): limit {limit}"));
                continue;
            };
            add(&mut lines, format_args!("\n  {name} ({algorithm}): {remaining} of {limit} left"));
            match retry_after_us {
                _ if *allowed => {}
                Some(us) => add(&mut lines, format_args!("; retry in {}", later(*us))),
                None => lines += "; this cost can never pass",
            }
        }
        if let Some(leases) = &self.leases {
            leases.add_to(&mut lines);
        }
        if let Some(endurance) = &self.endurance {
            endurance.add_to(&mut lines);
        }
        lines
    }
}

impl ExplainedEndurance {
    fn add_to(&self, lines: &mut String) {
        let Self { at, admitted, lasts_us, delay_us, over } = self;
        let (at, lasts) = (terminal::one_line(at), later(*lasts_us));
        add(lines, format_args!("\nat {at}, from a full budget: {admitted} permits in {lasts}"));
        if *delay_us > 0 {
            add(lines, format_args!(", the last one delayed by {}", later(*delay_us)));
        }
        match over {
            Some(ExplainedOver { rule, full_after_us }) => {
                let (rule, full) = (terminal::one_line(rule), later(*full_after_us));
                add(lines, format_args!(", then refused by {rule}; full again after {full}"));
            }
            None => *lines += ", none refused",
        }
    }
}

impl ExplainedLeases {
    fn add_to(&self, lines: &mut String) {
        let Self { status, out, holders, left, ends_in_us } = self;
        add(lines, format_args!("\nleases: {}", terminal::one_line(status)));
        if let (Some(out), Some(holders)) = (out, holders) {
            let servers = if *holders == 1 { "server" } else { "servers" };
            add(lines, format_args!("; {out} permits held by {holders} {servers}"));
        }
        if let (Some(left), Some(us)) = (left, ends_in_us) {
            add(
                lines,
                format_args!(
                    ", {left} of them left here; they end in {} unless they are renewed",
                    later(*us)
                ),
            );
        }
    }
}

/// The response that a policy serves instead.
#[derive(Debug, Deserialize)]
struct Response {
    status: u16,
}

/// A problem document, whose title is that of the status.
#[derive(Deserialize)]
struct ProblemDetail {
    detail: String,
}

impl ClientVerb {
    /// The path of the request.
    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::Check => "/v1/check",
            Self::Peek => "/v1/peek",
            Self::Explain => "/v1/explain",
            Self::Refund => "/v1/refund",
            Self::Settle => "/v1/settle",
            Self::Acquire => "/v1/acquire",
            Self::Renew => "/v1/renew",
            Self::Release => "/v1/release",
            Self::Reset => "/v1/reset",
        }
    }

    /// Returns whether its requests pass or are refused.
    pub(super) const fn decides(self) -> bool {
        matches!(self, Self::Check | Self::Peek | Self::Explain | Self::Acquire | Self::Renew)
    }
}

/// The outcome of the request of `verb`: true if it passes or is done, and the lines to print. A settlement gives
/// `excess` permits back: those that were charged and not used.
///
/// # Errors
/// If `body` is not an answer to it.
pub(super) fn read(
    verb: ClientVerb,
    body: &[u8],
    excess: u64,
) -> serde_json::Result<(bool, String)> {
    Ok(match verb {
        ClientVerb::Explain => {
            let explained: ExplainReply = serde_json::from_slice(body)?;
            (explained.decision.allowed, explained.lines())
        }
        ClientVerb::Settle => {
            let settled: SettlementReply = serde_json::from_slice(body)?;
            (true, settled.line(excess))
        }
        ClientVerb::Refund | ClientVerb::Reset => {
            (true, serde_json::from_slice::<DecisionReply>(body)?.line(verb))
        }
        _ => {
            let answered: DecisionReply = serde_json::from_slice(body)?;
            (answered.allowed, answered.line(verb))
        }
    })
}

impl SettlementReply {
    /// `settled: 360 given back: 640 of 1000 left in "tokens"`.
    fn line(&self, excess: u64) -> String {
        let Self { refunded, taken, missing, decision } = self;
        let mut line = match (*refunded, *taken, *missing) {
            (0, 0, 0) if excess == 0 => "settled, nothing to correct".to_owned(),
            (refunded, 0, 0) if refunded < excess => {
                format!(
                    "settled, gave back {refunded} of {excess} (the budget holds no more of this charge)"
                )
            }
            (0, taken, _) => format!("settled, took {taken} more"),
            (refunded, ..) => format!("settled, gave back {refunded}"),
        };
        if *missing > 0 {
            add(&mut line, format_args!(" ({missing} missing, not charged)"));
        }
        decision.add_left(&mut line);
        line
    }
}

impl DecisionReply {
    /// `allowed: 4 of 5 left in "tries", full again in 10 min`.
    fn line(&self, verb: ClientVerb) -> String {
        let mut line = match verb {
            ClientVerb::Refund => format!("gave back {}", self.granted),
            ClientVerb::Reset => "reset".to_owned(),
            ClientVerb::Settle => "settled".to_owned(),
            // In shadow mode, no permit is held.
            ClientVerb::Acquire if self.allowed && self.is_shadowed() => {
                "allowed, takes no permit".to_owned()
            }
            ClientVerb::Renew | ClientVerb::Release if self.allowed && self.is_shadowed() => {
                format!("{} was not held", self.permit())
            }
            ClientVerb::Acquire if self.allowed => format!("holds {}", self.permit()),
            ClientVerb::Acquire => "refused".to_owned(),
            ClientVerb::Renew if self.allowed => format!("renewed {}", self.permit()),
            ClientVerb::Release if self.allowed => format!("released {}", self.permit()),
            // No wait brings a permit back.
            ClientVerb::Renew | ClientVerb::Release => {
                let mut line = format!("{} is not held", self.permit());
                self.add_left(&mut line);
                return line;
            }
            ClientVerb::Check if self.allowed => "allowed".to_owned(),
            ClientVerb::Check => "refused".to_owned(),
            ClientVerb::Peek | ClientVerb::Explain if self.allowed => "would be allowed".to_owned(),
            ClientVerb::Peek | ClientVerb::Explain => "would be refused".to_owned(),
        };
        if self.wait_us > 0 {
            add(&mut line, format_args!(" after {}", later(self.wait_us)));
        }
        if self.held_us > 0 {
            add(&mut line, format_args!(", delayed by {}", human::span(Micros::new(self.held_us))));
        }
        if self.is_shadowed() {
            line += " (shadow mode)";
        }
        self.add_left(&mut line);
        match self.retry_after_us {
            // A caller does not ask for it again.
            None | Some(1..) if matches!(verb, ClientVerb::Renew | ClientVerb::Release) => {}
            None if verb == ClientVerb::Acquire => {
                line += "; its id is held, or its cost is above the limit";
            }
            None => line += "; this cost can never pass",
            Some(0) if self.reset_after_us == 0 => {}
            Some(0) => {
                add(&mut line, format_args!(", full again in {}", later(self.reset_after_us)));
            }
            Some(us) => add(&mut line, format_args!("; retry in {}", later(us))),
        }
        self.add_instead(&mut line);
        match self.mode.as_deref() {
            None => {}
            Some("leased") => line += "; decided by a lease",
            Some("shed") => line += "; the store did not decide in time (shed)",
            Some(mode) => add(
                &mut line,
                format_args!("; decided without the store ({})", terminal::one_line(mode)),
            ),
        }
        line
    }

    /// Returns whether the request is over the limit, and passes all the same.
    fn is_shadowed(&self) -> bool {
        self.overflow.as_deref() == Some("shadow")
    }

    /// The name of the permit.
    fn permit(&self) -> String {
        self.id
            .as_deref()
            .map_or_else(|| "a permit".to_owned(), |id| format!("`{}`", terminal::one_line(id)))
    }

    /// `: 4 of 5 left in "tries"`. In the modes `allow`, `deny` and `shed`, it is unknown how many are left.
    fn add_left(&self, line: &mut String) {
        let Self { limit, remaining, rule, .. } = self;
        let rule = terminal::one_line(rule);
        match self.mode.as_deref() {
            Some("allow" | "deny" | "shed") => {
                add(line, format_args!(": limit {limit} in \"{rule}\", usage unknown"));
            }
            _ => add(line, format_args!(": {remaining} of {limit} left in \"{rule}\"")),
        }
    }

    /// Adds what the policy has for a request over the limit: a target, a fallback, or a response.
    fn add_instead(&self, line: &mut String) {
        if let Some(target) = &self.target {
            add(line, format_args!("; divert it to `{}`", terminal::one_line(target)));
        }
        if let Some(tag) = &self.tag {
            add(line, format_args!("; serve the fallback `{}`", terminal::one_line(tag)));
        }
        if let Some(Response { status }) = &self.response {
            add(line, format_args!("; serve the policy's own response, status {status}"));
        }
    }
}

/// Returns whether the answer is from an address of another kind; the right one answers every path with a problem.
pub(crate) fn is_elsewhere(answer: &HttpAnswer) -> bool {
    is_no_problem(answer.status, &answer.body)
}

/// Returns whether a path does not exist, and the answer is not a problem document, or one that names `admin.listen`.
pub(crate) fn is_no_problem(status: StatusCode, body: &[u8]) -> bool {
    let is_missing = matches!(status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED);
    let detail = serde_json::from_slice::<ProblemDetail>(body);
    is_missing && detail.map_or(true, |problem| problem.detail.contains("`admin.listen`"))
}

/// Returns whether the server answers that the path of the request does not exist.
pub(crate) fn is_no_path(answer: &HttpAnswer) -> bool {
    let detail = serde_json::from_slice::<ProblemDetail>(&answer.body);
    answer.status == StatusCode::NOT_FOUND
        && detail.is_ok_and(|ProblemDetail { detail }| detail.starts_with("path not found"))
}

/// Colours the outcome in `line`, the line of a decision, green or red.
pub(super) fn coloured(line: &str, allowed: bool) -> String {
    let style = if allowed { AnsiColor::Green } else { AnsiColor::Red }.on_default();
    let (outcome, rest) = line.split_at(line.find(':').unwrap_or(line.len()));
    format!("{style}{outcome}{style:#}{rest}")
}

/// The error in an answer that is not a decision.
pub(crate) fn problem(status: StatusCode, body: &[u8]) -> String {
    if let Ok(ProblemDetail { detail }) = serde_json::from_slice(body) {
        return shortened(&detail);
    }
    match shortened(&String::from_utf8_lossy(body)) {
        text if text.is_empty() => format!("the server returned status {status}"),
        text => format!("the server returned status {status}: {text}"),
    }
}

/// The type of the problem document `body`, if it is one.
pub(super) fn problem_type(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct ProblemType {
        r#type: String,
    }
    serde_json::from_slice(body).ok().map(|ProblemType { r#type }| r#type)
}

/// `text` on one line, at most `PROBLEM_CHARS_MAX` characters of it.
pub(crate) fn shortened(text: &str) -> String {
    terminal::escaped(&text.trim().chars().take(PROBLEM_CHARS_MAX).collect::<String>())
}

/// `us` rounded up to the precision that is shown, so that a caller who waits that long is not early.
fn later(us: u64) -> String {
    const UNITS: [(u64, u64); 4] = [
        (86_400_000_000, 3_600_000_000),
        (3_600_000_000, 60_000_000),
        (60_000_000, 1_000_000),
        (1_000, 1_000),
    ];
    let shown = UNITS.iter().find(|(from, _)| us >= *from).map_or(1, |(_, unit)| *unit);
    human::span(Micros::new(us.next_multiple_of(shown)))
}

fn add(line: &mut String, what: std::fmt::Arguments<'_>) {
    line.write_fmt(what).expect("a text takes all");
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The line of a refusal in which `fields` replace others.
    fn line(verb: ClientVerb, fields: Value) -> String {
        let mut answer = json!({
            "allowed": false, "granted": 0, "wait_us": 0, "limit": 5, "remaining": 0,
            "retry_after_us": 599_929_468, "reset_after_us": 599_991_212, "rule": "tries",
        });
        let Value::Object(fields) = fields else { panic!("fields are an object") };
        answer.as_object_mut().expect("it is one").extend(fields);
        serde_json::from_value::<DecisionReply>(answer).expect("a decision").line(verb)
    }

    #[test]
    fn a_line_says_what_became_of_it_and_when_to_come_again() {
        let pass = json!({"allowed": true, "granted": 1, "remaining": 4, "retry_after_us": 0});
        let left = "4 of 5 left in \"tries\", full again in 10 min";
        assert_eq!(line(ClientVerb::Check, pass.clone()), format!("allowed: {left}"));
        assert_eq!(line(ClientVerb::Peek, pass.clone()), format!("would be allowed: {left}"));
        assert_eq!(line(ClientVerb::Refund, pass.clone()), format!("gave back 1: {left}"));
        assert_eq!(line(ClientVerb::Reset, pass), format!("reset: {left}"));
        let none = "0 of 5 left in \"tries\"";
        assert_eq!(line(ClientVerb::Check, json!({})), format!("refused: {none}; retry in 10 min"));
        assert_eq!(
            line(ClientVerb::Peek, json!({})),
            format!("would be refused: {none}; retry in 10 min")
        );
        let never = line(ClientVerb::Check, json!({"retry_after_us": null}));
        assert_eq!(never, format!("refused: {none}; this cost can never pass"));
        let booked = json!({"allowed": true, "wait_us": 1_500_001, "retry_after_us": 0, "reset_after_us": 0});
        assert_eq!(line(ClientVerb::Check, booked), format!("allowed after 1.501 s: {none}"));
    }

    #[test]
    fn a_line_says_what_the_policy_wants_done_instead() {
        for (fields, end) in [
            (json!({"overflow": "divert", "target": "b\n"}), "; divert it to `b\\n`"),
            (json!({"overflow": "degrade", "tag": "cached"}), "; serve the fallback `cached`"),
            (
                json!({"overflow": "degrade", "response": {"status": 503, "headers": {}, "body": "x"}}),
                "; serve the policy's own response, status 503",
            ),
            (json!({"mode": "local"}), "; decided without the store (local)"),
            (json!({"mode": "remembered"}), "; decided without the store (remembered)"),
            (json!({"mode": "leased", "as_of_us": 5}), "; decided by a lease"),
        ] {
            let expected = format!("refused: 0 of 5 left in \"tries\"; retry in 10 min{end}");
            assert_eq!(line(ClientVerb::Check, fields), expected);
        }
        for mode in ["allow", "deny", "shed"] {
            let unknown = line(ClientVerb::Check, json!({"mode": mode}));
            let expected = "refused: limit 5 in \"tries\", usage unknown; retry in 10 min; ";
            assert!(unknown.starts_with(expected), "{unknown}");
        }
        let shadow = line(ClientVerb::Check, json!({"allowed": true, "overflow": "shadow"}));
        assert!(
            shadow.starts_with("allowed (shadow mode): 0 of 5 left in \"tries\"; retry in"),
            "{shadow}"
        );
    }

    #[test]
    fn a_settlement_that_does_not_correct_all_says_so() {
        let decision = json!({
            "allowed": true, "granted": 0, "wait_us": 0, "limit": 5, "remaining": 0, "retry_after_us": 0,
            "reset_after_us": 0, "rule": "tokens",
        });
        for ([refunded, taken, missing], excess, expected) in [
            ([0, 0, 0], 0, "settled, nothing to correct"),
            ([2, 0, 0], 2, "settled, gave back 2"),
            ([0, 0, 0], 2, "settled, gave back 0 of 2 (the budget holds no more of this charge)"),
            ([0, 3, 0], 0, "settled, took 3 more"),
            ([0, 0, 4], 0, "settled, took 0 more (4 missing, not charged)"),
        ] {
            let body = json!({
                "refunded": refunded, "taken": taken, "missing": missing, "decision": decision.clone(),
            });
            let body = body.to_string();
            let (_, line) =
                read(ClientVerb::Settle, body.as_bytes(), excess).expect("a settlement");
            assert_eq!(line, format!("{expected}: 0 of 5 left in \"tokens\""));
        }
    }

    #[test]
    fn without_the_store_the_rules_of_a_key_are_named_and_what_is_left_is_not() {
        let explained = json!({
            "rules_of": "policy", "rules": [{ "name": "tries", "algorithm": "sliding_log", "limit": 5 }],
            "decision": {
                "allowed": true, "granted": 1, "wait_us": 0, "limit": 5, "remaining": 4, "retry_after_us": 0,
                "reset_after_us": 0, "rule": "tries", "mode": "local",
            },
        });
        let body = explained.to_string();
        let (passes, lines) =
            read(ClientVerb::Explain, body.as_bytes(), 0).expect("an explanation");
        assert!(passes && lines.ends_with("\n  tries (sliding_log): limit 5"), "{lines}");
    }

    #[test]
    fn an_endurance_is_a_line_with_its_end() {
        let line = |endurance: Value| {
            let explained = json!({
                "rules_of": "policy", "endurance": endurance,
                "decision": {
                    "allowed": true, "granted": 1, "wait_us": 0, "limit": 5, "remaining": 4, "retry_after_us": 0,
                    "reset_after_us": 0, "rule": "tries",
                },
            });
            let (_, lines) =
                read(ClientVerb::Explain, explained.to_string().as_bytes(), 0).unwrap();
            lines.lines().last().unwrap().to_owned()
        };
        let over = json!({"rule": "burst", "full_after_us": 1_992_000});
        let refused = json!({"at": "500/s", "admitted": 249, "lasts_us": 498_000, "delay_us": 0, "over": over});
        assert_eq!(
            line(refused),
            "at 500/s, from a full budget: 249 permits in 498 ms, then refused by burst; full again after 1.992 s"
        );
        let endless = json!({"at": "9/s", "admitted": 20_000, "lasts_us": 60_000_000, "delay_us": 2_000, "over": null});
        assert_eq!(
            line(endless),
            "at 9/s, from a full budget: 20000 permits in 1 min, the last one delayed by 2 ms, none refused"
        );
    }

    #[test]
    fn a_permit_that_is_given_back_is_not_asked_for_again() {
        let fields =
            json!({"allowed": true, "id": "a", "retry_after_us": null, "overflow": "shadow"});
        let left = "(shadow mode): 0 of 5 left in \"tries\"";
        assert_eq!(line(ClientVerb::Release, fields), format!("`a` was not held {left}"));
        let fields = json!({"allowed": true, "id": "a", "retry_after_us": 1, "overflow": "shadow"});
        let shadowed = line(ClientVerb::Acquire, fields);
        assert!(shadowed.starts_with(&format!("allowed, takes no permit {left}")), "{shadowed}");
        let held = line(ClientVerb::Acquire, json!({"id": "a", "retry_after_us": null}));
        assert_eq!(
            held,
            "refused: 0 of 5 left in \"tries\"; its id is held, or its cost is above the limit"
        );
    }

    #[test]
    fn a_time_to_come_again_is_never_too_early() {
        for (us, expected) in [
            (999, "999 µs"),
            (1_001, "2 ms"),
            (59_999_001, "1 min"),
            (60_000_001, "1 min 1 s"),
            (3_600_000_001, "1 h 1 min"),
            (86_400_000_001, "1 d 1 h"),
        ] {
            assert_eq!(later(us), expected);
        }
    }

    #[test]
    fn a_problem_is_its_detail_on_one_line_and_anything_else_is_shown_in_part() {
        let bad = StatusCode::BAD_GATEWAY;
        assert_eq!(problem(bad, br#"{"detail":"cost: `0`\u001b"}"#), "cost: `0`\\u{1b}");
        assert_eq!(
            problem(bad, b" <html>\n "),
            "the server returned status 502 Bad Gateway: <html>"
        );
        assert_eq!(problem(bad, b""), "the server returned status 502 Bad Gateway");
        assert!(problem(bad, &[b'x'; 100_000]).len() < 600);
    }
}

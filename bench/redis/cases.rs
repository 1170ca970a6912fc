//! The requests to the server.

use anyhow::Context as _;
use sha1_smol::Sha1;
use sluicegate_kernel::algorithm::{Delay, WindowKind};
use sluicegate_kernel::{
    Cost, FixedWindow, LeakyBucket, Micros, Moment, NamedRule, Rate, Rule, RuleSet, SlidingWindow,
    TokenBucket, Verb,
};
use sluicegate_store::RuleOrigin;
use sluicegate_store::redis::codec::{
    PreviousRules, RulesBlob, ScriptClock, ScriptRequest, state_key,
};
use sluicegate_store::redis::script;

use crate::server::Server;

const GCRA: &str = include_str!("gcra.lua");

/// One kind of request.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// Keys of one request, each with a decision of its own.
    pub(crate) decisions: u64,
    sha1: String,
    /// Arguments that follow the keys, for each key.
    arguments: Vec<Vec<u8>>,
}

impl Case {
    /// Appends the request for `keys` in the server's protocol.
    pub(crate) fn write(&self, keys: &[u64], out: &mut Vec<u8>) {
        let words = 3 + keys.len() * (1 + self.arguments.len());
        out.extend_from_slice(format!("*{words}\r\n").as_bytes());
        word(b"EVALSHA", out);
        word(self.sha1.as_bytes(), out);
        word(keys.len().to_string().as_bytes(), out);
        for key in keys {
            word(state_key(&self.name, &key.to_le_bytes()).as_bytes(), out);
        }
        for _ in keys {
            for argument in &self.arguments {
                word(argument, out);
            }
        }
    }
}

fn word(word: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

/// Every case; the first is the smallest limiter.
pub(crate) fn all(server: &mut Server) -> anyhow::Result<Vec<Case>> {
    server.load(GCRA)?;
    server.load(script::TEXT)?;
    // Six permits a minute, 100 of them at once: slow enough that a key still exists when it is
    // requested again.
    let bucket = |permits| -> anyhow::Result<Rule> {
        Ok(TokenBucket::new(Rate::new(permits, Micros::from_secs(60))?, 100)?.into())
    };
    let four = RuleSet::new(
        (1..=4)
            .map(|n| Ok(NamedRule { name: format!("rule{n}").into(), rule: bucket(n * 6)? }))
            .collect::<anyhow::Result<_>>()?,
    )?;
    let window = SlidingWindow::new(1_000_000, Micros::from_secs(60), 10)?.into();
    let fixed = WindowKind::Epoch(Micros::from_secs(60));
    let fixed = FixedWindow::new(1_000_000, fixed)?.into();
    let fast = TokenBucket::new(Rate::per_second(1)?, 10)?.into();
    let leaky = LeakyBucket::new(Rate::new(6, Micros::from_secs(60))?, 100, Delay::None)?.into();
    let one = |rule| RuleSet::single("rule", rule);
    let never = RuleSet::single("rule", TokenBucket::new(Rate::per_second(1)?, 1)?);
    Ok(vec![
        Case {
            name: "the smallest: one instant on a string".into(),
            decisions: 1,
            sha1: Sha1::from(GCRA).digest().to_string(),
            arguments: vec![b"10000000".to_vec(), b"1000000000".to_vec()],
        },
        ours("`token_bucket`", &one(bucket(6)?), 1, 1)?,
        ours("`token_bucket`, full in a second", &one(fast), 1, 1)?,
        ours("`token_bucket`, refused", &never, 2, 1)?,
        ours("`token_bucket`, 16 keys a call", &one(bucket(6)?), 1, 16)?,
        ours("`fixed_window`", &one(fixed), 1, 1)?,
        ours("`sliding_window` of 10", &one(window), 1, 1)?,
        ours("`leaky_bucket`", &one(leaky), 1, 1)?,
        ours("a policy of four `token_bucket`s", &four, 1, 1)?,
    ])
}

/// A budget with so many permits in use that the number takes four bytes.
pub(crate) fn deep() -> anyhow::Result<Case> {
    let bucket = TokenBucket::new(Rate::new(6, Micros::from_secs(60))?, 100)?;
    ours("`token_bucket`, 50 permits in use", &RuleSet::single("rule", bucket), 50, 1)
}

/// Returns the arguments that follow a key: the rules, and a check of this cost on the server's
/// time.
pub(crate) fn arguments(rules: &RuleSet, cost: u64) -> anyhow::Result<[Vec<u8>; 2]> {
    let (verb, at) = (Verb::Check { cost: Cost::new(cost)? }, Moment::new(Micros::ZERO));
    let question = ScriptRequest {
        verb: &verb,
        at: &at,
        clock: ScriptClock::Server,
        before: PreviousRules::Unsaid,
    };
    Ok([RulesBlob::new(rules, RuleOrigin::default()).as_bytes().to_vec(), question.encode(rules)])
}

fn ours(name: &str, rules: &RuleSet, cost: u64, decisions: u64) -> anyhow::Result<Case> {
    let arguments = arguments(rules, cost)?.to_vec();
    let sha1 = script::SHA1.parse().context("a digest is text")?;
    Ok(Case { name: name.into(), decisions, sha1, arguments })
}

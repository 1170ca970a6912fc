//! A key whose decisions the script makes, wherever it runs.

use std::collections::HashMap;

use sluicegate_conformance::{LeasingSubject, Subject};
use sluicegate_kernel::lease::Message;
use sluicegate_kernel::{Called, LeaseReply, Moment, RuleSet, Unsupported, Verb, Verdict};
use sluicegate_store::RuleOrigin;
use sluicegate_store::redis::codec::{
    Generation, PreviousRules, RulesBlob, ScriptClock, ScriptReply, ScriptRequest, Stamp,
};
use sluicegate_store::redis::lease::{LeaseRequest, LeaseScriptReply};

/// An environment that runs the script.
pub(crate) trait Executor {
    /// Returns the script's reply for each of `keys`.
    fn eval(&mut self, keys: &[String], args: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String>;
}

/// Returns the blob of a policy's `rules`, taken over before all others.
pub(crate) fn blob_of(rules: &RuleSet) -> RulesBlob {
    RulesBlob::new(rules, RuleOrigin::default())
}

/// One key, and every rule set that it was decided under.
pub(crate) struct Scripted<E> {
    pub(crate) executor: E,
    pub(crate) clock: ScriptClock,
    pub(crate) origin: RuleOrigin,
    pub(crate) key: String,
    keys: u64,
    rules: Option<RuleSet>,
    history: HashMap<Generation, RulesBlob>,
    /// The waiting requests that the last decision calls.
    pub(crate) called: Vec<Called>,
}

impl<E: Executor> Scripted<E> {
    pub(crate) fn new(executor: E, clock: ScriptClock) -> Self {
        let (key, history, called) = (String::new(), HashMap::new(), Vec::new());
        let origin = RuleOrigin::default();
        Self { executor, clock, origin, key, keys: 0, rules: None, history, called }
    }

    /// Returns the script's answer to one request, with the calls of a client.
    pub(crate) fn ask(&mut self, verb: &Verb, at: &Moment<'_>) -> ScriptReply {
        let (rules, clock) = (self.rules.clone().unwrap(), self.clock);
        let blob = RulesBlob::new(&rules, self.origin);
        let mut question = ScriptRequest { verb, at, clock, before: PreviousRules::Unsaid };
        let reply = self.once(&rules, &blob, &question);
        let ScriptReply::Unknown(state) = reply else { return reply };
        let before = match self.origin {
            RuleOrigin::Caller => RulesBlob::read_brought(&state),
            RuleOrigin::Policy { .. } => {
                Stamp::read(&state).and_then(|stamp| self.history.get(&stamp.generation())).cloned()
            }
        };
        question.before = before.as_ref().map_or(PreviousRules::Lost, PreviousRules::Rules);
        let encoded = question.encode(&rules);
        self.eval(&rules, &blob, encoded, verb)
    }

    fn use_another_key(&mut self) {
        self.keys += 1;
        self.key = format!("sg:{{{}}}", self.keys);
    }

    fn once(
        &mut self,
        rules: &RuleSet,
        blob: &RulesBlob,
        question: &ScriptRequest<'_>,
    ) -> ScriptReply {
        self.eval(rules, blob, question.encode(rules), question.verb)
    }

    fn eval(
        &mut self,
        rules: &RuleSet,
        blob: &RulesBlob,
        ask: Vec<u8>,
        verb: &Verb,
    ) -> ScriptReply {
        let args = [blob.as_bytes().to_vec(), ask];
        let replies = self.executor.eval(std::slice::from_ref(&self.key), &args).unwrap();
        ScriptReply::decode(&replies[0], rules, verb).unwrap()
    }
}

impl<E: Executor> Subject for Scripted<E> {
    fn start(&mut self, rules: &RuleSet) {
        self.use_another_key();
        self.history.clear();
        self.configure(rules);
    }

    fn decide(&mut self, verb: &Verb, at: &Moment<'_>) -> Result<Verdict, Unsupported> {
        match self.ask(verb, at) {
            ScriptReply::Decided(answer) => {
                self.called = answer.called;
                Ok(answer.verdict)
            }
            ScriptReply::Unsupported(unsupported) => Err(unsupported),
            other => panic!("{other:?}"),
        }
    }

    fn configure(&mut self, rules: &RuleSet) {
        let blob = RulesBlob::new(rules, self.origin);
        if let Some(stamp) = blob.stamp() {
            self.history.insert(stamp.generation(), blob);
        }
        self.rules = Some(rules.clone());
    }
}

impl<E: Executor> LeasingSubject for Scripted<E> {
    fn lease(&mut self, message: &Message, at: &Moment<'_>) -> LeaseReply {
        let (rules, clock) = (self.rules.clone().unwrap(), self.clock);
        let blob = RulesBlob::new(&rules, self.origin);
        let mut before = PreviousRules::Unsaid;
        loop {
            let asked = LeaseRequest { message, at, clock, before }.encode(&rules);
            let args = [blob.as_bytes().to_vec(), asked];
            let replies = self.executor.eval(std::slice::from_ref(&self.key), &args).unwrap();
            match LeaseScriptReply::decode(&replies[0], &rules, message).unwrap() {
                LeaseScriptReply::Answer(reply) => return reply,
                LeaseScriptReply::Unknown(state) => {
                    let stamp = Stamp::read(&state);
                    let old = stamp.and_then(|stamp| self.history.get(&stamp.generation()));
                    before = old.map_or(PreviousRules::Lost, PreviousRules::Rules);
                }
                LeaseScriptReply::Malformed(what) => panic!("malformed {what}"),
            }
        }
    }

    fn lose(&mut self) {
        self.use_another_key();
    }
}

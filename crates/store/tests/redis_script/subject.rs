//! A key whose decisions the script makes, wherever it runs.

use std::collections::HashMap;

use sluicegate_conformance::Subject;
use sluicegate_kernel::{Moment, RuleSet, Unsupported, Verb, Verdict};
use sluicegate_store::redis::codec::{Before, Clock, Generation, Question, Reply, RulesBlob};

/// Something that runs the script.
pub(crate) trait Executor {
    /// What the script answers for each of `keys`.
    fn eval(&mut self, keys: &[String], args: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String>;
}

/// One key, and every rule set that it was ever decided under.
pub(crate) struct Scripted<E> {
    pub(crate) executor: E,
    pub(crate) clock: Clock,
    pub(crate) key: String,
    keys: u64,
    rules: Option<RuleSet>,
    history: HashMap<Generation, RulesBlob>,
}

impl<E: Executor> Scripted<E> {
    pub(crate) fn new(executor: E, clock: Clock) -> Self {
        let (key, history) = (String::new(), HashMap::new());
        Self { executor, clock, key, keys: 0, rules: None, history }
    }

    /// What the script answers to one question, as a client asks it.
    pub(crate) fn ask(&mut self, verb: &Verb, at: &Moment<'_>) -> Reply {
        let (rules, clock) = (self.rules.clone().unwrap(), self.clock);
        let blob = RulesBlob::new(&rules);
        let mut question = Question { verb, at, clock, before: Before::Unsaid };
        let reply = self.once(&rules, &blob, &question);
        let Reply::Unknown(generation) = reply else { return reply };
        question.before = match self.history.get(&generation) {
            Some(before) => Before::Rules(before.as_bytes()),
            None => Before::Lost,
        };
        let (before, rules) = (question.before, rules);
        let question = Question { before, ..question };
        let encoded = question.encode(&rules);
        self.eval(&rules, &blob, encoded, verb)
    }

    fn once(&mut self, rules: &RuleSet, blob: &RulesBlob, question: &Question<'_>) -> Reply {
        self.eval(rules, blob, question.encode(rules), question.verb)
    }

    fn eval(&mut self, rules: &RuleSet, blob: &RulesBlob, ask: Vec<u8>, verb: &Verb) -> Reply {
        let args = [blob.as_bytes().to_vec(), ask];
        let replies = self.executor.eval(std::slice::from_ref(&self.key), &args).unwrap();
        Reply::decode(&replies[0], rules, verb).unwrap()
    }
}

impl<E: Executor> Subject for Scripted<E> {
    fn start(&mut self, rules: &RuleSet) {
        self.keys += 1;
        self.key = format!("sg:{{{}}}", self.keys);
        self.configure(rules);
    }

    fn decide(&mut self, verb: &Verb, at: &Moment<'_>) -> Result<Verdict, Unsupported> {
        match self.ask(verb, at) {
            Reply::Verdict(verdict) => Ok(verdict),
            Reply::Unsupported(unsupported) => Err(unsupported),
            other => panic!("{other:?}"),
        }
    }

    fn configure(&mut self, rules: &RuleSet) {
        let blob = RulesBlob::new(rules);
        self.history.insert(blob.generation(), blob);
        self.rules = Some(rules.clone());
    }
}

//! Access logs against the engine: each line is a check of cost 1, in the order of time.

use std::sync::Arc;

use sluicegate::{Cost, Micros, Verb};
use sluicegate_policy::attribute::key_of;
use sluicegate_policy::{KeyAttribute, Policy, PolicySet};

use super::combined::{self, LogError, LogLine};
use super::error::GuardError;
use super::jsonl::OpName;
use super::reorder::Reorder;
use super::session::{ReplayRequest, ReplaySession};

/// Most policies that an error lists: they fill half a screen.
const LISTED_MAX: usize = 20;

/// Lines on their way to the session: which policy they are a check of, with which key, and when.
pub(crate) struct Logs {
    guard: LineGuard,
    reorder: Reorder<(u64, GuardedLine)>,
}

/// Which policy guards a line of a log, and what its key is made of.
pub(crate) struct LineGuard {
    choice: Choice,
    /// What keys are made of, if it is not what the policy says.
    key: Option<Vec<KeyAttribute>>,
}

/// A line that is guarded.
pub(crate) struct GuardedLine {
    pub(crate) policy: Arc<Policy>,
    key: Box<str>,
}

enum Choice {
    /// Every line is a check of this policy.
    One(Arc<Policy>),
    /// The first that matches.
    Matching(PolicySet),
    /// None is a check of any.
    Nothing,
}

impl Logs {
    /// Lines are checks of the policy called `policy`; without a name, of the first one of
    /// `policies` that matches, or of the only one there is.
    ///
    /// # Errors
    /// If there is no such policy, or keys are to be made of what no log knows.
    pub(crate) fn new(
        policies: &PolicySet,
        policy: Option<&str>,
        key: Option<Vec<KeyAttribute>>,
        window: Micros,
    ) -> Result<Self, GuardError> {
        let guard = LineGuard::new(choose(policies, policy)?, key)?;
        Ok(Self { guard, reorder: Reorder::new(window) })
    }

    /// What the keys of `policy` are made of: `remote_ip, path`.
    pub(crate) fn key_text(&self, policy: &Policy) -> String {
        let attributes = self.guard.attributes(policy).iter().map(ToString::to_string);
        attributes.collect::<Vec<_>>().join(", ")
    }

    /// Takes one line of the log; it and others are decided when their time has come.
    pub(crate) fn line(&mut self, line: u64, bytes: &[u8], session: &mut ReplaySession) {
        // Servers escape what is not text. Where one did not, the rest of the line still counts.
        let text = String::from_utf8_lossy(bytes);
        let parsed = match combined::parse(text.as_bytes()) {
            Ok(parsed) => parsed,
            Err(error) => return session.failed(line, None, &error),
        };
        match self.guard.of(&parsed) {
            Ok(Some(guarded)) => self.reorder.push(parsed.at, (line, guarded)),
            Ok(None) => return session.tally.unmatched += 1,
            Err(error) => return session.failed(line, Some(parsed.at), &error),
        }
        while let Some((at, check)) = self.reorder.pop_due() {
            decide(at, &check, session);
        }
    }

    /// The end of the log: decides what still waits for its turn.
    pub(crate) fn finish(&mut self, session: &mut ReplaySession) {
        while let Some((at, check)) = self.reorder.pop() {
            decide(at, &check, session);
        }
        session.tally.late = self.reorder.late();
    }
}

impl LineGuard {
    fn new(choice: Choice, key: Option<Vec<KeyAttribute>>) -> Result<Self, GuardError> {
        let own: Vec<_> = match (&key, &choice) {
            (Some(key), _) => key.iter().collect(),
            (None, Choice::One(policy)) => policy.key().iter().collect(),
            (None, Choice::Matching(set)) => {
                set.policies().iter().flat_map(|policy| policy.key()).collect()
            }
            (None, Choice::Nothing) => Vec::new(),
        };
        if let Some(unknown) = own.into_iter().find(|attribute| !is_logged(attribute)) {
            return Err(GuardError::NotLogged(unknown.clone()));
        }
        Ok(Self { choice, key })
    }

    /// As [`Logs::new`]; but nothing is guarded if there is no such policy, or none at all.
    ///
    /// # Errors
    /// If nobody says which policy, or keys are to be made of what no log knows.
    pub(crate) fn if_any(
        policies: &PolicySet,
        policy: Option<&str>,
        key: Option<Vec<KeyAttribute>>,
    ) -> Result<Self, GuardError> {
        let is_there = policy.map_or(!policies.is_empty(), |name| policies.resolve(name).is_some());
        let choice = if is_there { choose(policies, policy)? } else { Choice::Nothing };
        Self::new(choice, key)
    }

    /// What guards `line`.
    ///
    /// # Errors
    /// If the line lacks what its key is made of.
    pub(crate) fn of(&self, line: &LogLine<'_>) -> Result<Option<GuardedLine>, LogError> {
        let LogLine { at: _, request, is_cut } = line;
        let policy = match &self.choice {
            Choice::One(policy) => Some(policy),
            Choice::Matching(policies) => policies.match_request(request),
            Choice::Nothing => None,
        };
        let Some(policy) = policy else { return Ok(None) };
        let attributes = self.attributes(policy);
        if *is_cut && attributes.contains(&KeyAttribute::UserAgent) {
            return Err(LogError::Missing("user_agent"));
        }
        let key = key_of(attributes, request).into();
        Ok(Some(GuardedLine { policy: Arc::clone(policy), key }))
    }

    /// What the keys of `policy` are made of.
    fn attributes<'a>(&'a self, policy: &'a Policy) -> &'a [KeyAttribute] {
        let own = self.key.as_deref().unwrap_or(policy.key());
        if own.is_empty() { &[KeyAttribute::RemoteIp] } else { own }
    }
}

impl GuardedLine {
    /// Whose budget it is. A request without an attribute that is a whole key takes that of all who
    /// lack it.
    pub(crate) fn key(&self) -> Option<&str> {
        (!self.key.is_empty()).then_some(&*self.key)
    }
}

/// The policy that `--policy` names.
///
/// # Errors
/// If there is none of this name.
pub(crate) fn named<'a>(
    policies: &'a PolicySet,
    name: &str,
) -> Result<&'a Arc<Policy>, GuardError> {
    policies.resolve(name).ok_or_else(|| GuardError::UnknownPolicy(name.to_owned()))
}

/// That one policy guards each line of a log: the one called `policy`, the only one, or the first that
/// matches. A set without policies guards none.
///
/// # Errors
/// If there are several to choose from: their names.
pub(crate) fn check_choice(policies: &PolicySet, policy: Option<&str>) -> anyhow::Result<()> {
    let all = policies.policies();
    if policy.is_some() || all.len() < 2 || all.iter().any(|policy| policy.matcher().is_some()) {
        return Ok(());
    }
    let names = all.iter().take(LISTED_MAX).map(|policy| format!("`{}`", policy.name()));
    let names = names.collect::<Vec<_>>().join(", ");
    let (count, more) = (all.len(), if all.len() > LISTED_MAX { ", …" } else { "" });
    anyhow::bail!(
        "--policy: is missing: choose one of the {count} policies ({names}{more}), or give them a `match`"
    )
}

fn choose(policies: &PolicySet, policy: Option<&str>) -> Result<Choice, GuardError> {
    if let Some(name) = policy {
        return named(policies, name).map(|policy| Choice::One(Arc::clone(policy)));
    }
    if policies.policies().iter().any(|policy| policy.matcher().is_some()) {
        return Ok(Choice::Matching(policies.clone()));
    }
    match policies.policies() {
        [only] => Ok(Choice::One(Arc::clone(only))),
        others => Err(GuardError::PolicyMissing(others.len())),
    }
}

fn decide(at: Micros, (line, guarded): &(u64, GuardedLine), session: &mut ReplaySession) {
    let ask = ReplayRequest {
        line: *line,
        at,
        policy: guarded.policy.name(),
        key: guarded.key(),
        op: OpName::Check,
        verb: Verb::Check { cost: Cost::ONE },
        id: None,
    };
    if let Err(error) = session.ask(ask) {
        session.failed(*line, Some(at), &error);
    }
}

fn is_logged(attribute: &KeyAttribute) -> bool {
    use KeyAttribute::{Header, Host, Method, Path, RemoteIp, Status, UserAgent};
    match attribute {
        RemoteIp | Path | Method | UserAgent | Status => true,
        Host | Header(_) => false,
    }
}

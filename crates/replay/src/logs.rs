//! Access logs against the engine: each line is the request of a gateway, in the order of time.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluicegate::internals::gateway::{Guarding, GuardingBudget};
use sluicegate::{Cost, Micros, Verb};
use sluicegate_policy::attribute::key_of;
use sluicegate_policy::{Attributes, KeyAttribute, Policy, PolicySet, nearest};

use super::combined::{LogError, LogFormat, LogLine};
use super::error::GuardError;
use super::reorder::Reorder;
use super::session::ReplaySession;

/// Most policies that an error lists: they fill half a screen.
const LISTED_MAX: usize = 20;

/// Lines on their way to the session, with their budgets and instants.
pub(crate) struct Logs {
    format: LogFormat,
    guard: LineGuard,
    reorder: Reorder<(u64, Vec<GuardingBudget>)>,
}

/// The policies that guard the lines of a log, and the attributes of their keys.
pub(crate) struct LineGuard {
    choice: Choice,
    /// Attributes of the keys, if they are not those of the policy.
    key: Option<Vec<KeyAttribute>>,
    /// Policies that match lines and were not decided, because one policy was chosen: by name, the number of lines.
    undecided: BTreeMap<Box<str>, u64>,
    /// Number of times that a policy was not decided because too many guard one line.
    left_out: u64,
}

enum Choice {
    /// Every line is a request of this policy; the set has the others that would guard it.
    One(Arc<Policy>, PolicySet),
    /// The policies that match a line guard it.
    Matching(PolicySet),
    /// No policy guards a line.
    Nothing,
}

impl Logs {
    /// Returns a reader of lines of `format` that are requests of the policy called `policy`; without a name, of all of
    /// `policies` that match, or of the only one.
    ///
    /// # Errors
    /// If there is no such policy, or keys need an attribute that no log has.
    pub(crate) fn new(
        policies: &PolicySet,
        policy: Option<&str>,
        key: Option<Vec<KeyAttribute>>,
        format: LogFormat,
        window: Micros,
    ) -> Result<Self, GuardError> {
        let guard = LineGuard::new(choose(policies, policy)?, key, &format)?;
        Ok(Self { format, guard, reorder: Reorder::new(window) })
    }

    /// The attributes of the keys of `policy`: `remote_ip, path`.
    pub(crate) fn key_text(&self, policy: &Policy) -> String {
        let attributes = self.guard.attributes(policy).iter().map(ToString::to_string);
        attributes.collect::<Vec<_>>().join(", ")
    }

    /// Takes one line of the log; it and others are decided when their time has come.
    pub(crate) fn line(&mut self, line: u64, bytes: &[u8], session: &mut ReplaySession) {
        // Servers escape bytes that are not text. If one did not, the rest of the line still counts.
        let text = String::from_utf8_lossy(bytes);
        let parsed = match self.format.parse(text.as_bytes()) {
            Ok(parsed) => parsed,
            Err(error) => return session.failed(line, None, &error),
        };
        match self.guard.of(&parsed) {
            Ok(Some(budgets)) => self.reorder.push(parsed.at, (line, budgets)),
            Ok(None) => {
                session.tally.unmatched += 1;
                return session.tally.unmatched_paths.add(&parsed);
            }
            Err(error) => return session.failed(line, Some(parsed.at), &error),
        }
        while let Some((at, (line, budgets))) = self.reorder.pop_due() {
            session.gateway_request(line, at, budgets);
        }
    }

    /// Decides the lines that still wait for their turn, at the end of the log.
    pub(crate) fn finish(&mut self, session: &mut ReplaySession) {
        while let Some((at, (line, budgets))) = self.reorder.pop() {
            session.gateway_request(line, at, budgets);
        }
        session.tally.late = self.reorder.late();
        session.tally.left_out = self.guard.left_out;
        session.tally.undecided = self.guard.undecided().collect();
    }
}

impl LineGuard {
    fn new(
        choice: Choice,
        key: Option<Vec<KeyAttribute>>,
        format: &LogFormat,
    ) -> Result<Self, GuardError> {
        let own: Vec<_> = match (&key, &choice) {
            (Some(key), _) => key.iter().collect(),
            (None, Choice::One(policy, _)) => policy.key().iter().collect(),
            (None, Choice::Matching(set)) => {
                let matching = set.policies().iter().filter(|policy| policy.matcher().is_some());
                matching.flat_map(|policy| policy.key()).collect()
            }
            (None, Choice::Nothing) => Vec::new(),
        };
        if let Some(unknown) = own.into_iter().find(|attribute| !is_logged(attribute, format)) {
            return Err(GuardError::NotLogged(unknown.clone()));
        }
        Ok(Self { choice, key, undecided: BTreeMap::new(), left_out: 0 })
    }

    /// Does what [`Logs::new`] does for the guard; but if there is no such policy, or none at all, no line is guarded.
    ///
    /// # Errors
    /// If no policy is chosen of several without `match`, or keys need an attribute that no log has.
    pub(crate) fn if_any(
        policies: &PolicySet,
        policy: Option<&str>,
        key: Option<Vec<KeyAttribute>>,
        format: &LogFormat,
    ) -> Result<Self, GuardError> {
        let is_there = policy.map_or(!policies.is_empty(), |name| policies.resolve(name).is_some());
        let choice = if is_there { choose(policies, policy)? } else { Choice::Nothing };
        Self::new(choice, key, format)
    }

    /// Returns the budgets from which `line` takes; `None`: no policy guards it.
    ///
    /// # Errors
    /// If the line lacks an attribute of a key.
    pub(crate) fn of(
        &mut self,
        line: &LogLine<'_>,
    ) -> Result<Option<Vec<GuardingBudget>>, LogError> {
        let mut request = line.attributes();
        // A gateway asks before there is a status; only a key that is chosen for the replay may have it.
        if self.key.is_none() {
            request.status = None;
        }
        let mut budgets = match &self.choice {
            Choice::One(policy, others) => {
                for other in others.matching(&request).filter(|other| other.name() != policy.name())
                {
                    count(&mut self.undecided, other.name());
                }
                vec![self.budget(policy, &request)]
            }
            Choice::Matching(policies) => {
                let Guarding { budgets, left_out, .. } = Guarding::of(policies, &request, None);
                self.left_out += left_out as u64;
                budgets
            }
            Choice::Nothing => Vec::new(),
        };
        if self.key.is_some() {
            for budget in &mut budgets {
                *budget = self.budget(&budget.policy, &request);
            }
        }
        let needs_agent = |budget: &GuardingBudget| {
            self.attributes(&budget.policy).contains(&KeyAttribute::UserAgent)
        };
        if line.is_cut && budgets.iter().any(needs_agent) {
            return Err(LogError::Missing("user_agent"));
        }
        Ok((!budgets.is_empty()).then_some(budgets))
    }

    /// Policies that match lines and were not decided, because one policy was chosen.
    pub(crate) fn undecided(&self) -> impl Iterator<Item = (String, u64)> {
        self.undecided.iter().map(|(policy, lines)| (policy.to_string(), *lines))
    }

    /// Number of times that a policy was not decided because too many guard one line.
    pub(crate) const fn left_out(&self) -> u64 {
        self.left_out
    }

    fn budget(&self, policy: &Arc<Policy>, request: &Attributes<'_>) -> GuardingBudget {
        GuardingBudget::with_key(policy, key_of(self.attributes(policy), request))
    }

    /// The attributes of the keys of `policy`. A policy without `match` gets its keys from callers that name it; in a
    /// log the address of the client replaces them.
    fn attributes<'a>(&'a self, policy: &'a Policy) -> &'a [KeyAttribute] {
        match self.key.as_deref().unwrap_or(policy.key()) {
            [] if policy.matcher().is_none() => &[KeyAttribute::RemoteIp],
            own => own,
        }
    }
}

fn count(lines: &mut BTreeMap<Box<str>, u64>, policy: &str) {
    match lines.get_mut(policy) {
        Some(lines) => *lines += 1,
        None => _ = lines.insert(policy.into(), 1),
    }
}

/// Returns the policy that `--policy` names.
///
/// # Errors
/// If there is none of this name.
pub(crate) fn named<'a>(
    policies: &'a PolicySet,
    name: &str,
) -> Result<&'a Arc<Policy>, GuardError> {
    policies.resolve(name).ok_or_else(|| {
        let known = policies.policies().iter().map(|policy| policy.name());
        let near = nearest(name, known).map(str::to_owned);
        GuardError::UnknownPolicy { name: name.to_owned(), near }
    })
}

/// Checks that the policies that guard the lines of a log are known: the one called `policy`, the only one, or all that
/// match. A set without policies guards none.
///
/// # Errors
/// If there are several to choose from: their names. If the policy counts permits that are held.
pub(crate) fn check_choice(policies: &PolicySet, policy: Option<&str>) -> anyhow::Result<()> {
    let all = policies.policies();
    let chosen = policy
        .map_or(if let [only] = all { Some(only) } else { None }, |name| policies.resolve(name));
    if let Some(chosen) = chosen
        && chosen.rules().set().supports(&Verb::Check { cost: Cost::ONE }).is_err()
    {
        anyhow::bail!(
            "policy `{}` has a `concurrency` rule: a log does not say when requests end; choose another policy, or \
             replay events with `acquire` and `release`",
            chosen.name()
        );
    }
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
        let policy = Arc::clone(named(policies, name)?);
        return Ok(Choice::One(policy, policies.clone()));
    }
    if policies.policies().iter().any(|policy| policy.matcher().is_some()) {
        return Ok(Choice::Matching(policies.clone()));
    }
    match policies.policies() {
        [only] => Ok(Choice::One(Arc::clone(only), policies.clone())),
        others => Err(GuardError::PolicyMissing(others.len())),
    }
}

fn is_logged(attribute: &KeyAttribute, format: &LogFormat) -> bool {
    use KeyAttribute::{Header, Host, Method, Path, RemoteIp, Status, UserAgent};
    match attribute {
        RemoteIp | Path | Method | UserAgent | Status => true,
        Host => format.has_host,
        Header(_) => false,
    }
}

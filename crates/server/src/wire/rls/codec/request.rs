//! The requests in a message: one for each descriptor.

use std::borrow::Cow;

use sha2::{Digest, Sha256};
use sluicegate::{Cost, Micros, Patience, PermitId, Request, Verb};
use sluicegate_kernel::limits::{COST_MAX, KEY_BYTES_MAX};
use sluicegate_policy::descriptor::{DescriptorAction, Leaf, RESERVED_DOMAIN, join};
use sluicegate_policy::{DescriptorTree, PolicySet, Rules};
use sluicegate_text::terminal::one_line;

use super::error::RlsError;
use super::limit::{UNITS, WindowLimit};
use crate::authenticator::{Caller, CallerError, scope_of};
use crate::verbs::VerbName;
use crate::wire::rls::proto::{
    Entry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest, Unit,
};

/// Maximum number of descriptors of one request, as for a batch. Gateways send one for each of their rules.
pub(super) const DESCRIPTORS_MAX: usize = 100;

/// The byte before the hash of a long key: no text has it.
const LONG_KEY: u8 = 0xff;

/// The name under which stores keep the budgets of limits that descriptors send along. No policy can have it: names have no capital letters.
const OF_LIMITS: &str = "RLS.LIMIT";

/// The key of the entry whose value names a permit of a `concurrency` rule. It is part of no budget's key.
const PERMIT: &str = "sluicegate_permit";

/// The request of one descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::wire::rls) enum DescriptorRequest<'a> {
    /// The descriptor has no limit, or one that another descriptor replaces.
    NoLimit,
    /// The descriptor always passes.
    Allowed,
    /// The limit is zero.
    Zero(ZeroLimit<'a>),
    /// A budget decides.
    Budget(BudgetRequest<'a>),
}

/// A limit of zero, which every request exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::wire::rls) struct ZeroLimit<'a> {
    /// The name of the limit; may be empty.
    pub(super) name: &'a str,
    /// The unit, with its seconds.
    pub(super) unit: Option<(Unit, u64)>,
    /// The request passes all the same.
    pub(super) shadow: bool,
    /// The descriptor is a quota, of which any one will do.
    pub(super) quota: bool,
}

impl ZeroLimit<'_> {
    /// Returns whether the descriptor is over the limit, as it always is except in shadow.
    pub(in crate::wire::rls) const fn is_over(&self) -> bool {
        !self.shadow
    }

    /// Returns whether the descriptor is a quota.
    pub(in crate::wire::rls) const fn is_quota(&self) -> bool {
        self.quota
    }
}

/// Longest delay of a request, in a queue or by its rules: a request that would take longer is over the limit, and
/// is answered before [`REQUEST_WAIT_MAX`](super::super::serve::REQUEST_WAIT_MAX), after which there is no answer.
const HOLD_MAX: Micros = Micros::from_secs(9);

/// The budget of a descriptor, and the verb of its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::wire::rls) struct BudgetRequest<'a> {
    policy: &'a str,
    key: Option<Cow<'a, [u8]>>,
    app: Option<&'a str>,
    verb: Verb,
    /// Hits beyond those that one decision takes.
    pub(in crate::wire::rls) rest: u64,
    /// The name of the limit where it is not that of the rule; may be empty.
    pub(in crate::wire::rls) name: Option<&'a str>,
    /// The limit that the descriptor sends along.
    pub(in crate::wire::rls) limit: Option<WindowLimit>,
    /// The descriptor is a quota.
    pub(super) quota: bool,
}

impl<'a> DescriptorRequest<'a> {
    /// The request on a budget, if it is one.
    pub(in crate::wire::rls) const fn budget(&self) -> Option<&BudgetRequest<'a>> {
        match self {
            Self::Budget(budget) => Some(budget),
            Self::NoLimit | Self::Allowed | Self::Zero(_) => None,
        }
    }

    /// The limit of zero, if it is one.
    pub(in crate::wire::rls) const fn zero(&self) -> Option<&ZeroLimit<'a>> {
        match self {
            Self::Zero(zero) => Some(zero),
            Self::NoLimit | Self::Allowed | Self::Budget(_) => None,
        }
    }
}

impl<'a> BudgetRequest<'a> {
    /// Creates the request on the budget of a limit that the descriptor sends along.
    pub(super) fn brought(
        name_of_limit: &'a str,
        key: Option<Cow<'a, [u8]>>,
        hits: Hits,
        limit: Option<WindowLimit>,
    ) -> Self {
        let (verb, rest, name) = (hits.verb_to_the_end(), hits.rest, Some(""));
        Self { policy: name_of_limit, key, app: None, verb, rest, name, limit, quota: false }
    }

    /// Creates the request on the budget of a named policy.
    fn named(policy: &'a str, key: Option<Cow<'a, [u8]>>, hits: Hits) -> Self {
        let (verb, rest) = (hits.verb(), hits.rest);
        Self { policy, key, app: None, verb, rest, name: None, limit: None, quota: false }
    }

    /// Makes this a request of `caller`, if it is permitted.
    pub(in crate::wire::rls) fn asked_by(&mut self, caller: &'a Caller) -> Result<(), CallerError> {
        caller.permits(verb_name(&self.verb))?;
        caller.may(scope_of(&self.verb))?;
        self.app = caller.app(self.app)?;
        Ok(())
    }

    /// The request as the engine takes it, by `rules` if the descriptor sends a limit along.
    pub(in crate::wire::rls) fn request_by<'r>(&'r self, rules: Option<&'r Rules>) -> Request<'r> {
        let Self { policy, key, app, verb, rest, name: _, limit: _, quota: _ } = self;
        let verb = match *verb {
            // All hits or none are more than one decision takes, so nothing is taken.
            Verb::Check { cost } | Verb::Acquire { cost, .. } if *rest > 0 => Verb::Peek { cost },
            _ => verb.clone(),
        };
        let request = Request::new(policy, key.as_deref(), verb);
        let request = Request { app: *app, patience: Patience::Gateway(HOLD_MAX), ..request };
        rules.map_or(request.clone(), |rules| request.by(rules))
    }

    /// Returns whether the request only peeks.
    pub(in crate::wire::rls) const fn looks(&self) -> bool {
        matches!(self.verb, Verb::Peek { .. })
    }

    /// Returns whether the request takes permits.
    pub(in crate::wire::rls) const fn takes(&self) -> bool {
        matches!(self.verb, Verb::Check { .. } | Verb::AtMost { .. } | Verb::Acquire { .. })
    }

    /// Returns whether the request takes all of its permits or none.
    pub(in crate::wire::rls) const fn is_whole(&self) -> bool {
        matches!(self.verb, Verb::Check { .. } | Verb::Acquire { .. })
    }

    /// Returns whether the descriptor is a quota.
    pub(in crate::wire::rls) const fn is_quota(&self) -> bool {
        self.quota
    }

    /// The name of the policy, or of limits that are sent along.
    pub(in crate::wire::rls) const fn policy(&self) -> &'a str {
        self.policy
    }

    /// Returns whether the request gives permits back.
    pub(in crate::wire::rls) const fn gives_back(&self) -> bool {
        matches!(self.verb, Verb::Refund { .. } | Verb::Release { .. })
    }
}

/// The name of `verb` here, where `AtMost` is how a descriptor checks.
fn verb_name(verb: &Verb) -> VerbName {
    match verb {
        Verb::AtMost { .. } => VerbName::Check,
        verb => VerbName::from(verb),
    }
}

/// The verb of the descriptor at `place`, also if nothing limits it.
pub(in crate::wire::rls) fn verb_at(message: &RateLimitRequest, place: usize) -> VerbName {
    verb_name(&Hits::of(&message.descriptors[place], message.hits_addend).verb())
}

/// The hits of a descriptor: its own number, or else the message's, where 0 means 1.
fn hits_of(of_descriptor: Option<u64>, of_message: u32) -> u64 {
    of_descriptor.unwrap_or_else(|| u64::from(of_message.max(1)))
}

/// Reads a message: a request for each of its descriptors, in their order.
pub(in crate::wire::rls) fn decode<'a>(
    message: &'a RateLimitRequest,
    tree: &'a DescriptorTree,
    policies: &PolicySet,
) -> Result<Vec<DescriptorRequest<'a>>, RlsError> {
    let RateLimitRequest { domain, descriptors, hits_addend } = message;
    if domain.is_empty() {
        return Err(RlsError::Invalid("domain: is missing".to_owned()));
    }
    if !(1..=DESCRIPTORS_MAX).contains(&descriptors.len()) {
        let found = descriptors.len();
        let problem = format!("descriptors: expected 1 to {DESCRIPTORS_MAX}, found {found}");
        return Err(RlsError::Invalid(problem));
    }
    let meaning = DomainMeaning::of(domain, tree, policies);
    let mut asks = Vec::with_capacity(descriptors.len());
    let mut replaced = Vec::new();
    for (place, descriptor) in descriptors.iter().enumerate() {
        let request = meaning.ask(domain, descriptor, *hits_addend);
        let (ask, leaf) = request.map_err(|problem| problem.of_descriptor(place))?;
        replaced.extend(leaf.into_iter().flat_map(|leaf| &leaf.replaces));
        asks.push((ask, leaf));
    }
    let counts = |leaf: Option<&Leaf>| {
        leaf.is_none_or(|leaf| leaf.name.is_empty() || !replaced.contains(&&leaf.name))
    };
    Ok(asks
        .into_iter()
        .map(|(ask, leaf)| match ask {
            DescriptorRequest::Allowed => ask,
            ask if counts(leaf) => ask,
            _ => DescriptorRequest::NoLimit,
        })
        .collect())
}

/// Returns whether `domain` is known.
pub(in crate::wire::rls) fn is_known(
    domain: &str,
    tree: &DescriptorTree,
    policies: &PolicySet,
) -> bool {
    !matches!(DomainMeaning::of(domain, tree, policies), DomainMeaning::Nothing)
}

/// The meaning of the descriptors of a domain.
enum DomainMeaning<'a> {
    Reserved,
    Tree(&'a DescriptorTree),
    Policy,
    Nothing,
}

/// The request, with its leaf if it is from a tree.
type ResolvedDescriptor<'a> = (DescriptorRequest<'a>, Option<&'a Leaf>);

impl<'a> DomainMeaning<'a> {
    fn of(domain: &str, tree: &'a DescriptorTree, policies: &PolicySet) -> Self {
        if domain == RESERVED_DOMAIN {
            Self::Reserved
        } else if tree.has(domain) {
            Self::Tree(tree)
        } else if policies.resolve(domain).is_some() {
            Self::Policy
        } else {
            Self::Nothing
        }
    }

    fn ask(
        &self,
        domain: &'a str,
        descriptor: &'a RateLimitDescriptor,
        request_hits: u32,
    ) -> Result<ResolvedDescriptor<'a>, RlsError> {
        let RateLimitDescriptor { entries, limit, .. } = descriptor;
        let hits = Hits::of(descriptor, request_hits);
        // In an unknown domain, not even a limit that the descriptor sends along applies.
        if let (Some(limit), false) = (limit, matches!(self, Self::Nothing)) {
            return Ok((brought(domain, entries, limit, hits)?, None));
        }
        match self {
            Self::Nothing => Ok((DescriptorRequest::NoLimit, None)),
            Self::Reserved => Ok((DescriptorRequest::Budget(named(entries, hits)?), None)),
            Self::Policy => {
                let hits = hits.of_permit(permit_in(entries)?);
                let parts = without_permit(entries).flat_map(|(key, value)| [key, value]);
                let key = join(parts).map(bounded);
                Ok((DescriptorRequest::Budget(BudgetRequest::named(domain, key, hits)), None))
            }
            Self::Tree(tree) => {
                let Some((leaf, key)) = tree.find(domain, pairs(entries)) else {
                    return Ok((DescriptorRequest::NoLimit, None));
                };
                Ok((of_leaf(leaf, key, hits), Some(leaf)))
            }
        }
    }
}

fn of_leaf<'a>(leaf: &'a Leaf, key: Option<Cow<'a, str>>, hits: Hits) -> DescriptorRequest<'a> {
    let Leaf { action, name, replaces: _, quota } = leaf;
    match action {
        DescriptorAction::Allow => DescriptorRequest::Allowed,
        DescriptorAction::Ignore => DescriptorRequest::NoLimit,
        DescriptorAction::Refuse { unit, shadow } => {
            let known_unit = unit.and_then(|unit| {
                UNITS.into_iter().find(|(_, window_s)| *window_s == unit.seconds())
            });
            DescriptorRequest::Zero(ZeroLimit {
                name,
                unit: known_unit,
                shadow: *shadow,
                quota: *quota,
            })
        }
        DescriptorAction::Policy(policy) => DescriptorRequest::Budget(BudgetRequest {
            policy,
            key: key.map(bounded),
            app: None,
            verb: hits.verb_to_the_end(),
            rest: hits.rest,
            name: Some(name),
            limit: None,
            quota: *quota,
        }),
    }
}

/// The policy, the key and the app that entries name.
fn named(entries: &[Entry], hits: Hits) -> Result<BudgetRequest<'_>, RlsError> {
    let (mut policy, mut key, mut app) = (None, None, None);
    let hits = hits.of_permit(permit_in(entries)?);
    for (name, value) in without_permit(entries) {
        let field = match name {
            "policy" => &mut policy,
            "key" => &mut key,
            "app" => &mut app,
            other => {
                let other = one_line(other);
                return Err(RlsError::Invalid(format!(
                    "entries: unknown key `{other}`, expected `policy`, `key`, `app` or `{PERMIT}`"
                )));
            }
        };
        if field.replace(value).is_some() {
            return Err(RlsError::Invalid(format!("entries: `{name}` is given twice")));
        }
    }
    let policy =
        policy.ok_or_else(|| RlsError::Invalid("entries: `policy` is missing".to_owned()))?;
    // A value that is empty, or too long for a store, is not an error: a gateway would let the request pass.
    let key = key.filter(|key| !key.is_empty()).map(|key| bounded(Cow::Borrowed(key)));
    Ok(BudgetRequest { app, ..BudgetRequest::named(policy, key, hits) })
}

/// The permit that entries name.
fn permit_in(entries: &[Entry]) -> Result<Option<PermitId>, RlsError> {
    let mut found = None;
    for (_, id) in pairs(entries).filter(|(key, _)| *key == PERMIT) {
        if id.is_empty() {
            return Err(RlsError::Invalid(format!("entries: `{PERMIT}` is empty")));
        }
        if found.replace(PermitId::named(id)).is_some() {
            return Err(RlsError::Invalid(format!("entries: `{PERMIT}` is given twice")));
        }
    }
    Ok(found)
}

/// The message that gives back the permits that `message` names; `None` if it names none.
pub(in crate::wire::rls) fn giving_back(message: &RateLimitRequest) -> Option<RateLimitRequest> {
    let names_permit = |descriptor: &&RateLimitDescriptor| {
        pairs(&descriptor.entries).any(|(key, _)| key == PERMIT)
    };
    let back = |descriptor: &RateLimitDescriptor| RateLimitDescriptor {
        hits_addend: Some(1),
        is_negative_hits: true,
        ..descriptor.clone()
    };
    let descriptors: Vec<_> = message.descriptors.iter().filter(names_permit).map(back).collect();
    let domain = message.domain.clone();
    (!descriptors.is_empty()).then_some(RateLimitRequest { domain, descriptors, hits_addend: 0 })
}

/// The other entries.
fn without_permit(entries: &[Entry]) -> impl Iterator<Item = (&str, &str)> {
    pairs(entries).filter(|(key, _)| *key != PERMIT)
}

/// The request of a descriptor that sends a limit along.
fn brought<'a>(
    domain: &'a str,
    entries: &'a [Entry],
    limit: &RateLimitOverride,
    hits: Hits,
) -> Result<DescriptorRequest<'a>, RlsError> {
    let RateLimitOverride { requests_per_unit, unit } = *limit;
    let known = UNITS.iter().find(|(known, _)| *known as i32 == unit);
    let Some((unit, window_s)) = known else {
        return Err(RlsError::Invalid(format!("limit.unit: `{unit}` is not a unit of time")));
    };
    if requests_per_unit == 0 {
        let unit = Some((*unit, *window_s));
        return Ok(DescriptorRequest::Zero(ZeroLimit {
            name: "",
            unit,
            shadow: false,
            quota: false,
        }));
    }
    // Limits of different units are different budgets: a second's usage is not part of a day's.
    let parts = pairs(entries).flat_map(|(key, value)| [key, value]);
    let key = join([domain, unit.as_str_name()].into_iter().chain(parts)).map(bounded);
    let limit = Some(WindowLimit { permits: requests_per_unit.into(), window_s: *window_s });
    Ok(DescriptorRequest::Budget(BudgetRequest::brought(OF_LIMITS, key, hits, limit)))
}

/// The entries as the tree takes them.
fn pairs(entries: &[Entry]) -> impl Iterator<Item = (&str, &str)> {
    entries.iter().map(|Entry { key, value }| (text(key), text(value)))
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap_or(REPLACED)
}

/// Replacement for bytes that are not text.
const REPLACED: &str = "\u{fffd}";

/// Replaces bytes of entries that are not text, each by U+FFFD. Clients of a gateway choose the bytes of
/// header fields: if such a message were an error, the request would pass.
pub(in crate::wire::rls) fn make_text(message: &mut RateLimitRequest) {
    let entries = message.descriptors.iter_mut().flat_map(|descriptor| &mut descriptor.entries);
    for bytes in entries.flat_map(|Entry { key, value }| [key, value]) {
        if str::from_utf8(bytes).is_err() {
            *bytes = String::from_utf8_lossy(bytes).into_owned().into_bytes();
        }
    }
}

/// `key` as stores take it. A gateway does not choose the length of the values that it sends.
pub(super) fn bounded(key: Cow<'_, str>) -> Cow<'_, [u8]> {
    if key.len() > KEY_BYTES_MAX {
        let hash = Sha256::digest(key.as_bytes());
        return Cow::Owned([&[LONG_KEY], &hash[..]].concat());
    }
    match key {
        Cow::Borrowed(key) => Cow::Borrowed(key.as_bytes()),
        Cow::Owned(key) => Cow::Owned(key.into_bytes()),
    }
}

/// The number of permits of a descriptor, and their use.
#[derive(Clone, Copy)]
pub(super) struct Hits {
    way: Way,
    /// Hits beyond those that one decision takes, which `way` has.
    rest: u64,
    /// The permit that they hold, or are of.
    permit: Option<PermitId>,
}

#[derive(Clone, Copy)]
enum Way {
    Look,
    Take(Cost),
    GiveBack(Cost),
}

impl Hits {
    fn new(hits: u64, negative: bool) -> Self {
        let way = match Cost::new(hits.min(COST_MAX)) {
            Err(_) => Way::Look,
            Ok(cost) if negative => Way::GiveBack(cost),
            Ok(cost) => Way::Take(cost),
        };
        Self { way, rest: hits.saturating_sub(COST_MAX), permit: None }
    }

    /// The hits of a descriptor.
    fn of(descriptor: &RateLimitDescriptor, request_hits: u32) -> Self {
        let hits = hits_of(descriptor.hits_addend, request_hits);
        Self::new(hits, descriptor.is_negative_hits)
    }

    /// Makes these the hits of a permit, if there is one: they hold it, or release it, which has no number.
    const fn of_permit(self, permit: Option<PermitId>) -> Self {
        let rest = match (self.way, permit) {
            (Way::GiveBack(_), Some(_)) => 0,
            _ => self.rest,
        };
        Self { permit, rest, ..self }
    }

    /// The verb that takes all of the hits, or none.
    const fn verb(self) -> Verb {
        match (self.way, self.permit) {
            (Way::Look, _) => Verb::Peek { cost: Cost::ONE },
            (Way::Take(cost), None) => Verb::Check { cost },
            (Way::Take(cost), Some(permit)) => Verb::Acquire { cost, permit },
            (Way::GiveBack(cost), None) => Verb::Refund { cost },
            (Way::GiveBack(_), Some(permit)) => Verb::Release { permit },
        }
    }

    /// The verb that takes as many of the hits as there are.
    fn verb_to_the_end(self) -> Verb {
        match self.way {
            Way::Take(cost) if cost != Cost::ONE => Verb::AtMost { cost },
            _ => self.verb(),
        }
    }
}

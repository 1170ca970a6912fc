//! One policy, compiled: all its properties are one look-up away.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use sluicegate_kernel::ruleset::is_name;
use sluicegate_kernel::{Micros, RuleSet};

use crate::attribute::{KeyAttribute, Matcher};
use crate::calendar::{Calendars, Windows};
use crate::error::DocumentError;
use crate::finding;
use crate::finding::Finding;
use crate::leases::{LeaseBounds, Leases};
use crate::text::TextError;

/// The limits of one resource: the apps that may use it, its rules, and the action over the limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub(crate) name: Box<str>,
    pub(crate) apps: Apps,
    /// The app that owns it, where that is known: that of a catalog.
    pub(crate) owner: Option<Box<str>>,
    pub(crate) rules: Rules,
    pub(crate) overrides: KeyOverrides,
    pub(crate) overflow: Overflow,
    pub(crate) on_store_failure: OnStoreFailure,
    pub(crate) on_overload: OnOverload,
    pub(crate) on_key_quota: OnKeyQuota,
    pub(crate) leases: Leases,
    pub(crate) matcher: Option<Matcher>,
    pub(crate) key: Box<[KeyAttribute]>,
    /// See [`Policy::in_force_since`].
    pub(crate) since: Micros,
}

/// The apps that may use a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Apps {
    /// The document names no apps: the owner, or every app where no owner is known.
    #[default]
    Unsaid,
    /// The apps that the document names, in order; with `*` every other app as well.
    Said { named: Box<[Box<str>]>, every: bool },
}

/// In `apps`: every app.
pub(crate) const EVERY_APP: &str = "*";

/// Rules of keys with an override. The authors of documents choose the keys, so the hash needs no secret.
pub(crate) type KeyOverrides = HashMap<Box<[u8]>, KeyOverride, FixedState>;

/// The rules of one key, in place of those of its policy.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyOverride {
    pub(crate) rules: Rules,
    pub(crate) end: Option<OverrideEnd>,
}

/// The end of an override.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OverrideEnd {
    pub(crate) at: Micros,
    /// The rules of the policy, in their own `Arc`: for this key they are in force later than for others, and stores
    /// remember one instant for each `Arc`.
    pub(crate) after: Rules,
}

/// The rules that hold for a key at an instant.
#[derive(Clone, Copy, Debug)]
pub struct RulesInForce<'p> {
    /// The rules. The `Arc` within is the same for as long as they are.
    pub rules: &'p Rules,
    /// The instant since which they hold for the key, in µs since the Unix epoch: since the policy is in force, or
    /// since the override of the key has ended.
    pub since: Micros,
    /// The rules are those of an override.
    pub is_override: bool,
}

/// The rules of a key, with the calendars that they follow.
#[derive(Clone, Debug)]
pub struct Rules {
    set: Arc<RuleSet>,
    calendars: Calendars,
}

/// The action for traffic over the limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// The request is refused.
    #[default]
    Reject,
    /// The request is held back, then passes.
    Queue {
        /// Longest hold.
        max_wait: Micros,
    },
    /// The request is not allowed; the caller serves a fallback.
    Degrade(Fallback),
    /// The request is not allowed; the caller sends it elsewhere.
    Divert {
        /// The target, in words that the gateway knows.
        target: Box<str>,
    },
    /// The request passes, and the refusal is only counted.
    Shadow,
}

/// The response to degraded traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// This response.
    Response {
        /// Its status, 200 to 599.
        status: u16,
        /// Its body.
        body: Box<str>,
        /// Its headers: names in lower case with their values.
        headers: HeaderPairs,
    },
    /// A tag by which the caller knows to serve its own fallback.
    Tag(Box<str>),
}

/// Names of headers with their values.
pub type HeaderPairs = Box<[(Box<str>, Box<str>)]>;

/// The decision while the store does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreFailure {
    /// Each node enforces its share.
    #[default]
    Local,
    /// Every request passes.
    Allow,
    /// Every request is refused.
    Deny,
}

impl OnStoreFailure {
    /// Its word in documents, records and answers: `local`, `allow` or `deny`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// The action for a request while the store answers, but has more to do than it can in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnOverload {
    /// The request is refused, with a retry.
    #[default]
    Refuse,
    /// The request is repeated.
    Wait {
        /// The longest time for that; then it is refused: at most 10 s.
        max: Micros,
    },
}

/// The decision for new keys while a memory store holds as many keys of the policy as it may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnKeyQuota {
    /// They share one budget of the policy's rules.
    #[default]
    Share,
    /// They are refused.
    Deny,
}

impl Policy {
    /// The policy `name` with these rules, for every app and key, rejecting what is over the limit.
    ///
    /// # Errors
    /// [`DocumentError`] if `name` is not a name or a rule's time zone does not exist.
    pub fn new(name: &str, rules: RuleSet) -> Result<Self, DocumentError> {
        if !is_name(name) {
            return Err(DocumentError::new("name", "/name", no_name(name)));
        }
        let rules = Rules::new(rules).map_err(|(place, error)| {
            let path = alloc::format!("rules[{place}].fixed_window.time_zone");
            let pointer = alloc::format!("/rules/{place}/fixed_window/time_zone");
            DocumentError::new(path, pointer, error.into_finding())
        })?;
        Ok(Self {
            name: name.into(),
            apps: Apps::Unsaid,
            owner: None,
            rules,
            overrides: KeyOverrides::default(),
            overflow: Overflow::default(),
            on_store_failure: OnStoreFailure::default(),
            on_overload: OnOverload::default(),
            on_key_quota: OnKeyQuota::default(),
            leases: Leases::default(),
            matcher: None,
            key: Box::default(),
            since: Micros::ZERO,
        })
    }

    /// The instant at which this process took this version over: later than any version before. The epoch: not yet. See
    /// [`PolicySet::in_force`](crate::PolicySet::in_force).
    pub const fn in_force_since(&self) -> Micros {
        self.since
    }

    /// Its name, unique in its set.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether `app` may use it. `None`, an unknown app, may use what every app may.
    #[inline]
    pub fn admits(&self, app: Option<&str>) -> bool {
        match &self.apps {
            Apps::Unsaid | Apps::Said { every: true, .. } => true,
            Apps::Said { named, every: false } => names(named, app),
        }
    }

    /// Returns whether `app` may give back or forget usage: its owner and the apps that it names may. Any other app
    /// that may use it because every app may shares the budget with strangers.
    #[inline]
    pub fn entrusts(&self, app: Option<&str>) -> bool {
        match (&self.apps, &self.owner) {
            (Apps::Said { named, every: true }, Some(owner)) => {
                app == Some(owner) || names(named, app)
            }
            _ => self.admits(app),
        }
    }

    /// Returns the policy for every app: one that guards a resource, whatever app uses it.
    #[must_use]
    pub fn for_every_app(self) -> Self {
        Self { apps: Apps::Unsaid, owner: None, ..self }
    }

    /// Returns the policy in shadow mode, which only reports what it would refuse.
    #[must_use]
    pub fn shadowed(self) -> Self {
        Self { overflow: Overflow::Shadow, ..self }
    }

    /// Returns the policy as owned by `app`: without `apps` it is only for this one, and its `match` only guards
    /// requests of this one. Otherwise it could hold up requests of others.
    #[must_use]
    pub fn of_app(self, app: &str) -> Self {
        let apps = match self.apps {
            Apps::Unsaid => Apps::Said { named: [app.into()].into(), every: false },
            said @ Apps::Said { .. } => said,
        };
        Self { apps, owner: Some(app.into()), ..self }
    }

    /// The app that owns it, where that is known.
    pub fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// Returns whether it guards requests of `app` that fit its `match`, and not only those that name it: those of its
    /// owner, or where no owner is known, of every app that may use it.
    pub fn guards(&self, app: Option<&str>) -> bool {
        let is_own = self.owner.as_deref().is_none_or(|owner| app == Some(owner));
        is_own && self.admits(app)
    }

    /// The apps that may use it, in order; `None`: every app.
    pub fn apps(&self) -> Option<impl ExactSizeIterator<Item = &str>> {
        match &self.apps {
            Apps::Unsaid | Apps::Said { every: true, .. } => None,
            Apps::Said { named, every: false } => Some(named.iter().map(AsRef::as_ref)),
        }
    }

    /// The apps that it names, in order, also where every other app may use it as well.
    pub fn named_apps(&self) -> impl Iterator<Item = &str> {
        let named = match &self.apps {
            Apps::Unsaid => &[][..],
            Apps::Said { named, .. } => named,
        };
        named.iter().map(AsRef::as_ref)
    }

    /// Returns whether its document admits every app: `apps: ["*"]`.
    pub const fn says_every_app(&self) -> bool {
        matches!(self.apps, Apps::Said { every: true, .. })
    }

    /// The rules of `key` at `now`, in µs since the Unix epoch: its override until that ends, else those of the
    /// policy.
    #[inline]
    pub fn rules_at(&self, key: &[u8], now: Micros) -> RulesInForce<'_> {
        let own = if self.overrides.is_empty() { None } else { self.overrides.get(key) };
        let (rules, since) = match own {
            None => (&self.rules, self.since),
            Some(KeyOverride { end: Some(end), .. }) if end.at <= now => {
                (&end.after, self.since.max(end.at))
            }
            Some(KeyOverride { rules, .. }) => {
                return RulesInForce { rules, since: self.since, is_override: true };
            }
        };
        RulesInForce { rules, since, is_override: false }
    }

    /// The rules of keys without an override.
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The keys with rules of their own, in no order.
    pub fn overrides(&self) -> impl Iterator<Item = (&[u8], &KeyOverride)> {
        self.overrides.iter().map(|(key, own)| (&**key, own))
    }

    /// Returns whether one of its rules, or of an override, hands out permits with ids: then it takes `acquire`, and no
    /// check.
    pub fn hands_out_permits(&self) -> bool {
        let own = self.overrides.values().map(|own| &own.rules);
        let mut all = [&self.rules].into_iter().chain(own);
        all.any(|rules| rules.set().rules().iter().any(|named| named.rule.holds_permits()))
    }

    /// All rules that can hold for a key: the rules of keys without an override, those of every override, and those
    /// that follow it.
    pub fn all_rules(&self) -> impl Iterator<Item = &Rules> {
        let own = self
            .overrides
            .values()
            .flat_map(|own| [&own.rules].into_iter().chain(own.end.as_ref().map(|end| &end.after)));
        [&self.rules].into_iter().chain(own)
    }

    /// The action for traffic over the limit.
    pub const fn overflow(&self) -> &Overflow {
        &self.overflow
    }

    /// The decision while the store does not answer.
    pub const fn on_store_failure(&self) -> OnStoreFailure {
        self.on_store_failure
    }

    /// The action for a request while the store is overloaded.
    #[inline]
    pub const fn on_overload(&self) -> OnOverload {
        self.on_overload
    }

    /// The decision for new keys beyond its quota of keys.
    #[inline]
    pub const fn on_key_quota(&self) -> OnKeyQuota {
        self.on_key_quota
    }

    /// The leases of its permits, as its document sets them.
    pub const fn leases(&self) -> Leases {
        self.leases
    }

    /// The bounds of leases of its permits. `None`: never leased, because its document sets `off` or because
    /// `overflow: queue` books permits in advance. Rules that cannot be leased are not considered: see
    /// [`RuleSet::leasing_span`].
    pub fn lease_bounds(&self) -> Option<LeaseBounds> {
        match (self.leases, &self.overflow) {
            (Leases::Off, _) | (_, Overflow::Queue { .. }) => None,
            (Leases::Auto, _) => Some(LeaseBounds::default()),
            (Leases::Within(bounds), _) => Some(bounds),
        }
    }

    /// The requests that it guards, for gateways that send attributes; `None`: those that name it.
    pub const fn matcher(&self) -> Option<&Matcher> {
        self.matcher.as_ref()
    }

    /// The attributes that make up the key, for [`key_of`](crate::attribute::key_of).
    pub const fn key(&self) -> &[KeyAttribute] {
        &self.key
    }

    /// Takes the `Arc`s of `old` over where the rules are equal, so that the state of their keys need not be converted.
    pub(crate) fn inherit(&mut self, old: &Self) {
        self.rules.inherit(&old.rules);
        for (key, own) in &mut self.overrides {
            let Some(old) = old.overrides.get(key) else { continue };
            own.rules.inherit(&old.rules);
            if let (Some(end), Some(old)) = (&mut own.end, &old.end) {
                end.after.inherit(&old.after);
            }
        }
    }
}

impl KeyOverride {
    /// The rules.
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The instant at which it ends, in µs since the Unix epoch; `None`: never.
    pub fn until(&self) -> Option<Micros> {
        self.end.as_ref().map(|end| end.at)
    }
}

impl Rules {
    /// `set` with its calendars.
    ///
    /// # Errors
    /// The place of the first rule whose time zone does not exist, and the problem.
    pub fn new(set: RuleSet) -> Result<Self, (usize, TextError)> {
        let calendars = Calendars::of(&set)?;
        Ok(Self { set: Arc::new(set), calendars })
    }

    /// Returns the rules in another `Arc`.
    pub(crate) fn apart(&self) -> Self {
        Self { set: Arc::new(RuleSet::clone(&self.set)), calendars: self.calendars.clone() }
    }

    /// Takes the `Arc` of `old` over if the rules are equal.
    fn inherit(&mut self, old: &Self) {
        if self == old {
            *self = old.clone();
        }
    }

    /// The rules.
    #[inline]
    pub const fn set(&self) -> &Arc<RuleSet> {
        &self.set
    }

    /// The calendar windows around `now`, in µs since the Unix epoch; see [`Calendars::windows`].
    #[inline]
    pub fn windows(&self, now: Micros) -> Windows {
        self.calendars.windows(now)
    }
}

/// Rules are equal when their sets are: calendars follow from them.
impl PartialEq for Rules {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.set, &other.set) || self.set == other.set
    }
}

/// Returns whether `app` is one of those `named`, which are in order.
fn names(named: &[Box<str>], app: Option<&str>) -> bool {
    app.is_some_and(|app| named.binary_search_by(|named| (**named).cmp(app)).is_ok())
}

/// The error of an invalid name.
pub(crate) fn no_name(name: &str) -> Finding {
    use sluicegate_kernel::limits::NAME_BYTES_MAX;
    let (given, max) = (crate::quoted::quoted(name), NAME_BYTES_MAX);
    match near_name(name) {
        Some(near) => finding!(
            "bad_name_near",
            "invalid name {given}: expected 1 to {max} bytes of `[a-z0-9._-]`, such as `{near}`",
            given,
            max,
            near
        ),
        None => finding!(
            "bad_name",
            "invalid name {given}: expected 1 to {max} bytes of `[a-z0-9._-]`",
            given,
            max
        ),
    }
}

/// `Orders Create` as a name: `orders-create`. `None` if letters would be lost.
fn near_name(name: &str) -> Option<String> {
    let near: String = name
        .trim()
        .chars()
        .map(|char| if matches!(char, ' ' | '/' | ':') { '-' } else { char.to_ascii_lowercase() })
        .collect();
    is_name(&near).then_some(near)
}

//! One policy, compiled: everything a request needs to know of it is one look-up away.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use sluicegate_kernel::ruleset::is_name;
use sluicegate_kernel::{Micros, RuleSet};

use crate::attribute::{KeyAttribute, Matcher};
use crate::calendar::{Calendars, Windows};
use crate::error::DocumentError;
use crate::text::TextError;

/// What guards one resource: who may use it, its rules, and what happens over the limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub(crate) name: Box<str>,
    /// In order; `None`: every app.
    pub(crate) apps: Option<Box<[Box<str>]>>,
    /// Whose it is, where that is known.
    pub(crate) of_app: Option<Box<str>>,
    pub(crate) rules: Rules,
    pub(crate) overrides: Overrides,
    pub(crate) overflow: Overflow,
    pub(crate) on_store_failure: OnStoreFailure,
    pub(crate) matcher: Option<Matcher>,
    pub(crate) key: Box<[KeyAttribute]>,
}

/// Rules of their own by key. Who writes documents chooses the keys, so the hash needs no secret.
pub(crate) type Overrides = HashMap<Box<[u8]>, Rules, FixedState>;

/// The rules of a key, with the calendars that they follow.
#[derive(Clone, Debug)]
pub struct Rules {
    set: Arc<RuleSet>,
    calendars: Calendars,
}

/// What is done with traffic over the limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// It is refused.
    #[default]
    Reject,
    /// It is held back, then passes.
    Queue {
        /// Longest hold.
        max_wait: Micros,
    },
    /// It passes, marked, and gets a fallback.
    Degrade(Fallback),
    /// It is sent elsewhere.
    Divert {
        /// Where to, in words that the gateway knows.
        target: Box<str>,
    },
    /// It passes and is counted as would-be-refused.
    Shadow,
}

/// What degraded traffic gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// This response.
    Response {
        /// Its status, 200 to 599.
        status: u16,
        /// Its body.
        body: Box<str>,
        /// Its headers: names in lower case with their values.
        headers: Headers,
    },
    /// A tag by which the caller knows to serve its own fallback.
    Tag(Box<str>),
}

/// Names of headers with their values.
pub type Headers = Box<[(Box<str>, Box<str>)]>;

/// What is decided while the store does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreFailure {
    /// Each node enforces its share.
    #[default]
    Local,
    /// Everything passes.
    Allow,
    /// Nothing passes.
    Deny,
}

impl Policy {
    /// The policy `name` with these rules, for every app and key, rejecting what is over the limit.
    ///
    /// # Errors
    /// [`DocumentError`] if `name` is no name or a rule's time zone does not exist.
    pub fn new(name: &str, rules: RuleSet) -> Result<Self, DocumentError> {
        if !is_name(name) {
            return Err(DocumentError::new("name", no_name(name)));
        }
        let rules = Rules::new(rules).map_err(|(place, error)| {
            let path = alloc::format!("rules[{place}].fixed_window.time_zone");
            DocumentError::new(path, error.to_string())
        })?;
        Ok(Self {
            name: name.into(),
            apps: None,
            of_app: None,
            rules,
            overrides: Overrides::default(),
            overflow: Overflow::default(),
            on_store_failure: OnStoreFailure::default(),
            matcher: None,
            key: Box::default(),
        })
    }

    /// Its name, unique in its set.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether `app` may use it. `None`, an app that is not known, may use what every app may.
    #[inline]
    pub fn admits(&self, app: Option<&str>) -> bool {
        let Some(apps) = &self.apps else { return true };
        app.is_some_and(|app| apps.binary_search_by(|admitted| (**admitted).cmp(app)).is_ok())
    }

    /// The same policy for every app: what guards a resource, whoever may use it.
    #[must_use]
    pub fn for_every_app(self) -> Self {
        Self { apps: None, ..self }
    }

    /// The same policy, which only says what it would refuse.
    #[must_use]
    pub fn shadowed(self) -> Self {
        Self { overflow: Overflow::Shadow, ..self }
    }

    /// The same policy, as one of `app`: of requests that tell their app it guards those of this one
    /// only. Otherwise it could hold up the requests of others, who never heard of it.
    #[must_use]
    pub fn of_app(self, app: &str) -> Self {
        Self { of_app: Some(app.into()), ..self }
    }

    /// Whether requests of `app` are guarded by it where its `match` fits them, and not only where they
    /// name it. `None`, an app that is not known, is guarded by what every app may use.
    pub fn guards(&self, app: Option<&str>) -> bool {
        let is_own = match (&self.of_app, app) {
            (Some(own), Some(app)) => **own == *app,
            _ => true,
        };
        is_own && self.admits(app)
    }

    /// The apps that may use it, in order; `None`: every app.
    pub fn apps(&self) -> Option<impl ExactSizeIterator<Item = &str>> {
        self.apps.as_ref().map(|apps| apps.iter().map(AsRef::as_ref))
    }

    /// The rules of `key`: its override, or those of the policy. The `Arc` within is the same for
    /// as long as the rules are.
    #[inline]
    pub fn rules_for(&self, key: &[u8]) -> &Rules {
        if self.overrides.is_empty() {
            return &self.rules;
        }
        self.overrides.get(key).unwrap_or(&self.rules)
    }

    /// The rules of keys without an override.
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The keys with rules of their own, in no order.
    pub fn overrides(&self) -> impl Iterator<Item = (&[u8], &Rules)> {
        self.overrides.iter().map(|(key, rules)| (&**key, rules))
    }

    /// What is done with traffic over the limit.
    pub const fn overflow(&self) -> &Overflow {
        &self.overflow
    }

    /// What is decided while the store does not answer.
    pub const fn on_store_failure(&self) -> OnStoreFailure {
        self.on_store_failure
    }

    /// Which requests it guards, for gateways that send attributes; `None`: those that name it.
    pub const fn matcher(&self) -> Option<&Matcher> {
        self.matcher.as_ref()
    }

    /// The attributes that make up the key, for [`key_of`](crate::attribute::key_of).
    pub const fn key(&self) -> &[KeyAttribute] {
        &self.key
    }

    /// Takes the `Arc`s of `old` over where the rules are equal, so that nobody need look at the
    /// state of their keys.
    pub(crate) fn inherit(&mut self, old: &Self) {
        if self.rules == old.rules {
            self.rules = old.rules.clone();
        }
        for (key, rules) in &mut self.overrides {
            if let Some(old) = old.overrides.get(key).filter(|old| *old == rules) {
                *rules = old.clone();
            }
        }
    }
}

impl Rules {
    /// `set` with its calendars.
    ///
    /// # Errors
    /// The place of the first rule whose time zone does not exist, and what is wrong with it.
    pub fn new(set: RuleSet) -> Result<Self, (usize, TextError)> {
        let calendars = Calendars::of(&set)?;
        Ok(Self { set: Arc::new(set), calendars })
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

/// What is wrong with a name that is none.
pub(crate) fn no_name(name: &str) -> String {
    use sluicegate_kernel::limits::NAME_BYTES_MAX;
    let given = crate::error::quoted(name);
    alloc::format!("{given} is no name: expected 1 to {NAME_BYTES_MAX} bytes of `[a-z0-9._-]`")
}

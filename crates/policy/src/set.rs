//! All policies of a node: immutable, and swapped whole when an operator changes one.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use sluicegate_kernel::Micros;

use crate::attribute::Attributes;
use crate::document::{Document, too_many_policies};
use crate::error::DocumentError;
use crate::limits::POLICIES_MAX;
use crate::policy::Policy;

/// Stores that many processes share distinguish versions of a policy by the millisecond.
const MILLISECOND: Micros = Micros::new(1_000);

/// Policies by name, in the order of their document.
#[derive(Clone, Debug, Default)]
pub struct PolicySet {
    policies: Vec<Arc<Policy>>,
    /// Places in `policies`, by name.
    by_name: HashTable<u32>,
    /// Places in `policies` of those that match attributes, in order.
    matching: Vec<u32>,
}

impl PolicySet {
    /// The policies of `document`.
    pub fn new(document: Document) -> Self {
        let mut set = Self::default();
        for policy in document.into_policies() {
            set.put(Arc::new(policy));
        }
        set.finished()
    }

    /// The policies of `document`, which replaces the document of `old`. Policies and rules that did not change stay
    /// the very same `Arc`s.
    pub fn succeeding(old: &Self, document: Document) -> Self {
        let mut set = Self::default();
        for mut policy in document.into_policies() {
            let before = old.resolve(policy.name());
            policy.since = before.map_or(Micros::ZERO, |before| before.since);
            set.put(match before {
                Some(before) if **before == policy => Arc::clone(before),
                Some(before) => {
                    policy.inherit(before);
                    Arc::new(policy)
                }
                None => Arc::new(policy),
            });
        }
        set.finished()
    }

    /// The policy called `name`.
    #[inline]
    pub fn resolve(&self, name: &str) -> Option<&Arc<Policy>> {
        let place = self.place(name)?;
        self.policies.get(place)
    }

    /// All policies whose `match` guards this request, in the order of the document.
    pub fn matching(&self, attributes: &Attributes<'_>) -> impl Iterator<Item = &Arc<Policy>> {
        let with_matcher = self.matching.iter().map(|place| &self.policies[*place as usize]);
        with_matcher.filter(|policy| policy.matcher().is_some_and(|by| by.matches(attributes)))
    }

    /// Returns the set with `policy`, which replaces the one with its name or is added at the end. Its rules count as
    /// new ones even if they equal the old.
    ///
    /// # Errors
    /// [`DocumentError`] if it would be one more than [`POLICIES_MAX`].
    pub fn with(&self, policy: Policy) -> Result<Self, DocumentError> {
        if self.len() == POLICIES_MAX && self.resolve(policy.name()).is_none() {
            let problem = too_many_policies();
            return Err(DocumentError::new("policies", "/policies", problem));
        }
        let mut set = self.clone();
        set.put(Arc::new(policy));
        Ok(set.finished())
    }

    /// Returns the set with `changed`, each of which replaces the one with its name or is added at the end, and
    /// without the policies whose names are in `gone`. Policies that did not change stay the very same, as do the
    /// parts that a changed policy has in common with the one before it.
    ///
    /// # Errors
    /// [`DocumentError`] if there would be more than [`POLICIES_MAX`].
    pub fn changed(&self, changed: Vec<Policy>, gone: &[String]) -> Result<Self, DocumentError> {
        let mut set = self.clone();
        if !gone.is_empty() {
            let gone: BTreeSet<_> = gone.iter().map(String::as_str).collect();
            set = Self::default();
            for policy in self.policies.iter().filter(|policy| !gone.contains(policy.name())) {
                set.put(Arc::clone(policy));
            }
        }
        for mut policy in changed {
            if let Some(before) = self.resolve(policy.name()) {
                policy.inherit(before);
            }
            set.put(Arc::new(policy));
        }
        if set.len() > POLICIES_MAX {
            let problem = too_many_policies();
            return Err(DocumentError::new("policies", "/policies", problem));
        }
        Ok(set.finished())
    }

    /// Returns the set as it replaces `old` at `now`: its policies are in force since then, except those that `old` has
    /// as well. Where `now` is not after the instant at which a replaced policy was taken over, its successor counts as
    /// taken over a millisecond after that.
    #[must_use]
    pub fn in_force(self, old: &Self, now: Micros) -> Self {
        self.in_force_as_of(old, |_| now)
    }

    /// Returns the set as it replaces `old`, where each policy that `old` does not have is in force since the instant
    /// that `since` returns for its name.
    #[must_use]
    pub fn in_force_as_of(mut self, old: &Self, since: impl Fn(&str) -> Micros) -> Self {
        for policy in &mut self.policies {
            let before = old.resolve(policy.name());
            if before.is_some_and(|before| Arc::ptr_eq(before, policy)) {
                continue;
            }
            let next = before.map_or(Micros::ZERO, |before| before.since.plus(MILLISECOND));
            let since = since(policy.name()).max(next);
            Arc::make_mut(policy).since = since;
        }
        self
    }

    /// The policies, in the order of the document.
    pub fn policies(&self) -> &[Arc<Policy>] {
        &self.policies
    }

    /// The number of policies.
    pub const fn len(&self) -> usize {
        self.policies.len()
    }

    /// Returns whether there is no policy.
    pub const fn is_empty(&self) -> bool {
        self.policies.is_empty()
    }

    #[inline]
    fn place(&self, name: &str) -> Option<usize> {
        let named = |place: &u32| self.policies[*place as usize].name() == name;
        self.by_name.find(hash(name), named).map(|place| *place as usize)
    }

    fn put(&mut self, policy: Arc<Policy>) {
        if let Some(place) = self.place(policy.name()) {
            self.policies[place] = policy;
        } else {
            let place = u32::try_from(self.len()).expect("a set has at most POLICIES_MAX policies");
            let policies = &self.policies;
            let rehash = |place: &u32| hash(policies[*place as usize].name());
            self.by_name.insert_unique(hash(policy.name()), place, rehash);
            self.policies.push(policy);
        }
    }

    /// Completes the set after the last [`put`](Self::put).
    fn finished(mut self) -> Self {
        let places = self.policies.iter().zip(0..);
        let matching = places.filter(|(policy, _)| policy.matcher().is_some());
        self.matching = matching.map(|(_, place)| place).collect();
        self
    }
}

/// The hash of a name. The authors of documents choose the names, so it needs no secret.
#[inline]
fn hash(name: &str) -> u64 {
    FixedState::default().hash_one(name)
}

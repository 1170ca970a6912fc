//! Publishes the policies of the catalog in Redis, for programs that decide there themselves
//! (`spec/redis-protocol.md`).

use std::borrow::Cow;
use std::sync::Arc;

use sluicegate::internals::store::redis::{
    Publication, PublicationPolicy, PublicationSource, PublishOutcome, RevisionDiff,
};
use sluicegate_control::catalog::{PolicyState, PublishedPolicy as CatalogPolicy};
use sluicegate_control::node::CatalogSnapshot;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::sync_state::SyncState;
use crate::policies::publish::{LOOK_EVERY, PublishFailure, compile, later_format};
use crate::store::RedisBackend;

/// Publishes policies in Redis, and remembers what Redis has.
#[derive(Debug, Default)]
pub(super) struct Publisher {
    /// The snapshot that Redis had last; absent before the first look.
    there: Option<Arc<CatalogSnapshot>>,
    /// A later revision that Redis had, and the time when that was found. If the catalog is asked
    /// after that time and has not reached the revision, the revision was taken back.
    later: Option<(i64, Instant)>,
    failure: PublishFailure,
}

impl Publisher {
    /// Publishes the snapshot when it changes, and checks at intervals whether Redis still has it, until `stop`.
    pub(super) async fn run(
        mut self,
        store: &RedisBackend,
        mut holding: watch::Receiver<SyncState>,
        stop: &CancellationToken,
    ) {
        let publishing = async {
            loop {
                let now = holding.borrow_and_update().clone();
                // A server that does not reach the catalog, or cannot read a policy, leaves this to others.
                if now.catalog.is_some() && now.held.is_readable() {
                    self.look(store, now).await;
                }
                tokio::select! {
                    // An error means that no sender is left; then this ends as well.
                    changed = holding.changed() => if changed.is_err() { return },
                    () = sleep(LOOK_EVERY) => {}
                }
            }
        };
        stop.run_until_cancelled(publishing).await;
    }

    /// Publishes the snapshot, if Redis does not have it.
    async fn look(&mut self, store: &RedisBackend, SyncState { held, asked_at, .. }: SyncState) {
        let documents: Vec<_> = held.policies().map(document).collect();
        let policies = held.policies().zip(&documents);
        let policies: Vec<_> = policies.map(|(it, document)| published(it, document)).collect();
        let (there, of_other) = match &self.there {
            Some(there) if there.catalog() == held.catalog() => (Some(there), None),
            of_other => (None, of_other.as_ref()),
        };
        let names: Vec<_> = there.iter().flat_map(|there| held.differing(there)).collect();
        let changed = there.map(|there| RevisionDiff { since: there.revision(), names: &names });
        let taken_back = self.taken_back(held.revision(), asked_at);
        let instead_of = of_other.map(|there| there.revision()).or(taken_back);
        let source = PublicationSource::Catalog;
        let publication = Publication::new(held.revision(), &policies, source, compile);
        let publication = Publication { changed, instead_of, ..publication };
        let problem = match store.publish(&publication).await {
            Ok(PublishOutcome::Written | PublishOutcome::Known) => {
                (self.there, self.later) = (Some(Arc::clone(&held)), None);
                None
            }
            Ok(PublishOutcome::Busy) => None,
            Ok(PublishOutcome::Later { revision }) => {
                self.later = Some((revision, Instant::now()));
                None
            }
            Ok(PublishOutcome::LaterFormat { format }) => Some(later_format(format)),
            // A catalog replaces whatever is published.
            Ok(PublishOutcome::OfCatalog) => None,
            Err(error) => Some(error.to_string()),
        };
        self.failure.record(problem.as_deref());
    }

    /// The later revision in Redis that was taken back, if the catalog was asked after it was found,
    /// at `asked_at`, and was only at `revision`.
    fn taken_back(&self, revision: i64, asked_at: Instant) -> Option<i64> {
        let (later, found_at) = self.later?;
        (revision < later && asked_at > found_at).then_some(later)
    }
}

/// The document of a policy, always with its `apps`: a program that does not know the owner takes a
/// policy without `apps` for one of every app.
fn document(policy: &CatalogPolicy) -> Cow<'_, str> {
    let document = policy.document.as_str();
    // The catalog writes members in the order of their names, and no other comes before this one.
    match document.strip_prefix('{') {
        Some(members) if !members.starts_with(APPS) => {
            Cow::Owned(format!("{{{APPS}[\"{}\"],{members}", policy.app))
        }
        _ => Cow::Borrowed(document),
    }
}

/// The beginning of a document that names its apps.
const APPS: &str = "\"apps\":";

fn published<'p>(policy: &'p CatalogPolicy, document: &'p str) -> PublicationPolicy<'p> {
    PublicationPolicy {
        name: &policy.name,
        app: &policy.app,
        is_shadow: policy.state == PolicyState::Shadow,
        version: policy.version,
        since_ms: Some(policy.updated_at).filter(|at| *at > 0),
        document,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_redis_has_says_whose_a_policy_is_without_apps() {
        let rules = r#""name":"orders","rules":[]}"#;
        for (written, carried) in [
            (format!("{{{rules}"), format!(r#"{{"apps":["shop"],{rules}"#)),
            (format!(r#"{{"apps":["bank"],{rules}"#), format!(r#"{{"apps":["bank"],{rules}"#)),
            (format!(r#"{{"apps":["*"],{rules}"#), format!(r#"{{"apps":["*"],{rules}"#)),
        ] {
            let (name, app) = ("orders".to_owned(), "shop".to_owned());
            let policy = CatalogPolicy {
                name,
                app,
                state: PolicyState::Active,
                version: 1,
                updated_at: 0,
                document: written,
            };
            assert_eq!(document(&policy), carried);
        }
    }

    #[test]
    fn who_is_late_takes_nothing_back() {
        let found_at = Instant::now();
        let publisher = Publisher { later: Some((7, found_at)), ..Publisher::default() };
        let (before, after) = (found_at - LOOK_EVERY, found_at + LOOK_EVERY);
        // An answer from before says nothing about later changes.
        assert_eq!(publisher.taken_back(5, before), None);
        assert_eq!(publisher.taken_back(5, after), Some(7));
        assert_eq!(publisher.taken_back(7, after), None, "it has got so far");
    }
}

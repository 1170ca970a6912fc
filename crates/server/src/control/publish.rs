//! Has Redis carry what the catalog says, for programs that go to Redis themselves
//! (`spec/redis-protocol.md`).

use std::collections::BTreeSet;
use std::time::Duration;

use sluicegate::store::redis::{Changed, Publication, Published, PublishedPolicy};
use sluicegate_control::catalog::State;
use sluicegate_control::node::{Held, News};
use sluicegate_policy::Policy;
use tokio::time::Instant;

use crate::store::OnRedis;

/// How often it is looked at whether Redis still has the policies: it may have lost its data.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// What is known of the policies in Redis.
#[derive(Debug, Default)]
pub(super) struct Publisher {
    /// The revision that was there last; none: nobody has looked.
    there: Option<i64>,
    /// Names of policies that are new, changed or gone since then.
    changed: BTreeSet<String>,
    /// A later revision that was found there. If the catalog is asked again and has not got so far,
    /// it was taken back.
    later: Option<i64>,
    looked_at: Option<Instant>,
    is_failing: bool,
}

impl Publisher {
    /// Notes what changed.
    pub(super) fn note(&mut self, news: &News) {
        let names =
            news.changed.iter().map(Policy::name).chain(news.gone.iter().map(String::as_str));
        self.changed.extend(names.map(str::to_owned));
    }

    /// Publishes what is held, where Redis may not have it; the catalog has just said that it holds.
    pub(super) async fn look(&mut self, store: &OnRedis, held: &Held) {
        let is_new = self.there != Some(held.revision());
        let is_due = self.looked_at.is_none_or(|at| at.elapsed() >= LOOK_EVERY);
        // Who cannot read a policy leaves publishing to those who can.
        if !(is_new || is_due) || !held.is_readable() {
            return;
        }
        self.looked_at = Some(Instant::now());
        let policies: Vec<_> = held.policies().map(published).collect();
        let names: Vec<_> = self.changed.iter().map(String::as_str).collect();
        let instead_of = self.later.take().filter(|later| held.revision() < *later);
        let publication = Publication {
            revision: held.revision(),
            policies: &policies,
            changed: self.there.map(|since| Changed { since, names: &names }),
            instead_of,
        };
        let problem = match store.publish(&publication).await {
            Ok(Published::Written | Published::Known) => {
                self.there = Some(held.revision());
                self.changed.clear();
                None
            }
            Ok(Published::Busy) => None,
            Ok(Published::Later { revision }) => {
                self.later = Some(revision);
                None
            }
            Ok(Published::LaterFormat { format }) => {
                Some(format!("a later version keeps them there, in format {format}"))
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(problem) = &problem
            && !self.is_failing
        {
            tracing::warn!("policies are not published in Redis: {problem}");
        }
        self.is_failing = problem.is_some();
    }
}

fn published(policy: &sluicegate_control::catalog::PublishedPolicy) -> PublishedPolicy<'_> {
    PublishedPolicy {
        name: &policy.name,
        app: &policy.app,
        is_shadow: policy.state == State::Shadow,
        version: policy.version,
        document: &policy.document,
    }
}

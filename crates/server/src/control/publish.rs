//! Has Redis carry what the catalog says, for programs that go to Redis themselves
//! (`spec/redis-protocol.md`).

use std::sync::Arc;
use std::time::Duration;

use sluicegate::store::redis::{Changed, Publication, Published, PublishedPolicy};
use sluicegate_control::catalog::State;
use sluicegate_control::node::Held;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::follow::Holding;
use crate::store::OnRedis;

/// How often it is looked at whether Redis still has the policies: it may have lost its data.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// What is known of the policies in Redis.
#[derive(Debug, Default)]
pub(super) struct Publisher {
    /// What was there last; none: nobody has looked.
    there: Option<Arc<Held>>,
    /// A later revision that was found there. If the catalog is asked again and has not got so far,
    /// it was taken back.
    later: Option<i64>,
    is_failing: bool,
}

impl Publisher {
    /// Publishes what is held when that changes, and looks now and then whether it is still there,
    /// until `stop`.
    pub(super) async fn keep(
        mut self,
        store: &OnRedis,
        mut holding: watch::Receiver<Holding>,
        stop: &CancellationToken,
    ) {
        let publishing = async {
            loop {
                let Holding { held, catalog, .. } = holding.borrow_and_update().clone();
                // Who does not hear of the catalog, or cannot read a policy, leaves it to others.
                if catalog.is_some() && held.is_readable() {
                    self.look(store, held).await;
                }
                tokio::select! {
                    // It is an error once nobody looks any more, and then this ends as well.
                    changed = holding.changed() => if changed.is_err() { return },
                    () = sleep(LOOK_EVERY) => {}
                }
            }
        };
        stop.run_until_cancelled(publishing).await;
    }

    /// Publishes what is held, where Redis does not have it.
    async fn look(&mut self, store: &OnRedis, held: Arc<Held>) {
        let policies: Vec<_> = held.policies().map(published).collect();
        let names: Vec<_> = self.there.iter().flat_map(|there| held.differing(there)).collect();
        let changed = self.there.as_ref();
        let changed = changed.map(|there| Changed { since: there.revision(), names: &names });
        let instead_of = self.later.take().filter(|later| held.revision() < *later);
        let publication =
            Publication { revision: held.revision(), policies: &policies, changed, instead_of };
        let problem = match store.publish(&publication).await {
            Ok(Published::Written | Published::Known) => {
                self.there = Some(Arc::clone(&held));
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

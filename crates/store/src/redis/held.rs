//! The permits of a key that are held, as Redis has them: two plain reads, without the script.
//!
//! ```text
//! GET state, TIME ─▶ these rules wrote it ─▶ the kernel reads it ─▶ HeldPermits
//!                  └▶ other rules wrote it ─▶ the script takes it over, once ─▶ again
//! ```
//!
//! A state of other rules is not converted here: the script has the rules that wrote it, and converts as every decision
//! does. So what is listed is what the next decision counts. If a later version of the policy wrote the state, the state
//! stays as it is, and there is no list until this process has that version, which is soon.

use bytes::Bytes;
use sluicegate_kernel::{HeldPermits, Micros, Moment, PermitId, ProcessId, Verb};
use tokio::time::Instant;

use super::codec::{ScriptClock, state_key};
use super::store::unreadable;
use super::{RedisStore, ScriptServer};
use crate::{Executed, Store, StoreError, StoreRequest};

/// A verb that changes nothing but rules: no process has this number, and no request waits for this permit.
const TAKE_OVER: Verb = Verb::Leave { permit: PermitId(0), process: ProcessId(0) };

/// Reads of a state: before and after it is taken over.
const READS_MAX: usize = 2;

impl<C: ScriptServer> RedisStore<C> {
    /// Returns the permits that are held of the key of `request`.
    pub(super) async fn read_held(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<HeldPermits, StoreError> {
        let StoreRequest { policy, key, rules, .. } = *request;
        rules.supports(&TAKE_OVER)?;
        let deadline = self.client.deadline();
        let own = self.blob(request, deadline).await?;
        let key = Bytes::from(state_key(&self.in_own_namespace(policy), key));
        for reads_left in (0..READS_MAX).rev() {
            let Some(stored) = self.client.get(&key, deadline).await? else {
                return Ok(HeldPermits::default());
            };
            if let Some(states) = own.states_in(&stored) {
                let states = rules.read_states(states);
                let states = states.ok_or_else(|| unreadable("the stored state cannot be read"))?;
                let at = Moment::with_windows(self.time(&key, at, deadline).await?, at.windows());
                return Ok(rules.held(&states, &at));
            }
            if reads_left > 0 {
                self.decide(&StoreRequest { verb: &TAKE_OVER, ..*request }, at).await?;
            }
        }
        Err(StoreError::Contended { executed: Executed::No })
    }

    /// Returns the time by which decisions on `key` are made now.
    async fn time(
        &self,
        key: &[u8],
        at: &Moment<'_>,
        deadline: Instant,
    ) -> Result<Micros, StoreError> {
        match self.clock() {
            ScriptClock::Server => Ok(self.client.time(key, deadline).await?.unwrap_or(at.now())),
            ScriptClock::Given | ScriptClock::Client => Ok(at.now()),
        }
    }
}

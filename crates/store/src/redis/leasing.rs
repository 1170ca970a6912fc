//! Leases of the store on Redis: a message is sent like a decision.

use std::time::Duration;

use bytes::Bytes;
use sluicegate_kernel::lease::Message;
use sluicegate_kernel::{LeaseReply, Moment};
use tokio::time::Instant;

use super::blob::{BlobRule, RulesBlob};
use super::codec::{ScriptClock, state_key, windows_at};
use super::lease::{LeaseRequest, LeaseScriptReply};
use super::store::{CALLS_MAX, RedisStore, WriterRules, failed, unreadable, windows_of};
use super::{ScriptArgs, ScriptServer, codec::ForeignReply};
use crate::{Executed, StoreError, StoreRequest};

/// Time for which a message that only gives permits back may wait behind other calls: no request waits for its answer,
/// and no other holder can use the permits before the lease ends.
const GIVE_BACK_WITHIN: Duration = Duration::from_secs(1);

impl<C: ScriptServer> RedisStore<C> {
    /// Returns the store's answer to `message` about the key of `request`.
    ///
    /// If a later version of the policy decides already, the message is answered under its rules: the holder keeps what
    /// it has, which it may be spending at this moment, and is granted what its requests wait for, but nothing beyond:
    /// it leases under the rules that it decides by.
    pub(super) async fn reply(
        &self,
        request: &StoreRequest<'_>,
        message: &Message,
        at: &Moment<'_>,
    ) -> Result<LeaseReply, StoreError> {
        let clock = self.clock();
        if clock == ScriptClock::Client {
            let reason = "leases need the clock of Redis".to_owned();
            return Err(StoreError::Unavailable { reason, executed: Executed::No });
        }
        let StoreRequest { policy, key, rules, .. } = *request;
        let mut deadline = self.client.deadline();
        if message.need == 0 && message.want == 0 {
            deadline = deadline.max(Instant::now() + GIVE_BACK_WITHIN);
        }
        let own = self.blob(request, deadline).await?;
        let key = Bytes::from(state_key(&self.in_own_namespace(policy), key));
        let under_later = Message { want: 0, hint: None, ..*message };
        // Rules of a later version than the holder's, and those that wrote the state.
        let (mut later, mut before): (Option<RulesBlob>, _) = (None, WriterRules::Unsaid);
        for calls in 0..CALLS_MAX {
            let (message, windows, count) = match &later {
                None => (message, windows_at(rules, at), rules.rules().len()),
                Some(later) => (&under_later, windows_of(later, &own, at)?, later.each().len()),
            };
            let asked = LeaseRequest { message, at, clock, before: before.as_previous() };
            let ask = asked.encode_with(count, windows.into_iter());
            let deciding = later.as_ref().unwrap_or(&own);
            let ask = ScriptArgs { key: key.clone(), args: [deciding.to_bytes(), ask.into()] };
            let reply = self.client.eval(ask, deadline).await;
            let reply = reply.map_err(|error| failed(error, calls))?;
            let reply = match &later {
                None => LeaseScriptReply::decode(&reply, rules, message),
                Some(later) => decode_later(&reply, later, &own, message),
            };
            match reply {
                Ok(LeaseScriptReply::Answer(reply)) => return Ok(reply),
                Ok(LeaseScriptReply::Unknown(state)) => {
                    let wrote = Box::pin(self.writer_rules(request, &state, deadline)).await;
                    match wrote.map_err(|error| failed(error, calls + 1))? {
                        WriterRules::Rules(wrote) if wrote.stamp() > deciding.stamp() => {
                            (later, before) = (Some(wrote), WriterRules::Unsaid);
                        }
                        older => before = older,
                    }
                }
                Ok(LeaseScriptReply::Malformed(what)) => {
                    return Err(unreadable(&format!("the script cannot read the stored {what}")));
                }
                Err(foreign) => return Err(unreadable(&foreign.to_string())),
            }
        }
        Err(StoreError::Contended { executed: Executed::No })
    }
}

/// Returns the answer under `later` rules for a holder under `own` ones: for the own rule of the same name, or the
/// first.
fn decode_later(
    reply: &[u8],
    later: &RulesBlob,
    own: &RulesBlob,
    message: &Message,
) -> Result<LeaseScriptReply, ForeignReply> {
    let (later, own) = (later.each(), own.each());
    let reply = LeaseScriptReply::decode_with(reply, later.iter().map(BlobRule::limit), message)?;
    let LeaseScriptReply::Answer(LeaseReply::Granted(mut grant)) = reply else { return Ok(reply) };
    let named = &later[grant.verdict.rule];
    grant.verdict.rule = own.iter().position(|own| own.is_named_as(named)).unwrap_or(0);
    // Usage under other rules is not that under the holder's.
    grant.hint.used = Default::default();
    Ok(LeaseScriptReply::Answer(LeaseReply::Granted(grant)))
}

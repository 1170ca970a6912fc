//! Calls on their way to the store and back: when they arrive, their outcome, and when a node stops waiting.

use std::sync::Arc;

use sluicegate::Verb;
use sluicegate::internals::kernel::{Called, RuleSet};
use sluicegate::internals::store::Executed as Effect;
use sluicegate::internals::store::lease::LeaseReply;
use sluicegate::policy::PolicySet;
use sluicegate::store::StoreError;

use super::lease_checks::KeyAtNode;
use super::{World, WorldEvent};
use crate::bounds::{CountedEvent, What};
use crate::net::SILENCE_MAX_US;
use crate::plan::RULES_MAX;
use crate::server::{Execution, Note};
use crate::wire::{Executed, Outgoing, Reply, ReplySlot, Said, StoreAsk};

/// A call of the store.
#[derive(Debug)]
pub(crate) struct StoreCall {
    pub(crate) slot: Arc<ReplySlot>,
    pub(crate) ask: Arc<StoreAsk>,
    pub(crate) node: usize,
    pub(crate) life: u32,
    pub(crate) epoch: u32,
    pub(crate) sent_at: u64,
    /// The node has received the answer, or its connection broke.
    pub(crate) is_over: bool,
    /// The call has arrived, and arrives a second time.
    pub(crate) is_repeated: bool,
    /// The call goes to the store that a replica took over from.
    pub(crate) to_old: bool,
}

impl World<'_> {
    /// Sends a call of `node`, for a request that came to it at `begun_at`.
    pub(crate) fn send(&mut self, node: usize, begun_at: u64, outgoing: Outgoing) {
        let Outgoing { slot, ask } = outgoing;
        if let Some(key) = self.key_of(&ask.key) {
            self.sent_at[node][key] = self.now;
            super::debt_checks::check_reminded(self, node, key, &ask, begun_at);
            let asked_by = &mut self.nodes[node].asked_by[key];
            if ask.message.is_some() && !asked_by.iter().any(|by| Arc::ptr_eq(by, &ask.rules)) {
                asked_by.push(Arc::clone(&ask.rules));
            }
        }
        super::lease_checks::check_kept(self, node, &ask);
        let epoch = self.links[node].epoch;
        let (life, sent_at) = (self.nodes[node].life, self.now);
        let (is_message, is_over, is_repeated) = (ask.message.is_some(), false, false);
        let to_old = self.replaced.is_asked_by(node);
        self.calls.push(StoreCall {
            slot,
            ask,
            node,
            life,
            epoch,
            sent_at,
            is_over,
            is_repeated,
            to_old,
        });
        let call = self.calls.len() - 1;
        self.at(self.now + self.plan.deadline_us, WorldEvent::Deadline { call });
        if let Some(arrives) = self.links[node].request(self.plan, self.now, is_message) {
            self.at(arrives, WorldEvent::AtServer { call });
        }
    }

    /// Announces `called`, requests that wait in other processes, on a connection of its own.
    pub(crate) fn announce(&mut self, node: usize, called: Vec<Called>) {
        let link = &mut self.links[node];
        if link.is_connected && link.requests_lost == 0 {
            let arrives = self.now + link.delay(self.plan);
            self.at(arrives, WorldEvent::Announced { called });
        }
    }

    /// Passes an announcement that has reached the store on to all nodes.
    pub(crate) fn announced(&mut self, called: &[Called]) {
        if self.down > 0 {
            return;
        }
        if self.paused_until > self.now {
            let called = called.to_vec();
            return self.at(self.paused_until, WorldEvent::Announced { called });
        }
        for node in 0..self.plan.nodes {
            let (link, life) = (&mut self.links[node], self.nodes[node].life);
            if link.is_connected && link.answers_lost == 0 {
                let arrives = self.now + link.delay(self.plan);
                self.at(arrives, WorldEvent::Called { node, life, called: called.to_vec() });
            }
        }
    }

    /// Lets a node hear an announcement.
    pub(crate) fn called(&mut self, node: usize, life: u32, called: Vec<Called>) {
        if self.nodes[node].life == life && self.links[node].is_connected {
            self.nodes[node].store.hear(called);
        }
    }

    pub(crate) fn at_server(&mut self, call: usize) {
        if self.down > 0 {
            return;
        }
        if self.paused_until > self.now {
            return self.at(self.paused_until, WorldEvent::AtServer { call });
        }
        if self.calls[call].to_old {
            return super::failover::at_old(self, call);
        }
        let StoreCall { ref ask, node, life, is_repeated, .. } = self.calls[call];
        let ask = Arc::clone(ask);
        if let Some(error) = self.refusal(&ask) {
            self.seen(format_args!("  store: {node} {:?} {:?}: {error}", ask.verb, ask.debt));
            return self.answers(call, node, Err(error), ask.message.is_some());
        }
        let Execution { reply, notes, broken } = self.server.execute(&ask, self.now);
        self.executed += 1;
        if let Some((invariant, what)) = broken {
            self.record.fail(invariant, self.now, what);
        }
        if let (Some(key), "p") = (self.key_of(&ask.key), &*ask.policy) {
            super::permits::executed(self, KeyAtNode { node, life, key }, &ask, &reply);
            for note in notes {
                self.note(node, life, key, note);
            }
            match &reply {
                Ok(Said::Decided(answer, paid)) => {
                    let decision = &answer.verdict.decision;
                    if matches!(ask.verb, Verb::Check { .. }) {
                        self.unheard += decision.granted();
                    }
                    let said = (decision.outcome, decision.remaining, paid[0]);
                    let numbers = [node as u64, decision.granted(), said.1, said.2];
                    self.seen_often(
                        &numbers,
                        format_args!("  store: {node} {:?} {:?}: {said:?}", ask.verb, ask.debt),
                    );
                }
                Ok(Said::LeaseReply(reply)) => {
                    let said = match reply {
                        LeaseReply::Granted(grant) => {
                            self.grants.granted(
                                self.now,
                                KeyAtNode { node, life, key },
                                &ask,
                                grant,
                            );
                            [grant.number.0, grant.kept, grant.granted, grant.hint.held]
                        }
                        LeaseReply::Superseded => [0; 4],
                    };
                    self.seen_often(
                        &said.map(u64::from),
                        format_args!("  store: {node} {:?}: {reply:?}", ask.message),
                    );
                }
                Err(error) => self.seen(format_args!("  store: {node} {:?}: {error}", ask.verb)),
            }
        }
        if ask.message.is_some() {
            super::lease_checks::check_held(self, node);
            let after_us = self.links[node].repeats_after_us;
            if after_us > 0 && !is_repeated {
                self.calls[call].is_repeated = true;
                self.at(self.now + after_us, WorldEvent::AtServer { call });
            }
        }
        self.answers(call, node, reply, ask.message.is_some());
    }

    /// Returns the error with which the store refuses to execute a call now, if it does.
    fn refusal(&self, ask: &StoreAsk) -> Option<StoreError> {
        if self.refuses_until > self.now {
            let (reason, executed) = ("out of memory".to_owned(), Effect::No);
            return Some(StoreError::Unavailable { reason, executed });
        }
        let key = self.key_of(&ask.key)?;
        let reason = "another type".to_owned();
        (self.unreadable_until[key] > self.now).then_some(StoreError::Unreadable { reason })
    }

    /// Sends the reply of a call back to its node.
    pub(crate) fn answers(&mut self, call: usize, node: usize, reply: Reply, is_message: bool) {
        let executed = (self.now, self.executed);
        let (link, now) = (&mut self.links[node], self.now);
        if let Some(arrives) = link.answer(self.plan, now, is_message) {
            let reply = Box::new(reply);
            self.at(arrives, WorldEvent::AtNode { call, reply, executed });
        }
    }

    /// Records what the store did.
    pub(crate) fn note(&mut self, node: usize, life: u32, key: usize, note: Note) {
        let at = self.now;
        match note {
            // A store that forgot a debt charges it again.
            Note::Charged(id, permits) if self.charged.insert(id) => {
                self.dues[node][key].charge(permits);
            }
            Note::Charged(..) => {}
            Note::Converted(rules, held) => {
                self.given_back[key] = Some(at);
                let version = self.version_of(&rules);
                self.note_at((at, self.executed), key, What::Version(version));
                self.note_at((at, self.executed), key, What::Excused { permits: held });
            }
            Note::Repaired => {
                self.given_back[key] = Some(at);
                self.note_at((at, self.executed), key, What::Repaired);
            }
            Note::Returned(permits) => {
                self.note_at((at, self.executed), key, What::Returned { permits });
            }
            Note::Spent(permits) if life == self.nodes[node].life => {
                super::debt_checks::check_spent(self, node, key, permits);
            }
            Note::Spent(_) => {}
            Note::Refunded(permits) => {
                self.given_back[key] = Some(at);
                self.note_at((at, self.executed), key, What::Forgiven { permits, why: "refunded" });
            }
            Note::Reset => {
                self.given_back[key] = Some(at);
                // All rules of the key, however many it has.
                let permits = vec![u64::MAX; RULES_MAX];
                self.note_at((at, self.executed), key, What::Forgiven { permits, why: "reset" });
            }
        }
    }

    /// Records something that counts for a key.
    pub(crate) fn note_at(&mut self, (at, order): Executed, key: usize, what: What) {
        self.record.note(CountedEvent { at, order, key, what });
    }

    /// The number of the last execution.
    pub(crate) const fn executed(&self) -> u64 {
        self.executed
    }

    /// The last version that has these rules.
    pub(crate) fn version_of(&self, rules: &RuleSet) -> usize {
        let is = |policies: &PolicySet| {
            let policy = policies.resolve("p").expect("each version has it");
            **policy.rules_at(b"a", sluicegate::Micros::ZERO).rules.set() == *rules
        };
        self.policies.iter().rposition(is).unwrap_or(0)
    }

    /// Records something that counts for all keys.
    pub(crate) fn note_all(&mut self, what: &What) {
        for key in 0..self.plan.keys {
            self.note_at((self.now, self.executed), key, what.clone());
        }
    }

    pub(crate) fn at_node(&mut self, call: usize, reply: Reply, executed: Executed) {
        let StoreCall { ref slot, node, life, epoch, ref mut is_over, .. } = self.calls[call];
        let link = &mut self.links[node];
        if life != self.nodes[node].life || epoch != link.epoch || !link.is_connected {
            return;
        }
        link.heard_at = self.now;
        *is_over = true;
        slot.put(reply, executed);
    }

    pub(crate) fn deadline(&mut self, call: usize) {
        let StoreCall { ref slot, node, life, epoch, sent_at, is_over, .. } = self.calls[call];
        let link = &self.links[node];
        if is_over || life != self.nodes[node].life || epoch != link.epoch {
            return;
        }
        let silent_since = link.heard_at.max(sent_at);
        let is_silent = self.now - silent_since >= self.plan.deadline_us;
        let executed = Effect::Perhaps;
        let error = match is_silent {
            true => StoreError::Unavailable { reason: "no answer".to_owned(), executed },
            false => StoreError::Overloaded { executed },
        };
        let was_heard = link.heard_at;
        slot.put(Err(error), (self.now, 0));
        let oldest = self.calls.iter().filter(|other| {
            other.node == node && other.epoch == epoch && other.life == life && !other.is_over
        });
        let oldest = oldest.map(|other| other.sent_at).min().unwrap_or(self.now);
        let since = oldest.max(was_heard);
        if self.now - since > SILENCE_MAX_US {
            self.disconnect(node, "silence");
        }
    }

    /// The connection of a node breaks; what is under way on it is never answered.
    pub(crate) fn disconnect(&mut self, node: usize, why: &str) {
        if !self.links[node].is_connected {
            return;
        }
        self.seen(format_args!("node {node} is disconnected: {why}"));
        let link = &mut self.links[node];
        link.is_connected = false;
        let (epoch, pause) = (link.epoch, link.pause());
        self.nodes[node].store.0.lock().down = true;
        let (life, now) = (self.nodes[node].life, self.now);
        for call in &mut self.calls {
            if call.node == node && call.epoch == epoch && call.life == life && !call.is_over {
                call.is_over = true;
                let reason = "connection lost".to_owned();
                let executed = Effect::Perhaps;
                call.slot.put(Err(StoreError::Unavailable { reason, executed }), (now, 0));
            }
        }
        self.at(self.now + pause, WorldEvent::Connects { node });
    }

    pub(crate) fn connects(&mut self, node: usize) {
        let link = &mut self.links[node];
        if link.is_connected {
            return;
        }
        if self.down > 0 || self.paused_until > self.now || !link.carries() {
            let again = self.now + link.pause();
            return self.at(again, WorldEvent::Connects { node });
        }
        link.connect(self.now);
        self.nodes[node].store.0.lock().down = false;
        self.seen(format_args!("node {node} is connected"));
        // A store that comes back may have forgotten: the node finds that out first.
        self.notice_loss(node);
    }
}

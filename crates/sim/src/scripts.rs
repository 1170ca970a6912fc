//! The store by the scripts of Redis: the store of the product, on an interpreter in this process.
//!
//! ```text
//! world ─▶ server: the kernel ──────────────────────────────────────▶ reply ─▶ node
//!             └▶ scripts: RedisStore ─▶ codec ─▶ decide.lua ─▶ keys ─▶ reply: the same, or `ScriptsEqualKernel`
//! ```
//!
//! Not simulated: connections, and what they join, repeat or give back late (`crates/store/tests/it/redis_store`).

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use sluicegate::Micros;
use sluicegate::internals::kernel::Moment;
use sluicegate::internals::store::redis::codec::state_key;
use sluicegate::internals::store::redis::{RedisError, ScriptArgs, ScriptServer, script};
use sluicegate::internals::store::{Permits, Quota, Store, StoreRequest};
use sluicegate::store::redis::RedisStore;
use sluicegate_lua::{KeyBefore, LuaRedis};
use tokio::time::Instant;

use crate::wire::{Reply, Said, StoreAsk};

/// A Redis in this process.
#[derive(Debug)]
struct ScriptedRedis(LuaRedis);

/// The store, and the writes that it can lose.
#[derive(Debug)]
pub(crate) struct ScriptStore {
    store: RedisStore<ScriptedRedis>,
    /// The times at which keys were written, and their values before, for as long as writes can be lost.
    writes: VecDeque<(u64, Vec<KeyBefore>)>,
    lost_max_us: u64,
}

impl ScriptStore {
    /// Returns an empty store that can lose the writes of the last `lost_max_us`.
    pub(crate) fn new(lost_max_us: u64) -> Self {
        let store = RedisStore::on(ScriptedRedis(LuaRedis::new(script::TEXT)));
        Self { store, writes: VecDeque::new(), lost_max_us }
    }

    /// Executes `ask` when the clock of the store is at `clock`, and true time is `now`.
    pub(crate) fn execute(&mut self, ask: &StoreAsk, clock: Micros, now: u64) -> Reply {
        self.redis().keys().now_us = clock.get();
        let at = Moment::new(clock);
        let StoreAsk { policy, key, rules, verb, origin, debt, message } = ask;
        let (origin, quota) = (*origin, Quota::default());
        let request = StoreRequest { policy, key, rules, verb, origin, quota };
        let store = &self.store;
        let asking = async {
            match (message, debt) {
                (Some(message), _) => {
                    store.lease(&request, message, &at).await.map(Said::LeaseReply)
                }
                (None, Some(debt)) => {
                    let decided = store.charge_and_decide(debt, &request, &at).await;
                    decided.map(|(answer, paid)| Said::Decided(answer, paid))
                }
                (None, None) => {
                    let decided = store.decide(&request, &at).await;
                    decided.map(|answer| Said::Decided(answer, Permits::default()))
                }
            }
        };
        let reply =
            asking.now_or_never().expect("nothing waits where the server is in the process");
        let mut changes = std::mem::take(&mut self.redis().keys().changes);
        // A value that had expired was no longer there, also if the clock is set back before the write is lost.
        for KeyBefore { before, .. } in &mut changes {
            before.take_if(|(_, end)| *end <= clock.get());
        }
        self.writes.push_back((now, changes));
        while self.writes.front().is_some_and(|(at, _)| at + self.lost_max_us < now) {
            self.writes.pop_front();
        }
        reply
    }

    /// Returns whether there is a value of the key when the clock of the store is at `clock`.
    pub(crate) fn has(&self, policy: &str, key: &[u8], clock: Micros) -> bool {
        let mut keys = self.redis().keys();
        keys.now_us = clock.get();
        keys.live(state_key(policy, key).as_bytes()).is_some()
    }

    /// Forgets `key`, or all keys.
    pub(crate) fn forget(&mut self, key: Option<&[u8]>) {
        match key {
            None => self.redis().keys().values.clear(),
            Some(key) => drop(self.redis().keys().values.remove(state_key("p", key).as_bytes())),
        }
        self.writes.clear();
    }

    /// Loses the writes of the last `lost_us`. What had expired by `clock` does not come back.
    pub(crate) fn lose(&mut self, lost_us: u64, clock: Micros, now: u64) {
        while let Some((at, changes)) = self.writes.pop_back() {
            if at + lost_us < now {
                self.writes.push_back((at, changes));
                break;
            }
            for KeyBefore { key, before } in changes.into_iter().rev() {
                let mut keys = self.redis().keys();
                match before.filter(|(_, end)| *end > clock.get()) {
                    Some(before) => keys.values.insert(key, before),
                    None => keys.values.remove(&key),
                };
            }
        }
    }

    fn redis(&self) -> &LuaRedis {
        &self.store.client().0
    }
}

impl ScriptedRedis {
    fn call(&self, keys: &[String], args: &[Bytes; 2]) -> Bytes {
        let mut replies = self.0.eval(keys, args).expect("the script ends without an error");
        Bytes::from(replies.swap_remove(0))
    }
}

impl ScriptServer for ScriptedRedis {
    /// Returns the present instant: nothing here takes time, and stored rules stay until they are lost.
    fn deadline(&self) -> Instant {
        Instant::now()
    }

    async fn eval(&self, ask: ScriptArgs, _: Instant) -> Result<Bytes, RedisError> {
        Ok(self.call(&[text(&ask.key)], &ask.args))
    }

    async fn eval_once(
        &self,
        ask: ScriptArgs,
        noted: &[u8],
        _: Instant,
    ) -> Result<Bytes, RedisError> {
        Ok(self.call(&[text(&ask.key), text(noted)], &ask.args))
    }

    async fn eval_each(
        &self,
        asks: Vec<ScriptArgs>,
        deadline: Instant,
        said: &mut (impl FnMut(usize, Result<Bytes, RedisError>) + Send),
    ) {
        for (place, ask) in asks.into_iter().enumerate() {
            said(place, self.eval(ask, deadline).await);
        }
    }

    async fn get(&self, key: &[u8], _: Instant) -> Result<Option<Bytes>, RedisError> {
        Ok(self.0.keys().get(key).cloned().map(Bytes::from))
    }

    async fn set(
        &self,
        key: &[u8],
        value: &[u8],
        ttl: Duration,
        _: Instant,
    ) -> Result<(), RedisError> {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1);
        self.0.keys().set(key, value, ttl_ms);
        Ok(())
    }
}

fn text(key: &[u8]) -> String {
    String::from_utf8(key.to_vec()).expect("keys of Redis are text here")
}

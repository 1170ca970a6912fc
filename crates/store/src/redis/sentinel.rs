//! The master of a replicated set, followed to each server that Sentinels name.
//!
//! A listener on every Sentinel receives `+switch-master`; a lane that is refused, lost or connected to a
//! server that is not a master raises a suspicion; and now and then the time alone is a reason. Each makes
//! the supervisor ask all Sentinels, and the answer with the highest configuration epoch counts: a Sentinel
//! that was cut off together with an old master has old news, and the supervisor never goes back to an
//! earlier epoch. When the target moves, lanes drop their connections at once, and each new connection is
//! used only after the server itself has reported that it is a master.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use redis::Value;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::address::Address;
use super::backoff::Backoff;
use super::dialer::Dialer;
use super::error::ConnectError;
use super::kind::field;
use super::setup::{ConnectTarget, ConnectionSetup};
use super::standalone::ConnectionPool;
use super::task::OwnedTask;

/// The channel on which a Sentinel announces that the master has changed.
const SWITCH_MASTER: &str = "+switch-master";

/// The longest time until a Sentinel answers: a dead one must not delay the others' news.
const ANSWER_MAX: Duration = Duration::from_millis(300);

/// The least time between two questions to the Sentinels, however many suspicions there are.
const ASK_PAUSE: Duration = Duration::from_millis(100);

/// The period of questions to Sentinels while a master is known: a message may have been lost.
const ASK_EVERY: Duration = Duration::from_secs(5);

/// The period of questions while no master is known.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// Most names of masters in an error, and the longest name, in bytes: they are to be read at a glance.
const MASTERS_MAX: usize = 5;
const MASTER_BYTES_MAX: usize = 64;

/// The lanes to the present master.
#[derive(Debug)]
pub(super) struct Sentinel {
    pub(super) lanes: ConnectionPool,
    target: watch::Receiver<ConnectTarget>,
    _supervisor: OwnedTask,
}

/// The master to watch, and its Sentinels.
#[derive(Debug)]
pub(super) struct MasterWatch {
    dialer: Dialer,
    sentinels: Vec<Address>,
    master: Arc<str>,
}

/// The answer of one Sentinel.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SentinelReply {
    epoch: u64,
    address: Address,
}

impl Sentinel {
    pub(super) fn start(setup: ConnectionSetup, watch: MasterWatch, connections: usize) -> Self {
        let setup = ConnectionSetup { master_only: true, ..setup };
        let (publisher, target) = watch::channel(Err(ConnectError::NotYet));
        let lanes = ConnectionPool::start(&setup, &target, connections);
        Self { lanes, target, _supervisor: OwnedTask::start(watch.run(publisher, setup.suspicion)) }
    }

    /// Returns the address of the present master, as it changes.
    pub(super) fn target(&self) -> watch::Receiver<ConnectTarget> {
        self.target.clone()
    }
}

impl MasterWatch {
    pub(super) fn new(dialer: Dialer, sentinels: &[Address], master: &Arc<str>) -> Self {
        Self { dialer, sentinels: sentinels.to_vec(), master: Arc::clone(master) }
    }

    async fn run(self, publisher: watch::Sender<ConnectTarget>, suspicion: Arc<Notify>) {
        let _listeners: Vec<_> = self
            .sentinels
            .iter()
            .map(|sentinel| {
                let (dialer, sentinel) = (self.dialer.clone(), sentinel.clone());
                let (master, suspicion) = (Arc::clone(&self.master), Arc::clone(&suspicion));
                OwnedTask::start(listen(dialer, sentinel, master, suspicion))
            })
            .collect();
        let mut epoch_seen = 0;
        loop {
            match self.ask_all().await {
                Ok(SentinelReply { epoch, address }) if epoch >= epoch_seen => {
                    epoch_seen = epoch;
                    publish(&publisher, Ok(address));
                }
                Ok(_) => {}
                Err(cause) if publisher.borrow().is_err() => publish(&publisher, Err(cause)),
                // The known master serves on, with or without Sentinels.
                Err(_) => {}
            }
            let patience = if publisher.borrow().is_ok() { ASK_EVERY } else { ASK_AGAIN };
            sleep(ASK_PAUSE).await;
            // A suspicion and the end of the time have the same effect.
            let _ = timeout(patience, suspicion.notified()).await;
        }
    }

    /// Returns the newest answer of the Sentinels.
    ///
    /// # Errors
    /// The error of Sentinels that do not know the master, or of servers of another kind, or the reason why
    /// none answers.
    async fn ask_all(&self) -> Result<SentinelReply, ConnectError> {
        let answers = join_all(self.sentinels.iter().map(|sentinel| self.ask(sentinel))).await;
        let (mut newest, mut cause) = (None::<SentinelReply>, ConnectError::NotYet);
        for answer in answers {
            match answer {
                Ok(reply) if newest.as_ref().is_none_or(|newest| newest.epoch < reply.epoch) => {
                    newest = Some(reply);
                }
                Err(error) if error.is_an_answer() || !cause.is_an_answer() => cause = error,
                Ok(_) | Err(_) => {}
            }
        }
        newest.ok_or_else(|| match cause.is_an_answer() {
            true => cause,
            false => ConnectError::NoSentinel { cause: cause.to_string().into() },
        })
    }

    /// Returns the answer of one Sentinel.
    async fn ask(&self, sentinel: &Address) -> Result<SentinelReply, ConnectError> {
        let mut question = redis::cmd("SENTINEL");
        question.arg("MASTER").arg(&*self.master);
        match timeout(ANSWER_MAX, self.dialer.query(sentinel, &question)).await {
            Ok(Ok(reply)) => match read_answer(&reply) {
                Some(answer) => Ok(answer),
                None => Err(self.unknown(sentinel).await),
            },
            // "No such master with that name".
            Ok(Err(ConnectError::Refused { refusal, .. })) if &*refusal.code == "ERR" => {
                Err(self.unknown(sentinel).await)
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ConnectError::Timeout {
                step: "the answer",
                address: sentinel.clone(),
                timeout: ANSWER_MAX,
            }),
        }
    }

    /// Returns the error that this `sentinel` does not know the master, with the masters that it knows, if it
    /// may list them.
    async fn unknown(&self, sentinel: &Address) -> ConnectError {
        let mut question = redis::cmd("SENTINEL");
        question.arg("MASTERS");
        let known = match timeout(ANSWER_MAX, self.dialer.query(sentinel, &question)).await {
            Ok(Ok(reply)) => masters(&reply),
            Ok(Err(_)) | Err(_) => Vec::new(),
        };
        ConnectError::NoMaster { name: Arc::clone(&self.master), known: known.into() }
    }
}

fn publish(publisher: &watch::Sender<ConnectTarget>, news: ConnectTarget) {
    publisher.send_if_modified(|target| {
        let changed = *target != news;
        *target = news;
        changed
    });
}

/// Raises a suspicion whenever `sentinel` announces that the master has changed, for ever.
async fn listen(dialer: Dialer, sentinel: Address, master: Arc<str>, suspicion: Arc<Notify>) {
    let mut backoff = Backoff::default();
    loop {
        if let Ok(messages) = dialer.listen(&sentinel, SWITCH_MASTER).await {
            backoff.reset();
            // Earlier messages are lost.
            suspicion.notify_one();
            let mut messages = messages.into_on_message();
            while let Some(message) = messages.next().await {
                let text = message.get_payload_bytes();
                if text.split(|&byte| byte == b' ').next() == Some(master.as_bytes()) {
                    suspicion.notify_one();
                }
            }
        }
        sleep(backoff.pause()).await;
    }
}

/// Reads the reply to `SENTINEL MASTER`: names and values in turn.
fn read_answer(reply: &Value) -> Option<SentinelReply> {
    let (host, port) = (field(reply, "ip")?, field(reply, "port")?.parse().ok()?);
    let epoch = field(reply, "config-epoch")?.parse().ok()?;
    Some(SentinelReply { epoch, address: Address::Tcp(host.into(), port) })
}

/// Returns the names in the reply to `SENTINEL MASTERS`, in order.
fn masters(reply: &Value) -> Vec<Box<str>> {
    let Value::Array(all) = reply else { return Vec::new() };
    let name = |master| field(master, "name").filter(|name| name.len() <= MASTER_BYTES_MAX);
    let mut names: Vec<Box<str>> = all.iter().filter_map(name).map(Into::into).collect();
    names.sort_unstable();
    names.truncate(MASTERS_MAX);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(fields: &[&str]) -> Value {
        let bulk = |text: &&str| Value::BulkString(text.as_bytes().to_vec());
        Value::Array(fields.iter().map(bulk).collect())
    }

    #[test]
    fn the_answer_of_a_sentinel_is_read_by_name() {
        let fields = ["name", "m", "ip", "10.0.0.1", "port", "7000", "x", "y", "config-epoch", "5"];
        let expected = SentinelReply { epoch: 5, address: Address::Tcp("10.0.0.1".into(), 7000) };
        assert_eq!(read_answer(&reply(&fields)), Some(expected));
        assert_eq!(read_answer(&reply(&fields[..8])), None);
        assert_eq!(read_answer(&Value::Nil), None);
    }

    #[test]
    fn the_masters_that_a_sentinel_knows_are_named() {
        let all = Value::Array(vec![reply(&["name", "b", "ip", "h"]), reply(&["name", "a"])]);
        let error = ConnectError::NoMaster { name: "c".into(), known: masters(&all).into() };
        assert_eq!(error.to_string(), "no sentinel knows a master named `c`; expected `a` or `b`");
        let error = ConnectError::NoMaster { name: "c".into(), known: masters(&Value::Nil).into() };
        assert_eq!(error.to_string(), "no sentinel knows a master named `c`");
    }
}

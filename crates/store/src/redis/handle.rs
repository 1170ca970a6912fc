//! One supervised connection: it is made, used, watched, lost and made again in a task of its own.
//!
//! ```text
//!  callers ─▶ inbox ─▶ waiting ─▶ in flight ─▶ replies ─▶ callers
//!             (bounded)   │ joined when nothing is in flight
//! ```
//!
//! A caller waits until its deadline and no longer, whatever the connection does; a reply that comes
//! later is thrown away. While there is no connection, calls fail at once. Only during the first
//! attempt do they wait (until their deadline), so that neither a process that has just started nor one
//! whose connection was closed fails for want of a millisecond.
//!
//! A dead connection is detected by the age of the oldest request without a reply, since a connection
//! into a black hole gives no error. No call that was sent is sent again, except when the server
//! replies that it does not have the script: then it was not executed, and goes again behind a reload.

use std::collections::VecDeque;
use std::sync::Arc;

use redis::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout_at};

use super::active::{ActiveConnection, ServedLane};
use super::backoff::Backoff;
use super::batch::{self, QueuedCall, ReplyTo, Stage};
use super::connection::Connection;
use super::error::{CallEffect, ConnectError, RedisError};
use super::group::{GroupCaller, GroupReply};
use super::load::{Load, WAITING_MAX};
use super::request::ServerRequest;
use super::setup::{ConnectTarget, ConnectionSetup};
use super::task::OwnedTask;

/// The callers' end.
#[derive(Debug)]
pub(super) struct ConnectionHandle {
    inbox: mpsc::Sender<QueuedCall>,
    status: watch::Receiver<ConnectionStatus>,
    load: Arc<Load>,
    _worker: OwnedTask,
}

/// The state of the connection.
#[derive(Clone, Debug)]
pub(super) enum ConnectionStatus {
    /// The first attempt is under way, or the first after a connection was lost.
    Connecting,
    /// Calls are served.
    Ready,
    /// Calls are refused for this reason.
    Down(ConnectError),
}

/// The task's end.
struct Worker {
    setup: ConnectionSetup,
    target: watch::Receiver<ConnectTarget>,
    inbox: mpsc::Receiver<QueuedCall>,
    /// Taken from the inbox and not sent, or to be sent again.
    waiting: VecDeque<QueuedCall>,
    status: watch::Sender<ConnectionStatus>,
    load: Arc<Load>,
    /// There has been a connection before.
    connected_before: bool,
}

/// The lane's owner is gone.
struct Closed;

impl ConnectionHandle {
    /// Starts a lane that leads to the server that `target` names, now and later.
    pub(super) fn start(setup: ConnectionSetup, target: watch::Receiver<ConnectTarget>) -> Self {
        let (inbox, calls) = mpsc::channel(WAITING_MAX);
        let (status_sender, status) = watch::channel(ConnectionStatus::Connecting);
        let load = Arc::new(Load::new(setup.deadline));
        let worker = Worker {
            setup,
            target,
            inbox: calls,
            waiting: VecDeque::new(),
            status: status_sender,
            load: Arc::clone(&load),
            connected_before: false,
        };
        Self { inbox, status, load, _worker: OwnedTask::start(worker.run()) }
    }

    /// Returns whether calls are served now.
    pub(super) fn is_ready(&self) -> bool {
        matches!(*self.status.borrow(), ConnectionStatus::Ready)
    }

    /// Waits for the end of the first attempt.
    pub(super) async fn ready(&self) -> Result<(), ConnectError> {
        settled(&self.status).await
    }

    /// Returns the reply to `request`, which may be an error of the server, or the reason why there is
    /// none by `deadline`.
    pub(super) async fn call(
        &self,
        request: ServerRequest,
        deadline: Instant,
    ) -> Result<Value, RedisError> {
        let (reply, mut answer) = oneshot::channel();
        let stage = self.enqueue(request, ReplyTo::One(reply), deadline)?;
        match timeout_at(deadline, &mut answer).await {
            Ok(Ok(result)) => result,
            // The worker dropped the call, which it does when its connection breaks.
            Ok(Err(_)) if stage.give_up() => Err(self.unavailable()),
            Ok(Err(_)) => Err(RedisError::Lost),
            Err(_) if stage.give_up() => Err(self.too_late(CallEffect::NotExecuted, deadline)),
            Err(_) => {
                // From here on a reply is a late one. It may have come in this very moment.
                answer.close();
                let late = || Err(self.too_late(CallEffect::Unknown, deadline));
                answer.try_recv().unwrap_or_else(|_| late())
            }
        }
    }

    /// Passes the reply to each of `requests` with its place to `on_reply` as soon as it comes, or the
    /// reason why there is none by `deadline`. They are waited for together.
    pub(super) async fn call_each(
        &self,
        requests: impl ExactSizeIterator<Item = ServerRequest> + Send,
        deadline: Instant,
        on_reply: &mut (impl FnMut(usize, Result<Value, RedisError>) + Send),
    ) {
        let count = requests.len();
        let (group, places) = GroupCaller::new(count);
        let mut stages = Vec::with_capacity(count);
        for (place, (request, reply)) in requests.zip(places).enumerate() {
            let queued = self.enqueue(request, ReplyTo::Group(reply), deadline);
            stages.push(queued.map_err(|error| on_reply(place, Err(error))).ok());
        }
        let mut hear = |place: usize, reply| {
            let Some(stage) = stages[place].take() else { return };
            let reply = match reply {
                Some(GroupReply::Here(reply)) => reply,
                Some(GroupReply::Dropped) if stage.give_up() => Err(self.unavailable()),
                Some(GroupReply::Dropped) => Err(RedisError::Lost),
                None if stage.give_up() => Err(self.too_late(CallEffect::NotExecuted, deadline)),
                None => Err(self.too_late(CallEffect::Unknown, deadline)),
            };
            on_reply(place, reply);
        };
        let hearing = async {
            while let Some(replies) = group.next().await {
                replies.into_iter().for_each(|(place, reply)| hear(place, Some(reply)));
            }
        };
        if timeout_at(deadline, hearing).await.is_err() {
            // From here on a reply is a late one. Some may have come in this very moment.
            group.close().into_iter().for_each(|(place, reply)| hear(place, Some(reply)));
            (0..count).for_each(|place| hear(place, None));
        }
    }

    /// Puts `request` into the queue. Returns its stage.
    fn enqueue(
        &self,
        request: ServerRequest,
        reply: ReplyTo,
        deadline: Instant,
    ) -> Result<Arc<Stage>, RedisError> {
        let Some(ticket) = self.load.enter() else {
            return Err(self.too_late(CallEffect::NotExecuted, deadline));
        };
        let stage = Arc::new(Stage::default());
        let (reply, taken) = (Some(reply), Arc::clone(&stage));
        let call = QueuedCall { request, reply, stage: taken, repeats: 0, _ticket: ticket };
        match self.inbox.try_send(call) {
            Ok(()) => Ok(stage),
            Err(_) => Err(self.too_late(CallEffect::NotExecuted, deadline)),
        }
    }

    /// Returns the error with which a call would be refused now, if it would be.
    pub(super) fn refuses(&self) -> Option<RedisError> {
        let is_full = self.is_ready() && !self.load.has_room();
        is_full.then(|| self.too_late(CallEffect::NotExecuted, Instant::now()))
    }

    /// Returns the error of a call without a reply in time: the server is silent, or overloaded.
    fn too_late(&self, outcome: CallEffect, deadline: Instant) -> RedisError {
        let (now, load) = (Instant::now(), &self.load);
        let is_own =
            outcome == CallEffect::NotExecuted || load.is_long() || load.is_behind(deadline, now);
        match self.load.answers(is_own, now) {
            true => RedisError::Overloaded { outcome },
            false => RedisError::Timeout { outcome },
        }
    }

    fn unavailable(&self) -> RedisError {
        match &*self.status.borrow() {
            ConnectionStatus::Down(cause) => cause.clone().into(),
            ConnectionStatus::Connecting | ConnectionStatus::Ready => ConnectError::NotYet.into(),
        }
    }
}

impl Worker {
    async fn run(mut self) {
        let mut backoff = Backoff::default();
        loop {
            let status = match self.connect().await {
                Ok(Ok(connection)) => {
                    self.greet();
                    let since = Instant::now();
                    let Self { setup, target, inbox, waiting, load, .. } = &mut self;
                    let lane = ServedLane { setup, load, target, inbox, waiting };
                    let service = ActiveConnection::new(lane, connection);
                    let Err(cause) = service.run().await else { return };
                    backoff.record_loss(since.elapsed());
                    match cause {
                        // The server may still be available: calls wait for the result of one attempt.
                        ConnectError::Broken { .. } => ConnectionStatus::Connecting,
                        cause => ConnectionStatus::Down(cause),
                    }
                }
                Ok(Err(cause)) => ConnectionStatus::Down(cause),
                Err(Closed) => return,
            };
            self.setup.suspicion.notify_one();
            if let ConnectionStatus::Down(cause) = &status {
                batch::fail(self.waiting.drain(..), &cause.clone().into());
            }
            self.status.send_replace(status);
            let pause = backoff.pause();
            if self.refusing_calls(|_| sleep(pause)).await.is_err() {
                return;
            }
        }
    }

    fn greet(&mut self) {
        if self.connected_before {
            self.setup.counters.reconnects.add_one();
            self.setup.reconnected.notify_one();
        }
        self.connected_before = true;
        self.load.greeted(Instant::now());
        self.status.send_replace(ConnectionStatus::Ready);
    }

    /// Makes one attempt to connect to the present target; again if the target changes meanwhile.
    async fn connect(&mut self) -> Result<Result<Connection, ConnectError>, Closed> {
        loop {
            let target = self.target.borrow_and_update().clone();
            let address = match target {
                Ok(address) => address,
                Err(cause) => {
                    if !matches!(cause, ConnectError::NotYet) {
                        self.status.send_replace(ConnectionStatus::Down(cause));
                    }
                    let mut target = self.target.clone();
                    self.refusing_calls(
                        |_| async move { target.changed().await.map_err(|_| Closed) },
                    )
                    .await??;
                    continue;
                }
            };
            let mut target = self.target.clone();
            let opening = self.refusing_calls(|setup| async move {
                tokio::select! {
                    opened = setup.dialer.open(&address, async |it| setup.prepare(it).await) => Ok(Some(opened)),
                    changed = target.changed() => changed.map(|()| None).map_err(|_| Closed),
                }
            });
            if let Some(opened) = opening.await?? {
                return Ok(opened);
            }
        }
    }

    /// Does some work; refuses calls meanwhile, unless a first attempt is still under way.
    async fn refusing_calls<T, F>(
        &mut self,
        work: impl FnOnce(ConnectionSetup) -> F,
    ) -> Result<T, Closed>
    where
        F: Future<Output = T>,
    {
        let mut work = std::pin::pin!(work(self.setup.clone()));
        loop {
            let down = match &*self.status.borrow() {
                ConnectionStatus::Down(cause) => Some(RedisError::from(cause.clone())),
                ConnectionStatus::Connecting | ConnectionStatus::Ready => None,
            };
            tokio::select! {
                done = &mut work => return Ok(done),
                call = self.inbox.recv(), if down.is_some() => match (call, down) {
                    (Some(call), Some(error)) => call.finish(Err(error)),
                    _ => return Err(Closed),
                },
            }
        }
    }
}

/// Waits for the end of the first attempt, and returns its result.
pub(super) async fn settled(
    status: &watch::Receiver<ConnectionStatus>,
) -> Result<(), ConnectError> {
    if matches!(*status.borrow(), ConnectionStatus::Ready) {
        return Ok(());
    }
    let mut status = status.clone();
    let status = status.wait_for(|status| !matches!(status, ConnectionStatus::Connecting)).await;
    match status.as_deref() {
        Ok(ConnectionStatus::Ready) => Ok(()),
        Ok(ConnectionStatus::Down(cause)) => Err(cause.clone()),
        Ok(ConnectionStatus::Connecting) | Err(_) => Err(ConnectError::NotYet),
    }
}

//! A connection in use: it sends waiting calls, hands out replies, and detects silence.
//!
//! Where decisions may be joined, a call goes at once when no call is in flight. Later calls wait for the
//! last reply, or until they fill a script call, where as many are in flight already: a busy server need not
//! wait for more. Where calls may not be joined, every call goes at once, behind those that are in flight
//! already.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::batch::{self, Packet, QueuedCall, REPEATS_MAX};
use super::connection::{Connection, FLIGHTS_MAX};
use super::error::{ConnectError, ServerErrorReply};
use super::late::Late;
use super::load::{BusyPeriod, Load, WAITING_MAX};
use super::setup::{ConnectTarget, ConnectionSetup, load};

/// The longest idle time before the server gets a `PING`, so that neither a dead connection nor a forgetful
/// firewall is discovered by a decision.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// A connection in use.
pub(super) struct ActiveConnection<'a> {
    setup: &'a ConnectionSetup,
    load: &'a Arc<Load>,
    target: &'a mut watch::Receiver<ConnectTarget>,
    inbox: &'a mut mpsc::Receiver<QueuedCall>,
    connection: Connection,
    /// Calls taken from the inbox and not yet sent, or to be sent again; by another connection if this one
    /// breaks.
    waiting: &'a mut VecDeque<QueuedCall>,
    late: Late,
    flights: FuturesUnordered<InFlight>,
    /// The time at which each packet in flight was sent, oldest first: replies come in order.
    sent_at: VecDeque<Instant>,
    /// Calls in flight.
    flying: usize,
    heard_at: Instant,
    busy: BusyPeriod,
    /// While the script is being loaded again, the number of calls that were sent before and wait for it:
    /// they are the first of those that wait, in the order in which they were sent.
    reloading: Option<usize>,
}

type InFlight = Pin<Box<dyn Future<Output = PacketReply> + Send>>;

/// A packet whose reply has come, or whose connection is lost.
struct PacketReply {
    cargo: PacketContent,
    reply: RedisResult<Value>,
}

/// The parts of a lane that outlive a connection.
pub(super) struct ServedLane<'a> {
    pub(super) setup: &'a ConnectionSetup,
    pub(super) load: &'a Arc<Load>,
    pub(super) target: &'a mut watch::Receiver<ConnectTarget>,
    pub(super) inbox: &'a mut mpsc::Receiver<QueuedCall>,
    pub(super) waiting: &'a mut VecDeque<QueuedCall>,
}

/// The receivers of a reply.
enum PacketContent {
    Calls(Vec<QueuedCall>),
    Reload,
    Ping,
}

impl PacketContent {
    fn calls(&self) -> usize {
        match self {
            Self::Calls(calls) => calls.len(),
            Self::Reload | Self::Ping => 0,
        }
    }
}

impl<'a> ActiveConnection<'a> {
    pub(super) fn new(lane: ServedLane<'a>, connection: Connection) -> Self {
        let ServedLane { setup, load, target, inbox, waiting } = lane;
        Self {
            setup,
            load,
            target,
            inbox,
            connection,
            waiting,
            late: Late::default(),
            flights: FuturesUnordered::new(),
            sent_at: VecDeque::new(),
            flying: 0,
            heard_at: Instant::now(),
            busy: BusyPeriod::begun(Instant::now()),
            reloading: None,
        }
    }

    /// Serves calls until the lane is closed (`Ok`) or the connection cannot be used any more.
    pub(super) async fn run(mut self) -> Result<(), ConnectError> {
        let mut watch = interval(self.load.turn_every());
        watch.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.is_time_to_send() {
                self.send();
            }
            let takes_more = self.takes_more();
            tokio::select! {
                biased;
                changed = self.target.changed() => {
                    let Ok(()) = changed else { return Ok(()) };
                    return Err(ConnectError::Moved { address: self.connection.address.clone() });
                }
                Some(landing) = self.flights.next(), if !self.flights.is_empty() => {
                    self.finish_packet(landing)?;
                }
                () = self.connection.driver.ended() => {
                    return Err(ConnectError::Broken { address: self.connection.address.clone() });
                }
                call = self.inbox.recv(), if takes_more => {
                    let Some(call) = call else { return Ok(()) };
                    self.waiting.push_back(call);
                }
                _ = watch.tick() => self.watch(Instant::now())?,
            }
        }
    }

    /// Returns whether calls are taken from the inbox, to be sent now or to gather until they fill a script
    /// call.
    fn takes_more(&self) -> bool {
        let joined_max = self.setup.joined_max;
        let gathers = joined_max == 1 || self.flying >= joined_max;
        self.may_send() && (self.flights.is_empty() || gathers) && self.waiting.len() < WAITING_MAX
    }

    /// Returns whether the waiting calls go now.
    fn is_time_to_send(&self) -> bool {
        let fills_a_call = self.waiting.len() + self.inbox.len() >= self.setup.joined_max;
        self.may_send() && (self.flights.is_empty() || fills_a_call)
    }

    fn may_send(&self) -> bool {
        self.reloading.is_none() && self.flights.len() < FLIGHTS_MAX
    }

    /// Sends the refunds of late grants, and the waiting calls.
    fn send(&mut self) {
        for request in self.late.take() {
            self.setup.counters.late_grants.add_one();
            self.waiting.push_front(QueuedCall::for_nobody(request, self.load.enter_anyway()));
        }
        while self.waiting.len() < WAITING_MAX
            && let Ok(call) = self.inbox.try_recv()
        {
            self.waiting.push_back(call);
        }
        while self.flights.len() < FLIGHTS_MAX {
            let calls = batch::take(self.waiting, self.setup.joined_max);
            if calls.is_empty() {
                return;
            }
            self.setup.counters.batches.add_one();
            let packet = batch::pack(&self.setup.script, &calls);
            self.send_packet(PacketContent::Calls(calls), packet);
        }
    }

    fn send_packet(&mut self, cargo: PacketContent, packet: Packet) {
        let (connection, now) = (self.connection.commands.clone(), Instant::now());
        if self.flights.is_empty() {
            self.busy = BusyPeriod::begun(now);
            self.load.record_call(now);
        }
        self.sent_at.push_back(now);
        self.flying += cargo.calls();
        self.flights.push(Box::pin(async move {
            let reply = exchange(connection, packet).await;
            PacketReply { cargo, reply }
        }));
    }

    fn finish_packet(&mut self, landing: PacketReply) -> Result<(), ConnectError> {
        let PacketReply { cargo, reply } = landing;
        let (now, calls) = (Instant::now(), cargo.calls());
        if let Some(sent) = self.sent_at.pop_front()
            && reply.is_ok()
        {
            self.load.record_reply(sent, self.heard_at, now);
        }
        self.flying -= calls;
        self.busy.came_back(calls, self.flights.is_empty(), now, self.load);
        self.load.turned(now);
        self.heard_at = now;
        let address = || self.connection.address.clone();
        let Ok(reply) = reply else {
            // Calls in flight are dropped, so that their callers get an unknown outcome.
            return Err(ConnectError::Broken { address: address() });
        };
        let refusal = refusal(&reply);
        match (cargo, refusal) {
            (PacketContent::Calls(calls), Some(refusal)) if &*refusal.code == "NOSCRIPT" => {
                self.repeat_behind_reload(calls, &reply);
            }
            (PacketContent::Calls(calls), Some(refusal)) if refusal.means_wrong_server() => {
                batch::deliver(calls, reply, &mut self.late);
                return Err(ConnectError::Refused { address: address(), refusal });
            }
            (PacketContent::Calls(calls), _) => batch::deliver(calls, reply, &mut self.late),
            (PacketContent::Reload, Some(refusal)) => {
                return Err(ConnectError::Refused { address: address(), refusal });
            }
            (PacketContent::Reload, None) => self.reloading = None,
            (PacketContent::Ping, _) => {}
        }
        Ok(())
    }

    /// The script was not there, so `calls` were not executed: they go again once it is loaded.
    fn repeat_behind_reload(&mut self, calls: Vec<QueuedCall>, reply: &Value) {
        let script = calls.first().map_or(self.setup.script, |call| call.script(self.setup.script));
        let (again, tired): (Vec<_>, Vec<_>) =
            calls.into_iter().partition(|call| call.repeats < REPEATS_MAX);
        if self.reloading.is_none() {
            self.setup.counters.script_reloads.add_one();
            let packet = Packet::One(load(&script));
            self.send_packet(PacketContent::Reload, packet);
        }
        let waiting = self.reloading.get_or_insert(0);
        for mut call in again {
            call.repeats += 1;
            call.stage.call_back();
            self.waiting.insert(*waiting, call);
            *waiting += 1;
        }
        for call in tired {
            call.finish(Ok(reply.clone()));
        }
    }

    fn watch(&mut self, now: Instant) -> Result<(), ConnectError> {
        self.load.turned(now);
        let silence_max = self.setup.silence_max;
        match self.sent_at.front() {
            Some(&oldest)
                if now.duration_since(oldest) > silence_max
                    && self.load.silence(now) > silence_max =>
            {
                let address = self.connection.address.clone();
                Err(ConnectError::Silent { address, silence: silence_max })
            }
            None if now.duration_since(self.heard_at) > IDLE_MAX => {
                self.send_packet(PacketContent::Ping, Packet::One(redis::cmd("PING")));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

async fn exchange(mut connection: MultiplexedConnection, packet: Packet) -> RedisResult<Value> {
    match packet {
        Packet::One(command) => connection.send_packed_command(&command).await,
        Packet::Asking(pipeline) => {
            // The reply to ASKING is left out.
            let mut replies = connection.send_packed_commands(&pipeline, 1, 1).await?;
            Ok(replies.pop().unwrap_or(Value::Nil))
        }
    }
}

/// Returns the error with which the server refused all calls, or served some of them as the wrong server
/// would.
fn refusal(reply: &Value) -> Option<ServerErrorReply> {
    match reply {
        Value::ServerError(error) => Some(ServerErrorReply::from(error)),
        Value::Array(values) => {
            values.iter().filter_map(refusal).find(ServerErrorReply::means_wrong_server)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::{RequestKind, ServerRequest};
    use super::*;

    #[test]
    fn each_call_of_a_packet_is_in_flight_and_no_command_of_the_connection_is() {
        let load = Arc::new(Load::new(Duration::from_secs(1)));
        let call = || {
            let request = ServerRequest::from(RequestKind::Plain(redis::cmd("GET")));
            QueuedCall::for_nobody(request, load.enter_anyway())
        };
        for count in [0, 1, 16] {
            assert_eq!(PacketContent::Calls((0..count).map(|_| call()).collect()).calls(), count);
        }
        assert_eq!(PacketContent::Reload.calls() + PacketContent::Ping.calls(), 0);
    }
}

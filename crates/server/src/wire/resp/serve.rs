//! The IO of the RESP wire: one read, many commands, one write.
//!
//! On a store that answers at once, every command of a read is decided in turn. Where a decision has
//! to wait, the commands behind it come along, so that a pipeline takes one round trip to the store
//! and not one a command. Replies are always in the order of the commands. While a decision is
//! waited for, nothing is read, but it is noticed when the client goes away: then the wait ends, and
//! the place of a command that a `queue` holds is free.

use std::future::{Future, poll_fn};
use std::io;
use std::iter;
use std::pin::pin;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use sluicegate::internals::store::Store;
use sluicegate::{Micros, Turn};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::codec::{
    AuthContext, COMMAND_BYTES_MAX, CallerRuleCache, ClientNetwork, Command, CommandWords,
    ConnectionRuleCache, DecisionRequest, Guesses, NextStep, Password, ProtocolError, Replies,
    Session, ThrottleRuleCache, read,
};
use crate::authenticator::{Caller, ListenerAuth};
use crate::engine::{EngineObserver, ServerEngine};
use crate::protocol::{Peer, Wire};
use crate::wire::ServerContext;
use crate::wire::accept::{self, Listener, PeerClosed};
use crate::wire::foreign::ForeignClients;

/// Default maximum number of connections of an address: every instance of an application has some
/// of its own, and each takes 8 KB.
pub(crate) const CONNECTIONS_MAX: usize = 2_048;

/// Size of a connection's input buffer at first, bytes; it grows up to [`COMMAND_BYTES_MAX`] where
/// a client sends more at once, so that ten thousand quiet connections cost little.
const INPUT_BYTES_MIN: usize = 1024;

/// Bytes of replies after which they are sent before the next command is answered. Together with the
/// input a connection buffers 28 KiB at most.
const OUTPUT_BYTES_MAX: usize = 8 * 1024;

/// Maximum number of decisions of one connection that are made, or waited for, at a time: as many as
/// clients pipeline. Others wait in the input.
const DECIDED_TOGETHER_MAX: usize = 128;

/// Interval between checks whether a connection is still in use.
const TICK: Duration = Duration::from_secs(5);

/// Ticks without a command after which a connection is closed: five minutes. Pools keep connections
/// for long, and some of them do not look before they use one again.
const QUIET_TICKS_MAX: u32 = 60;

/// Ticks that a command may take to come in whole, 5 to 10 s: clients have theirs ready.
const UNENDED_TICKS_MAX: u32 = 2;

/// Longest time that a client may take to read replies. Until it has, nothing more is read from it.
const WRITE_WAIT_MAX: Duration = Duration::from_secs(10);

/// Longest time that the decisions of a connection are waited for after the client has ended its side,
/// all of them together: as long as a store that answers takes, for a client that pipes commands in and
/// reads the replies. Longer delays are given up, as is the wait for a permit at once.
const ENDED_WAIT_MAX: Duration = Duration::from_millis(100);

/// Longest time that a connection which is given up is still read, so that its client sees the error before the end.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// The advice in the log about a client that sends HTTP.
const HTTP_ADVICE: &str = "checks over HTTP belong to an address of `http.listen`";

/// The first bytes of a client that uses TLS.
const TLS_HANDSHAKE: [u8; 2] = [22, 3];

/// The state that all connections share.
struct RespServer<S> {
    engine: Arc<ServerEngine<S>>,
    listener_auth: ListenerAuth,
    password: Option<Password>,
    guesses: Guesses,
    limits: Arc<ThrottleRuleCache>,
    rules: CallerRuleCache,
    connections: AtomicU64,
    foreign: ForeignClients,
}

/// Answers commands until the server stops, then those that were read. Returns the number of connections that
/// were cut off because they did not end. With a password, or where a token is required, clients must log in.
pub(crate) async fn serve(listener: Listener, context: &ServerContext) -> usize {
    let ServerContext { engine, authenticator, password, workers, stop, .. } = context;
    let address = listener.address().ok();
    let listener_auth = authenticator.listener_auth(Wire::Resp, address.as_ref());
    let connections = Arc::clone(engine.telemetry().connections(Wire::Resp));
    let foreign = ForeignClients::new(address.as_ref());
    let server = RespServer::new(Arc::clone(engine), listener_auth, password.clone());
    let shared = Arc::new(RespServer { foreign, ..server });
    let stopping = stop.clone();
    accept::serve(listener, CONNECTIONS_MAX, workers, stop, move |stream, peer| {
        connections.during(connection(Arc::clone(&shared), stream, peer, stopping.clone()))
    })
    .await
}

/// Answers the commands of one connection.
async fn connection<S: Store + 'static>(
    shared: Arc<RespServer<S>>,
    mut stream: impl AsyncRead + AsyncWrite + PeerClosed + Unpin + Send + 'static,
    peer: Peer,
    stop: CancellationToken,
) {
    let mut client = RespSession::new(&shared, peer.into());
    let mut input = Vec::with_capacity(INPUT_BYTES_MIN);
    let mut watch = IdleTimer::new();
    let mut stopped = pin!(stop.cancelled());
    loop {
        let had_begun = !input.is_empty();
        tokio::select! {
            biased;
            read = stream.read_buf(&mut input) => match read {
                Ok(1..) => {}
                Ok(0) if had_begun => return client.give_up(ProtocolError::Cut, stream).await,
                _ => return,
            },
            () = stopped.as_mut() => return,
            () = watch.given_up(had_begun) => {
                return if had_begun { client.give_up(ProtocolError::Late, stream).await };
            }
        }
        let was_full = input.len() == input.capacity();
        // An error means that the client is gone.
        let Ok((taken, next)) = client.answer(&input, &mut stream).await else { return };
        if next == NextStep::Close || stop.is_cancelled() {
            return farewell(stream).await;
        }
        if taken > 0 || !had_begun {
            watch.noticed();
        }
        input.drain(..taken);
        if was_full {
            let bytes = (input.capacity() * 4).min(COMMAND_BYTES_MAX);
            input.reserve_exact(bytes - input.len());
            // There is more to read, for others as well.
            tokio::task::yield_now().await;
        }
    }
}

/// Closes the connection so that the client can still read what was last written.
async fn farewell(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let ending = async {
        stream.shutdown().await?;
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    timeout(FAREWELL_MAX, ending).await.ok();
}

/// The client of a connection, and the replies that are not sent yet.
struct RespSession<'s, S> {
    shared: &'s RespServer<S>,
    network: ClientNetwork,
    session: Session,
    limits: ConnectionRuleCache,
    replies: Replies,
    /// The time of the commands that are answered; `None` once something was waited for.
    now: Option<Micros>,
    /// The time when it was noticed that the client has ended its side.
    ended: Option<Instant>,
}

impl<S: Store + 'static> RespSession<'_, S> {
    /// Answers the commands that `input` holds. Returns how many bytes they take.
    async fn answer(
        &mut self,
        input: &[u8],
        stream: &mut (impl AsyncWrite + PeerClosed + Unpin),
    ) -> io::Result<(usize, NextStep)> {
        self.now = None;
        let (mut next, mut rest, mut words) = (NextStep::GoOn, input, CommandWords::default());
        while next == NextStep::GoOn {
            match read(rest, &mut words) {
                Ok(None) => break,
                Ok(Some(length)) => rest = &rest[length..],
                Err(error) => {
                    if error == ProtocolError::Foreign {
                        self.shared.foreign.log("HTTP", HTTP_ADVICE);
                    } else if rest.starts_with(&TLS_HANDSHAKE) {
                        self.shared.foreign.log("TLS", "this address speaks none: set `resp.tls`");
                    }
                    self.replies.protocol_error(error);
                    next = NextStep::Close;
                    break;
                }
            }
            if words.is_empty() {
                continue;
            }
            match Command::decode(&words) {
                Ok(Command::Decide(_)) if self.session.discards(&mut self.replies) => {}
                Ok(Command::Decide(question)) => {
                    rest = self.decide(question, rest, stream).await?;
                }
                Ok(Command::Talk(talk)) => {
                    let entry = self.shared.entry(self.network);
                    let now = self.now();
                    next = self.session.talk(talk, entry, now, &mut self.replies);
                }
                Err(refusal) => self.replies.refusal(&refusal),
            }
            if self.replies.bytes().len() > OUTPUT_BYTES_MAX {
                self.send(stream).await?;
            }
        }
        self.send(stream).await?;
        Ok((input.len() - rest.len(), next))
    }

    /// Answers `first` and a bounded number of requests at the beginning of `rest`. Returns the remainder of `rest`.
    async fn decide<'a>(
        &mut self,
        first: DecisionRequest<'a>,
        rest: &'a [u8],
        stream: &mut (impl AsyncWrite + PeerClosed + Unpin),
    ) -> io::Result<&'a [u8]> {
        let (shared, now) = (self.shared, self.now());
        let (listener_auth, mut turn) =
            (&shared.listener_auth, shared.engine.turn_at(Wire::Resp, now));
        let caller = match self.session.caller(listener_auth, now) {
            Ok(caller) => caller.clone(),
            Err(refused) => {
                self.replies.refusal(&refused.into());
                return Ok(rest);
            }
        };
        let mut first = first;
        if let Err(refused) = first.asked_by(&caller) {
            self.replies.refusal(&listener_auth.count_refused(refused).into());
            return Ok(rest);
        }
        if let Err(refused) = first.read_rules(&shared.rules) {
            self.replies.refusal(&refused);
            return Ok(rest);
        }
        let (others, rest) = questions(rest, &caller, &shared.rules);
        if !others.is_empty() {
            let all = iter::once(&first).chain(&others);
            turn.prefetch(all.map(|question| &question.request));
        }
        let (mut next, mut left) = (Some(&first), others.iter());
        while let Some(question) = next {
            if self.now.is_none() {
                turn = shared.engine.turn_at(Wire::Resp, self.now());
                if let Err(refused) = self.session.caller(listener_auth, turn.now()) {
                    self.replies.refusal(&refused.into());
                    next = left.next();
                    continue;
                }
            }
            let decided = match question.sent_rules(&mut self.limits) {
                None => turn.try_decide(&question.request),
                Some(rules) => turn.try_decide(&question.under(rules)),
            };
            match decided {
                Some(decided) => question.reply(&decided, &mut self.replies),
                None => self.decide_together(&turn, question, &mut left, stream).await?,
            }
            if self.replies.bytes().len() > OUTPUT_BYTES_MAX {
                self.send(stream).await?;
            }
            next = left.next();
        }
        Ok(rest)
    }

    /// The time that commands are decided by. Commands that came together are decided by one reading
    /// of the clock, unless something was waited for in between.
    #[inline]
    fn now(&mut self) -> Micros {
        *self.now.get_or_insert_with(|| self.shared.engine.core().now())
    }

    /// Answers `first` and the requests at the beginning of `others` that can be decided together with it.
    ///
    /// # Errors
    /// If the client goes away meanwhile.
    async fn decide_together<'q, 'a>(
        &mut self,
        turn: &Turn<'_, S, EngineObserver>,
        first: &'q DecisionRequest<'a>,
        others: &mut slice::Iter<'q, DecisionRequest<'a>>,
        stream: &impl PeerClosed,
    ) -> io::Result<()> {
        stream.asked();
        let mut together = vec![first];
        if !first.keeps_its_place() {
            let stays = |question: &DecisionRequest<'_>| question.keeps_its_place();
            let count = others.as_slice().iter().position(stays).unwrap_or(others.len());
            together.extend(others.take(count));
        }
        let rules = together.iter().map(|question| question.sent_rules(&mut self.limits).cloned());
        let rules: Vec<_> = rules.collect();
        let requests = together.iter().zip(&rules).map(|(question, rules)| match rules {
            None => question.request.clone(),
            Some(rules) => question.under(rules),
        });
        let requests: Vec<_> = requests.collect();
        // A permit that comes meanwhile would be held by nobody.
        let ended_wait = match &requests[..] {
            [request] if turn.may_wait_for_permit(request) => Duration::ZERO,
            _ => ENDED_WAIT_MAX,
        };
        let ended = &mut self.ended;
        let gone = async {
            let ended = match ended {
                Some(ended) => *ended,
                None => {
                    stream.ended().await;
                    *ended.insert(Instant::now())
                }
            };
            sleep_until(ended + ended_wait).await;
        };
        let passed = tokio::select! {
            biased;
            passed = turn.decide_each(&requests) => passed,
            () = gone => return Err(io::ErrorKind::ConnectionAborted.into()),
        };
        self.now = None;
        for (question, passed) in together.iter().zip(&passed) {
            question.reply(passed, &mut self.replies);
        }
        Ok(())
    }

    /// Sends the reason why a command that has begun is not answered, and closes the connection.
    async fn give_up(
        mut self,
        error: ProtocolError,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
    ) {
        self.replies.protocol_error(error);
        if self.send(&mut stream).await.is_ok() {
            farewell(stream).await;
        }
    }

    /// Sends the pending replies.
    async fn send(&mut self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        if self.replies.bytes().is_empty() {
            return Ok(());
        }
        let mut writing = pin!(async {
            stream.write_all(self.replies.bytes()).await?;
            stream.flush().await
        });
        // Nearly always the system takes it at once, and the task need not be woken later.
        match poll_fn(|context| Poll::Ready(writing.as_mut().poll(context))).await {
            Poll::Ready(written) => written?,
            Poll::Pending => {
                timeout(WRITE_WAIT_MAX, writing).await??;
                self.now = None;
            }
        }
        self.replies.clear();
        Ok(())
    }
}

/// The requests at the beginning of `input` that are answered together with the one before it, and
/// the remainder; `caller` may send all of them, and their rules are in `known`.
fn questions<'q, 'i: 'q>(
    input: &'i [u8],
    caller: &'q Caller,
    known: &CallerRuleCache,
) -> (Vec<DecisionRequest<'q>>, &'i [u8]) {
    let room = if input.is_empty() { 0 } else { DECIDED_TOGETHER_MAX };
    let (mut questions, mut rest, mut words) =
        (Vec::with_capacity(room), input, CommandWords::default());
    while questions.len() < DECIDED_TOGETHER_MAX - 1 {
        let Ok(Some(length)) = read(rest, &mut words) else { break };
        let Ok(Command::Decide(mut question)) = Command::decode(&words) else { break };
        if question.asked_by(caller).is_err() || question.read_rules(known).is_err() {
            break;
        }
        questions.push(question);
        rest = &rest[length..];
    }
    (questions, rest)
}

impl<S> RespServer<S> {
    fn new(
        engine: Arc<ServerEngine<S>>,
        listener_auth: ListenerAuth,
        password: Option<Password>,
    ) -> Self {
        let (guesses, limits) = (Guesses::default(), Arc::default());
        Self {
            engine,
            listener_auth,
            password,
            guesses,
            limits,
            rules: CallerRuleCache::default(),
            connections: AtomicU64::new(1),
            foreign: ForeignClients::default(),
        }
    }

    const fn entry(&self, network: ClientNetwork) -> AuthContext<'_> {
        let Self { password, listener_auth, guesses, .. } = self;
        AuthContext { password: password.as_ref(), listener_auth, guesses, network }
    }
}

impl<'s, S> RespSession<'s, S> {
    fn new(shared: &'s RespServer<S>, network: ClientNetwork) -> Self {
        let id = shared.connections.fetch_add(1, Ordering::Relaxed);
        Self {
            shared,
            network,
            session: Session::new(id, shared.entry(network)),
            limits: ConnectionRuleCache::new(Arc::clone(&shared.limits)),
            replies: Replies::default(),
            now: None,
            ended: None,
        }
    }
}

/// Counts ticks without a command: no clock is read, and no timer set, for each read.
struct IdleTimer {
    ticks: Interval,
    quiet: u32,
}

impl IdleTimer {
    fn new() -> Self {
        let mut ticks = interval_at(Instant::now() + TICK, TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { ticks, quiet: 0 }
    }

    /// Resets the count, because the client was active.
    const fn noticed(&mut self) {
        self.quiet = 0;
    }

    /// Returns when the connection is not worth keeping: sooner with a command that `has_begun`. Can
    /// be dropped and called again.
    async fn given_up(&mut self, has_begun: bool) {
        let quiet_max = if has_begun { UNENDED_TICKS_MAX } else { QUIET_TICKS_MAX };
        while self.quiet < quiet_max {
            self.ticks.tick().await;
            self.quiet += 1;
        }
    }
}

#[cfg(test)]
mod tests;

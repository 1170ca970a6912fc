//! The clients: one thread that keeps thousands of requests outstanding, and records the outcome of each, with its own
//! clock.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout};

use crate::bound::Admitted;
use crate::report::RECOVERY_US;
use crate::wire::{Reply, Wire};

/// Most requests that are outstanding on a connection: their replies fit into the buffers of the system, so no server
/// waits for its replies to be read before it reads more requests.
const OUTSTANDING_MAX: usize = 128;

/// Longest wait for replies after the last request.
const LAST_REPLIES_MAX: Duration = Duration::from_secs(3);

/// Interval at which a client with a rate checks whether a request is due: as often as timers fire.
const TICK: Duration = Duration::from_millis(1);

/// Interval between attempts to connect to a server that was killed.
const RECONNECT_EVERY: Duration = Duration::from_millis(10);

/// The mode of decisions from the share of a server.
const SHARE_MODE: &str = "local";

/// Length of a slot of the time line, µs.
const SLOT_US: u64 = 100_000;

/// The clients of a load, the servers, and the protocol of each.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) servers: Vec<(Wire, SocketAddr)>,
    /// Connections to each server.
    pub(crate) connections: usize,
    pub(crate) pace: Pace,
    /// Requests are for keys that are drawn from this many.
    pub(crate) keys: u32,
    /// A closed connection is made again, since servers are killed on purpose.
    pub(crate) reconnects: bool,
}

/// The pace of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// Sends when an answer comes: this many requests are always outstanding.
    Closed { outstanding: usize },
    /// Sends this many requests a second, independent of answers. A request beyond [`OUTSTANDING_MAX`] is counted as
    /// offered, but not sent.
    Open { per_s: f64 },
}

/// The outcomes of all requests. Times are µs since the run began.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) sent: u64,
    /// Offered by an open loop and not sent.
    pub(crate) unsent: u64,
    pub(crate) unanswered: u64,
    pub(crate) admitted: Vec<Admitted>,
    /// Decisions by mode, in the order in which modes were first seen.
    pub(crate) modes: Vec<Decided>,
    /// Reasons why there was no decision, with their counts.
    pub(crate) failed: BTreeMap<String, u64>,
    /// Latencies of all decisions, from the time when each was due.
    pub(crate) latencies_us: Vec<u32>,
    /// Outages, as the clients of each server saw them.
    pub(crate) cut_off: BTreeMap<SocketAddr, Outages>,
    pub(crate) first_sent_us: u64,
    pub(crate) last_replied_us: u64,
    /// Share of a core that the clients used.
    pub(crate) busy: f64,
}

/// Times in which a server decided from its share.
#[derive(Debug, Default)]
pub(crate) struct Outages {
    /// From the time when the first request was sent to that when the last was answered.
    pub(crate) spans: Vec<(u64, u64)>,
    is_over: bool,
}

/// The decisions of one mode.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) mode: String,
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
    /// Admitted and refused, by slots of 100 ms.
    pub(crate) slots: Vec<[u32; 2]>,
}

/// Clients that send requests until they are stopped.
#[derive(Debug)]
pub(crate) struct Running {
    stop: watch::Sender<bool>,
    thread: JoinHandle<Tally>,
    begin: Instant,
}

impl Load {
    /// Connects every client, and starts all of them.
    ///
    /// # Errors
    /// If a connection cannot be made.
    pub(crate) fn start(self) -> anyhow::Result<Running> {
        let (stop, stopped) = watch::channel(false);
        let (ready, is_ready) = mpsc::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::spawn(move || {
            LocalSet::new().block_on(&runtime, self.run(&ready, stopped))
        });
        let begin = is_ready.recv().context("the clients' thread panicked")??;
        Ok(Running { stop, thread, begin })
    }

    async fn run(
        self,
        ready: &mpsc::Sender<anyhow::Result<Instant>>,
        stopped: watch::Receiver<bool>,
    ) -> Tally {
        let lines = match self.connect().await {
            Ok(lines) => lines,
            Err(error) => {
                ready.send(Err(error)).ok();
                return Tally::default();
            }
        };
        let begin = Instant::now();
        ready.send(Ok(begin)).ok();
        let (before, tally) = (busy_ns(), std::rc::Rc::new(RefCell::new(Tally::new())));
        let mut asking = JoinSet::new();
        for line in lines {
            let (tally, stopped) = (tally.clone(), stopped.clone());
            asking.spawn_local(async move {
                let mut line = line;
                while let Err(error) = line.keep_asking(begin, stopped.clone(), &tally).await {
                    tally.borrow_mut().unanswered += line.pending.len() as u64;
                    if !line.reconnects || line.reconnect(&stopped).await.is_err() {
                        tally.borrow_mut().failed(&format!("{error:#}"));
                        break;
                    }
                }
            });
        }
        asking.join_all().await;
        let mut tally = tally.take();
        tally.busy = (busy_ns() - before) as f64 / begin.elapsed().as_nanos() as f64;
        tally
    }

    async fn connect(&self) -> anyhow::Result<Vec<Line>> {
        let mut lines = Vec::new();
        for number in 0..self.connections {
            for (wire, server) in &self.servers {
                let stream = timeout(LAST_REPLIES_MAX, TcpStream::connect(server)).await??;
                stream.set_nodelay(true)?;
                let schedule = Schedule::new(self.pace, number as f64 / self.connections as f64)?;
                lines.push(Line {
                    stream,
                    server: *server,
                    reconnects: self.reconnects,
                    wire: *wire,
                    keys: self.keys,
                    schedule,
                    pending: VecDeque::new(),
                    asked: Vec::new(),
                    answered: Vec::new(),
                });
            }
        }
        Ok(lines)
    }
}

impl Running {
    /// Returns the time since the clients began, in µs.
    pub(crate) fn now_us(&self) -> u64 {
        us_since(self.begin)
    }

    /// Lets the clients read the outstanding replies, and ends them.
    ///
    /// # Errors
    /// If their thread panicked.
    pub(crate) async fn stop(self) -> anyhow::Result<Tally> {
        self.stop.send(true).ok();
        let joined = tokio::task::spawn_blocking(move || self.thread.join()).await?;
        joined.map_err(|_panic| anyhow!("the clients' thread panicked"))
    }
}

/// One connection.
struct Line {
    stream: TcpStream,
    server: SocketAddr,
    reconnects: bool,
    wire: Wire,
    keys: u32,
    schedule: Schedule,
    pending: VecDeque<Pending>,
    asked: Vec<u8>,
    answered: Vec<u8>,
}

/// A request without a reply yet.
struct Pending {
    due_us: u64,
    sent_us: u64,
    key: u32,
}

impl Line {
    /// Connects again, as soon as the server is listening.
    async fn reconnect(&mut self, stopped: &watch::Receiver<bool>) -> anyhow::Result<()> {
        self.pending.clear();
        self.answered.clear();
        let connecting = async {
            loop {
                match TcpStream::connect(self.server).await {
                    Ok(stream) => return stream,
                    Err(_) => sleep(RECONNECT_EVERY).await,
                }
            }
        };
        ensure!(!*stopped.borrow(), "the clients are stopped");
        self.stream = timeout(LAST_REPLIES_MAX, connecting).await?;
        Ok(self.stream.set_nodelay(true)?)
    }

    async fn keep_asking(
        &mut self,
        begin: Instant,
        mut stopped: watch::Receiver<bool>,
        tally: &RefCell<Tally>,
    ) -> anyhow::Result<()> {
        let mut stopping = false;
        loop {
            if !stopping {
                self.ask(us_since(begin), tally).await?;
            } else if self.pending.is_empty() {
                return Ok(());
            }
            tokio::select! {
                read = self.stream.read_buf(&mut self.answered) => {
                    ensure!(read? > 0, "the server closed the connection");
                    self.note(us_since(begin), &mut tally.borrow_mut())?;
                }
                () = sleep(TICK), if !stopping && self.schedule.is_open() => {}
                _ = stopped.changed(), if !stopping => stopping = true,
                () = sleep(LAST_REPLIES_MAX), if stopping => anyhow::bail!("no answer in time"),
            }
        }
    }

    /// Sends the requests that are due, in one write.
    async fn ask(&mut self, now_us: u64, tally: &RefCell<Tally>) -> anyhow::Result<()> {
        self.asked.clear();
        let (mut sent, mut unsent) = (0, 0);
        while let Some(due_us) = self.schedule.next(now_us, self.pending.len()) {
            if self.pending.len() >= OUTSTANDING_MAX {
                unsent += 1;
                continue;
            }
            let key = fastrand::u32(..self.keys);
            self.wire.ask(key, &mut self.asked);
            self.pending.push_back(Pending { due_us, sent_us: now_us, key });
            sent += 1;
        }
        if sent + unsent > 0 {
            let mut tally = tally.borrow_mut();
            tally.first_sent_us = tally.first_sent_us.min(now_us);
            tally.sent += sent;
            tally.unsent += unsent;
        }
        Ok(self.stream.write_all(&self.asked).await?)
    }

    /// Counts every reply that is complete.
    fn note(&mut self, now_us: u64, tally: &mut Tally) -> anyhow::Result<()> {
        let mut read = 0;
        while let Some((reply, length)) = self.wire.reply(&self.answered[read..])? {
            let asked = self.pending.pop_front().context("the server says more than was asked")?;
            tally.replied(&asked, now_us, &reply);
            if let Reply::Decided { mode, .. } = reply {
                let outages = tally.cut_off.entry(self.server).or_default();
                outages.decided((asked.sent_us, now_us), mode);
            }
            read += length;
        }
        self.answered.drain(..read);
        Ok(())
    }
}

/// The times of a connection's requests.
#[derive(Debug)]
enum Schedule {
    Closed { outstanding: usize },
    Open { next_us: f64, every_us: f64 },
}

impl Schedule {
    /// The first request waits for `share` of the time between two requests.
    fn new(pace: Pace, share: f64) -> anyhow::Result<Self> {
        Ok(match pace {
            Pace::Closed { outstanding } => {
                ensure!(outstanding <= OUTSTANDING_MAX, "at most {OUTSTANDING_MAX} outstanding");
                Self::Closed { outstanding }
            }
            Pace::Open { per_s } => {
                Self::Open { next_us: share * 1e6 / per_s, every_us: 1e6 / per_s }
            }
        })
    }

    fn is_open(&self) -> bool {
        matches!(self, Self::Open { .. })
    }

    /// Returns the time at which the next request was due, if it is due now.
    #[expect(clippy::cast_sign_loss, reason = "times since the beginning are not negative")]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a run is seconds, and 2^53 µs are 285 years"
    )]
    fn next(&mut self, now_us: u64, pending: usize) -> Option<u64> {
        match self {
            Self::Closed { outstanding } => (pending < *outstanding).then_some(now_us),
            Self::Open { next_us, every_us } => {
                let due_us = *next_us as u64;
                (due_us <= now_us).then(|| {
                    *next_us += *every_us;
                    due_us
                })
            }
        }
    }
}

impl Tally {
    /// A tally without outcomes.
    pub(crate) fn new() -> Self {
        Self { first_sent_us: u64::MAX, ..Self::default() }
    }

    /// Adds the outcomes of another run, as if it had followed at once.
    pub(crate) fn add(&mut self, other: Self) {
        let begin_us = self.last_replied_us;
        let from_us = |us: u64| begin_us + us.saturating_sub(other.first_sent_us);
        self.first_sent_us = self.first_sent_us.min(begin_us);
        self.last_replied_us = from_us(other.last_replied_us);
        self.sent += other.sent;
        self.unsent += other.unsent;
        self.unanswered += other.unanswered;
        self.busy = self.busy.max(other.busy);
        self.latencies_us.extend(other.latencies_us);
        self.admitted.extend(other.admitted.into_iter().map(|it| Admitted {
            sent_us: from_us(it.sent_us),
            replied_us: from_us(it.replied_us),
            ..it
        }));
        for (reason, count) in other.failed {
            *self.failed.entry(reason).or_default() += count;
        }
        for decided in other.modes {
            let known = self.of(&decided.mode);
            known.admitted += decided.admitted;
            known.refused += decided.refused;
        }
    }

    fn replied(&mut self, asked: &Pending, now_us: u64, reply: &Reply<'_>) {
        self.last_replied_us = now_us;
        let latency_us = now_us.saturating_sub(asked.due_us);
        self.latencies_us.push(u32::try_from(latency_us).unwrap_or(u32::MAX));
        match reply {
            Reply::Decided { passes, mode } => {
                let Pending { sent_us, key, .. } = *asked;
                let by_share = *mode == SHARE_MODE;
                let event = Admitted { sent_us, replied_us: now_us, key, by_share };
                self.decided(event, *passes, mode);
            }
            Reply::Failed(reason) => self.failed(reason),
        }
    }

    /// Counts a decision, which is an admission if it `passes`.
    pub(crate) fn decided(&mut self, event: Admitted, passes: bool, mode: &str) {
        let decided = self.of(mode);
        let slot = usize::try_from(event.replied_us / SLOT_US).expect("a run is short");
        if decided.slots.len() <= slot {
            decided.slots.resize(slot + 1, [0; 2]);
        }
        decided.slots[slot][usize::from(!passes)] += 1;
        if passes {
            decided.admitted += 1;
            self.admitted.push(event);
        } else {
            decided.refused += 1;
        }
    }

    /// The decisions of a mode, to be counted.
    fn of(&mut self, mode: &str) -> &mut Decided {
        let place = self.modes.iter().position(|known| known.mode == mode);
        let place = place.unwrap_or_else(|| {
            let (mode, slots) = (mode.to_owned(), Vec::new());
            self.modes.push(Decided { mode, admitted: 0, refused: 0, slots });
            self.modes.len() - 1
        });
        &mut self.modes[place]
    }

    fn failed(&mut self, reason: &str) {
        *self.failed.entry(reason.to_owned()).or_default() += 1;
    }

    /// Returns the decisions of a mode: admitted and refused.
    pub(crate) fn of_mode(&self, mode: &str) -> [u64; 2] {
        let found = self.modes.iter().find(|decided| decided.mode == mode);
        found.map_or([0; 2], |decided| [decided.admitted, decided.refused])
    }
}

impl Outages {
    /// Records the mode of a decision on a request that was sent and answered then.
    fn decided(&mut self, (sent_us, replied_us): (u64, u64), mode: &str) {
        match mode {
            SHARE_MODE => match self.spans.last_mut() {
                // Replies of different connections come in another order than their decisions.
                Some(last) if !self.is_over || sent_us < last.1 + RECOVERY_US => {
                    last.1 = last.1.max(replied_us);
                }
                _ => self.spans.push((sent_us, replied_us)),
            },
            "store" => {}
            _ => return,
        }
        self.is_over = mode != SHARE_MODE;
    }
}

fn us_since(begin: Instant) -> u64 {
    u64::try_from(begin.elapsed().as_micros()).expect("a run is short")
}

/// The time that this thread has run on a core, ns.
fn busy_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

//! Connections without a network, in virtual time.

use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::task::Context;

use sluicegate::internals::store::{StoreAnswer, StoreRequest};
use sluicegate::policy::{Document, PolicySet};
use sluicegate::store::{MemoryStore, StoreError};
use sluicegate::{Clock, Engine};
use sluicegate_kernel::Moment;
use tokio::io::{DuplexStream, ReadBuf};
use tokio::task::JoinHandle;

use super::*;
use crate::authenticator::tests::{Stage, open_listener};
use crate::config::TokensRequired;

const POLICIES: &str = "
policies:
  - { name: p, rules: [{ name: r, sliding_log: { limit: 200, window: 1h } }] }
  - { name: w, rules: [{ name: r, fixed_window: { limit: 1, window: 5m, align: first } }] }
  - { name: q, overflow: { queue: { max_wait: 1h } }, rules: [{ leaky_bucket: { rate: 1/10m, burst: 1 } }] }
  - { name: c, rules: [{ concurrency: { limit: 1, ttl: 1h, queue: 5 } }] }
";

/// The time of tokio, which stands still in these tests unless all wait.
#[derive(Debug)]
struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now(&self) -> Micros {
        self.0.elapsed().into()
    }
}

/// A pipe shows its end only to a read.
impl PeerClosed for DuplexStream {
    async fn ended(&self) {
        std::future::pending::<()>().await;
    }

    fn has_ended(&self) -> bool {
        false
    }

    fn asked(&self) {}
}

/// A pipe whose client can end its side while a command waits.
#[derive(Debug)]
struct EndingPipe {
    pipe: DuplexStream,
    ended: CancellationToken,
}

impl PeerClosed for EndingPipe {
    async fn ended(&self) {
        self.ended.cancelled().await;
    }

    fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    fn asked(&self) {}
}

impl AsyncRead for EndingPipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_read(context, into)
    }
}

impl AsyncWrite for EndingPipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.pipe).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(context)
    }
}

/// The array that a check of `p` returns.
fn passed(remaining: u32) -> String {
    format!(
        "*8\r\n:1\r\n:200\r\n:{remaining}\r\n:0\r\n:3600000\r\n:0\r\n$1\r\nr\r\n$5\r\nstore\r\n"
    )
}

/// A store that answers after a while, and sooner the later it was called.
struct Late {
    store: MemoryStore,
    asked: AtomicUsize,
    waiting: AtomicUsize,
    waiting_most: AtomicUsize,
}

impl Late {
    fn new() -> Self {
        Self {
            store: MemoryStore::default(),
            asked: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            waiting_most: AtomicUsize::new(0),
        }
    }
}

impl Store for Late {
    async fn decide(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<StoreAnswer, StoreError> {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed) + 1;
        self.waiting_most.fetch_max(waiting, Ordering::Relaxed);
        let verdict = self.store.decide_now(request, at)?;
        let patience = Duration::from_millis(1_000 - u64::try_from(number % 1_000).expect("small"));
        tokio::time::sleep(patience).await;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Ok(verdict.into())
    }
}

struct Server<S> {
    client: DuplexStream,
    stop: CancellationToken,
    serving: JoinHandle<()>,
    engine: Arc<ServerEngine<S>>,
}

/// A client of a server whose pipe holds `pipe_bytes` each way.
fn connect_to<S: Store + 'static>(store: S, pipe_bytes: usize) -> Server<S> {
    connect_at(open_listener(Wire::Resp), store, pipe_bytes)
}

fn connect_at<S: Store + 'static>(
    listener_auth: ListenerAuth,
    store: S,
    pipe_bytes: usize,
) -> Server<S> {
    let engine = engine_on(store);
    let (client, stream) = tokio::io::duplex(pipe_bytes);
    let stop = CancellationToken::new();
    let shared = Arc::new(RespServer::new(Arc::clone(&engine), listener_auth, None));
    let serving = tokio::spawn(connection(shared, stream, Peer::Local, stop.clone()));
    Server { client, stop, serving, engine }
}

fn engine_on<S: Store + 'static>(store: S) -> Arc<ServerEngine<S>> {
    let policies = PolicySet::new(Document::parse(POLICIES).expect("POLICIES is valid"));
    let clock = Arc::new(TokioClock(Instant::now()));
    Arc::new(ServerEngine::new(Engine::new(policies, store, clock)))
}

fn connect() -> Server<MemoryStore> {
    connect_to(MemoryStore::default(), 1 << 20)
}

impl<S> Server<S> {
    async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.client.write_all(bytes.as_ref()).await.expect("the server reads");
    }

    /// Reads the next bytes from the server, which must be `expected`.
    async fn expect(&mut self, expected: impl AsRef<[u8]>) {
        let expected = expected.as_ref();
        let mut reply = vec![0; expected.len()];
        self.client.read_exact(&mut reply).await.expect("the server answers");
        assert!(reply == expected, "{}", reply.escape_ascii());
    }

    /// The replies until the server closes the connection, and the seconds that takes.
    async fn rest(&mut self) -> (String, u64) {
        let (begin, mut reply) = (Instant::now(), Vec::new());
        self.client.read_to_end(&mut reply).await.expect("the server says something");
        (String::from_utf8(reply).expect("replies are text"), begin.elapsed().as_secs())
    }

    /// Reads on to the end of the next `end`.
    async fn until(&mut self, end: &str) {
        let mut reply = Vec::new();
        while !reply.ends_with(end.as_bytes()) {
            reply.push(self.client.read_u8().await.expect("the server answers"));
        }
    }

    async fn ping(&mut self) {
        self.write("PING\r\n").await;
        self.expect("+PONG\r\n").await;
    }
}

#[tokio::test(start_paused = true)]
async fn commands_of_one_read_are_answered_in_order() {
    let mut server = connect();
    server.write("PING\r\nSG.CHECK p k\r\nnope\r\nSG.CHECK p k\r\nECHO x\r\nPI").await;
    server.expect("+PONG\r\n").await;
    server.expect(passed(199)).await;
    server.expect("-ERR unknown command 'nope', with args beginning with: \r\n").await;
    server.expect(passed(198)).await;
    server.expect("$1\r\nx\r\n").await;
    server.write("NG\r\n").await;
    server.expect("+PONG\r\n").await;
}

#[tokio::test(start_paused = true)]
async fn what_a_token_may_not_is_refused_in_its_place_in_a_pipeline() {
    let stage = Stage::set(TokensRequired::Always);
    let listener_auth = stage.listener_auth(Wire::Resp, "127.0.0.1:1");
    let mut server = connect_at(listener_auth, MemoryStore::default(), 1 << 20);
    server
        .write("SG.CHECK p k\r\nSG.CHECK p k\r\nAUTH checks\r\nSG.CHECK p k\r\nSG.RESET p k\r\n")
        .await;
    server.write("SG.CHECK p k\r\nSG.CHECK p k APP other\r\nSG.CHECK p k\r\n").await;
    server.expect("-NOAUTH Authentication required.\r\n".repeat(2) + "+OK\r\n").await;
    server.expect(passed(199)).await;
    server.expect("-NOPERM the token lacks the scope `refund`\r\n").await;
    server.expect(passed(198)).await;
    server.expect("-NOPERM the token belongs to another app\r\n").await;
    server.expect(passed(197)).await;
    assert_eq!(stage.refused(Wire::Resp), [("missing", 2), ("scope", 1), ("app", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_revoked_while_a_check_is_held_is_good_for_none_behind_it() {
    let mut stage = Stage::set(TokensRequired::Always);
    let listener_auth = stage.listener_auth(Wire::Resp, "127.0.0.1:1");
    let mut server = connect_at(listener_auth, MemoryStore::default(), 1 << 20);
    // Ten minutes are waited for the second of the queue.
    server.write("AUTH good\r\n").await;
    server.expect("+OK\r\n").await;
    // What gives permits back or holds them is decided behind it; other checks are decided with it.
    server.write("SG.CHECK q k\r\nSG.CHECK q k\r\nSG.ACQUIRE p k a\r\nPING\r\n").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    stage.revoke("good");
    for _ in 0..2 {
        server.expect("*8\r\n:1\r\n").await;
        server.until("store\r\n").await;
    }
    let refused = "-NOAUTH Authentication required: invalid token: unknown or revoked\r\n";
    assert_eq!(server.rest().await.0, refused.repeat(2));
}

#[tokio::test(start_paused = true)]
async fn a_check_that_is_queued_is_answered_when_its_turn_comes() {
    let mut server = connect();
    let begin = Instant::now();
    server.write("SG.CHECK q k\r\nSG.CHECK q k\r\n").await;
    server.expect("*8\r\n:1\r\n").await;
    server.until("store\r\n").await;
    server.expect("*8\r\n:1\r\n").await;
    server.until("store\r\n").await;
    assert!((590..=610).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_behind_a_check_that_was_held_is_decided_by_the_time_it_is_then() {
    let mut server = connect();
    // Ten minutes are waited for the second of the queue, and the window is five.
    server.write("SG.CHECK w k\r\nSG.CHECK q k\r\nSG.CHECK q k\r\nPING\r\nSG.CHECK w k\r\n").await;
    for expected in ["*8\r\n:1\r\n:1\r\n", "*8\r\n:1\r\n:2\r\n", "*8\r\n:1\r\n:2\r\n"] {
        server.expect(expected).await;
        server.until("store\r\n").await;
    }
    server.expect("+PONG\r\n*8\r\n:1\r\n:1\r\n").await;
}

#[tokio::test(start_paused = true)]
async fn a_command_that_comes_byte_by_byte_is_answered_once() {
    let mut server = connect();
    for byte in b"*3\r\n$8\r\nSG.CHECK\r\n$1\r\np\r\n$1\r\nk\r\n" {
        server.write([*byte]).await;
        tokio::task::yield_now().await;
    }
    server.expect(passed(199)).await;
    server.ping().await;
}

#[tokio::test(start_paused = true)]
async fn more_than_the_input_holds_is_answered_all_the_same() {
    let mut server = connect();
    let word = "x".repeat(1_000);
    // The longest command of all fills what is buffered to the last byte.
    let long = "y".repeat(COMMAND_BYTES_MAX - 3 * (4_096 + 9) - 4 - 10 - 9);
    let words = format!("$4096\r\n{}\r\n", "x".repeat(4_096)).repeat(3);
    server.write(format!("*5\r\n$4\r\nECHO\r\n{words}${}\r\n{long}\r\n", long.len())).await;
    server.expect("-ERR wrong number of arguments for 'echo' command\r\n").await;
    let command = format!("ECHO {word}\r\n");
    server.write(command.repeat(200)).await;
    for _ in 0..200 {
        server.expect(format!("$1000\r\n{word}\r\n")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn decisions_that_have_to_wait_wait_together_and_keep_their_order() {
    let mut server = connect_to(Late::new(), 1 << 20);
    let begin = Instant::now();
    server.write(format!("{}PING\r\n{}", "SG.CHECK p k\r\n".repeat(64), "SG.CHECK p k\r\n")).await;
    for remaining in (136..200).rev() {
        server.expect(passed(remaining)).await;
    }
    server.expect("+PONG\r\n").await;
    server.expect(passed(135)).await;
    assert_eq!(begin.elapsed().as_millis(), 1_000 + 936, "the 64 at once, then the last");
    assert_eq!(server.engine.core().store().waiting_most.load(Ordering::Relaxed), 64);
}

#[tokio::test(start_paused = true)]
async fn decisions_that_are_waited_for_are_bounded() {
    let mut server = connect_to(Late::new(), 1 << 20);
    server.write("SG.PEEK p k\r\n".repeat(1_000)).await;
    let peeked = "*8\r\n:1\r\n:200\r\n:200\r\n:0\r\n:0\r\n:0\r\n$1\r\nr\r\n$5\r\nstore\r\n";
    for _ in 0..1_000 {
        server.expect(peeked).await;
    }
    let most = server.engine.core().store().waiting_most.load(Ordering::Relaxed);
    assert_eq!(most, DECIDED_TOGETHER_MAX);
}

#[tokio::test(start_paused = true)]
async fn what_gives_permits_back_is_decided_in_its_place() {
    let mut server = connect_to(Late::new(), 1 << 20);
    server.write("SG.CHECK p k\r\nSG.RESET p k\r\nSG.CHECK p k\r\n").await;
    server.expect(passed(199)).await;
    server.expect("*8\r\n:1\r\n:200\r\n:200\r\n:0\r\n:0\r\n:0\r\n$1\r\nr\r\n$5\r\nstore\r\n").await;
    server.expect(passed(199)).await;
    assert_eq!(server.engine.core().store().waiting_most.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn rules_in_a_pipeline_are_decided_with_the_others_and_their_errors_keep_their_place() {
    let mut server = connect_to(Late::new(), 1 << 20);
    let by = |rules: &str| command(&["SG.CHECK", "p", "k", "RULES", rules]);
    let log = by(r#"[{"name":"r","sliding_log":{"limit":200,"window":"1h"}}]"#);
    let policy = "SG.CHECK p k\r\n";
    server.write([&*log, policy, &log, &by("[]"), policy, &log].concat()).await;
    let error = "-NOTCHARGED rules: expected 1 to 8 rules, found 0\r\n";
    let replies = [199, 199, 198].map(passed).concat();
    server.expect(replies + error + &passed(198) + &passed(197)).await;
    assert_eq!(server.engine.core().store().waiting_most.load(Ordering::Relaxed), 3);
}

/// The words of a command, each of any bytes.
fn command(words: &[&str]) -> String {
    let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    let words: Vec<_> = words.collect();
    format!("*{}\r\n{}", words.len(), words.concat())
}

#[tokio::test(start_paused = true)]
async fn rules_with_a_queue_let_a_request_wait_for_a_permit_and_others_do_not() {
    let slots = |queue: u8| {
        format!(r#"[{{"name":"r","concurrency":{{"limit":1,"ttl":"1h","queue":{queue}}}}}]"#)
    };
    let acquire = |id: &str, queue: u8| {
        command(&["SG.ACQUIRE", "n", "k", id, "MAXWAIT", "60000", "RULES", &slots(queue)])
    };
    let passed = "*8\r\n:1\r\n:1\r\n:0\r\n:0\r\n:3600000\r\n:0\r\n$1\r\nr\r\n$5\r\nstore\r\n";
    let mut server = connect();
    server.write(command(&["SG.ACQUIRE", "n", "k", "a", "RULES", &slots(1)])).await;
    server.expect(passed).await;
    server.write(acquire("b", 0)).await;
    let problem = "not every `concurrency` rule has a `queue`, so no request can wait for a permit";
    let refused = "-NOTCHARGED op: `acquire` is not supported by this policy: ";
    server.expect(format!("{refused}{problem}\r\n")).await;
    let begun = Instant::now();
    server.write(acquire("b", 1)).await;
    server.until("store\r\n").await;
    assert_eq!(begun.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_quits_is_answered_and_let_go() {
    let mut server = connect();
    server.write("PING\r\nQUIT\r\nPING\r\n").await;
    assert_eq!(server.rest().await, ("+PONG\r\n+OK\r\n".to_owned(), 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_no_command_is_told_so_and_closes_the_connection() {
    for (input, reply) in [
        ("*1\r\n*1\r\n", "-ERR Protocol error: expected '$', got '*'\r\n"),
        ("*1\r\n$99999\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        ("PING\r\n*x\r\nPING\r\n", "+PONG\r\n-ERR Protocol error: invalid multibulk length\r\n"),
    ] {
        let mut server = connect();
        server.write(input).await;
        assert_eq!(server.rest().await.0, reply, "{input}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_browser_is_let_go_at_once_and_none_of_its_body_is_read() {
    let mut server = connect();
    let body = "SG.RESET p k\r\nSG.CHECK p k\r\n";
    server.write(format!("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n{body}")).await;
    assert_eq!(server.rest().await, (String::new(), 0));
    assert!(server.engine.core().store().is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_is_kept_for_five_minutes_and_no_longer() {
    let minutes = TICK.as_secs() * u64::from(QUIET_TICKS_MAX);
    let mut server = connect();
    assert_eq!(server.rest().await, (String::new(), minutes));
    let mut server = connect();
    tokio::time::sleep(Duration::from_secs(minutes - 1)).await;
    server.ping().await;
    let (_, seconds) = server.rest().await;
    assert!((minutes - 5..=minutes + 5).contains(&seconds), "{seconds} s");
}

#[tokio::test(start_paused = true)]
async fn a_command_that_does_not_end_is_waited_for_seconds_even_if_it_trickles() {
    let mut server = connect();
    tokio::time::sleep(Duration::from_secs(200)).await;
    let begin = Instant::now();
    let mut trickled = 0;
    while server.client.write_all(b"x").await.is_ok() {
        trickled += 1;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let seconds = begin.elapsed().as_secs();
    assert!((5..=11).contains(&seconds) && trickled > 5, "{seconds} s, {trickled} bytes");
}

#[tokio::test(start_paused = true)]
async fn a_command_that_does_not_end_is_answered_with_that() {
    let begun = "PING\r\n*2\r\n$4\r\nPI";
    let mut cut = connect();
    cut.write(begun).await;
    cut.client.shutdown().await.expect("the server reads");
    let problem = "+PONG\r\n-ERR Protocol error: the connection ended within a command\r\n";
    assert_eq!(cut.rest().await, (problem.to_owned(), 0));
    let mut late = connect();
    late.write(begun).await;
    let (reply, seconds) = late.rest().await;
    let problem = "+PONG\r\n-ERR Protocol error: the rest of a command did not arrive in time\r\n";
    assert_eq!(reply, problem);
    assert!((5..=10).contains(&seconds), "{seconds} s");
    let mut whole = connect();
    whole.write("PING\r\n").await;
    whole.client.shutdown().await.expect("the server reads");
    assert_eq!(whole.rest().await, ("+PONG\r\n".to_owned(), 0));
}

#[tokio::test(start_paused = true)]
async fn who_does_not_read_is_not_read_from_and_given_up() {
    let mut server = connect_to(MemoryStore::default(), 1 << 16);
    let flood = tokio::spawn(async move {
        let begin = Instant::now();
        let mut sent = 0;
        while let Ok(bytes) = server.client.write(&b"PING hello\r\n".repeat(1_000)).await {
            sent += bytes;
        }
        (sent, begin.elapsed())
    });
    let (sent, elapsed) = flood.await.unwrap();
    // Both pipes, what is buffered between, and the replies that fitted.
    assert!(sent < (1 << 16) * 4, "{sent} bytes");
    assert_eq!(elapsed.as_secs(), WRITE_WAIT_MAX.as_secs());
}

#[tokio::test(start_paused = true)]
async fn who_reads_slowly_gets_everything() {
    let mut server = connect_to(MemoryStore::default(), 256);
    let (mut reader, mut writer) = tokio::io::split(server.client);
    let writing = tokio::spawn(async move {
        writer.write_all(&b"PING\r\n".repeat(1_000)).await.expect("the server reads");
        writer
    });
    let mut reply = Vec::new();
    while reply.len() < 7_000 {
        let mut some = [0; 100];
        let bytes = reader.read(&mut some).await.unwrap();
        assert!(bytes > 0, "the connection is closed");
        reply.extend_from_slice(&some[..bytes]);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(reply, b"+PONG\r\n".repeat(1_000));
    server.client = reader.unsplit(writing.await.unwrap());
    server.ping().await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_whole_command_ends_when_told_to_stop() {
    for sent in ["", "PING\r\nPI"] {
        let mut server = connect();
        server.write(sent).await;
        tokio::task::yield_now().await;
        let begin = Instant::now();
        server.stop.cancel();
        server.serving.await.unwrap();
        assert_eq!(begin.elapsed(), Duration::ZERO, "{sent}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_read_is_answered_after_the_server_is_told_to_stop() {
    let mut server = connect_to(Late::new(), 1 << 20);
    server.write("SG.CHECK p k\r\nSG.CHECK p k\r\n").await;
    tokio::task::yield_now().await;
    server.stop.cancel();
    assert_eq!(server.rest().await, (passed(199) + &passed(198), 1));
    server.client.shutdown().await.unwrap();
    server.serving.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_waits_for_no_permit_any_more() {
    let engine = engine_on(MemoryStore::default());
    let decide = async |verb| {
        let request = sluicegate::Request::new("c", Some(b"k"), verb);
        engine.turn(Wire::Http).decide(&request).await.expect("it is known").answer.decision
    };
    let (cost, permit) = (sluicegate::Cost::ONE, sluicegate::PermitId(1));
    assert!(decide(sluicegate::Verb::Acquire { cost, permit }).await.allowed());
    let shared = RespServer::new(Arc::clone(&engine), open_listener(Wire::Resp), None);
    let (mut client, pipe) = tokio::io::duplex(1 << 10);
    let ended = CancellationToken::new();
    let stream = EndingPipe { pipe, ended: ended.clone() };
    let stop = CancellationToken::new();
    let serving = tokio::spawn(connection(Arc::new(shared), stream, Peer::Local, stop));
    client.write_all(b"SG.ACQUIRE c k mine MAXWAIT 60000\r\n").await.expect("it is read");
    while engine.core().held() == 0 {
        tokio::task::yield_now().await;
    }
    let begun = Instant::now();
    ended.cancel();
    serving.await.expect("it does not panic");
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert!(decide(sluicegate::Verb::Release { permit }).await.allowed());
    assert_eq!(decide(sluicegate::Verb::Peek { cost }).await.remaining, 1);
}

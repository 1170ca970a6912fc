//! Accepting, making room and ending, as clients see them.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::*;
use crate::config::TlsConfig;
use crate::protocol::Wire;

/// A wire that greets, and ends when its client does.
async fn greet(mut stream: ClientStream, _: Peer) {
    stream.write_all(b"!").await.ok();
    stream.read_u8().await.ok();
}

/// A wire that sends back each byte.
async fn echo(mut stream: ClientStream, _: Peer) {
    while let Ok(byte) = stream.read_u8().await {
        stream.write_u8(byte).await.ok();
    }
}

async fn start(connections_max: usize) -> (SocketAddr, CancellationToken, JoinHandle<usize>) {
    start_wire(NonZeroU16::MIN, connections_max, greet).await
}

async fn start_wire<F: Future<Output = ()> + Send + 'static>(
    workers: NonZeroU16,
    connections_max: usize,
    wire: impl Fn(ClientStream, Peer) -> F + Clone + Send + 'static,
) -> (SocketAddr, CancellationToken, JoinHandle<usize>) {
    let listen = "127.0.0.1:0".parse().expect("an address");
    let listener = Listener::bind(&listen, None).await.expect("loopback has a free port");
    let Ok(Listen::Tcp(address)) = listener.address() else { panic!("it is bound") };
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    let serving = tokio::spawn(async move {
        let workers = Workers::start(workers).expect("there is room for a thread");
        serve(listener, connections_max, &workers, &stopping, wire).await
    });
    (address, stop, serving)
}

#[tokio::test]
async fn a_connection_over_the_cap_takes_the_place_of_the_one_that_was_answered_longest_ago() {
    let (address, _, _serving) = start(2).await;
    let mut first = TcpStream::connect(address).await.unwrap();
    assert_eq!(first.read_u8().await.unwrap(), b'!');
    let mut second = TcpStream::connect(address).await.unwrap();
    assert_eq!(second.read_u8().await.unwrap(), b'!');
    let mut third = TcpStream::connect(address).await.unwrap();
    assert_eq!(third.read_u8().await.unwrap(), b'!');
    assert!(first.read_u8().await.is_err(), "it had to go");
    let greeting = timeout(Duration::from_millis(20), second.read_u8()).await;
    assert!(greeting.is_err(), "it stays, and there is nothing to say");
}

#[tokio::test]
async fn who_asks_nothing_makes_room_for_others_at_once() {
    let (address, _, _serving) = start_wire(NonZeroU16::MIN, 100, echo).await;
    let mut honest = TcpStream::connect(address).await.unwrap();
    let mut idle = Vec::new();
    for _ in 0..1_000 {
        idle.push(TcpStream::connect(address).await.unwrap());
        honest.write_all(b"?").await.unwrap();
        assert_eq!(honest.read_u8().await.unwrap(), b'?');
    }
    let mut another = TcpStream::connect(address).await.unwrap();
    another.write_all(b"?").await.unwrap();
    assert_eq!(another.read_u8().await.unwrap(), b'?');
}

#[tokio::test]
async fn a_greeting_keeps_no_place_from_who_is_not_greeted_yet() {
    const ROOM: usize = 50;
    let come = Arc::new(AtomicUsize::new(0));
    let (address, _, _serving) = start_wire(NonZeroU16::MIN, ROOM, move |stream, _| {
        let is_last = come.fetch_add(1, Ordering::Relaxed) + 1 == ROOM;
        async move {
            let (mut carrier, slot) = stream.into_parts();
            if !is_last {
                carrier.write_all(b"!").await.ok();
            }
            while let Ok(byte) = carrier.read_u8().await {
                slot.touched();
                carrier.write_u8(byte).await.ok();
            }
        }
    })
    .await;
    let mut idle = Vec::new();
    for _ in 1..ROOM {
        let mut greeted = TcpStream::connect(address).await.unwrap();
        assert_eq!(greeted.read_u8().await.unwrap(), b'!');
        idle.push(greeted);
    }
    let mut last = TcpStream::connect(address).await.unwrap();
    let mut one_more = TcpStream::connect(address).await.unwrap();
    assert_eq!(one_more.read_u8().await.unwrap(), b'!');
    last.write_all(b"?").await.unwrap();
    assert_eq!(last.read_u8().await.unwrap(), b'?');
}

#[tokio::test(start_paused = true)]
async fn whoever_does_not_end_is_cut_off_when_the_drain_is_over() {
    let (address, stop, serving) = start(10).await;
    let mut stays = TcpStream::connect(address).await.unwrap();
    let mut ends = TcpStream::connect(address).await.unwrap();
    assert_eq!((stays.read_u8().await.unwrap(), ends.read_u8().await.unwrap()), (b'!', b'!'));
    let begin = Instant::now();
    stop.cancel();
    drop(ends);
    assert_eq!(serving.await.unwrap(), 1);
    assert_eq!(begin.elapsed().as_secs(), DRAIN_MAX.as_secs());
    assert!(stays.read_u8().await.is_err(), "its connection is closed");
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens");
}

#[tokio::test(start_paused = true)]
async fn when_all_have_ended_the_drain_is_over() {
    let (address, stop, serving) = start(10).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    assert_eq!(client.read_u8().await.unwrap(), b'!');
    stop.cancel();
    drop(client);
    assert_eq!(serving.await.unwrap(), 0);
}

#[tokio::test]
async fn connections_are_served_by_all_workers() {
    let (address, stop, serving) = start_wire(NonZeroU16::new(3).unwrap(), 10, greet).await;
    for _ in 0..6 {
        let mut client = TcpStream::connect(address).await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), b'!');
    }
    stop.cancel();
    assert_eq!(serving.await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_does_not_finish_its_greeting_is_waited_for_so_long_and_no_longer() {
    let folder = tempfile::tempdir().unwrap();
    let files = sluicegate_testkit::TlsFiles::write(folder.path()).unwrap();
    let files = TlsConfig { cert: files.server_cert, key: files.server_key, client_ca: None };
    let tls = Arc::new(WireTls::load(Wire::Resp, &files).unwrap());
    let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap(), Some(tls)).await.unwrap();
    let Ok(Listen::Tcp(address)) = listener.address() else { panic!("it is bound") };
    let serving = tokio::spawn(async move {
        let (workers, stop) = (Workers::start(NonZeroU16::MIN).unwrap(), CancellationToken::new());
        serve(listener, 10, &workers, &stop, greet).await
    });
    for half in [&b""[..], &[22, 3, 1, 1, 0, 1, 0, 0, 252, 3, 3]] {
        let begin = Instant::now();
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(half).await.unwrap();
        client.read_u8().await.expect_err("there is nothing to say");
        assert_eq!(begin.elapsed().as_secs(), HANDSHAKE_WAIT_MAX.as_secs());
    }
    serving.abort();
}

#[tokio::test]
async fn a_socket_left_behind_is_replaced_and_no_other_file_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listen = Listen::Unix(path.clone());
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "the system leaves it there");
    let listener = Listener::bind(&listen, None).await.unwrap();
    assert!(Listener::bind(&listen, None).await.is_err(), "somebody listens");
    let (accepted, connected) = tokio::join!(listener.accept(), UnixStream::connect(&path));
    assert_eq!((accepted.unwrap().1, connected.is_ok()), (Peer::Local, true));
    drop(listener);
    assert!(!path.exists());
    fs::write(&path, "precious").unwrap();
    assert!(Listener::bind(&listen, None).await.is_err());
    assert_eq!(fs::read(&path).unwrap(), b"precious");
}

/// A wire that reads one byte, which is a request, and answers after the next byte.
async fn hold(mut stream: ClientStream, _: Peer) {
    if stream.read_u8().await.is_ok() {
        stream.asked();
        if stream.read_u8().await.is_ok() {
            stream.write_u8(b'!').await.ok();
        }
    }
}

#[tokio::test]
async fn who_waits_for_a_first_answer_does_not_make_room_for_a_newcomer_before_the_idle_do() {
    let (address, _, _serving) = start_wire(NonZeroU16::MIN, 2, hold).await;
    let mut held = TcpStream::connect(address).await.unwrap();
    held.write_all(b"?").await.unwrap();
    let mut idle = TcpStream::connect(address).await.unwrap();
    // Both are there, and the first has asked.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let _newcomer = TcpStream::connect(address).await.unwrap();
    assert!(idle.read_u8().await.is_err(), "it had to go");
    held.write_all(b"!").await.unwrap();
    assert_eq!(held.read_u8().await.unwrap(), b'!');
}

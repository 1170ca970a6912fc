//! Ten thousand connections that each send a few bytes, and no more.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sluicegate::{Clock, MonotonicClock};
use sluicegate_testkit::TlsFiles;

use super::{Attacked, post};

const CONNECTIONS: usize = 10_000;

/// Longest that an honest client may wait meanwhile. It usually waits for milliseconds, but the machine may be busy
/// with other tests.
const WAIT_US_MAX: u64 = 5_000_000;

/// Open files that this process needs for the connections, and for other purposes.
const FILES: u64 = 12_000;

/// Beginnings of requests, for a wire that waits for the rest.
const BEGINNINGS: [(&str, &[u8]); 4] = [
    ("http", b"POST /v1/check HTTP/1.1\r\nhost: localhost\r\nx: "),
    ("http", b"POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"),
    ("resp", b"*3\r\n$8\r\nSG.CHE"),
    ("rls", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\xff\x01\x04\0\0\0\x01"),
];

/// Returns whether this process can have that many files, after raising its limit.
fn has_files() -> bool {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let enough = maximum.is_none_or(|maximum| maximum >= FILES);
    enough && setrlimit(Resource::Nofile, Rlimit { current: Some(FILES), maximum }).is_ok()
}

/// Opens the connections, with these beginnings in turn. Some must close for others, and the server closes them.
fn open(attacked: &Attacked, beginnings: &[(&str, &[u8])]) -> Vec<TcpStream> {
    let open = |number: usize| {
        let (scheme, beginning) = beginnings[number % beginnings.len()];
        let mut stream = attacked.connect(scheme);
        stream.write_all(beginning).ok();
        stream
    };
    (0..CONNECTIONS).map(open).collect()
}

/// Opens ten thousand connections while one client keeps its connections to `attacked`, and another comes and goes.
/// Both are answered every time, and soon.
fn attack(attacked: &Attacked, beginnings: &[(&str, &[u8])]) {
    // Each attack needs nearly all files of this process.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(has_files(), "this test needs {FILES} open files: raise `ulimit -n`");
    let done = AtomicBool::new(false);
    // The longest wait of one client.
    let until_done = |mut ask: Box<dyn FnMut() + '_>| {
        let mut longest_us = None;
        while !done.load(Ordering::Relaxed) {
            let asked = MonotonicClock.now().get();
            ask();
            longest_us = longest_us.max(Some(MonotonicClock.now().get() - asked));
        }
        longest_us
    };
    let (slow, waits) = std::thread::scope(|scope| {
        let mut kept = Kept::connect(attacked);
        let kept = scope.spawn(move || until_done(Box::new(move || kept.ask())));
        let comes = scope.spawn(move || until_done(Box::new(|| attacked.answers())));
        let slow = open(attacked, beginnings);
        done.store(true, Ordering::Relaxed);
        let all = "all were answered";
        (slow, [kept.join().expect(all), comes.join().expect(all)])
    });
    attacked.is_well();
    drop(slow);
    for longest_us in waits {
        let longest_us = longest_us.expect("somebody was answered meanwhile");
        assert!(longest_us <= WAIT_US_MAX, "somebody waited for {longest_us} us");
    }
}

#[test]
fn ten_thousand_slow_connections_to_all_wires_harm_nobody() {
    attack(&Attacked::start(), &BEGINNINGS);
}

#[test]
fn ten_thousand_connections_that_do_not_finish_the_greeting_of_tls_harm_nobody() {
    let folder = tempfile::tempdir().expect("there is room for files");
    let TlsFiles { ca, server_cert: cert, server_key: key, .. } =
        TlsFiles::write(folder.path()).expect("they can be written");
    let server =
        crate::server::Server::start(&format!("[rls.tls]\ncert = {cert:?}\nkey = {key:?}"));
    let hello = [22, 3, 1, 1, 0, 1, 0, 0, 252, 3, 3];
    attack(&Attacked::of(server, Some(ca)), &[("grpcs", &hello)]);
}

/// An honest client of both text wires, which keeps its connections.
struct Kept {
    http: TcpStream,
    resp: TcpStream,
}

impl Kept {
    fn connect(attacked: &Attacked) -> Self {
        Self { http: attacked.connect("http"), resp: attacked.connect("resp") }
    }

    fn ask(&mut self) {
        self.resp.write_all(b"PING\r\n").expect("it reads");
        let mut said = [0; 7];
        self.resp.read_exact(&mut said).expect("it answers");
        assert_eq!(&said, b"+PONG\r\n");
        let request = post("/v1/peek", r#"{"policy":"login","key":"kept"}"#);
        let request = String::from_utf8(request).expect("it is text");
        self.http
            .write_all(request.replace("connection: close\r\n", "").as_bytes())
            .expect("it reads");
        let mut said = Vec::new();
        while !said.ends_with(b"\"tries\"}") {
            let mut some = [0; 1024];
            let bytes = self.http.read(&mut some).expect("it answers");
            assert!(bytes > 0, "it was let go: {}", said.escape_ascii());
            said.extend(&some[..bytes]);
        }
    }
}

//! The ceiling: a server on one current-thread runtime that reads commands whole and answers every
//! one with the same five integers, one write a read.

use std::io::Write;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The argument that makes this program the server.
pub(crate) const CHILD: &str = "fixed-reply-server";

const REPLY: &[u8] = b"*5\r\n:0\r\n:1000001\r\n:1000000\r\n:-1\r\n:1\r\n";

/// Size of the input buffer of a connection.
const INPUT_BYTES: usize = 16 * 1024;

pub(crate) fn run() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("listening on resp://{}", listener.local_addr()?);
        std::io::stdout().flush()?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::task::spawn_local(async { connection(stream).await.ok() });
        }
    })
}

async fn connection(mut stream: TcpStream) -> anyhow::Result<()> {
    let (mut input, mut output) = (Vec::with_capacity(INPUT_BYTES), Vec::new());
    loop {
        if stream.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
        let mut at = 0;
        while let Some(length) = command(&input[at..]) {
            at += length;
            output.extend_from_slice(REPLY);
        }
        input.drain(..at);
        stream.write_all(&output).await?;
        output.clear();
    }
}

/// The length of the first command in bytes, if it is complete.
fn command(input: &[u8]) -> Option<usize> {
    let (words, mut at) = number(input, 1)?;
    for _ in 0..words {
        let (bytes, begin) = number(input, at + 1)?;
        at = begin + bytes + 2;
    }
    (at <= input.len()).then_some(at)
}

/// The number that begins at `at`, and the index after its line.
fn number(input: &[u8], at: usize) -> Option<(usize, usize)> {
    let mut number = 0;
    for (place, byte) in input.get(at..)?.iter().enumerate() {
        match byte {
            b'\r' => return Some((number, at + place + 2)),
            digit => number = number * 10 + usize::from(digit - b'0'),
        }
    }
    None
}

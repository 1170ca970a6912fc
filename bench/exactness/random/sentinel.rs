//! A Sentinel as one server sees it: in its answers, each node has the address of that server's proxy.
//!
//! Servers connect to the address that Sentinels name. Without this they would bypass the proxies.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A proxy between one server and one Sentinel. It stops when it is dropped.
#[derive(Debug)]
pub(crate) struct SentinelView {
    pub(crate) address: SocketAddr,
    _serving: JoinSet<()>,
}

/// A node as the Sentinels know it, and the proxy by which the server must reach it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    pub(crate) node: SocketAddr,
    pub(crate) proxy: SocketAddr,
}

/// Longest answer that is read at once; one about a master has 1.5 kB.
const ANSWER_BYTES_MAX: usize = 64 << 10;

impl SentinelView {
    /// Listens on a free port.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) async fn start(sentinel: SocketAddr, nodes: Vec<Shown>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, mut serving) = (listener.local_addr()?, JoinSet::new());
        serving.spawn(async move {
            let mut links = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let nodes = nodes.clone();
                links.spawn(
                    async move { relay(client, sentinel, &nodes).await.unwrap_or_default() },
                );
            }
        });
        Ok(Self { address, _serving: serving })
    }
}

async fn relay(
    mut client: TcpStream,
    sentinel: SocketAddr,
    nodes: &[Shown],
) -> std::io::Result<()> {
    let mut sentinel = TcpStream::connect(sentinel).await?;
    let (mut asked, mut answers) = client.split();
    let (mut answered, mut questions) = sentinel.split();
    let back = async {
        let mut bytes = vec![0; ANSWER_BYTES_MAX];
        loop {
            let length = answered.read(&mut bytes).await?;
            if length == 0 {
                return Ok(());
            }
            show(&mut bytes[..length], nodes);
            answers.write_all(&bytes[..length]).await?;
        }
    };
    // Either side may end the connection.
    tokio::select! {
        asked = tokio::io::copy(&mut asked, &mut questions) => asked.map(drop),
        ended = back => ended,
    }
}

/// Replaces the ports of nodes by those of proxies. All have five digits, so nothing else moves.
fn show(answer: &mut [u8], nodes: &[Shown]) {
    for Shown { node, proxy } in nodes {
        let of = |address: &SocketAddr| format!("\r\n$5\r\n{}\r\n", address.port()).into_bytes();
        let (from, to) = (of(node), of(proxy));
        let mut begin = 0;
        while let Some(place) = answer[begin..].windows(from.len()).position(|it| it == from) {
            begin += place;
            answer[begin..begin + to.len()].copy_from_slice(&to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_nodes_become_those_of_proxies() {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let mut answer = *b"*4\r\n$4\r\nport\r\n$5\r\n12001\r\n$1\r\nx\r\n$5\r\n12003\r\n";
        show(&mut answer, &[Shown { node: at(12_001), proxy: at(15_000) }]);
        assert_eq!(answer, *b"*4\r\n$4\r\nport\r\n$5\r\n15000\r\n$1\r\nx\r\n$5\r\n12003\r\n");
    }
}

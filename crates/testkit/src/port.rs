//! Ports of servers: free, and kept while a server is down.
//!
//! A port that the kernel hands out (`:0`) comes from the range of outgoing connections. A client
//! that keeps trying such a port while its server is down can be given that very port as its own
//! and then connects to itself. So ports are taken from below that range.
//!
//! A reservation is a socket that is bound and does not listen. It was bound without
//! `SO_REUSEADDR`, so it found the port free, and allows it from then on: a server, which binds
//! with it, can listen there as often as it likes, while another test's reservation cannot.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

use socket2::{Domain, Socket, Type};

/// A port of the loopback interface that no other test takes.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// The sockets that reserve it, and its partner for the cluster bus, if it has one.
    _kept: Vec<Socket>,
}

impl Port {
    /// A free port.
    ///
    /// # Errors
    /// If there is none.
    pub fn free() -> io::Result<Self> {
        Self::find(&[0])
    }

    /// A free port whose partner for the cluster bus, 10,000 above it, is free too.
    pub(crate) fn free_with_bus() -> io::Result<Self> {
        Self::find(&[0, BUS_OFFSET])
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.number).into()
    }

    fn find(offsets: &[u16]) -> io::Result<Self> {
        for _ in 0..TRIES_MAX {
            let number = PORT_FIRST + candidate() % PORTS;
            let kept: io::Result<Vec<_>> =
                offsets.iter().map(|offset| keep(number + offset)).collect();
            if let Ok(kept) = kept {
                return Ok(Self { number, _kept: kept });
            }
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, "no free port was found"))
    }
}

fn keep(port: u16) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())?;
    socket.set_reuse_address(true)?;
    Ok(socket)
}

/// The next number to try. Processes begin at different places, so that concurrent ones seldom
/// meet.
fn candidate() -> u16 {
    static COUNT: AtomicU16 = AtomicU16::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let place = std::process::id().wrapping_mul(STRIDE) % u32::from(PORTS);
    let place = u16::try_from(place).expect("a remainder is below PORTS");
    place.wrapping_add(count)
}

/// The lowest port; 10,000 above it the cluster buses begin, and end below 32,768, where outgoing
/// connections begin.
const PORT_FIRST: u16 = 12_000;
const PORTS: u16 = 10_000;
const BUS_OFFSET: u16 = 10_000;
/// Far more than the servers that one machine's tests have at once.
const TRIES_MAX: u16 = 2_000;
/// A prime: neighbouring process ids are far apart.
const STRIDE: u32 = 7_919;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_kept_port_serves_its_owner_again_and_again_and_nobody_else() {
        let port = Port::free_with_bus().unwrap();
        for _ in 0..3 {
            assert!(keep(port.number()).is_err());
            assert!(keep(port.number() + BUS_OFFSET).is_err());
            // The standard library binds with SO_REUSEADDR, as servers do.
            let listener = TcpListener::bind(port.address()).unwrap();
            TcpStream::connect(port.address()).unwrap();
            drop(listener);
        }
        assert!(TcpStream::connect(port.address()).is_err());
    }
}

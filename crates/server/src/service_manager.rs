//! The service manager that started the process, such as systemd: it learns when the server is ready.
//!
//! The protocol is `sd_notify(3)`: lines in one datagram to the Unix socket in `NOTIFY_SOCKET`, a path or,
//! after `@`, an abstract name. `WATCHDOG_USEC` asks for a sign of life within so many microseconds.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Shortest interval between signs of life: more of them are only work.
const ALIVE_EVERY_MIN: Duration = Duration::from_millis(10);

/// The service manager, if there is one.
#[derive(Debug, Default)]
pub(crate) struct ServiceManager {
    to: Option<(UnixDatagram, SocketAddr)>,
    alive_every: Option<Duration>,
}

impl ServiceManager {
    /// The service manager that `variable` names: a lookup in the environment of the process `pid`.
    ///
    /// # Errors
    /// If the address is invalid, or no socket can be created.
    pub(crate) fn of(pid: u32, variable: impl Fn(&str) -> Option<OsString>) -> io::Result<Self> {
        let Some(address) = variable("NOTIFY_SOCKET").filter(|address| !address.is_empty()) else {
            return Ok(Self::default());
        };
        let number = |name| variable(name)?.to_str()?.parse::<u64>().ok();
        let is_for_us = number("WATCHDOG_PID").is_none_or(|of| of == u64::from(pid));
        // Twice in the time that is allowed, as systemd recommends.
        let alive_every = number("WATCHDOG_USEC").filter(|us| *us > 0 && is_for_us);
        let alive_every = alive_every.map(|us| Duration::from_micros(us / 2).max(ALIVE_EVERY_MIN));
        let socket = UnixDatagram::unbound()?;
        // A manager that does not read must not stop the server.
        socket.set_nonblocking(true)?;
        Ok(Self { to: Some((socket, socket_address(&address)?)), alive_every })
    }

    /// Reports that all listeners answer.
    pub(crate) fn ready(&self) {
        self.send("READY=1\n");
    }

    /// Reports that files are being read again; [`ready`](Self::ready) ends that.
    pub(crate) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let us = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={us}\n"));
    }

    /// Reports that the server stops.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1\n");
    }

    /// Sends signs of life, if the manager asks for them. Never returns.
    pub(crate) async fn keep_alive(&self) {
        let Some(every) = self.alive_every else { return std::future::pending().await };
        loop {
            self.send("WATCHDOG=1\n");
            tokio::time::sleep(every).await;
        }
    }

    fn send(&self, state: &str) {
        let Some((socket, address)) = &self.to else { return };
        if let Err(error) = socket.send_to_addr(state.as_bytes(), address) {
            tracing::debug!("NOTIFY_SOCKET: cannot send {}: {error}", state.trim_end());
        }
    }
}

fn socket_address(address: &OsStr) -> io::Result<SocketAddr> {
    match address.as_bytes().split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alive_every(variables: &[(&str, &str)]) -> Option<Duration> {
        let variable = |name: &str| {
            variables.iter().find(|(of, _)| *of == name).map(|(_, value)| value.into())
        };
        ServiceManager::of(7, variable).expect("the address is one").alive_every
    }

    #[test]
    fn signs_of_life_are_for_the_process_that_they_are_asked_of() {
        let socket = ("NOTIFY_SOCKET", "@sluicegate-nobody");
        let second = Some(Duration::from_secs(1));
        let watchdog = ("WATCHDOG_USEC", "2000000");
        assert_eq!(alive_every(&[socket, watchdog]), second);
        assert_eq!(alive_every(&[socket, watchdog, ("WATCHDOG_PID", "7")]), second);
        assert_eq!(alive_every(&[socket, watchdog, ("WATCHDOG_PID", "8")]), None);
        assert_eq!(alive_every(&[socket, ("WATCHDOG_USEC", "0")]), None);
        assert_eq!(alive_every(&[watchdog]), None);
    }
}

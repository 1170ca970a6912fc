//! Notifications to a service manager: the real program, and a real socket.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Stdio;

use crate::program::{PATIENCE, Process, serve};

/// Returns a function that receives the next message on `socket`.
fn listening(socket: UnixDatagram) -> impl Fn() -> String {
    socket.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
    move || {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).expect("the server sends");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }
}

/// Checks that a server with this `NOTIFY_SOCKET` reports there that it is ready, reloads and
/// stops.
fn is_heard(address: &str, socket: UnixDatagram) {
    let (next, folder) = (listening(socket), tempfile::tempdir().expect("there is room for files"));
    let tokens = tempfile::NamedTempFile::new().expect("there is room for files");
    std::fs::write(tokens.path(), "0123456789abcdef").expect("it can be written");
    let config = format!("[http]\ntoken_file = {:?}\n", tokens.path());
    let mut program = serve(&folder, &config);
    program.env("NOTIFY_SOCKET", address).env_remove("WATCHDOG_USEC").stderr(Stdio::null());
    let mut server = Process::start(&mut program, 4);
    assert_eq!(next(), "READY=1\n");
    server.signal("HUP");
    let reloading = next();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(next(), "READY=1\n");
    server.signal("TERM");
    assert_eq!(next(), "STOPPING=1\n");
    assert!(server.wait().expect("it ends").success());
}

#[test]
fn a_server_reports_that_it_is_ready_reloads_and_stops() {
    let folder = tempfile::tempdir().expect("there is room for files");
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("nothing is there");
    is_heard(path.to_str().expect("it is text"), socket);
}

#[test]
fn an_abstract_socket_is_named_after_an_at_sign() {
    let name = format!("sluicegate-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("it is a name");
    let socket = UnixDatagram::bind_addr(&address).expect("nothing has the name");
    is_heard(&format!("@{name}"), socket);
}

#[test]
fn a_watchdog_gets_signs_of_life_also_while_the_server_drains() {
    let folder = tempfile::tempdir().expect("there is room for files");
    let path = folder.path().join("notify");
    let next = listening(UnixDatagram::bind(&path).expect("nothing is there"));
    let mut program = serve(&folder, "[server]\ndrain_delay = '60s'\n");
    program.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "100000").env_remove("WATCHDOG_PID");
    let server = Process::start(program.stderr(Stdio::null()), 4);
    let mut told = Vec::new();
    while !told.contains(&"READY=1\n".to_owned())
        || told.last().is_none_or(|last| last != "WATCHDOG=1\n")
    {
        told.push(next());
    }
    server.signal("TERM");
    while next() != "STOPPING=1\n" {}
    assert_eq!(next(), "WATCHDOG=1\n");
}

#[test]
fn a_server_without_a_service_manager_starts() {
    let folder = tempfile::tempdir().expect("there is room for files");
    let mut program = serve(&folder, "");
    program.env_remove("NOTIFY_SOCKET").stderr(Stdio::null());
    Process::start(&mut program, 4);
}

//! Telling the process that started a daemon that the daemon serves, and hearing it from daemons that we started.
//!
//! It goes the way that service supervisors know (`sd_notify(3)`): a datagram `READY=1` to the socket that the variable `NOTIFY_SOCKET`
//! names, so units of `Type=notify` work. `nacre up --processes` listens the same way; the line `NACRE_DAEMON=osd.3` in the datagram
//! says which daemon sent it.

use anyhow::{Context, Result};
use nacre_env::SystemEntropy;
use nacre_types::Entropy;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Variable that names the socket of the process that wants to know.
const NOTIFY_VARIABLE: &str = "NOTIFY_SOCKET";
/// Bytes of one datagram, far more than we send.
const NOTIFY_BYTES_MAX: usize = 4096;

fn notify_addr(name: &str) -> std::io::Result<SocketAddr> {
    match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    }
}

/// Tells the process that started this one, if it listens, that the daemon serves.
pub(crate) fn say_ready(daemon: &str) -> Result<()> {
    let Ok(name) = std::env::var(NOTIFY_VARIABLE) else { return Ok(()) };
    let send = || -> std::io::Result<usize> {
        let text = format!("READY=1\nNACRE_DAEMON={daemon}\n");
        UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &notify_addr(&name)?)
    };
    // The process that started us may be gone; that is no reason not to serve.
    if let Err(error) = send() {
        tracing::warn!(%error, name, "cannot notify systemd that {daemon} is ready");
    }
    Ok(())
}

/// The socket on which daemons say that they serve.
#[derive(Debug)]
pub(crate) struct ReadyListener {
    name: String,
    socket: UnixDatagram,
}

impl ReadyListener {
    pub(crate) fn open() -> Result<Self> {
        let name = format!("nacre-{}-{:016x}", std::process::id(), SystemEntropy::default().u64());
        let open = || -> std::io::Result<UnixDatagram> {
            let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let socket = open().context("cannot listen for daemons to say that they are ready")?;
        Ok(Self { name, socket })
    }

    /// What a child must find in its environment.
    pub(crate) fn variable(&self) -> (&'static str, String) {
        (NOTIFY_VARIABLE, format!("@{}", self.name))
    }

    /// The daemons that have said since the last call that they serve.
    pub(crate) fn take_ready(&self) -> Vec<String> {
        let mut bytes = [0; NOTIFY_BYTES_MAX];
        let mut ready = Vec::new();
        while let Ok(count) = self.socket.recv(&mut bytes) {
            let text = String::from_utf8_lossy(bytes.get(..count).unwrap_or_default()).into_owned();
            ready.extend(text.lines().find_map(|line| Some(line.strip_prefix("NACRE_DAEMON=")?.to_owned())));
        }
        ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_serves_is_known_by_its_name() {
        let listener = ReadyListener::open().expect("a socket");
        let (_, name) = listener.variable();
        let addr = notify_addr(&name).expect("a name");
        let sender = UnixDatagram::unbound().expect("a socket");
        sender.send_to_addr(b"READY=1\nNACRE_DAEMON=osd.3\n", &addr).expect("sent");
        sender.send_to_addr(b"STATUS=busy\n", &addr).expect("sent");
        assert_eq!(listener.take_ready(), ["osd.3"]);
        assert!(listener.take_ready().is_empty());
    }
}

//! What a daemon's process does beside its daemon: signals, and word to who started it that it serves.
//!
//! The word goes the way that service supervisors know: a datagram `READY=1` to the socket that the variable
//! `NOTIFY_SOCKET` names (`sd_notify(3)`), so units of `Type=notify` work. `nacre up --processes` listens the
//! same way; the line `NACRE_DAEMON=osd.3` in it says who speaks.

use anyhow::{Context, Result, bail};
use nacre_env::SystemEntropy;
use nacre_types::Entropy;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Names the socket to speak to.
const NOTIFY_VARIABLE: &str = "NOTIFY_SOCKET";
/// Bytes of one word, far more than we send.
const NOTIFY_BYTES_MAX: usize = 4096;
/// Pause between looks at what the daemons are doing.
const RUN_POLL: Duration = Duration::from_millis(100);
/// The same while somebody waits for them to start.
pub(crate) const START_POLL: Duration = Duration::from_millis(2);

/// Does `work` for all `items` at a time, each on a thread of its own, and waits for all of them.
///
/// # Panics
/// When one of them does.
pub(crate) fn side_by_side<T: Send, R: Send>(
    items: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = items.into_iter().map(|item| scope.spawn(move || work(item))).collect();
        threads.into_iter().map(|thread| thread.join().expect("daemons do not panic")).collect()
    })
}

/// The wish of a signal that this process ends.
#[derive(Debug, Clone)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Waits for SIGTERM and Ctrl-C from now on.
    pub(crate) fn register() -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot wait for signals")?;
        }
        Ok(Self(stop))
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Looks after the daemons until the end is wanted or `look` finds that something ended by itself.
    pub(crate) fn watch(&self, mut check: impl FnMut() -> Result<()>) -> Result<()> {
        while !self.is_wanted() {
            check()?;
            std::thread::sleep(RUN_POLL);
        }
        Ok(())
    }
}

/// Refuses what no client could connect to.
pub(crate) fn check_listen(listen: IpAddr) -> Result<()> {
    if listen.is_unspecified() {
        bail!("--listen {listen} is no address that clients can connect to; give one of this machine's");
    }
    Ok(())
}

fn notify_addr(name: &str) -> std::io::Result<SocketAddr> {
    match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    }
}

/// Tells who started this process, if they listen, that the daemon serves.
pub(crate) fn say_ready(daemon: &str) -> Result<()> {
    let Ok(name) = std::env::var(NOTIFY_VARIABLE) else { return Ok(()) };
    let send = || -> std::io::Result<usize> {
        let word = format!("READY=1\nNACRE_DAEMON={daemon}\n");
        UnixDatagram::unbound()?.send_to_addr(word.as_bytes(), &notify_addr(&name)?)
    };
    // Whoever started us may be gone; that is no reason not to serve.
    if let Err(error) = send() {
        tracing::warn!(%error, name, "cannot say that {daemon} is ready");
    }
    Ok(())
}

/// The ear for such words.
#[derive(Debug)]
pub(crate) struct ReadyEar {
    name: String,
    socket: UnixDatagram,
}

impl ReadyEar {
    pub(crate) fn open() -> Result<Self> {
        let name = format!("nacre-{}-{:016x}", std::process::id(), SystemEntropy::default().u64());
        let open = || -> std::io::Result<UnixDatagram> {
            let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let socket = open().context("cannot listen for the daemons' word")?;
        Ok(Self { name, socket })
    }

    /// What a child must find in its environment.
    pub(crate) fn variable(&self) -> (&'static str, String) {
        (NOTIFY_VARIABLE, format!("@{}", self.name))
    }

    /// The daemons that have spoken since the last call.
    pub(crate) fn heard(&self) -> Vec<String> {
        let mut bytes = [0; NOTIFY_BYTES_MAX];
        let mut heard = Vec::new();
        while let Ok(count) = self.socket.recv(&mut bytes) {
            let word = String::from_utf8_lossy(bytes.get(..count).unwrap_or_default()).into_owned();
            heard.extend(word.lines().find_map(|line| Some(line.strip_prefix("NACRE_DAEMON=")?.to_owned())));
        }
        heard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_arrives_with_the_name_of_the_daemon() {
        let ear = ReadyEar::open().expect("a socket");
        let (_, name) = ear.variable();
        let addr = notify_addr(&name).expect("a name");
        let mouth = UnixDatagram::unbound().expect("a socket");
        mouth.send_to_addr(b"READY=1\nNACRE_DAEMON=osd.3\n", &addr).expect("sent");
        mouth.send_to_addr(b"STATUS=busy\n", &addr).expect("sent");
        assert_eq!(ear.heard(), ["osd.3"]);
        assert!(ear.heard().is_empty());
    }
}

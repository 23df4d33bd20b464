//! [`Acceptor`]: a listening socket with a thread that accepts, and a thread for each connection.

#![expect(
    clippy::disallowed_types,
    reason = "who asks is no part of the cluster, and waits on a thread of its own: there is nothing of it in a simulation"
)]

use nacre_env::{Clock, RealClock};
use nacre_types::Stamp;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Connections at a time, and of one address but this machine's. When there are more, the oldest that has not asked yet is closed; where
/// all have, the newest.
pub(crate) const CONNS_MAX: usize = 16;
const CONNS_OF_ADDR_MAX: usize = 4;
/// Pause before accepting is tried again for which there were no descriptors.
const STARVED_PAUSE: Duration = Duration::from_millis(100);
/// Bytes that are written at a time: between two parts it is looked how long it takes.
const PART_BYTES: usize = 64 << 10;

/// Serves a connection.
type Serve = dyn Fn(TcpStream, &Seat) -> io::Result<()> + Send + Sync;

/// A connection that is being served.
struct Conn {
    from: IpAddr,
    stream: TcpStream,
    has_asked: bool,
}

/// Those that are being served, the oldest first.
#[derive(Default)]
struct Conns {
    next: u64,
    of: BTreeMap<u64, Conn>,
}

impl Conns {
    /// Sees to it that one more of that address may come; false where it may not.
    fn make_room(&mut self, from: IpAddr) -> bool {
        let of_addr = self.of.values().filter(|conn| conn.from == from).count();
        let is_addr_full = of_addr >= CONNS_OF_ADDR_MAX && !from.is_loopback();
        if !is_addr_full && self.of.len() < CONNS_MAX {
            return true;
        }
        let may_go = |conn: &Conn| !conn.has_asked && (!is_addr_full || conn.from == from);
        let Some(oldest) = self.of.iter().find(|(_, conn)| may_go(conn)).map(|(id, _)| *id) else {
            return false;
        };
        if let Some(conn) = self.of.remove(&oldest) {
            // Its thread sees the end of it; fails when the peer has gone by itself.
            let _gone = conn.stream.shutdown(Shutdown::Both);
        }
        true
    }
}

/// A connection's place among those that are served; free again when it is dropped.
pub(crate) struct Seat {
    conns: Arc<Mutex<Conns>>,
    id: u64,
}

fn locked(conns: &Mutex<Conns>) -> MutexGuard<'_, Conns> {
    conns.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seat {
    /// A place for a connection, where there is one or can be made.
    fn take(conns: &Arc<Mutex<Conns>>, from: IpAddr, stream: &TcpStream) -> Option<Self> {
        let stream = stream.try_clone().ok()?;
        let mut all = locked(conns);
        if !all.make_room(from) {
            return None;
        }
        let id = all.next;
        all.next += 1;
        all.of.insert(id, Conn { from, stream, has_asked: false });
        drop(all);
        Some(Self { conns: Arc::clone(conns), id })
    }

    /// The client has asked: it is not closed for others any more.
    pub(crate) fn has_asked(&self) {
        if let Some(conn) = locked(&self.conns).of.get_mut(&self.id) {
            conn.has_asked = true;
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        locked(&self.conns).of.remove(&self.id);
    }
}

/// See the module's documentation. Its end closes the socket.
pub(crate) struct Acceptor {
    addr: SocketAddr,
    stop: Arc<AtomicBool>,
    /// The listener's descriptor, as what can be shut down.
    listener: Option<TcpStream>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.addr)
    }
}

impl Acceptor {
    /// Listens at `addr`; port 0 is any that is free. Threads are named `name`.
    ///
    /// # Errors
    /// What the system says, such as that the address is in use.
    pub(crate) fn listen(
        addr: SocketAddr,
        name: &str,
        serve: impl Fn(TcpStream, &Seat) -> io::Result<()> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(addr)?;
        let addr = listener.local_addr()?;
        let stopper = TcpStream::from(OwnedFd::from(listener.try_clone()?));
        let (stop, serve): (_, Arc<Serve>) = (Arc::new(AtomicBool::new(false)), Arc::new(serve));
        let (stopped, own_name) = (Arc::clone(&stop), name.to_owned());
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || accept(&listener, &stopped, &own_name, &serve))?;
        Ok(Self { addr, stop, listener: Some(stopper), thread: Some(thread) })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let shut = self.listener.take().is_some_and(|listener| listener.shutdown(Shutdown::Both).is_ok());
        if let Some(thread) = self.thread.take().filter(|_| shut) {
            // It runs nothing that panics; and if it did, there would be nobody left to stop.
            let _ended = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, stop: &AtomicBool, name: &str, serve: &Arc<Serve>) {
    let conns = Arc::new(Mutex::new(Conns::default()));
    loop {
        let accepted = listener.accept();
        if stop.load(Ordering::Acquire) {
            return;
        }
        let Ok((stream, from)) = accepted else {
            std::thread::park_timeout(STARVED_PAUSE);
            continue;
        };
        let from = from.ip().to_canonical();
        let Some(seat) = Seat::take(&conns, from, &stream) else {
            tracing::debug!(name, %from, "too many connections; one is closed");
            continue;
        };
        let serve = Arc::clone(serve);
        let serve = move || {
            if let Err(error) = serve(stream, &seat) {
                tracing::debug!(%error, "an HTTP connection ended early");
            }
        };
        if let Err(error) = std::thread::Builder::new().name(name.to_owned()).spawn(serve) {
            tracing::warn!(name, %error, "no thread for a connection; it is closed");
        }
    }
}

/// A connection whose peer has time until a moment, however it spreads what it sends and takes.
pub(crate) struct TimedStream {
    stream: TcpStream,
    clock: RealClock,
    until: Stamp,
}

impl TimedStream {
    /// The peer has `patience` from now on.
    pub(crate) fn new(stream: TcpStream, patience: Duration) -> Self {
        let clock = RealClock::start();
        let until = clock.now() + patience;
        Self { stream, clock, until }
    }

    /// The peer has `patience` from now on.
    pub(crate) fn give(&mut self, patience: Duration) {
        self.until = self.clock.now() + patience;
    }

    /// Nothing more is sent.
    pub(crate) fn finish(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.until.since(self.clock.now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for TimedStream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(out)
    }
}

impl Write for TimedStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes.get(..PART_BYTES).unwrap_or(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_that_has_not_asked_makes_room() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let peer = TcpStream::connect(listener.local_addr().expect("bound")).expect("somebody listens");
        let conns = Arc::new(Mutex::new(Conns::default()));
        let take = |last: u8| Seat::take(&conns, IpAddr::from([10, 0, 0, last]), &peer);
        let is_there =
            |seat: &Option<Seat>| seat.as_ref().is_some_and(|seat| locked(&conns).of.contains_key(&seat.id));
        let of_one: Vec<Option<Seat>> = (0..CONNS_OF_ADDR_MAX).map(|_| take(1)).collect();
        of_one[0].iter().for_each(Seat::has_asked);
        let one_more = take(1);
        assert!(is_there(&one_more) && is_there(&of_one[0]) && !is_there(&of_one[1]), "one of its own goes");
        let others: Vec<Option<Seat>> = (2..14).map(take).collect();
        assert!(others.iter().all(is_there) && is_there(&of_one[2]), "there is room for all");
        assert_eq!(locked(&conns).of.len(), CONNS_MAX);
        let last = take(20);
        assert!(is_there(&last) && !is_there(&of_one[2]), "the oldest of all goes");
        [&of_one, &others]
            .into_iter()
            .flatten()
            .flatten()
            .chain(&one_more)
            .chain(&last)
            .for_each(Seat::has_asked);
        assert!(take(21).is_none(), "who is answered stays");
        drop(others);
        assert!(take(21).is_some());
    }
}

//! [`Acceptor`]: a listening socket with a thread that accepts, and a thread for each connection.

#![expect(
    clippy::disallowed_types,
    reason = "who asks is no part of the cluster, and waits on a thread of its own: there is nothing of it in a simulation"
)]

use crate::places::Place;
use nacre_env::{Clock, RealClock};
use nacre_types::Stamp;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Connections at a time; more are closed at once.
pub(crate) const CONNS_MAX: usize = 16;
/// Pause before accepting is tried again for which there were no descriptors.
const STARVED_PAUSE: Duration = Duration::from_millis(100);
/// Bytes that are written at a time: between two parts it is looked how long it takes.
const PART_BYTES: usize = 64 << 10;

/// Serves a connection.
type Serve = dyn Fn(TcpStream) -> io::Result<()> + Send + Sync;

/// See the module's documentation. Its end closes the socket.
pub(crate) struct Acceptor {
    addr: SocketAddr,
    stop: Arc<AtomicBool>,
    /// The listener's descriptor, as what can be shut down.
    listener: Option<TcpStream>,
    thread: Option<JoinHandle<()>>,
}

impl Acceptor {
    /// Listens at `addr`; port 0 is any that is free. Threads are named `name`.
    ///
    /// # Errors
    /// What the system says, such as that the address is in use.
    pub(crate) fn listen(
        addr: SocketAddr,
        name: &str,
        serve: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static,
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
    let taken = Arc::new(AtomicUsize::new(0));
    loop {
        let accepted = listener.accept();
        if stop.load(Ordering::Acquire) {
            return;
        }
        let Ok((stream, _)) = accepted else {
            std::thread::park_timeout(STARVED_PAUSE);
            continue;
        };
        let Some(place) = Place::take(&taken, CONNS_MAX) else {
            tracing::debug!(name, CONNS_MAX, "too many connections; one is closed");
            continue;
        };
        let serve = Arc::clone(serve);
        let serve = move || {
            let _place = place;
            if let Err(error) = serve(stream) {
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

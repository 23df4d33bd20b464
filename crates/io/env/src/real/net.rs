//! [`RealNet`]: the network of this machine, over epoll (mio).

use crate::net::{ListenerId, Net, NetEvent, SocketId, TcpCounts, Wake};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use slab::Slab;
use std::collections::BTreeMap;
use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Events taken from the kernel per wait.
const EVENTS_MAX: usize = 256;
/// Connections that wait in the kernel to be accepted.
const BACKLOG_MAX: i32 = 512;
/// Ready sockets of one listener that are accepted per event, so that a flood does not stall the others.
const ACCEPTS_MAX: usize = 128;
/// Pause before accepting is tried again for which there were no descriptors: those that other threads give back nobody tells of.
const STARVED_PAUSE: Duration = Duration::from_millis(100);
/// The waker's token; listeners and sockets count from 0.
const WAKER: Token = Token(usize::MAX);
/// The token of all that is only watched.
const WATCHED: Token = Token(usize::MAX - 1);

enum Entry {
    Listener(TcpListener),
    Stream(TcpStream),
}

/// Sockets of one thread, waited for with epoll.
pub struct RealNet {
    poll: Poll,
    events: Events,
    entries: Slab<Entry>,
    /// Closed in this turn: events already taken may still name them, so the ids rest until the next wait.
    closed: Vec<usize>,
    /// Listeners that had more to accept than one turn takes.
    unfinished: Vec<usize>,
    /// Listeners with more to accept than there are descriptors, and when to try again.
    starved: BTreeMap<usize, Instant>,
    waker: Arc<Waker>,
}

struct RealWake(Arc<Waker>);

impl Wake for RealWake {
    fn wake(&self) {
        // Fails only when the other thread and its epoll are gone, and then nobody needs waking.
        let _gone = self.0.wake();
    }
}

impl RealNet {
    /// A network without sockets.
    ///
    /// # Errors
    /// When the process has no file descriptors left.
    pub fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let events = Events::with_capacity(EVENTS_MAX);
        let (closed, unfinished, starved) = (Vec::new(), Vec::new(), BTreeMap::new());
        Ok(Self { poll, events, entries: Slab::new(), closed, unfinished, starved, waker })
    }

    /// What other threads end this thread's wait with.
    #[must_use]
    pub fn waker(&self) -> Arc<dyn Wake> {
        Arc::new(RealWake(Arc::clone(&self.waker)))
    }

    /// Lets `fd` end waits when it becomes readable, as a disk's completions do. Edge by edge: nobody reads it
    /// here. Ends with the descriptor.
    ///
    /// # Errors
    /// When `fd` is of a kind that cannot be waited for.
    pub fn watch(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        sys::watch(self.poll.as_raw_fd(), fd, WATCHED.0 as u64)
    }

    fn stream(&mut self, socket: SocketId) -> io::Result<&mut TcpStream> {
        match self.entries.get_mut(socket.0) {
            Some(Entry::Stream(stream)) => Ok(stream),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn add_stream(&mut self, mut stream: TcpStream) -> io::Result<SocketId> {
        // Answers are small and latency is what we sell: never wait for more to send.
        stream.set_nodelay(true)?;
        let entry = self.entries.vacant_entry();
        let token = Token(entry.key());
        self.poll.registry().register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        entry.insert(Entry::Stream(stream));
        Ok(SocketId(token.0))
    }

    fn accept_from(&mut self, listener: usize, events: &mut Vec<NetEvent>) {
        for _ in 0..ACCEPTS_MAX {
            let Some(Entry::Listener(socket)) = self.entries.get(listener) else { return };
            match socket.accept() {
                Ok((stream, peer)) => {
                    self.starved.remove(&listener);
                    if let Ok(socket) = self.add_stream(stream) {
                        events.push(NetEvent::Accepted { listener: ListenerId(listener), socket, peer });
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                // The backlog keeps them, and no event will tell of them again.
                Err(error) if is_starved(&error) => {
                    if self.starved.insert(listener, Instant::now() + STARVED_PAUSE).is_none() {
                        events.push(NetEvent::Starved { listener: ListenerId(listener) });
                    }
                    return;
                }
                // One that has gone again leaves those behind it.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => (),
                Err(_) => {
                    self.starved.remove(&listener);
                    return;
                }
            }
        }
        self.unfinished.push(listener);
    }
}

impl Net for RealNet {
    fn listen(&mut self, addr: SocketAddr, shared: bool) -> io::Result<(ListenerId, SocketAddr)> {
        let mut listener = TcpListener::from_std(sys::listen(addr, BACKLOG_MAX, shared)?);
        let bound = listener.local_addr()?;
        let entry = self.entries.vacant_entry();
        let key = entry.key();
        self.poll.registry().register(&mut listener, Token(key), Interest::READABLE)?;
        entry.insert(Entry::Listener(listener));
        Ok((ListenerId(key), bound))
    }

    fn connect(&mut self, addr: SocketAddr) -> io::Result<SocketId> {
        self.add_stream(TcpStream::connect(addr)?)
    }

    fn receive(&mut self, socket: SocketId, into: &mut [u8]) -> io::Result<usize> {
        self.stream(socket)?.read(into)
    }

    fn send(&mut self, socket: SocketId, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.stream(socket)?.write_vectored(slices)
    }

    fn tcp_counts(&self, socket: SocketId) -> Option<TcpCounts> {
        match self.entries.get(socket.0) {
            Some(Entry::Stream(stream)) => sys::tcp_counts(stream).ok(),
            _ => None,
        }
    }

    fn close(&mut self, socket: SocketId) {
        if let Some(Entry::Stream(stream)) = self.entries.get_mut(socket.0) {
            // Both fail only for a socket that is dead already.
            let _dead = self.poll.registry().deregister(stream);
            let _dead = stream.shutdown(std::net::Shutdown::Both);
            self.closed.push(socket.0);
        }
    }

    fn poll(&mut self, timeout: Option<Duration>, events: &mut Vec<NetEvent>) -> io::Result<()> {
        for key in self.closed.drain(..) {
            self.entries.try_remove(key);
        }
        let unfinished = std::mem::take(&mut self.unfinished);
        let timeout = if unfinished.is_empty() { timeout } else { Some(Duration::ZERO) };
        let timeout = match self.starved.values().min() {
            Some(at) => {
                Some(at.saturating_duration_since(Instant::now()).min(timeout.unwrap_or(STARVED_PAUSE)))
            }
            None => timeout,
        };
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => (),
        }
        let mut accepting = unfinished;
        if !self.starved.is_empty() {
            let now = Instant::now();
            accepting
                .extend(self.starved.iter().filter(|(_, at)| **at <= now).map(|(listener, _)| *listener));
        }
        for event in &self.events {
            let key = event.token().0;
            match self.entries.get(key) {
                Some(Entry::Listener(_)) => accepting.push(key),
                Some(Entry::Stream(_)) => {
                    if event.is_read_closed() || event.is_error() {
                        events.push(NetEvent::Ended(SocketId(key)));
                    } else if event.is_readable() {
                        events.push(NetEvent::Readable(SocketId(key)));
                    }
                    if event.is_writable() {
                        events.push(NetEvent::Writable(SocketId(key)));
                    }
                }
                None => (),
            }
        }
        self.events.clear();
        for listener in accepting {
            self.accept_from(listener, events);
        }
        Ok(())
    }
}

/// Whether it is for want of descriptors or memory that nobody can be accepted.
fn is_starved(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

/// The calls that neither std nor mio makes for us.
#[allow(unsafe_code, reason = "socket options before bind; real/ is where the machine is touched")]
mod sys {
    use crate::net::TcpCounts;
    use std::io;
    use std::net::{SocketAddr, TcpListener};
    use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
    use std::time::Duration;

    fn done(result: libc::c_int) -> io::Result<libc::c_int> {
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }

    pub(super) fn listen(addr: SocketAddr, backlog: i32, shared: bool) -> io::Result<TcpListener> {
        let family = if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: socket(2) takes no pointers.
        let raw = done(unsafe { libc::socket(family, kind, 0) })?;
        // SAFETY: the descriptor was just made and has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(raw) };
        set_option(&socket, libc::SO_REUSEADDR)?;
        // Not by default: two daemons given one port by mistake must hear of it.
        if shared {
            set_option(&socket, libc::SO_REUSEPORT)?;
        }
        bind(&socket, addr)?;
        // SAFETY: listen(2) takes no pointers.
        done(unsafe { libc::listen(socket.as_raw_fd(), backlog) })?;
        Ok(TcpListener::from(socket))
    }

    pub(super) fn watch(epoll: RawFd, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let interest = (libc::EPOLLIN | libc::EPOLLET) as u32;
        let mut event = libc::epoll_event { events: interest, u64: token };
        // SAFETY: `event` lives through the call; both descriptors are open.
        done(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &raw mut event) })?;
        Ok(())
    }

    /// Of a stream, by `TCP_INFO`; a kernel that does not know a field leaves it 0.
    pub(super) fn tcp_counts(stream: &impl AsRawFd) -> io::Result<TcpCounts> {
        // SAFETY: all fields are numbers, for which zeros are a value.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
        let (fd, value) = (stream.as_raw_fd(), (&raw mut info).cast());
        // SAFETY: `value` points to `length` bytes that live through the call, and the kernel writes no more than these.
        done(unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, value, &raw mut length) })?;
        Ok(TcpCounts {
            segments: info.tcpi_segs_out.into(),
            resent: info.tcpi_total_retrans.into(),
            received: info.tcpi_segs_in.into(),
            duplicates: info.tcpi_dsack_dups.into(),
            round_trip: Duration::from_micros(info.tcpi_rtt.into()),
        })
    }

    fn set_option(socket: &OwnedFd, option: libc::c_int) -> io::Result<()> {
        let on: libc::c_int = 1;
        let length = size_of::<libc::c_int>() as libc::socklen_t;
        let value = (&raw const on).cast();
        // SAFETY: `value` points to an int that lives through the call, `length` is its size.
        done(unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, value, length) })?;
        Ok(())
    }

    fn bind(socket: &OwnedFd, addr: SocketAddr) -> io::Result<()> {
        let fd = socket.as_raw_fd();
        match addr {
            SocketAddr::V4(v4) => {
                let raw = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                    sin_zero: [0; 8],
                };
                let length = size_of::<libc::sockaddr_in>() as libc::socklen_t;
                // SAFETY: `raw` is a sockaddr_in of `length` bytes that lives through the call.
                done(unsafe { libc::bind(fd, (&raw const raw).cast(), length) })?;
            }
            SocketAddr::V6(v6) => {
                let raw = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                let length = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
                // SAFETY: `raw` is a sockaddr_in6 of `length` bytes that lives through the call.
                done(unsafe { libc::bind(fd, (&raw const raw).cast(), length) })?;
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for RealNet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RealNet(epoll {}, {} sockets)", self.poll.as_raw_fd(), self.entries.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_listeners_share_a_port_and_bytes_cross() {
        let mut net = RealNet::new().expect("epoll");
        let (_, addr) = net.listen("127.0.0.1:0".parse().expect("an address"), true).expect("listen");
        net.listen(addr, true).expect("the same port again");
        assert!(net.listen(addr, false).is_err(), "a port in use is an error unless shared");
        let client = net.connect(addr).expect("connect");
        let mut events = Vec::new();
        let server = loop {
            net.poll(Some(Duration::from_secs(5)), &mut events).expect("poll");
            if let Some(NetEvent::Accepted { socket, .. }) =
                events.iter().find(|event| matches!(event, NetEvent::Accepted { .. }))
            {
                break *socket;
            }
        };
        assert_eq!(net.send(client, &[IoSlice::new(b"he"), IoSlice::new(b"llo")]).expect("send"), 5);
        let mut into = [0; 16];
        let count = loop {
            match net.receive(server, &mut into) {
                Ok(count) => break count,
                Err(_) => net.poll(Some(Duration::from_secs(5)), &mut events).expect("poll"),
            }
        };
        assert_eq!(&into[..count], b"hello");
        net.close(client);
        assert!(!net.receive(client, &mut into).is_ok_and(|count| count > 0));
    }

    /// Bytes and the end that arrive together are one event: it must tell of both.
    #[test]
    fn an_end_behind_unread_bytes_is_told() {
        use std::io::Write;
        let mut net = RealNet::new().expect("epoll");
        let (_, addr) = net.listen("127.0.0.1:0".parse().expect("an address"), false).expect("listen");
        let mut peer = std::net::TcpStream::connect(addr).expect("connect");
        peer.write_all(b"last").expect("send");
        peer.shutdown(std::net::Shutdown::Write).expect("half a close");
        let mut events = Vec::new();
        for _ in 0..100 {
            net.poll(Some(Duration::from_millis(50)), &mut events).expect("poll");
            if events.iter().any(|event| matches!(event, NetEvent::Ended(_))) {
                return;
            }
        }
        panic!("no end in {events:?}");
    }

    #[test]
    fn the_waker_ends_a_wait() {
        let mut net = RealNet::new().expect("epoll");
        let waker = net.waker();
        let thread = std::thread::spawn(move || waker.wake());
        net.poll(None, &mut Vec::new()).expect("poll");
        thread.join().expect("the waker thread");
    }
}

//! The network as a shard sees it: non-blocking sockets and one place to wait.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::time::Duration;

/// A socket that accepts connections.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ListenerId(pub usize);

/// A connected or connecting stream. Never used again for another stream while events of it may be pending.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SocketId(pub usize);

/// What happened since the last [`Net::poll`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetEvent {
    /// A peer connected.
    Accepted {
        /// The listener that it is of.
        listener: ListenerId,
        /// The new stream.
        socket: SocketId,
        /// The peer's end.
        peer: SocketAddr,
    },
    /// Peers wait to be accepted, and there is no descriptor for them. Said once until it goes on by itself.
    Starved {
        /// The listener that it is of.
        listener: ListenerId,
    },
    /// There may be bytes (or the end of the stream) to receive, until [`Net::receive`] would block.
    Readable(SocketId),
    /// The peer sends no more, or the stream broke: what is there can be received, and then the end. No other
    /// event tells of that end.
    Ended(SocketId),
    /// The stream takes bytes again; of a connecting stream, that it is connected or has failed.
    Writable(SocketId),
}

/// What TCP tells of a stream, since it was connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpCounts {
    /// Segments sent, those included that were sent again.
    pub segments: u64,
    /// Segments sent again, because nothing told in time that they had arrived.
    pub resent: u64,
    /// Of those, the ones that had arrived before: nothing was lost, their acknowledgement was late (DSACK, RFC 2883).
    pub duplicates: u64,
    /// Segments that came, also those that had come before.
    pub received: u64,
    /// From a segment to its acknowledgement, smoothed.
    pub round_trip: Duration,
}

/// Non-blocking stream sockets of one thread. Edge-triggered: after an event the caller works on the socket
/// until the call says [`io::ErrorKind::WouldBlock`].
pub trait Net {
    /// Listens on `addr`; port 0 lets the system choose. Returns the address in effect. With `shared` other
    /// shards of the daemon may listen on the same port and the system spreads the connections.
    ///
    /// # Errors
    /// As the system says, usually that the address is in use or not of this machine.
    fn listen(&mut self, addr: SocketAddr, shared: bool) -> io::Result<(ListenerId, SocketAddr)>;

    /// Begins to connect to `addr`.
    ///
    /// # Errors
    /// As the system says; most failures show later, on the first receive or send.
    fn connect(&mut self, addr: SocketAddr) -> io::Result<SocketId>;

    /// Receives into `into`; 0 means that the peer has closed.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is there; anything else ends the stream.
    fn receive(&mut self, socket: SocketId, into: &mut [u8]) -> io::Result<usize>;

    /// Sends from `slices`, front to back, as much as fits.
    ///
    /// # Errors
    /// `WouldBlock` when nothing fits; anything else ends the stream.
    fn send(&mut self, socket: SocketId, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// What TCP tells of the stream; `None` where there is no such stream, or no TCP.
    fn tcp_counts(&self, _socket: SocketId) -> Option<TcpCounts> {
        None
    }

    /// Closes the stream; unknown ones are ignored.
    fn close(&mut self, socket: SocketId);

    /// Waits until something happens, the waker is used, or `timeout` has passed (`None`: for ever), and
    /// adds what happened to `events`.
    ///
    /// # Errors
    /// When the system cannot wait, which does not get better by itself.
    fn poll(&mut self, timeout: Option<Duration>, events: &mut Vec<NetEvent>) -> io::Result<()>;
}

/// Ends a [`Net::poll`] of another thread.
pub trait Wake: Send + Sync {
    /// Makes the current or next poll return.
    fn wake(&self);
}

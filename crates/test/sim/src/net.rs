//! [`Fabric`]: the network of the world, and [`SimNet`], one process's sockets in it.
//!
//! Streams behave as TCP's: bytes arrive in order or not at all, a process that ends closes its sockets, a
//! machine that loses power says nothing until it is back, and what cannot pass waits and comes late. What is
//! lost on the wire is sent again, so loss shows as a stall of its stream; streams overtake each other.

use nacre_env::{ListenerId, Net, NetEvent, SocketId, Wake};
use nacre_types::entropy::SeededEntropy;
use nacre_types::{Entropy, Stamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, ErrorKind, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes that one direction of a stream holds, sent and not yet received.
const WINDOW_BYTES: usize = 256 << 10;
/// First of the ports that the system chooses.
const PORT_FIRST: u16 = 6800;

/// A machine, or a process with an address of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Host(pub u8);

impl Host {
    /// Its address.
    #[must_use]
    pub fn ip(self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, self.0))
    }

    fn of(addr: SocketAddr) -> Option<Self> {
        match addr.ip() {
            IpAddr::V4(ip) => Some(Self(ip.octets()[3])),
            IpAddr::V6(_) => None,
        }
    }
}

/// How the wires are.
#[derive(Debug, Clone, Copy)]
pub struct Wires {
    /// Least time on the way.
    pub delay_min: Duration,
    /// What may come on top, evenly spread.
    pub delay_spread: Duration,
    /// Of a thousand pieces, how many are lost at first.
    pub loss_permille: u64,
    /// How long it takes until a lost piece is sent again, at most.
    pub retransmit: Duration,
}

impl Default for Wires {
    fn default() -> Self {
        Self {
            delay_min: Duration::from_micros(50),
            delay_spread: Duration::from_micros(150),
            loss_permille: 0,
            retransmit: Duration::from_millis(200),
        }
    }
}

enum Piece {
    Data(Vec<u8>),
    /// The sender has closed.
    Fin,
    /// The stream is dead.
    Reset,
    /// Asks the listener at the far end.
    Syn,
    /// The listener's yes.
    Accept,
}

/// One end of a stream.
struct End {
    host: Host,
    socket: SocketId,
    /// What the process has closed, or what its machine has forgotten.
    gone: bool,
    connected: bool,
    error: Option<ErrorKind>,
    ended: bool,
    inbox: VecDeque<u8>,
    /// On the way to this end, in order.
    wire: VecDeque<(Stamp, Piece)>,
    /// Bytes that this end has sent and the other has not received.
    outstanding: usize,
    /// The process was told to wait before it sends more.
    wants_room: bool,
    /// The other end's bytes that were received here while the way back was blocked.
    owed: usize,
}

struct Stream {
    ends: [End; 2],
    target: SocketAddr,
}

#[derive(Default)]
struct Machine {
    alive: bool,
    incarnation: u64,
    sockets: BTreeMap<SocketId, (u64, usize)>,
    next_socket: usize,
    next_port: u16,
    events: Vec<NetEvent>,
    slow: u32,
}

struct Inner {
    now: Stamp,
    rng: SeededEntropy,
    wires: Wires,
    machines: BTreeMap<Host, Machine>,
    listeners: BTreeMap<SocketAddr, (Host, ListenerId)>,
    streams: BTreeMap<u64, Stream>,
    next_stream: u64,
    agenda: BTreeMap<(Stamp, u64), (u64, usize)>,
    next_delivery: u64,
    /// From whom nothing reaches whom.
    blocked: BTreeSet<(Host, Host)>,
    woken: BTreeSet<Host>,
}

/// All wires and sockets of the world. Copies are the same.
#[derive(Clone)]
pub struct Fabric(Arc<Mutex<Inner>>);

/// The sockets of one process.
pub struct SimNet {
    fabric: Fabric,
    host: Host,
    incarnation: u64,
}

struct NoWake;

impl Wake for NoWake {
    // One thread runs everything: whoever has something for another process makes the world turn it.
    fn wake(&self) {}
}

impl Fabric {
    /// A network of no machines.
    #[must_use]
    pub fn new(seed: u64, wires: Wires) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            now: Stamp::default(),
            rng: SeededEntropy(seed),
            wires,
            machines: BTreeMap::new(),
            listeners: BTreeMap::new(),
            streams: BTreeMap::new(),
            next_stream: 0,
            agenda: BTreeMap::new(),
            next_delivery: 0,
            blocked: BTreeSet::new(),
            woken: BTreeSet::new(),
        })))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a process on `host`; what an earlier one had must be over.
    #[must_use]
    pub fn start(&self, host: Host) -> SimNet {
        let mut inner = self.inner();
        let reuse = inner.rng.u64().is_multiple_of(2);
        let machine = inner.machines.entry(host).or_default();
        machine.alive = true;
        machine.incarnation += 1;
        machine.events.clear();
        if reuse || machine.next_port == 0 {
            machine.next_port = PORT_FIRST;
        }
        let incarnation = machine.incarnation;
        inner.answer_the_forgotten(host);
        SimNet { fabric: self.clone(), host, incarnation }
    }

    /// Ends the process on `host`. The system closes its sockets; with `silently` the whole machine is gone and
    /// nobody hears of it.
    pub fn stop(&self, host: Host, silently: bool) {
        self.inner().stop(host, silently);
    }

    /// When something happens next.
    #[must_use]
    pub fn next_at(&self) -> Option<Stamp> {
        self.inner().agenda.keys().next().map(|(at, _)| *at)
    }

    /// Lets what is due by `now` arrive; yields who has something to look at.
    #[must_use]
    pub fn advance(&self, now: Stamp) -> BTreeSet<Host> {
        let mut inner = self.inner();
        inner.now = now;
        while let Some(entry) = inner.agenda.first_entry().filter(|entry| entry.key().0 <= now) {
            let (stream, end) = entry.remove();
            inner.arrive(stream, end);
        }
        std::mem::take(&mut inner.woken)
    }

    /// Nothing from `from` reaches `to` any more.
    pub fn block(&self, from: Host, to: Host) {
        self.inner().blocked.insert((from, to));
    }

    /// Everything passes again; what waited comes late.
    pub fn heal(&self) {
        self.inner().heal();
    }

    /// Sets how the wires are from now on.
    pub fn set_wires(&self, wires: Wires) {
        self.inner().wires = wires;
    }

    /// Makes all that goes to and from `host` take so many times as long; 0 and 1 are normal.
    pub fn set_slow(&self, host: Host, factor: u32) {
        self.inner().machines.entry(host).or_default().slow = factor;
    }

    /// Resets a random stream between two of the hosts that `pick` accepts. False when there is none.
    pub fn reset_one(&self, pick: impl Fn(Host, Host) -> bool) -> bool {
        let mut inner = self.inner();
        let open = |stream: &Stream| stream.ends.iter().all(|end| end.connected && !end.gone);
        let candidates: Vec<u64> = inner
            .streams
            .iter()
            .filter(|(_, stream)| open(stream) && pick(stream.ends[0].host, stream.ends[1].host))
            .map(|(id, _)| *id)
            .collect();
        let Some(bound) = u64::try_from(candidates.len()).ok().filter(|bound| *bound > 0) else {
            return false;
        };
        let chosen = usize::try_from(inner.rng.u64() % bound).unwrap_or(0);
        for end in [0, 1] {
            inner.put(candidates[chosen], end, Piece::Reset, false);
        }
        true
    }

    /// What ends waits of a simulated process: nothing needs to.
    #[must_use]
    pub fn waker() -> Arc<dyn Wake> {
        Arc::new(NoWake)
    }
}

impl Inner {
    fn delay(&mut self, from: Host, to: Host) -> Duration {
        let spread = u64::try_from(self.wires.delay_spread.as_nanos()).unwrap_or(u64::MAX).max(1);
        let mut delay = self.wires.delay_min + Duration::from_nanos(self.rng.u64() % spread);
        if self.rng.u64() % 1000 < self.wires.loss_permille {
            let bound = u64::try_from(self.wires.retransmit.as_nanos()).unwrap_or(u64::MAX).max(1);
            delay += Duration::from_nanos(self.rng.u64() % bound);
        }
        let slow = |host| self.machines.get(&host).map_or(1, |machine: &Machine| machine.slow.max(1));
        delay * slow(from).max(slow(to))
    }

    fn schedule(&mut self, at: Stamp, stream: u64, end: usize) {
        self.next_delivery += 1;
        self.agenda.insert((at, self.next_delivery), (stream, end));
    }

    /// Puts a piece on the way to an end of a stream, behind what is on it already unless it overtakes.
    fn put(&mut self, id: u64, to: usize, piece: Piece, in_order: bool) {
        let Some(stream) = self.streams.get(&id) else { return };
        let (from, target) = (stream.ends[1 - to].host, stream.ends[to].host);
        let mut at = self.now + self.delay(from, target);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let wire = &mut stream.ends[to].wire;
        if !in_order {
            wire.clear();
        }
        if let Some((last, _)) = wire.back() {
            at = at.max(*last);
        }
        wire.push_back((at, piece));
        self.schedule(at, id, to);
    }

    fn notify(&mut self, host: Host, event: NetEvent) {
        if let Some(machine) = self.machines.get_mut(&host).filter(|machine| machine.alive) {
            machine.events.push(event);
            self.woken.insert(host);
        }
    }

    fn arrive(&mut self, id: u64, to: usize) {
        loop {
            let Some(stream) = self.streams.get(&id) else { return };
            let (end, other) = (&stream.ends[to], &stream.ends[1 - to]);
            let due = end.wire.front().is_some_and(|(at, _)| *at <= self.now);
            if !due || self.blocked.contains(&(other.host, end.host)) {
                return;
            }
            let host = end.host;
            let alive = self.machines.get(&host).is_some_and(|machine| machine.alive);
            let Some(stream) = self.streams.get_mut(&id) else { return };
            let Some((_, piece)) = stream.ends[to].wire.pop_front() else { return };
            if !alive {
                continue; // sent again until the machine is back and says that it knows nothing
            }
            self.take_in(id, to, piece);
        }
    }

    fn take_in(&mut self, id: u64, to: usize, piece: Piece) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if let Piece::Syn = piece {
            return self.knock(id);
        }
        let end = &mut stream.ends[to];
        let (host, socket) = (end.host, end.socket);
        if end.gone {
            if matches!(piece, Piece::Data(_)) {
                self.put(id, 1 - to, Piece::Reset, false);
            }
            return;
        }
        let mut event = NetEvent::Ended(socket);
        match piece {
            Piece::Data(bytes) => {
                end.inbox.extend(bytes);
                event = NetEvent::Readable(socket);
            }
            Piece::Fin => end.ended = true,
            Piece::Reset => {
                end.error = Some(if end.connected {
                    ErrorKind::ConnectionReset
                } else {
                    ErrorKind::ConnectionRefused
                });
                end.inbox.clear();
                self.notify(host, NetEvent::Writable(socket));
            }
            Piece::Accept => {
                end.connected = true;
                return self.notify(host, NetEvent::Writable(socket));
            }
            Piece::Syn => event = NetEvent::Readable(socket),
        }
        self.notify(host, event);
    }

    /// A dialler has reached the machine that it wants.
    fn knock(&mut self, id: u64) {
        let Some(stream) = self.streams.get(&id) else { return };
        let (peer_host, peer_socket) = (stream.ends[0].host, stream.ends[0].socket);
        let Some((host, listener)) = self.listeners.get(&stream.target).copied() else {
            return self.put(id, 0, Piece::Reset, false);
        };
        let Some(machine) = self.machines.get_mut(&host) else { return };
        machine.next_socket += 1;
        let socket = SocketId(machine.next_socket);
        machine.sockets.insert(socket, (id, 1));
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.ends[1] = End { connected: true, ..End::new(host, socket) };
        let peer =
            SocketAddr::new(peer_host.ip(), 40_000 + u16::try_from(peer_socket.0 % 20_000).unwrap_or(0));
        self.notify(host, NetEvent::Accepted { listener, socket, peer });
        self.notify(host, NetEvent::Writable(socket));
        self.put(id, 0, Piece::Accept, true);
    }

    fn close(&mut self, id: u64, at: usize) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let end = &mut stream.ends[at];
        let unread = !end.inbox.is_empty();
        if std::mem::replace(&mut end.gone, true) {
            return;
        }
        end.inbox.clear();
        if stream.ends[1 - at].gone {
            self.streams.remove(&id);
        } else if unread {
            self.put(id, 1 - at, Piece::Reset, false);
        } else {
            self.put(id, 1 - at, Piece::Fin, true);
        }
    }

    fn stop(&mut self, host: Host, silently: bool) {
        self.listeners.retain(|_, (owner, _)| *owner != host);
        let Some(machine) = self.machines.get_mut(&host) else { return };
        machine.events.clear();
        machine.alive = !silently;
        for (_, (id, at)) in std::mem::take(&mut machine.sockets) {
            if !silently {
                self.close(id, at);
            } else if let Some(stream) = self.streams.get_mut(&id) {
                stream.ends[at].gone = true;
                // What the machine had sent has left it or never will.
                stream.ends[1 - at].wire.clear();
                if stream.ends[1 - at].gone {
                    self.streams.remove(&id);
                }
            }
        }
    }

    /// A machine is back: peers that still send to streams of its former life are told.
    fn answer_the_forgotten(&mut self, host: Host) {
        let forgotten = |stream: &Stream| {
            (0..2).find(|at| {
                let (mine, other) = (&stream.ends[*at], &stream.ends[1 - *at]);
                mine.host == host && mine.gone && !other.gone && other.outstanding > 0
            })
        };
        let ends: Vec<(u64, usize)> =
            self.streams.iter().filter_map(|(id, stream)| Some((*id, forgotten(stream)?))).collect();
        for (id, at) in ends {
            self.put(id, 1 - at, Piece::Reset, false);
        }
    }

    fn heal(&mut self) {
        self.blocked.clear();
        let waiting: Vec<(u64, usize)> = self
            .streams
            .iter()
            .flat_map(|(id, stream)| (0..2).map(move |at| (*id, at, &stream.ends[at])))
            .filter(|(_, _, end)| !end.wire.is_empty() || end.owed > 0)
            .map(|(id, at, _)| (id, at))
            .collect();
        for (id, at) in waiting {
            let bound = u64::try_from(self.wires.retransmit.as_nanos()).unwrap_or(u64::MAX).max(1);
            let due = self.now + Duration::from_nanos(self.rng.u64() % bound);
            let owed =
                self.streams.get_mut(&id).map_or(0, |stream| std::mem::take(&mut stream.ends[at].owed));
            self.grant(id, 1 - at, owed);
            self.schedule(due, id, at);
        }
    }

    /// An end may send more.
    fn grant(&mut self, id: u64, to: usize, bytes: usize) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let end = &mut stream.ends[to];
        end.outstanding = end.outstanding.saturating_sub(bytes);
        if end.wants_room && end.outstanding < WINDOW_BYTES {
            end.wants_room = false;
            let (host, socket) = (end.host, end.socket);
            self.notify(host, NetEvent::Writable(socket));
        }
    }

    fn receive(&mut self, id: u64, at: usize, into: &mut [u8]) -> io::Result<usize> {
        let Some(stream) = self.streams.get_mut(&id) else { return Err(ErrorKind::NotConnected.into()) };
        let back = (stream.ends[at].host, stream.ends[1 - at].host);
        let end = &mut stream.ends[at];
        if let Some(error) = end.error {
            return Err(error.into());
        }
        let count = into.len().min(end.inbox.len());
        if count == 0 {
            return if end.ended { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
        }
        for (place, byte) in into.iter_mut().zip(end.inbox.drain(..count)) {
            *place = byte;
        }
        if self.blocked.contains(&back) {
            end.owed += count;
        } else {
            self.grant(id, 1 - at, count);
        }
        Ok(count)
    }

    fn send(&mut self, id: u64, at: usize, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(stream) = self.streams.get_mut(&id) else { return Err(ErrorKind::NotConnected.into()) };
        let end = &mut stream.ends[at];
        if let Some(error) = end.error {
            return Err(error.into());
        }
        let room = if end.connected { WINDOW_BYTES.saturating_sub(end.outstanding) } else { 0 };
        if room == 0 {
            end.wants_room = end.connected;
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut data = Vec::new();
        for slice in slices {
            let left = room - data.len();
            data.extend_from_slice(&slice[..slice.len().min(left)]);
        }
        let count = data.len();
        end.outstanding += count;
        self.put(id, 1 - at, Piece::Data(data), true);
        Ok(count)
    }
}

impl End {
    fn new(host: Host, socket: SocketId) -> Self {
        Self {
            host,
            socket,
            gone: false,
            connected: false,
            error: None,
            ended: false,
            inbox: VecDeque::new(),
            wire: VecDeque::new(),
            outstanding: 0,
            wants_room: false,
            owed: 0,
        }
    }
}

impl SimNet {
    /// The machine, while this process is the one that runs there.
    fn machine<'a>(&self, inner: &'a mut Inner) -> io::Result<&'a mut Machine> {
        let machine = inner.machines.get_mut(&self.host);
        machine
            .filter(|machine| machine.incarnation == self.incarnation)
            .ok_or_else(|| ErrorKind::NotConnected.into())
    }

    fn stream(&self, inner: &mut Inner, socket: SocketId) -> io::Result<(u64, usize)> {
        self.machine(inner)?.sockets.get(&socket).copied().ok_or_else(|| ErrorKind::NotConnected.into())
    }
}

impl Net for SimNet {
    fn listen(&mut self, addr: SocketAddr, _shared: bool) -> io::Result<(ListenerId, SocketAddr)> {
        let mut inner = self.fabric.inner();
        let machine = self.machine(&mut inner)?;
        machine.next_socket += 1;
        let listener = ListenerId(machine.next_socket);
        let port = if addr.port() == 0 {
            machine.next_port += 1;
            machine.next_port
        } else {
            addr.port()
        };
        let addr = SocketAddr::new(self.host.ip(), port);
        if inner.listeners.contains_key(&addr) {
            return Err(ErrorKind::AddrInUse.into());
        }
        inner.listeners.insert(addr, (self.host, listener));
        Ok((listener, addr))
    }

    fn connect(&mut self, addr: SocketAddr) -> io::Result<SocketId> {
        let mut inner = self.fabric.inner();
        let target = Host::of(addr).ok_or(ErrorKind::AddrNotAvailable)?;
        let host = self.host;
        inner.next_stream += 1;
        let id = inner.next_stream;
        let machine = self.machine(&mut inner)?;
        machine.next_socket += 1;
        let socket = SocketId(machine.next_socket);
        machine.sockets.insert(socket, (id, 0));
        let ends = [End::new(host, socket), End::new(target, SocketId(0))];
        inner.streams.insert(id, Stream { ends, target: addr });
        inner.put(id, 1, Piece::Syn, true);
        Ok(socket)
    }

    fn receive(&mut self, socket: SocketId, into: &mut [u8]) -> io::Result<usize> {
        let mut inner = self.fabric.inner();
        let (id, at) = self.stream(&mut inner, socket)?;
        inner.receive(id, at, into)
    }

    fn send(&mut self, socket: SocketId, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut inner = self.fabric.inner();
        let (id, at) = self.stream(&mut inner, socket)?;
        inner.send(id, at, slices)
    }

    fn close(&mut self, socket: SocketId) {
        let mut inner = self.fabric.inner();
        let Ok((id, at)) = self.stream(&mut inner, socket) else { return };
        if let Ok(machine) = self.machine(&mut inner) {
            machine.sockets.remove(&socket);
        }
        inner.close(id, at);
    }

    fn poll(&mut self, _timeout: Option<Duration>, events: &mut Vec<NetEvent>) -> io::Result<()> {
        let mut inner = self.fabric.inner();
        let machine = self.machine(&mut inner)?;
        let open = &machine.sockets;
        let wanted = |event: &NetEvent| match event {
            NetEvent::Accepted { socket, .. }
            | NetEvent::Readable(socket)
            | NetEvent::Ended(socket)
            | NetEvent::Writable(socket) => open.contains_key(socket),
            NetEvent::Starved { .. } => true,
        };
        events.extend(std::mem::take(&mut machine.events).into_iter().filter(wanted));
        Ok(())
    }
}

impl std::fmt::Debug for Fabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let inner = self.inner();
        write!(f, "Fabric({} streams, {} on the way)", inner.streams.len(), inner.agenda.len())
    }
}

impl std::fmt::Debug for SimNet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimNet({:?})", self.host)
    }
}

//! [`Inner`]: streams of bytes between machines: what is on its way, when it arrives, and what becomes of it when an end goes away.

use super::{Host, Wires};
use nacre_env::{ListenerId, NetEvent, SocketId};
use nacre_types::entropy::SeededEntropy;
use nacre_types::{Entropy, Stamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, ErrorKind, IoSlice, Read};
use std::net::SocketAddr;
use std::time::Duration;

/// Bytes that one direction of a stream holds, sent and not yet received.
pub(super) const WINDOW_BYTES: usize = 256 << 10;
/// First of the ports that the system chooses.
pub(super) const PORT_FIRST: u16 = 6800;

pub(super) enum Piece {
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
pub(super) struct End {
    pub(super) host: Host,
    pub(super) socket: SocketId,
    /// What the process has closed, or what its machine has forgotten.
    pub(super) gone: bool,
    pub(super) connected: bool,
    pub(super) error: Option<ErrorKind>,
    pub(super) ended: bool,
    pub(super) inbox: VecDeque<u8>,
    /// On the way to this end, in order.
    pub(super) wire: VecDeque<(Stamp, Piece)>,
    /// Bytes that this end has sent and the other has not received.
    pub(super) outstanding: usize,
    /// The process was told to wait before it sends more.
    pub(super) wants_room: bool,
    /// The other end's bytes that were received here while the way back was blocked.
    pub(super) owed: usize,
}

pub(super) struct Stream {
    pub(super) ends: [End; 2],
    pub(super) target: SocketAddr,
}

#[derive(Clone, Copy)]
pub(super) struct Listener {
    pub(super) host: Host,
    pub(super) id: ListenerId,
    pub(super) thread: usize,
}

/// A socket of a machine.
#[derive(Clone, Copy)]
pub(super) struct Held {
    pub(super) stream: u64,
    /// Which end of it.
    pub(super) end: usize,
    /// Which of the process's threads has it.
    pub(super) thread: usize,
}

#[derive(Default)]
pub(super) struct Machine {
    pub(super) alive: bool,
    pub(super) incarnation: u64,
    pub(super) sockets: BTreeMap<SocketId, Held>,
    pub(super) next_socket: usize,
    pub(super) next_port: u16,
    /// What each thread has not looked at.
    pub(super) events: Vec<Vec<NetEvent>>,
    pub(super) slow: u32,
}

pub(super) struct Inner {
    pub(super) now: Stamp,
    pub(super) rng: SeededEntropy,
    pub(super) wires: Wires,
    pub(super) machines: BTreeMap<Host, Machine>,
    /// One of those that listen on an address gets who comes there.
    pub(super) listeners: BTreeMap<SocketAddr, Vec<Listener>>,
    pub(super) streams: BTreeMap<u64, Stream>,
    pub(super) next_stream: u64,
    pub(super) agenda: BTreeMap<(Stamp, u64), (u64, usize)>,
    pub(super) next_delivery: u64,
    /// Pairs of hosts of which the first does not reach the second.
    pub(super) blocked: BTreeSet<(Host, Host)>,
    pub(super) woken: BTreeSet<Host>,
}

impl Inner {
    pub(super) fn delay(&mut self, from: Host, to: Host) -> Duration {
        let spread = u64::try_from(self.wires.delay_spread.as_nanos()).unwrap_or(u64::MAX).max(1);
        let mut delay = self.wires.delay_min + Duration::from_nanos(self.rng.u64() % spread);
        if self.rng.u64() % 1000 < self.wires.loss_permille {
            let bound = u64::try_from(self.wires.retransmit.as_nanos()).unwrap_or(u64::MAX).max(1);
            delay += Duration::from_nanos(self.rng.u64() % bound);
        }
        let slow = |host| self.machines.get(&host).map_or(1, |machine: &Machine| machine.slow.max(1));
        delay * slow(from).max(slow(to))
    }

    pub(super) fn schedule(&mut self, at: Stamp, stream: u64, end: usize) {
        self.next_delivery += 1;
        self.agenda.insert((at, self.next_delivery), (stream, end));
    }

    /// Puts a piece on the way to an end of a stream, behind what is on it already unless it overtakes.
    pub(super) fn put(&mut self, id: u64, to: usize, piece: Piece, in_order: bool) {
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

    pub(super) fn notify(&mut self, host: Host, event: NetEvent) {
        let socket = match &event {
            NetEvent::Accepted { socket, .. }
            | NetEvent::Readable(socket)
            | NetEvent::Ended(socket)
            | NetEvent::Writable(socket) => *socket,
            NetEvent::Starved { .. } => return,
        };
        let Some(machine) = self.machines.get_mut(&host).filter(|machine| machine.alive) else { return };
        let thread = machine.sockets.get(&socket).map_or(0, |held| held.thread);
        if let Some(events) = machine.events.get_mut(thread) {
            events.push(event);
            self.woken.insert(host);
        }
    }

    pub(super) fn arrive(&mut self, id: u64, to: usize) {
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

    pub(super) fn take_in(&mut self, id: u64, to: usize, piece: Piece) {
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
    pub(super) fn knock(&mut self, id: u64) {
        let Some(stream) = self.streams.get(&id) else { return };
        let (peer_host, peer_socket) = (stream.ends[0].host, stream.ends[0].socket);
        let listeners = self.listeners.get(&stream.target).map_or(&[][..], Vec::as_slice);
        let chosen = match listeners.len() {
            0 | 1 => 0,
            count => usize::try_from(self.rng.u64()).unwrap_or(0) % count,
        };
        let Some(Listener { host, id: listener, thread }) = listeners.get(chosen).copied() else {
            return self.put(id, 0, Piece::Reset, false);
        };
        let Some(machine) = self.machines.get_mut(&host) else { return };
        machine.next_socket += 1;
        let socket = SocketId(machine.next_socket);
        machine.sockets.insert(socket, Held { stream: id, end: 1, thread });
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.ends[1] = End { connected: true, ..End::new(host, socket) };
        let peer =
            SocketAddr::new(peer_host.ip(), 40_000 + u16::try_from(peer_socket.0 % 20_000).unwrap_or(0));
        self.notify(host, NetEvent::Accepted { listener, socket, peer });
        self.notify(host, NetEvent::Writable(socket));
        self.put(id, 0, Piece::Accept, true);
    }

    pub(super) fn close(&mut self, id: u64, at: usize) {
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

    pub(super) fn stop(&mut self, host: Host, silently: bool) {
        self.listeners.retain(|_, all| all.iter().all(|listener| listener.host != host));
        let Some(machine) = self.machines.get_mut(&host) else { return };
        machine.events.clear();
        machine.alive = !silently;
        for (_, Held { stream: id, end: at, .. }) in std::mem::take(&mut machine.sockets) {
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
    pub(super) fn answer_the_forgotten(&mut self, host: Host) {
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

    pub(super) fn heal(&mut self) {
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
    pub(super) fn grant(&mut self, id: u64, to: usize, bytes: usize) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let end = &mut stream.ends[to];
        end.outstanding = end.outstanding.saturating_sub(bytes);
        if end.wants_room && end.outstanding < WINDOW_BYTES {
            end.wants_room = false;
            let (host, socket) = (end.host, end.socket);
            self.notify(host, NetEvent::Writable(socket));
        }
    }

    pub(super) fn receive(&mut self, id: u64, at: usize, into: &mut [u8]) -> io::Result<usize> {
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
        end.inbox.read_exact(&mut into[..count])?;
        if self.blocked.contains(&back) {
            end.owed += count;
        } else {
            self.grant(id, 1 - at, count);
        }
        Ok(count)
    }

    pub(super) fn send(&mut self, id: u64, at: usize, slices: &[IoSlice<'_>]) -> io::Result<usize> {
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
    pub(super) fn new(host: Host, socket: SocketId) -> Self {
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

//! [`SimNet`]: the sockets of one thread of a process, as daemons and clients see them.

use super::streams::{End, Held, Inner, Listener, Machine, Piece, Stream};
use super::{Fabric, Host};
use nacre_env::{ListenerId, Net, NetEvent, SocketId};
use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::time::Duration;

/// The sockets of one thread of a process.
pub struct SimNet {
    pub(super) fabric: Fabric,
    pub(super) host: Host,
    pub(super) incarnation: u64,
    pub(super) thread: usize,
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
        let held = self.machine(inner)?.sockets.get(&socket).copied();
        held.map(|held| (held.stream, held.end)).ok_or_else(|| ErrorKind::NotConnected.into())
    }
}

impl Net for SimNet {
    fn listen(&mut self, addr: SocketAddr, shared: bool) -> io::Result<(ListenerId, SocketAddr)> {
        let mut inner = self.fabric.inner();
        let machine = self.machine(&mut inner)?;
        machine.next_socket += 1;
        let id = ListenerId(machine.next_socket);
        let port = if addr.port() == 0 {
            machine.next_port += 1;
            machine.next_port
        } else {
            addr.port()
        };
        let addr = SocketAddr::new(self.host.ip(), port);
        let all = inner.listeners.entry(addr).or_default();
        if !all.is_empty() && !shared {
            return Err(ErrorKind::AddrInUse.into());
        }
        all.push(Listener { host: self.host, id, thread: self.thread });
        Ok((id, addr))
    }

    fn connect(&mut self, addr: SocketAddr) -> io::Result<SocketId> {
        let mut inner = self.fabric.inner();
        let target = Host::of(addr).ok_or(ErrorKind::AddrNotAvailable)?;
        let (host, thread) = (self.host, self.thread);
        inner.next_stream += 1;
        let id = inner.next_stream;
        let machine = self.machine(&mut inner)?;
        machine.next_socket += 1;
        let socket = SocketId(machine.next_socket);
        machine.sockets.insert(socket, Held { stream: id, end: 0, thread });
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
        let new = machine.events.get_mut(self.thread).map(std::mem::take).unwrap_or_default();
        let open = &machine.sockets;
        let wanted = |event: &NetEvent| match event {
            NetEvent::Accepted { socket, .. }
            | NetEvent::Readable(socket)
            | NetEvent::Ended(socket)
            | NetEvent::Writable(socket) => open.contains_key(socket),
            NetEvent::Starved { .. } => true,
        };
        events.extend(new.into_iter().filter(wanted));
        Ok(())
    }
}

impl std::fmt::Debug for SimNet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimNet({:?})", self.host)
    }
}

//! [`Fabric`]: the network of the world.
//!
//! Streams behave as TCP's: bytes arrive in order or not at all, a process that ends closes its sockets, a
//! machine that loses power says nothing until it is back, and what cannot pass waits and comes late. What is
//! lost on the wire is sent again, so loss shows as a stall of its stream; streams overtake each other.
//!
//! | file | holds |
//! |---|---|
//! | `streams` | what is on its way in each stream, and what becomes of it |
//! | `socket` | [`SimNet`], the sockets of one thread of a process |

mod socket;
mod streams;

pub use self::socket::SimNet;

use self::streams::{Inner, PORT_FIRST, Piece, Stream};
use nacre_env::Wake;
use nacre_types::entropy::SeededEntropy;
use nacre_types::{Entropy, Stamp};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A machine, or a process with an address of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Host(pub u8);

impl Host {
    /// Address of the host in the fabric.
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

/// All wires and sockets of the world. Copies are the same.
#[derive(Clone)]
pub struct Fabric(Arc<Mutex<Inner>>);

struct Called(Arc<AtomicBool>);

impl Wake for Called {
    // One thread runs everything: whoever has something for another one makes the world turn it.
    fn wake(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
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
        machine.events = vec![Vec::new()];
        if reuse || machine.next_port == 0 {
            machine.next_port = PORT_FIRST;
        }
        let incarnation = machine.incarnation;
        inner.answer_the_forgotten(host);
        SimNet { fabric: self.clone(), host, incarnation, thread: 0 }
    }

    /// The sockets of one more thread of the process that was started on `host`.
    #[must_use]
    pub fn start_thread(&self, host: Host) -> SimNet {
        let mut inner = self.inner();
        let machine = inner.machines.entry(host).or_default();
        machine.events.push(Vec::new());
        let (incarnation, thread) = (machine.incarnation, machine.events.len() - 1);
        drop(inner);
        SimNet { fabric: self.clone(), host, incarnation, thread }
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

    /// Lets what is due by `now` arrive; yields the hosts that have something to look at.
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

    /// What ends waits of a simulated process's threads: nothing needs to, but the world hears that one of them has something to do.
    #[must_use]
    pub fn waker(calls: &Arc<AtomicBool>) -> Arc<dyn Wake> {
        Arc::new(Called(Arc::clone(calls)))
    }
}

impl std::fmt::Debug for Fabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let inner = self.inner();
        write!(f, "Fabric({} streams, {} on the way)", inner.streams.len(), inner.agenda.len())
    }
}

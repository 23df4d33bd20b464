//! Starting and stopping an OSD's threads.

use crate::config::OsdConfig;
use crate::control::OsdControl;
use crate::memory;
use crate::osd_addrs::{Listeners, OsdAddrs, Sockets, listen};
use crate::own_collection::{partition_of, stored_initial_pg_nums, stored_maps};
use crate::peer_links::PeerLinks;
use crate::pg_driver::usage_for_clients;
use crate::recovery_snapshot::SnapshotIntake;
use crate::relocations::{Located, MisplacedHere, located, pg_exists};
use crate::report::StoreFacts;
use crate::shard::{Parts, Shard};
use crate::shard_links::{ShardLinks, ShardListener};
use crate::shard_msg::{MovedPg, ShardMsg, ShardRouter};
use crate::storage::{HeldStore, StorageError};
use nacre_env::real::RealNet;
use nacre_env::{Clock, Net, RealClock, SystemEntropy, Wake};
use nacre_maps::OsdMap;
use nacre_msg::peer::ShardPorts;
use nacre_pg::{Arriving, Tuning};
use nacre_service::{AdminSocket, MailboxSender, Messenger, mailbox};
use nacre_store::ObjectStore;
use nacre_types::{Entropy, Epoch, OsdId, PoolId};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Why an OSD did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No sockets, or the address is not of this machine.
    #[error("osd.{osd}: cannot listen on {addr}: {source}")]
    Listen {
        /// Number of the OSD.
        osd: i32,
        /// Where it was to listen.
        addr: IpAddr,
        /// What the system says.
        source: io::Error,
    },
    /// Its store cannot be opened.
    #[error("osd.{osd}: {source}")]
    Store {
        /// Number of the OSD.
        osd: i32,
        /// What is wrong.
        source: StorageError,
    },
    /// There are more threads than parts of the store.
    #[error(
        "osd.{osd}: its store was made for {partitions} shards at most, not {shards}: leave --shards out, or make the OSD anew"
    )]
    Shards {
        /// Number of the OSD.
        osd: i32,
        /// Shards asked for.
        shards: usize,
        /// Partitions that the store has.
        partitions: usize,
    },
    /// No threads or descriptors left.
    #[error("osd.{osd}: {source}")]
    System {
        /// Number of the OSD.
        osd: i32,
        /// What the system says.
        source: io::Error,
    },
}

/// A thread of an OSD panicked: what it shared with others of its process may be left by half. Release builds do not get so far,
/// they end at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a thread panicked")]
pub struct Panicked;

/// A running OSD.
#[derive(Debug)]
pub struct OsdHandle {
    senders: Vec<MailboxSender<ShardMsg>>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    booted: Arc<AtomicBool>,
    /// Goes with it.
    _admin_socket: Option<AdminSocket>,
}

impl OsdHandle {
    /// True while the cluster has it up.
    #[must_use]
    pub fn is_booted(&self) -> bool {
        self.booted.load(Ordering::Acquire)
    }

    /// True when one of its threads has ended, which it does only when it cannot go on.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Stops it and waits until it has: it takes leave of the monitor first, so that clients hardly notice. One that has ended by
    /// itself is only waited for.
    ///
    /// # Errors
    /// [`Panicked`].
    pub fn stop(self) -> Result<(), Panicked> {
        // OSD control tells the others when it is their turn; unless it has ended before.
        for (shard, sender) in self.senders.iter().enumerate() {
            let control_has_ended = self.threads.first().is_none_or(JoinHandle::is_finished);
            let msg = || if shard == 0 { ShardMsg::Leave } else { ShardMsg::Stop };
            // A full mailbox belongs to a thread that is alive and will look into it soon.
            while (shard == 0 || control_has_ended) && sender.try_send(msg()).is_err() && !self.has_failed() {
                std::thread::yield_now();
            }
        }
        let mut outcome = Ok(());
        for thread in self.threads {
            match thread.join() {
                Ok(Ok(())) => (),
                Ok(Err(error)) => tracing::error!(%error, "a shard's thread failed"),
                Err(_) => outcome = Err(Panicked),
            }
        }
        outcome
    }
}

/// What one shard of an OSD runs on.
pub struct Machine {
    /// The monotonic clock and the time of day.
    pub clock: Box<dyn Clock>,
    /// Randomness for challenges, nonces and times.
    pub entropy: Box<dyn Entropy + Send>,
    /// The sockets of the shard's thread.
    pub net: Box<dyn Net + Send>,
    /// Ends waits of `net`.
    pub waker: Arc<dyn Wake>,
    /// Its part of the store, opened.
    pub store: Box<dyn ObjectStore + Send>,
    /// How its PGs behave; the default but for the simulation.
    pub tuning: Tuning,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Machine")
    }
}

/// An OSD that is put together and does nothing yet.
#[derive(Debug)]
pub struct Osd {
    /// Its shards, OSD control's first. Each is to begin, and then to turn.
    pub shards: Vec<Shard>,
    senders: Vec<MailboxSender<ShardMsg>>,
    booted: Arc<AtomicBool>,
}

/// Puts an OSD together: one shard on each machine. Its store has so many partitions, of which shard n of s has n, n + s, ...
///
/// # Errors
/// [`StartError::Listen`].
pub fn assemble(config: &OsdConfig, partitions: usize, machines: Vec<Machine>) -> Result<Osd, StartError> {
    let bind = &config.bind;
    let listen_error = |source| StartError::Listen { osd: config.id, addr: bind.public, source };
    let cluster_error = |source| StartError::Listen { osd: config.id, addr: bind.cluster, source };
    let booted = Arc::new(AtomicBool::new(false));
    let (mut parts, mut senders, mut shard_listeners) = (Vec::new(), Vec::new(), Vec::new());
    let (mut public_addr, mut control) = (None::<SocketAddr>, None::<(Listeners, Sockets, u32)>);
    let shared = machines.len() > 1;
    let shards_count = machines.len().max(1);
    let target = config.memory_target();
    let memory = target.map(|target| target.of(shards_count as u64));
    for (shard, mut machine) in machines.into_iter().enumerate() {
        let (sender, mailbox) = mailbox(machine.waker);
        senders.push(sender);
        let mut messenger = Messenger::new(machine.net, machine.clock.wall().sec.into());
        messenger.limit_intake(memory::intake_limits(target, shards_count));
        if target.is_some() {
            machine.tuning.message_limits = memory::message_limits(target);
        }
        // All shards share the first one's port.
        let listened = match public_addr {
            Some(addr) => messenger.listen(addr, shared),
            None => listen(&mut messenger, bind.public, bind, shared),
        };
        let (public, addr) = listened.map_err(listen_error)?;
        public_addr = Some(addr);
        if shard == 0 {
            let (listeners, sockets) =
                Listeners::open(&mut messenger, (public, addr), bind).map_err(cluster_error)?;
            control = Some((listeners, sockets, (machine.entropy.u64() as u32).max(1)));
        } else {
            let (id, socket) = listen(&mut messenger, bind.cluster, bind, false).map_err(cluster_error)?;
            shard_listeners.push(ShardListener { id, socket });
        }
        let stored = stored_maps(machine.store.as_ref());
        parts.push(Parts {
            config: config.clone(),
            clock: machine.clock,
            entropy: machine.entropy,
            messenger,
            mailbox,
            router: ShardRouter::new(shard, Vec::new(), partitions),
            control: None,
            peers: (PeerLinks::of_further_shard((config.id, config.plane()), &machine.tuning), None),
            public,
            store: machine.store,
            stored,
            begins_with: None,
            misplaced: MisplacedHere::default(),
            tuning: machine.tuning,
            memory,
            booted: Arc::clone(&booted),
        });
    }
    let newest: Vec<_> = parts.iter().map(|part| part.stored.last().cloned()).collect();
    for (part, first) in parts.iter_mut().zip(first_maps(&newest)) {
        part.begins_with = first;
    }
    let initial_pg_num =
        stored_initial_pg_nums(parts.iter().map(|part| part.store.as_ref() as &dyn ObjectStore));
    let misplaced = Misplaced::find(&parts, &initial_pg_num, partitions);
    let capacity_bytes = parts.iter().map(|part| usage_for_clients(part.store.as_ref()).total_bytes).sum();
    let conn_max = parts.first().map_or(usize::MAX, |part| part.tuning.queues.conn_max);
    let control = control
        .map(|(listeners, sockets, nonce)| (listeners, OsdAddrs::new(config.id, &sockets, nonce, conn_max)));
    let mut shards = Vec::new();
    for (shard, mut part) in parts.into_iter().enumerate() {
        if let Some((listeners, osd_addrs)) = &control {
            match shard.checked_sub(1) {
                None => {
                    let store = StoreFacts { capacity_bytes, partitions };
                    let ports = shard_ports(partitions, &shard_listeners);
                    take_control(&mut part, config, (listeners, osd_addrs, ports), store);
                }
                Some(nth) => take_links(&mut part, config.id, shard_listeners[nth], osd_addrs),
            }
        }
        part.router = ShardRouter::new(shard, senders.clone(), partitions);
        part.router.remember(initial_pg_num.clone(), misplaced.newest_map);
        part.misplaced = misplaced.of(&part.router);
        shards.push(Shard::new(part));
    }
    Ok(Osd { shards, senders, booted })
}

/// The first shard gets what the OSD does once.
fn take_control(
    part: &mut Parts,
    config: &OsdConfig,
    (listeners, osd_addrs, ports): (&Listeners, &OsdAddrs, Option<ShardPorts>),
    store: StoreFacts,
) {
    listeners.serve(osd_addrs, &mut part.messenger);
    part.peers.0 = PeerLinks::new((config.id, config.plane()), &part.tuning, ports);
    let addrs = (*listeners, osd_addrs.clone());
    let control = OsdControl::new(config.clone(), store, addrs, &part.tuning, part.clock.now());
    part.control = Some(control.with_snapshots(SnapshotIntake::open(part.store.as_ref())));
}

/// A shard beside the first one gets what it needs for links of its own.
fn take_links(part: &mut Parts, osd: OsdId, listener: ShardListener, osd_addrs: &OsdAddrs) {
    part.messenger.serve(part.public, Arc::clone(&osd_addrs.public));
    let links = ShardLinks::new(osd, listener, Arc::clone(&osd_addrs.cluster), &mut part.messenger);
    part.peers.1 = Some(links);
}

/// How the shards beside the first one are reached, if there are any.
fn shard_ports(partitions: usize, listeners: &[ShardListener]) -> Option<ShardPorts> {
    let ports: Vec<u16> = listeners.iter().map(|listener| listener.socket.port()).collect();
    (!ports.is_empty())
        .then(|| ShardPorts { partitions: u32::try_from(partitions).unwrap_or(u32::MAX), ports })
}

/// What of the PGs' collections is not as it is to be.
#[derive(Debug, Default)]
struct Misplaced {
    /// PGs that go to the partition where they are to be.
    moved: Vec<MovedPg>,
    /// Copies on their way to a partition that nobody called by the newest map that is left, or whose PG has ended; and PGs that were made
    /// anew elsewhere since.
    abandoned: Vec<Located>,
    /// Epoch of that map.
    newest_map: Epoch,
}

impl Misplaced {
    fn find(parts: &[Parts], initial_pg_num: &BTreeMap<PoolId, u32>, partitions: usize) -> Self {
        let newest = parts.iter().filter_map(|part| part.stored.last()).max_by_key(|map| map.epoch);
        let Some(map) = newest else { return Self::default() };
        let found = parts.iter().enumerate().flat_map(|(shard, part)| located(part.store.as_ref(), shard));
        let (arriving, found): (Vec<Located>, Vec<Located>) =
            found.partition(|found| found.arriving.is_some());
        let is_outlived = |at: &&Located| found.iter().any(|other| at.is_outlived_by(other));
        let (outlived, there): (Vec<&Located>, Vec<&Located>) = found.iter().partition(is_outlived);
        let moved = |at: &&Located| {
            let Located { spg, partition: from, .. } = **at;
            let to = partition_of(initial_pg_num, &spg, partitions);
            // One that ends with a map that is here does so where it is.
            let is_there = there.iter().any(|other| other.spg == spg && other.partition == to);
            (!is_there && pg_exists(map, spg.pg)).then_some(MovedPg { spg, from, to })
        };
        let moved: Vec<MovedPg> = there.iter().filter_map(moved).collect();
        let is_abandoned = |copy: &Located| {
            let is_wanted = moved.iter().any(|moved| moved.spg == copy.spg && moved.to == copy.partition);
            // What is there in part is not the only one while its PG is: that was removed on purpose.
            !is_wanted
                && (copy.arriving == Some(Arriving::InPart) || there.iter().any(|at| at.spg == copy.spg))
        };
        let abandoned =
            arriving.into_iter().filter(is_abandoned).chain(outlived.into_iter().copied()).collect();
        Self { moved, abandoned, newest_map: map.epoch }
    }

    /// What of it is the business of one shard.
    fn of(&self, router: &ShardRouter) -> MisplacedHere {
        let is_ours = |partition| router.shard_with(partition) == router.me;
        let moved = || self.moved.iter();
        MisplacedHere {
            coming: moved().filter(|moved| is_ours(moved.to)).map(|moved| moved.spg).collect(),
            going: moved().filter(|moved| is_ours(moved.from)).copied().collect(),
            abandoned: self.abandoned.iter().filter(|copy| is_ours(copy.partition)).copied().collect(),
            since: self.newest_map,
        }
    }
}

/// Shards end together, and not with the same maps stored. Gives the map behind which each of them wants others, of the `newest` that
/// each has stored. OSD control, on the first one, asks the monitor for what it hands on: it begins where the shard is that is furthest
/// behind. One that has none has no PGs, either, and begins there, too: what follows are increments.
fn first_maps(newest: &[Option<Arc<OsdMap>>]) -> Vec<Option<Arc<OsdMap>>> {
    let oldest = newest.iter().flatten().min_by_key(|map| map.epoch);
    let first = |(shard, own): (usize, &Option<Arc<OsdMap>>)| {
        let own = own.as_ref().filter(|_| shard > 0);
        own.or(oldest).cloned()
    };
    newest.iter().enumerate().map(first).collect()
}

/// Starts the threads of an OSD. It boots by itself as soon as it reaches a monitor.
///
/// # Errors
/// [`StartError`].
pub fn start(config: &OsdConfig) -> Result<OsdHandle, StartError> {
    let osd = config.id;
    let clock = RealClock::start();
    let store_error = |source| StartError::Store { osd, source };
    let held = HeldStore::hold(&config.store).map_err(store_error)?;
    let shards = match (config.shards, held.partitions()) {
        (Some(shards), Some(partitions)) if shards > partitions => {
            return Err(StartError::Shards { osd, shards, partitions });
        }
        (wanted, made) => wanted.or(made).unwrap_or(1).max(1),
    };
    let partitions = held.partitions().unwrap_or(shards);
    let nets = (0..shards).map(|_| RealNet::new()).collect::<io::Result<Vec<RealNet>>>();
    let nets = nets.map_err(|source| StartError::System { osd, source })?;
    let stores = held.open(&nets).map_err(store_error)?;
    let machine = |(net, store): (RealNet, Box<dyn ObjectStore + Send>)| {
        let waker = net.waker();
        let (clock, entropy) = (Box::new(clock), Box::new(SystemEntropy::default()));
        Machine { clock, entropy, net: Box::new(net), waker, store, tuning: Tuning::default() }
    };
    let machines = nets.into_iter().zip(stores).map(machine).collect();
    let Osd { shards, senders, booted } = assemble(config, partitions, machines)?;
    let mut threads = Vec::new();
    for (number, shard) in shards.into_iter().enumerate() {
        let thread = std::thread::Builder::new().name(format!("osd.{osd}/{number}")).spawn(|| shard.run());
        threads.push(thread.map_err(|source| StartError::System { osd, source })?);
    }
    let first = senders.first().cloned();
    let deliver = move |request| {
        let Some(first) = &first else { return false };
        first.try_send(ShardMsg::Admin(request)).is_ok()
    };
    let admin_socket =
        AdminSocket::open_or_warn(config.admin_socket.as_deref(), &format!("osd.{osd}"), deliver);
    Ok(OsdHandle { senders, threads, booted, _admin_socket: admin_socket })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::Epoch;

    #[test]
    fn osd_control_and_shards_without_maps_begin_with_the_map_of_the_shard_that_is_furthest_behind() {
        let map =
            |epoch: &Epoch| (*epoch > 0).then(|| Arc::new(OsdMap { epoch: *epoch, ..OsdMap::default() }));
        let first = |newest: &[Epoch]| -> Vec<Epoch> {
            let newest: Vec<_> = newest.iter().map(map).collect();
            first_maps(&newest).iter().map(|map| map.as_ref().map_or(0, |map| map.epoch)).collect()
        };
        assert_eq!(first(&[124]), [124]);
        assert_eq!(first(&[124, 2, 124]), [2, 2, 124]);
        assert_eq!(first(&[2, 124]), [2, 124]);
        assert_eq!(first(&[18, 0]), [18, 18], "increments lead on from there, and nothing from none");
        assert_eq!(first(&[0, 5]), [5, 5], "without maps there are no PGs");
        assert_eq!(first(&[0, 0]), [0, 0]);
    }
}

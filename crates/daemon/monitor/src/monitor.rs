//! [`Monitor`]: starting and stopping the thread.

use crate::audit_file::AuditFile;
use crate::clock_watch::ClockWatch;
use crate::driver::Driver;
use crate::driver_error::DriverError;
use crate::exporter::Exporter;
use crate::leadership::Presence;
use crate::link_msg::Greeting;
use crate::links::Links;
use crate::members::{Addresses, Monitors};
use crate::page::PageServer;
use crate::planted::Planted;
use crate::probing::Prober;
use crate::replica::{self, Replica, ReplicaError};
use crate::store;
use crate::transfer::Transfers;
use crate::uplink::Uplink;
use crate::vitals::{VitalsWatch, avail_percent};
use nacre_auth::AuthMethod;
use nacre_env::real::RealNet;
use nacre_env::real::private::{self, PrivateError};
use nacre_env::{Clock, Net, RealClock, SystemEntropy, Wake};
use nacre_kv::{KvError, KvStore, RedbKv};
use nacre_mon::ScrapeTarget;
use nacre_mon::{Front, MkfsError, MkfsOptions, MonitorFacts, OpenError, RestoreError};
use nacre_msgr::Config;
use nacre_service::{AdminSocket, IntakeLimits, Messenger, mailbox};
use nacre_types::{AddrVec, AuthName, EntityAddr, EntityKind, Entropy, UTime, Uuid};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The store's file within the monitor's folder.
pub const STORE_FILE: &str = "store.redb";
/// Bytes that may wait for one peer that does not read; more and it is dropped. Maps are the largest.
const QUEUED_BYTES_MAX: usize = 64 << 20;

/// [`MonitorConfig::log_entries_kept`] outside of tests. At most 64 MiB of them are kept.
pub const LOG_ENTRIES_KEPT: usize = 10_000;

/// What a monitor needs to start.
#[derive(Debug, Clone)]
pub struct MonitorConfig {
    /// Its folder, made by [`Monitor::mkfs`].
    pub store: PathBuf,
    /// Its name, such as `a`. The address is the one that the monitors' map has for it.
    pub name: String,
    /// Methods of authentication that it accepts.
    pub methods: Vec<AuthMethod>,
    /// The machine that it runs on, as people know it.
    pub host: String,
    /// What else is known of the machine, under the names of Ceph's `mon metadata`.
    pub machine_facts: MonitorFacts,
    /// Where it is to answer `ceph daemon`; nowhere without.
    pub admin_socket: Option<PathBuf>,
    /// Changes of the cluster's state that are kept for monitors that are behind; one that is further behind gets all tables. Usually
    /// [`LOG_ENTRIES_KEPT`].
    pub log_entries_kept: usize,
    /// A mistake that is built in on purpose; outside of tests always [`Planted::Nothing`].
    pub planted: Planted,
}

/// Why a monitor did not start, or could not be made.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The folder cannot be made.
    #[error("cannot make {path}: {source}")]
    Folder {
        /// Folder of the monitor.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Others may read the folder, which holds the keys of the cluster.
    #[error(transparent)]
    Private(#[from] PrivateError),
    /// The store cannot be read or written.
    #[error("{path}: {source}")]
    Store {
        /// The store's file.
        path: PathBuf,
        /// What is wrong with it.
        source: KvError,
    },
    /// The log in the store is unusable.
    #[error("{path}: {source}")]
    Log {
        /// The store's file.
        path: PathBuf,
        /// What is wrong with it.
        source: ReplicaError,
    },
    /// There is a cluster in the folder already.
    #[error("{0} holds a cluster already")]
    Exists(PathBuf),
    /// The new cluster is not to be had so.
    #[error(transparent)]
    Mkfs(#[from] MkfsError),
    /// The stored state is unusable.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// What OSDs have kept cannot be used.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// The monitor cannot go on from it.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The monitors' map does not know this monitor.
    #[error("the monitors' map has no mon.{0} with an address")]
    Unknown(String),
    /// The store would soon have no room to grow, and a monitor that cannot write ends.
    #[error(
        "the file system of {path} has {percent}% of its room left, and with {crit}% or less (mon_data_avail_crit) a monitor does not start: \
         make room there, or move the folder to a larger file system"
    )]
    NoRoom {
        /// The store's file.
        path: PathBuf,
        /// What is left, in per cent.
        percent: u8,
        /// What is too little.
        crit: u8,
    },
    /// The cluster's monitors run a program with which this one does not get on.
    #[error(
        "the cluster's monitors are of version {theirs}, this program of {ours}; install here what runs there, and try again"
    )]
    Program {
        /// Version of the cluster's monitors.
        theirs: u16,
        /// Version of this program.
        ours: u16,
    },
    /// The address is in use or not of this machine.
    #[error("cannot listen on {addr}: {source}")]
    Listen {
        /// Address that it cannot listen on.
        addr: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// No threads or descriptors left.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl StartError {
    /// True when the store is that of a monitor that is none of the cluster any more.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        let Self::Log { source, .. } = self else { return false };
        matches!(source, ReplicaError::Removed(_) | ReplicaError::Replaced { .. })
    }
}

/// What a monitor runs on.
pub struct Machine {
    /// The monotonic clock and the time of day.
    pub clock: Box<dyn Clock>,
    /// Randomness for keys, challenges and ids.
    pub entropy: Box<dyn Entropy + Send>,
    /// The sockets of its thread.
    pub net: Box<dyn Net + Send>,
    /// Its store, which holds a cluster.
    pub store: Box<dyn KvStore + Send>,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Machine")
    }
}

/// Makes an empty store that of a new cluster, for any of its monitors.
///
/// # Errors
/// [`StartError::Mkfs`], or [`StartError::Store`] without a path.
pub fn mkfs(store: &mut dyn KvStore, options: &MkfsOptions, wall: UTime) -> Result<(), StartError> {
    let batch = nacre_mon::mkfs(options, wall)?;
    replica::bootstrap(store, &batch, options)
        .map_err(|source| StartError::Store { path: PathBuf::new(), source })
}

/// Memory that messages may take which have begun and are not complete: of clients, and of daemons.
const INTAKE_BYTES_MAX: usize = 128 << 20;

/// Puts a monitor together; yields where it listens, too. It serves as soon as it turns and a majority of the monitors is there; the only one
/// serves at once.
///
/// # Errors
/// [`StartError`].
pub fn assemble(config: &MonitorConfig, machine: Machine) -> Result<(Driver, EntityAddr), StartError> {
    let Machine { clock, mut entropy, net, store } = machine;
    let at = |source| StartError::Log { path: config.store.join(STORE_FILE), source };
    let mut replica = Replica::open(store, &config.name, config.log_entries_kept).map_err(at)?;
    replica.plant(config.planted);
    let tables = replica.tables().map_err(at)?;
    let monitors = Monitors::read(tables).map_err(DriverError::from)?;
    let front = store::read(tables, |snapshot| Front::open(snapshot, &config.name))
        .map_err(|source| StartError::Store { path: config.store.join(STORE_FILE), source })?;
    let front = front.map_err(OpenError::from)?.accepting(config.methods.clone());
    let crit = front.disk_avail_crit();
    if let Some(percent) = replica.room().and_then(avail_percent).filter(|percent| *percent <= crit) {
        return Err(StartError::NoRoom { path: config.store.join(STORE_FILE), percent, crit });
    }
    let mut messenger = Messenger::new(net, clock.wall().sec.into());
    messenger.limit_intake(IntakeLimits { client_bytes: INTAKE_BYTES_MAX, peer_bytes: INTAKE_BYTES_MAX });
    let (addr, mgr_addrs, mon_config) = listen(&monitors, &mut messenger, &config.name, entropy.as_mut())?;
    let presence = Presence {
        name: config.name.clone(),
        host: config.host.clone(),
        mon_addrs: AddrVec::of(addr),
        mgr_addrs,
    };
    let now = clock.now();
    let own = replica.quorum().id();
    let mut facts = nacre_mon::monitor_facts::of_program(&config.host);
    facts.extend(config.machine_facts.clone());
    let greeting = Greeting::new(monitors.map.fsid, monitors.incarnation());
    let mut links = Links::new(own, &config.name, greeting, facts.clone(), &mon_config);
    links.follow(&monitors.places(), now, &mut messenger);
    let mut driver = Driver {
        front,
        presence,
        lead: None,
        replica,
        links,
        uplink: Uplink::default(),
        transfers: Transfers::default(),
        monitors,
        planted: config.planted,
        clocks: ClockWatch::default(),
        vitals: VitalsWatch::new(own, facts, now),
        messenger,
        clock,
        entropy,
        stop: Arc::new(AtomicBool::new(false)),
        next_tick: now + nacre_mon::TICK,
        next_raft_tick: now,
        depose_at: None,
        last_leader: None,
        is_gone: false,
        addresses: Addresses::default(),
        audit: AuditFile::default(),
        admin: None,
        exporter: None,
        prober: None,
        page: None,
    };
    driver.addresses.set(&driver.monitors);
    driver.settle()?;
    Ok((driver, addr))
}

/// A running monitor.
pub struct Monitor {
    stop: Arc<AtomicBool>,
    waker: Arc<dyn Wake>,
    thread: JoinHandle<Result<(), DriverError>>,
    fsid: Uuid,
    addr: EntityAddr,
    addresses: Addresses,
    was_removed: Arc<AtomicBool>,
    admin_keyring: String,
    /// Goes with it.
    _admin_socket: Option<AdminSocket>,
}

impl std::fmt::Debug for Monitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Monitor({} at {})", self.fsid, self.addr)
    }
}

pub(crate) fn open_store(folder: &Path) -> Result<RedbKv, StartError> {
    let path = folder.join(STORE_FILE);
    RedbKv::open(&path).map_err(|source| StartError::Store { path, source })
}

impl Monitor {
    /// Makes `folder` the store of one monitor, any, of a new cluster.
    ///
    /// # Errors
    /// [`StartError`], among others when the folder holds a cluster already.
    pub fn mkfs(folder: &Path, options: &MkfsOptions, wall: UTime) -> Result<(), StartError> {
        let at = |source| StartError::Folder { path: folder.to_owned(), source };
        private::make_folder(folder).map_err(at)?;
        let mut kv = open_store(folder)?;
        let store_error = |source| StartError::Store { path: folder.join(STORE_FILE), source };
        if !kv.scan_prefix(b"").map_err(store_error)?.is_empty() {
            return Err(StartError::Exists(folder.to_owned()));
        }
        mkfs(&mut kv, options, wall).map_err(|error| match error {
            StartError::Store { source, .. } => store_error(source),
            error => error,
        })
    }

    /// Starts the monitor of a folder. It serves when this returns.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(config: MonitorConfig) -> Result<Self, StartError> {
        for path in private::tighten(&config.store)? {
            tracing::warn!(path = %path.display(), "others could use it; that right is taken away");
        }
        let kv = open_store(&config.store)?;
        if !kv.has_checksums() {
            let path = config.store.join(STORE_FILE);
            tracing::warn!(path = %path.display(), "an older program's, without checksums of its pages: make room for a copy and restart");
        }
        let net = RealNet::new()?;
        let waker = net.waker();
        let machine = Machine {
            clock: Box::new(RealClock::start()),
            entropy: Box::new(SystemEntropy::default()),
            net: Box::new(net),
            store: Box::new(kv),
        };
        let (mut driver, addr) = assemble(&config, machine)?;
        let written = newest_log_version(&mut driver).map_err(DriverError::from)?;
        driver.audit = AuditFile::open(&config.store, written)?;
        let admin_socket = open_admin_socket(&config, &mut driver, Arc::clone(&waker));
        let tables = driver.replica.tables().map_err(DriverError::from)?;
        let place = store::read(tables, |snapshot| ScrapeTarget::open(snapshot, &config.name))
            .map_err(|source| StartError::Store { path: config.store.join(STORE_FILE), source })?;
        driver.exporter =
            Some(Exporter::new(&config.name, place.map_err(DriverError::from)?, Arc::clone(&waker)));
        driver.prober = Some(Prober::new(&config.name, Arc::clone(&waker)));
        driver.page = Some(PageServer::new(&config.name, Arc::clone(&waker)));
        driver.follow_metrics();
        let (fsid, admin_keyring) = (driver.monitors.map.fsid, admin_keyring(&driver.front));
        let (stop, addresses) = (Arc::clone(&driver.stop), driver.addresses.clone());
        let was_removed = Arc::new(AtomicBool::new(false));
        let note = Arc::clone(&was_removed);
        let thread = std::thread::Builder::new()
            .name(format!("mon.{}", config.name))
            .spawn(move || run(driver, &note))?;
        let _admin_socket = admin_socket;
        Ok(Self { stop, waker, thread, fsid, addr, addresses, was_removed, admin_keyring, _admin_socket })
    }

    /// Id of the cluster.
    #[must_use]
    pub fn fsid(&self) -> Uuid {
        self.fsid
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> EntityAddr {
        self.addr
    }

    /// Where all monitors of the cluster are at the moment, in order of rank.
    #[must_use]
    pub fn monitors(&self) -> Vec<EntityAddr> {
        self.addresses.get()
    }

    /// True when its thread has ended, or ends, because the monitor was removed from the cluster.
    #[must_use]
    pub fn was_removed(&self) -> bool {
        self.was_removed.load(Ordering::Acquire)
    }

    /// The keyring of `client.admin`, as a file's text; empty when there is no such entity.
    #[must_use]
    pub fn admin_keyring(&self) -> String {
        self.admin_keyring.clone()
    }

    /// True when its thread has ended, which it does only when it cannot go on, or was removed ([`Monitor::was_removed`]).
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.thread.is_finished()
    }

    /// Stops it and waits until it has.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        if self.thread.join().is_err() {
            tracing::error!("the monitor's thread panicked");
        }
    }
}

/// Lets people ask this monitor by a file, whoever leads.
fn open_admin_socket(
    config: &MonitorConfig,
    driver: &mut Driver,
    waker: Arc<dyn Wake>,
) -> Option<AdminSocket> {
    let (sender, requests) = mailbox(waker);
    driver.admin = Some(requests);
    let deliver = move |request| sender.try_send(request).is_ok();
    AdminSocket::open_or_warn(config.admin_socket.as_deref(), &format!("mon.{}", config.name), deliver)
}

fn run(driver: Driver, was_removed: &AtomicBool) -> Result<(), DriverError> {
    let outcome = driver.run();
    match &outcome {
        Err(error @ DriverError::Removed(_)) => {
            was_removed.store(true, Ordering::Release);
            tracing::warn!(%error, "the monitor ended");
        }
        Err(error) => tracing::error!(%error, "the monitor ended"),
        Ok(()) => (),
    }
    outcome
}

/// What the cluster log says already when a monitor starts.
fn newest_log_version(driver: &mut Driver) -> Result<u64, ReplicaError> {
    Ok(store::read(driver.replica.tables()?, nacre_mon::cluster_log::newest_version)?)
}

pub(crate) fn admin_keyring(front: &Front) -> String {
    let keyring = front.keyring_of(&AuthName::new(EntityKind::CLIENT, "admin"));
    if keyring.is_empty() { String::new() } else { keyring.to_string() }
}

/// Listens as the monitor, where the map says, and as the manager, on a port that the system chooses. Yields where that is, and how
/// we present ourselves as the monitor.
fn listen(
    monitors: &Monitors,
    messenger: &mut Messenger,
    name: &str,
    entropy: &mut dyn Entropy,
) -> Result<(EntityAddr, AddrVec, Config), StartError> {
    let unknown = || StartError::Unknown(name.to_owned());
    let info = monitors.map.mons.get(name).ok_or_else(unknown)?;
    let addr = info.addrs.msgr2().ok_or_else(unknown)?;
    let socket = addr.socket.ok_or_else(unknown)?;
    let rank = monitors.map.rank_of(name);
    let mut bind = |socket: SocketAddr| {
        messenger.listen(socket, false).map_err(|source| StartError::Listen { addr: socket, source })
    };
    let (mon_listener, _) = bind(socket)?;
    let (mgr_listener, mgr_socket) = bind(SocketAddr::new(socket.ip(), 0))?;
    let nonce = u32::try_from(entropy.u64() >> 32).unwrap_or(0).max(1);
    let mgr_addrs = AddrVec::of(EntityAddr::msgr2(mgr_socket, nonce));
    let mon_config = mon_config(addr, rank);
    messenger.serve(mon_listener, Arc::new(mon_config.clone()));
    messenger.serve(mgr_listener, Arc::new(limited(Config::mgr(mgr_addrs.clone(), 0))));
    Ok((addr, mgr_addrs, mon_config))
}

fn limited(config: Config) -> Config {
    Config { queued_bytes_max: QUEUED_BYTES_MAX, ..config }
}

/// How a monitor presents itself that listens at `addr`.
pub(crate) fn mon_config(addr: EntityAddr, rank: Option<usize>) -> Config {
    limited(Config::mon(AddrVec::of(addr), rank.and_then(|rank| i64::try_from(rank).ok()).unwrap_or(0)))
}

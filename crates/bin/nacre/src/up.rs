//! `nacre up`: one monitor, or several, and some OSDs on this machine, as threads of this process or as processes.

use crate::args::{Auth, StoreKind, UpArgs, check_listen};
use crate::crash_reports;
use crate::files::{Address, Folder, Identity, MONS_MAX, mon_name};
use crate::machine::{capacity_bytes, host_name};
use crate::osd::{Hosted, OsdDefaults, random_uuid, side_by_side};
use crate::signals::{START_POLL, Stop};
use crate::stock_daemons::StockDaemons;
use crate::supervisor::Supervisor;
use crate::{mon, mon_recovery, osd};
use anyhow::{Context, Result, bail};
use nacre_auth::{CryptoKey, RecoveryKey};
use nacre_env::outln;
use nacre_env::{Clock, RealClock, SystemEntropy};
use nacre_monitor::{MkfsOptions, MkfsOsd, Monitor};
use nacre_types::{AddrVec, EntityAddr, Entropy, OsdId, Uuid};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::ops::Range;
use std::time::Duration;

/// OSDs that have not booted after this time will not, on a busy machine either.
const BOOT_TIMEOUT: Duration = Duration::from_secs(60);
/// OSDs of one embedded cluster; each is at least one thread.
const OSDS_MAX: usize = 64;
/// Ports for the monitors of a new cluster: below those that Linux gives to connections (`ip_local_port_range`, from 32768), any of which may
/// be a connection's when a monitor starts again.
const MON_PORTS: Range<u16> = 20_000..32_000;
const _: () = assert!(MON_PORTS.end <= 32_768, "no connection may have a monitor's port");
/// Ports in a row that are tried.
const PORT_TRIES: usize = 64;
/// Largest store in files that `nacre up` makes when no size is given: its OSDs share a machine with whatever else it is for.
const UP_OSD_BYTES_MAX: u64 = 10 << 30;

/// Runs until SIGTERM or Ctrl-C.
pub(crate) fn run(options: &UpArgs) -> Result<()> {
    let stop = Stop::register()?;
    check_listen(options.listen)?;
    StockDaemons::check(options)?;
    let clock = RealClock::start();
    let folder = Folder::open(&options.dir)?;
    let _lock = folder.lock()?;
    crash_reports::begin(&folder, "nacre");
    let identity = match folder.identity()? {
        Some(identity) => known(&folder, &identity, options)?,
        None => make(&folder, options, &clock)?,
    };
    let cluster = Cluster { folder: &folder, identity: &identity, osds: folder.osds()?, clock: &clock };
    let outcome =
        if options.processes { cluster.run_apart(options, &stop) } else { cluster.run_here(options, &stop) };
    outln!("stopped");
    outcome
}

/// A cluster that is made, and what it has.
struct Cluster<'a> {
    folder: &'a Folder,
    identity: &'a Identity,
    osds: Vec<OsdId>,
    clock: &'a RealClock,
}

impl Cluster<'_> {
    /// All daemons as threads of this process.
    fn run_here(&self, options: &UpArgs, stop: &Stop) -> Result<()> {
        let mut mons = mon::start_all(self.folder, self.identity)?;
        let mut identity = self.identity.clone();
        let defaults = self.defaults(options, stop)?;
        let mut osds = Hosted::start(self.folder, osd::lock_all(self.folder, &self.osds)?, &defaults)?;
        wait_until_up(self.folder, &mut mons, &mut osds, stop, self.clock)?;
        let count = osds.running().len();
        let outcome = self.watch(options, count, stop, || {
            mon::follow_monitors(self.folder, &mut identity, &mons)?;
            check_alive(self.folder, &mut mons, &mut osds)
        });
        let stopped = osds.stop();
        mons.into_iter().for_each(|mon| mon.monitor.stop());
        // The first reason is the one that counts.
        outcome.and(stopped)
    }

    /// Each daemon as a process.
    fn run_apart(&self, options: &UpArgs, stop: &Stop) -> Result<()> {
        if self.identity.store == StoreKind::Memory {
            bail!("--processes needs --store file: what is in memory is gone when its process ends");
        }
        let mut supervisor = Supervisor::start(self.folder, &self.osds, options, stop)?;
        let outcome = self.watch(options, self.osds.len(), stop, || supervisor.check_alive());
        supervisor.stop();
        outcome
    }

    fn defaults(&self, options: &UpArgs, stop: &Stop) -> Result<OsdDefaults> {
        let Identity { fsid, store, auth, .. } = *self.identity;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let wanted = options.shards.map(|shards| shards as usize);
        let (shards, capacity_bytes) = match store {
            StoreKind::File => (wanted, 0),
            StoreKind::Memory => {
                let count = self.osds.len().max(1);
                let shards = wanted.unwrap_or(processors / count).max(1);
                (Some(shards), capacity_bytes(self.folder, options.osd_size, store, count)?)
            }
        };
        // The monitors have written there where they are by now.
        let monitors =
            self.folder.address().map_or_else(|_| self.identity.monitors.clone(), |at| at.monitors);
        let address = Address { fsid, monitors, auth };
        Ok(OsdDefaults {
            address,
            listen: options.listen,
            shards,
            store,
            capacity_bytes,
            memory_bytes: options.memory.bytes(),
            stop: stop.clone(),
        })
    }

    /// Starts what is wanted besides, says that all is ready, and calls `check` until `stop` wants the end. What runs besides ends here.
    fn watch(
        &self,
        options: &UpArgs,
        osd_count: usize,
        stop: &Stop,
        mut check: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let mut stock = StockDaemons::new(options);
        let outcome = stock.start(self.folder, options, stop).and_then(|()| {
            if !stop.is_wanted() {
                print_welcome(self.folder, self.identity, osd_count, self.clock, &stock);
            }
            stop.watch(|| check().and_then(|()| stock.check_alive(self.folder)))
        });
        stock.stop(self.folder);
        outcome
    }
}

/// Options that are given, and are for a new cluster alone.
fn only_for_new(identity: &Identity, options: &UpArgs) -> impl Iterator<Item = &'static str> {
    let is_in_memory = identity.store == StoreKind::Memory;
    let given = [
        ("--mon-listen", !options.mon_listen.is_empty()),
        ("--osd-size", options.osd_size.is_some() && !is_in_memory),
        ("--wal-dir or --meta-dir", options.device_dirs.is_given()),
    ];
    given.into_iter().filter_map(|(name, is_given)| is_given.then_some(name))
}

/// An existing cluster, if the options do not contradict it.
fn known(folder: &Folder, identity: &Identity, options: &UpArgs) -> Result<Identity> {
    let count = folder.osds()?.len();
    if options.osds.is_some_and(|wanted| wanted != count) {
        bail!(
            "{} has {count} OSDs; leave --osds out, add OSDs as docs/runbooks/osd-add-remove.md says, or choose \
             another --dir",
            options.dir.display(),
        );
    }
    let mons = folder.mons()?.len();
    if options.mons.is_some_and(|wanted| wanted != mons) {
        bail!(
            "{} has {mons} monitors; leave --mons out, add monitors as docs/runbooks/mon-add-remove.md says, or choose another --dir",
            options.dir.display()
        );
    }
    if !options.options.is_empty() {
        bail!(
            "{} has options of its own; leave --set out, and change them with ceph config set global NAME VALUE",
            options.dir.display()
        );
    }
    if options.store.is_some_and(|store| store != identity.store) {
        bail!("{} holds a cluster with another kind of store; leave --store out", options.dir.display());
    }
    let port = identity.monitors.first().and_then(|addr| addr.socket).map(|socket| socket.port());
    if options.port.is_some_and(|wanted| Some(wanted) != port) {
        bail!(
            "the first monitor of {} has another port; leave --port out, or move the monitor as docs/runbooks/mon-add-remove.md says",
            options.dir.display()
        );
    }
    // The command that made a cluster also starts it again.
    for name in only_for_new(identity, options) {
        outln!("{name} has no effect: it is for a new cluster, and {} has one", options.dir.display());
    }
    let auth = options.auth.unwrap_or(identity.auth);
    let known = Identity { auth, ..identity.clone() };
    if known != *identity {
        folder.write_identity(&known)?;
    }
    Ok(known)
}

fn make(folder: &Folder, options: &UpArgs, clock: &RealClock) -> Result<Identity> {
    if folder.conf().exists() {
        bail!(
            "{} belongs to a cluster whose monitor is elsewhere; choose another --dir",
            folder.path().display()
        );
    }
    let osd_count = options.osds.unwrap_or(3);
    if !(1..=OSDS_MAX).contains(&osd_count) {
        bail!("--osds must be from 1 to {OSDS_MAX}");
    }
    let mon_count = options.mons.unwrap_or(1);
    if !(1..=MONS_MAX).contains(&mon_count) || mon_count.is_multiple_of(2) {
        bail!(
            "--mons must be 1, 3, 5, 7 or {MONS_MAX}: an even number outlives no more failures than one less"
        );
    }
    let mut entropy = SystemEntropy::default();
    let fsid = random_uuid(&mut entropy);
    let monitors = monitor_addrs(options, mon_count, &mut entropy)?;
    let mons = monitors.iter().zip(0..).map(|(addr, rank)| (mon_name(rank), AddrVec::of(*addr))).collect();
    let mut mkfs = MkfsOptions::new(fsid, mons, clock.wall(), &mut entropy);
    mkfs.osds_are_failure_domains = true;
    let store_kind = options.store.unwrap_or(StoreKind::File);
    let most = if store_kind == StoreKind::File { UP_OSD_BYTES_MAX } else { u64::MAX };
    let capacity = match options.osd_size {
        Some(size) => size,
        None => capacity_bytes(folder, None, store_kind, osd_count)?.min(most),
    };
    if store_kind == StoreKind::File {
        outln!("making {osd_count} stores of {:.1} GiB each", capacity as f64 / f64::from(1 << 30));
    }
    let size = (capacity, options.shards.unwrap_or(1));
    let dirs = options.device_dirs.device_dirs();
    let sizes = make_stores(folder, store_kind, size, osd_count, &dirs, &mut entropy)?;
    for (id, size_bytes) in (0..).zip(sizes) {
        let (store, key) = (random_uuid(&mut entropy), CryptoKey::generate(&mut entropy, clock.wall()));
        folder.write_osd(id, store, &key)?;
        let weight = nacre_maps::weight_of(size_bytes);
        let class = Some("ssd".to_owned());
        mkfs.osds.push(MkfsOsd { id, store: Some(store), key, host: host_name(), weight, class });
    }
    if osd_count < 3 {
        // Ceph's default of three copies could never be satisfied here.
        let size = osd_count.to_string();
        mkfs.config.push(("global".to_owned(), "osd_pool_default_size".to_owned(), size));
    }
    let given = options.options.iter().cloned();
    mkfs.config.extend(given.map(|(name, value)| ("global".to_owned(), name, value)));
    // OSDs in memory keep nothing.
    let recovery_key = (store_kind == StoreKind::File).then(|| RecoveryKey::generate(&mut entropy));
    mkfs.recovery_key.clone_from(&recovery_key);
    folder.remove_unfinished_monitors()?;
    let made = clock.wall();
    for rank in 0..mon_count {
        let path = folder.mon(&mon_name(rank));
        Monitor::mkfs(&path, &mkfs, made).with_context(|| format!("cannot make {}", path.display()))?;
    }
    let identity =
        Identity { fsid, monitors, osd_count, store: store_kind, auth: options.auth.unwrap_or(Auth::Cephx) };
    folder.write_identity(&identity)?;
    if let Some(key) = recovery_key {
        mon_recovery::print_key(&key.to_text());
    }
    Ok(identity)
}

/// Where the monitors of a new cluster are to listen.
fn monitor_addrs(options: &UpArgs, count: usize, entropy: &mut SystemEntropy) -> Result<Vec<EntityAddr>> {
    let listens = match options.mon_listen.len() {
        0 => vec![options.listen; count],
        given if given == count => options.mon_listen.clone(),
        given => bail!("--mon-listen has {given} addresses for {count} monitors"),
    };
    let mut found: Vec<SocketAddr> = Vec::new();
    for listen in listens {
        check_listen(listen)?;
        let given = options.port.filter(|_| found.is_empty());
        let socket = loop {
            let socket = SocketAddr::new(listen, given.map_or_else(|| free_port(listen, entropy), Ok)?);
            if !found.contains(&socket) {
                break socket;
            }
        };
        found.push(socket);
    }
    Ok(found.into_iter().map(|socket| EntityAddr::msgr2(socket, 0)).collect())
}

/// A port that is free now, one of `MON_PORTS` by chance; the monitor keeps it for the cluster's life.
fn free_port(listen: IpAddr, entropy: &mut impl Entropy) -> Result<u16> {
    let first = usize::try_from(entropy.u64() % MON_PORTS.len() as u64).expect("less than there are ports");
    for port in MON_PORTS.cycle().skip(first).take(PORT_TRIES) {
        match TcpListener::bind((listen, port)) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            bound => return bound.map(|_| port).with_context(|| format!("cannot listen on {listen}")),
        }
    }
    bail!("no port for a monitor: {PORT_TRIES} of {listen} in a row are taken; --port gives one")
}

/// Makes the stores side by side: each zeroes its log. Gives the bytes that each has for clients; in memory, all that it
/// can hold.
fn make_stores(
    folder: &Folder,
    store: StoreKind,
    (size_bytes, partitions): (u64, u32),
    osd_count: usize,
    device_dirs: &nacre_osd::DeviceDirs,
    entropy: &mut SystemEntropy,
) -> Result<Vec<u64>> {
    if store == StoreKind::Memory {
        if *device_dirs != nacre_osd::DeviceDirs::default() {
            bail!("--wal-dir and --meta-dir are for stores in files");
        }
        return Ok(vec![size_bytes; osd_count]);
    }
    let ids: Vec<Uuid> = (0..osd_count).map(|_| random_uuid(entropy)).collect();
    let size = (size_bytes, partitions);
    let make = |(id, uuid): (OsdId, Uuid)| nacre_osd::mkfs(&folder.osd(id), uuid, size, device_dirs, None);
    let made = side_by_side((0..).zip(ids), make);
    made.into_iter().map(|one| one.context("cannot make a store")).collect()
}

fn wait_until_up(
    folder: &Folder,
    mons: &mut Vec<mon::Running>,
    osds: &mut Hosted<'_>,
    stop: &Stop,
    clock: &RealClock,
) -> Result<()> {
    let deadline = clock.now() + BOOT_TIMEOUT;
    while !stop.is_wanted() && !osds.running().iter().all(|osd| osd.handle.is_booted()) {
        check_alive(folder, mons, osds).context("NACRE_LOG=debug shows more")?;
        if clock.now() > deadline {
            let late = osds.running().iter().filter(|osd| !osd.handle.is_booted());
            let names: Vec<String> = late.map(|osd| osd::daemon(osd.id)).collect();
            bail!("not up after {BOOT_TIMEOUT:?}: {}; NACRE_LOG=debug shows more", names.join(", "));
        }
        std::thread::sleep(START_POLL);
    }
    Ok(())
}

/// Finds out whether a daemon has ended by itself. The end of the monitors' majority is that of all daemons, an OSD's is its own.
fn check_alive(folder: &Folder, mons: &mut Vec<mon::Running>, osds: &mut Hosted<'_>) -> Result<()> {
    mon::check_alive(folder, mons)?;
    osds.check_alive()
}

fn print_welcome(
    folder: &Folder,
    identity: &Identity,
    osd_count: usize,
    clock: &RealClock,
    stock: &StockDaemons,
) {
    let (conf, keyring) = (folder.conf(), folder.keyring());
    let client = format!("-c {} -k {}", conf.display(), keyring.display());
    let seconds = clock.now().since(nacre_types::Stamp::default()).as_secs_f64();
    outln!("ready in {seconds:.2} s: cluster {} with {osd_count} OSDs up", identity.fsid);
    if identity.store == StoreKind::Memory {
        outln!("object data is in memory, gone when this process ends; maps, users and options stay");
    }
    outln!("");
    outln!("  ceph  {client} -s");
    outln!("  ceph  {client} osd pool create rbd 32");
    outln!("  rados {client} -p rbd put NAME FILE");
    outln!("  rbd   {client} pool init rbd");
    outln!("  rbd   {client} create rbd/image --size 10G");
    stock.print_welcome(&client);
    outln!("");
    outln!("Ctrl-C stops the cluster.");
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::entropy::SeededEntropy;
    use std::net::Ipv4Addr;

    #[test]
    fn a_monitors_port_is_free_and_none_that_connections_get() {
        let listen = Ipv4Addr::LOCALHOST;
        let seed = SystemEntropy::default().u64();
        let same = [SeededEntropy(seed), SeededEntropy(seed)].map(|mut entropy| {
            let port = free_port(listen.into(), &mut entropy).expect("a port");
            assert!(MON_PORTS.contains(&port), "{port}");
            (port, TcpListener::bind((listen, port)).expect("it is free"))
        });
        assert_ne!(same[0].0, same[1].0, "the first is taken");
    }
}

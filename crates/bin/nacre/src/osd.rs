//! `nacre osd`: one or more OSDs of this machine.

use crate::allocator;
use crate::files::{Address, Folder, Lock};
use crate::process::{self, Stop};
use crate::up::{ApartOptions, StoreKind, capacity_bytes, parse_size, random_uuid};
use anyhow::{Context, Result, bail};
use clap::Args;
use nacre_auth::CryptoKey;
use nacre_env::{Clock, RealClock, SystemEntropy};
use nacre_osd::{OsdConfig, OsdHandle, StoreConfig};
use nacre_types::{OsdId, Uuid};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

/// A store with less would do nothing but read its metadata.
const MEMORY_BYTES_MIN: u64 = 64 << 20;

/// Options of `nacre osd`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Folder with ceph.conf and the folders of the OSDs (osd.N).
    #[arg(long, default_value = "nacre-data")]
    dir: PathBuf,
    /// OSD to run; may be given several times. Without it: all that have a folder.
    #[arg(long)]
    id: Vec<OsdId>,
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    listen: IpAddr,
    /// Make the folder and the store of the one OSD given with --id, and end. See
    /// docs/runbooks/osd-add-remove.md.
    #[arg(long, requires = "id")]
    mkfs: bool,
    /// With --mkfs: identity of the store, as given to `ceph osd new`; random if not given.
    #[arg(long, requires = "mkfs", value_parser = parse_uuid)]
    uuid: Option<Uuid>,
    /// With --mkfs: the OSD's key, as given to `ceph osd new`; without it a key is made, and printed in the
    /// command that tells the cluster of it.
    #[arg(long, requires = "mkfs", value_parser = parse_key)]
    key: Option<CryptoKey>,
    /// With --mkfs: size of the store, in bytes or with K, M, G, T; by default a quarter of the free disk space.
    #[arg(long, requires = "mkfs", value_parser = parse_size)]
    osd_size: Option<u64>,
    #[command(flatten)]
    memory: MemoryOptions,
    #[command(flatten)]
    apart: ApartOptions,
}

/// How much memory an OSD's store may use.
#[derive(Debug, Args)]
pub(crate) struct MemoryOptions {
    /// Memory that an OSD's store keeps to, in bytes or with K, M, G, T; at least 64M. What clients have under way comes
    /// on top.
    #[arg(long, default_value = "1G", value_parser = parse_memory)]
    osd_memory_target: u64,
}

impl MemoryOptions {
    pub(crate) fn bytes(&self) -> usize {
        usize::try_from(self.osd_memory_target).unwrap_or(usize::MAX)
    }
}

fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    if bytes < MEMORY_BYTES_MIN { Err("a store needs at least 64M".to_owned()) } else { Ok(bytes) }
}

fn parse_uuid(text: &str) -> Result<Uuid, String> {
    Uuid::parse(text).ok_or_else(|| "no UUID".to_owned())
}

fn parse_key(text: &str) -> Result<CryptoKey, String> {
    CryptoKey::parse(text).map_err(|error| error.to_string())
}

/// What OSDs of one process have in common.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    pub(crate) address: Address,
    pub(crate) listen: IpAddr,
    pub(crate) shards: usize,
    pub(crate) store: StoreKind,
    /// Size of a store in memory.
    pub(crate) capacity_bytes: u64,
    /// Memory that another store keeps to.
    pub(crate) memory_bytes: usize,
}

/// An OSD that runs in this process.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) id: OsdId,
    pub(crate) handle: OsdHandle,
    _lock: Lock,
}

/// Name of an OSD among the daemons of a folder.
pub(crate) fn daemon(id: OsdId) -> String {
    format!("osd.{id}")
}

/// The machine, as CRUSH and people know it.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let short = name.trim().split('.').next().unwrap_or_default();
    if short.is_empty() { "localhost".to_owned() } else { short.to_owned() }
}

/// Locks OSDs of a folder, so that no other process runs them.
pub(crate) fn lock_all(folder: &Folder, ids: &[OsdId]) -> Result<Vec<(OsdId, Lock)>> {
    ids.iter().map(|id| Ok((*id, folder.lock_osd(*id)?))).collect()
}

/// Starts OSDs side by side: opening a store takes a while after a crash. They boot as soon as they reach a monitor.
pub(crate) fn start_all(
    folder: &Folder,
    locked: Vec<(OsdId, Lock)>,
    setting: &Setting,
) -> Result<Vec<Running>> {
    let started = process::side_by_side(locked, |(id, lock)| start(folder, id, lock, setting));
    started.into_iter().collect()
}

fn start(folder: &Folder, id: OsdId, lock: Lock, setting: &Setting) -> Result<Running> {
    let (uuid, key) = folder.read_osd(id)?;
    let store = match setting.store {
        StoreKind::File => StoreConfig::File { folder: folder.osd(id), memory_bytes: setting.memory_bytes },
        StoreKind::Memory => StoreConfig::Memory { capacity_bytes: setting.capacity_bytes },
    };
    let config = OsdConfig {
        id,
        uuid,
        fsid: setting.address.fsid,
        key,
        monitors: setting.address.monitors.clone(),
        methods: setting.address.auth.methods(),
        listen: setting.listen,
        shards: setting.shards,
        store,
        host: host_name(),
        give_back_memory: allocator::give_back,
    };
    let handle = nacre_osd::start(&config).with_context(|| format!("cannot start osd.{id}"))?;
    Ok(Running { id, handle, _lock: lock })
}

/// Makes an OSD's folder: its identity last, so that what was left by half is no OSD.
fn mkfs(folder: &Folder, options: &Options) -> Result<()> {
    let [id] = options.id[..] else { bail!("--mkfs makes one OSD: give one --id") };
    if folder.osds()?.contains(&id) {
        bail!("{} holds an OSD; remove it if it is not needed any more", folder.osd(id).display());
    }
    std::fs::create_dir_all(folder.osd(id)).with_context(|| folder.osd(id).display().to_string())?;
    let _lock = folder.lock_osd(id)?;
    let mut entropy = SystemEntropy::default();
    let size = capacity_bytes(folder, options.osd_size, StoreKind::File, 1)?;
    nacre_osd::mkfs(&folder.osd(id), random_uuid(&mut entropy), size, &options.apart.apart())
        .with_context(|| format!("cannot make the store of osd.{id}"))?;
    let uuid = options.uuid.unwrap_or_else(|| random_uuid(&mut entropy));
    let made = options.key.is_none();
    let key =
        options.key.clone().unwrap_or_else(|| CryptoKey::generate(&mut entropy, RealClock::start().wall()));
    folder.write_osd(id, uuid, &key)?;
    println!("osd.{id} made in {} with {size} bytes, store {uuid}", folder.osd(id).display());
    if made {
        let keyring = folder.osd(id).join("keyring");
        println!("if the cluster does not have its key yet:");
        println!(
            "  ceph auth add osd.{id} mon 'allow profile osd' mgr 'allow profile osd' osd 'allow *' -i {}",
            keyring.display()
        );
    }
    Ok(())
}

/// Runs until SIGTERM or Ctrl-C.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.mkfs {
        return mkfs(&Folder::open(&options.dir)?, options);
    }
    let stop = Stop::register()?;
    process::check_listen(options.listen)?;
    let folder = Folder::open(&options.dir)?;
    let ids = if options.id.is_empty() {
        folder.osds()?
    } else {
        options.id.iter().copied().collect::<BTreeSet<_>>().into_iter().collect()
    };
    if ids.is_empty() {
        bail!("{} has no OSD", folder.path().display());
    }
    let in_memory = folder.identity()?.is_some_and(|identity| identity.store == StoreKind::Memory);
    if in_memory {
        bail!("{} keeps objects in memory: such OSDs run only inside `nacre up`", folder.path().display());
    }
    let setting = Setting {
        address: folder.address()?,
        listen: options.listen,
        shards: 1,
        store: StoreKind::File,
        capacity_bytes: 0,
        memory_bytes: options.memory.bytes(),
    };
    let locked = lock_all(&folder, &ids)?;
    // Opening a store takes a while after a crash; who wants to end us meanwhile must find us.
    ids.iter().try_for_each(|id| folder.write_pid(&daemon(*id)))?;
    let osds = start_all(&folder, locked, &setting)?;
    let outcome = host(&osds, &stop);
    ids.iter().for_each(|id| folder.remove_pid(&daemon(*id)));
    stop_all(osds);
    outcome
}

/// Says of each OSD when it is up, and waits for the end.
fn host(osds: &[Running], stop: &Stop) -> Result<()> {
    let mut booting: Vec<&Running> = osds.iter().collect();
    stop.watch(|| {
        let mut up = Vec::new();
        booting.retain(|osd| {
            let booted = osd.handle.is_booted();
            up.extend(booted.then_some(osd.id));
            !booted
        });
        for id in up {
            process::say_ready(&daemon(id))?;
            println!("osd.{id} is up");
        }
        match osds.iter().find(|osd| osd.handle.has_failed()) {
            Some(osd) => bail!("osd.{} ended; its last log lines say why", osd.id),
            None => Ok(()),
        }
    })
}

/// Stops OSDs side by side: each takes leave of the monitor first.
pub(crate) fn stop_all(osds: Vec<Running>) {
    process::side_by_side(osds, |osd| osd.handle.stop());
}

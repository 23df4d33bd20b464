//! `nacre osd`: one or more OSDs of this machine.

use crate::allocator;
use crate::args::{OsdArgs, StoreKind, check_listen};
use crate::crash_reports;
use crate::dmcrypt;
use crate::files::{Address, Folder};
use crate::locks::Lock;
use crate::machine::{capacity_bytes, host_name, machine_facts};
use crate::osd_folder::OsdFolder;
use crate::sd_notify;
use crate::signals::Stop;
use anyhow::{Context, Result, bail};
use nacre_auth::CryptoKey;
use nacre_env::outln;
use nacre_env::real::private;
use nacre_env::{Clock, RealClock, SystemEntropy};
use nacre_osd::{Bind, OsdConfig, OsdHandle, StoreConfig};
use nacre_types::{EntityAddr, Entropy, OsdId, Uuid};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

/// What OSDs of one process have in common.
#[derive(Debug, Clone)]
pub(crate) struct OsdDefaults {
    pub(crate) address: Address,
    pub(crate) listen: IpAddr,
    /// Threads; as many as each store was made for if not given.
    pub(crate) shards: Option<usize>,
    pub(crate) store: StoreKind,
    /// Size of a store in memory.
    pub(crate) capacity_bytes: u64,
    /// Memory that another store keeps to.
    pub(crate) memory_bytes: usize,
    /// Ends the wait for keys of encrypted stores.
    pub(crate) stop: Stop,
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

/// Locks OSDs of a folder, so that no other process runs them.
pub(crate) fn lock_all(folder: &Folder, ids: &[OsdId]) -> Result<Vec<(OsdId, Lock)>> {
    ids.iter().map(|id| Ok((*id, folder.lock_osd(*id)?))).collect()
}

/// The OSDs of this process. One that fails ends alone.
#[derive(Debug)]
pub(crate) struct Hosted<'a> {
    folder: &'a Folder,
    running: Vec<Running>,
    /// Those that could not start or ended by themselves, and why as far as we know.
    ended: Vec<(OsdId, String)>,
    panicked: bool,
}

/// What an operator who reads our last line is told of an OSD that ended.
const SEE_LOG: &str = "its last log lines say why";

impl<'a> Hosted<'a> {
    /// Starts OSDs side by side: opening a store takes a while after a crash. They boot as soon as they reach a monitor. One that
    /// cannot start, since its device is gone say, keeps no other from it; one that is encrypted and waits for its key keeps all waiting.
    ///
    /// # Errors
    /// When none starts.
    pub(crate) fn start(
        folder: &'a Folder,
        locked: Vec<(OsdId, Lock)>,
        defaults: &OsdDefaults,
    ) -> Result<Self> {
        let count = locked.len() as u64;
        let started = side_by_side(locked, |(id, lock)| (id, start(folder, (id, lock), count, defaults)));
        let mut hosted = Self { folder, running: Vec::new(), ended: Vec::new(), panicked: false };
        let mut first = None;
        for (id, outcome) in started {
            match outcome {
                Ok(running) => hosted.running.push(running),
                Err(error) => {
                    // What lies deeper each level has said already.
                    let said: Vec<String> = error.chain().take(2).map(ToString::to_string).collect();
                    hosted.note(id, &said.join(": "));
                    first.get_or_insert(error);
                }
            }
        }
        match first {
            Some(error) if hosted.running.is_empty() => Err(error),
            _ => Ok(hosted),
        }
    }

    fn note(&mut self, id: OsdId, why: &str) {
        outln!("osd.{id} is not running: {why}");
        tracing::error!(osd = id, why, "this OSD does not start; the others of this process go on");
        self.folder.remove_pid(&daemon(id));
        self.ended.push((id, why.to_owned()));
    }

    /// Those that run.
    pub(crate) fn running(&self) -> &[Running] {
        &self.running
    }

    /// Finds out which have ended by themselves since the last look, and lets go of what they held.
    ///
    /// # Errors
    /// When none is left, or one of them panicked: what threads of this process share may be left by half then.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        let failed = |osd: &mut Running| osd.handle.has_failed();
        let gone: Vec<Running> = self.running.extract_if(.., failed).collect();
        for osd in gone {
            let Running { id, handle, _lock } = osd;
            // Its other threads end, too.
            self.panicked |= handle.stop().is_err();
            self.note(id, SEE_LOG);
        }
        if self.panicked {
            bail!("a thread of this process panicked; all its daemons stop");
        }
        match &self.ended[..] {
            [] => Ok(()),
            _ if !self.running.is_empty() => Ok(()),
            [(id, why)] => bail!("osd.{id} ended; {why}"),
            _ => bail!("all OSDs of this process have ended; their last log lines say why"),
        }
    }

    /// Stops what runs, side by side: each takes leave of the monitor first.
    ///
    /// # Errors
    /// When some had ended before: the exit code is to say that it did not do all of its work.
    pub(crate) fn stop(self) -> Result<()> {
        let panicked = side_by_side(self.running, |osd| {
            self.folder.remove_pid(&daemon(osd.id));
            osd.handle.stop().is_err()
        });
        if panicked.contains(&true) {
            bail!("a thread panicked");
        }
        match self.ended.is_empty() {
            true => Ok(()),
            false => {
                let names: Vec<String> =
                    self.ended.iter().map(|(id, why)| format!("{}: {why}", daemon(*id))).collect();
                bail!("had ended before: {}", names.join("; "))
            }
        }
    }
}

/// `count` OSDs run in this process, this one among them.
fn start(folder: &Folder, (id, lock): (OsdId, Lock), count: u64, defaults: &OsdDefaults) -> Result<Running> {
    let (uuid, key) = folder.read_osd(id)?;
    let store = match defaults.store {
        StoreKind::File => {
            let place = OsdFolder::new(&folder.osd(id));
            let key =
                dmcrypt::key_of(&place, uuid, &defaults.address.monitors, &|| defaults.stop.is_wanted());
            let key = key.with_context(|| format!("cannot start osd.{id}"))?;
            StoreConfig::File { folder: folder.osd(id), memory_bytes: defaults.memory_bytes, key }
        }
        StoreKind::Memory => StoreConfig::Memory { capacity_bytes: defaults.capacity_bytes },
    };
    let config = OsdConfig {
        id,
        uuid,
        fsid: defaults.address.fsid,
        key,
        monitors: defaults.address.monitors.clone(),
        methods: defaults.address.auth.methods(),
        bind: Bind::any_port(defaults.listen),
        ceph: None,
        shards: defaults.shards,
        store,
        host: host_name(),
        machine_facts: machine_facts(),
        admin_socket: Some(folder.admin_socket(&daemon(id))?),
        process_memory_bytes: defaults.memory_bytes as u64 * count,
        give_back_memory: allocator::give_back,
    };
    let handle = nacre_osd::start(&config).with_context(|| format!("cannot start osd.{id}"))?;
    Ok(Running { id, handle, _lock: lock })
}

pub(crate) fn random_uuid(entropy: &mut SystemEntropy) -> Uuid {
    let mut bytes = [0; 16];
    entropy.fill(&mut bytes);
    Uuid::from_random(bytes)
}

/// Does `work` for all `items` at a time, each on a thread of its own, and waits for all of them.
///
/// # Panics
/// When one of them does.
pub(crate) fn side_by_side<T: Send, R: Send>(
    items: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = items.into_iter().map(|item| scope.spawn(move || work(item))).collect();
        threads.into_iter().map(|thread| thread.join().expect("daemons do not panic")).collect()
    })
}

/// Makes an OSD's folder: its identity last, so that what was left by half is no OSD.
fn mkfs(folder: &Folder, options: &OsdArgs) -> Result<()> {
    let [id] = options.id[..] else { bail!("--mkfs makes one OSD: give one --id") };
    // Not known on a machine where nobody has put the ceph.conf yet.
    let address = folder.address();
    let cluster = address.as_ref().map_or(Uuid::NIL, |address| address.fsid);
    let monitors = address.map(|address| address.monitors);
    make(folder, &OsdFolder::new(&folder.osd(id)), (cluster, id), monitors, options)
}

/// Makes the store of an OSD of a cluster in `place`, on the file system of `folder` or on devices. An encrypted one's key comes from the
/// monitors.
pub(crate) fn make(
    folder: &Folder,
    place: &OsdFolder,
    (cluster, id): (Uuid, OsdId),
    monitors: Result<Vec<EntityAddr>>,
    options: &OsdArgs,
) -> Result<()> {
    let shown = place.path().display();
    if place.is_made() {
        bail!("{shown} holds an OSD; remove it if it is not needed any more");
    }
    private::make_folder(place.path()).with_context(|| shown.to_string())?;
    let _lock = place.lock()?;
    let mut entropy = SystemEntropy::default();
    let store = random_uuid(&mut entropy);
    let uuid = options.uuid.unwrap_or_else(|| random_uuid(&mut entropy));
    let lockbox = options.encryption.lockbox_key()?;
    let lockbox = lockbox.as_ref();
    let key = match lockbox {
        Some(lockbox) => {
            Some(dmcrypt::key_for_new(&monitors.context("--dmcrypt asks the monitors")?, uuid, lockbox)?)
        }
        None => None,
    };
    let partitions = options.shards.unwrap_or(1);
    let outcome = match options.raw.devices(partitions) {
        Some(devices) => {
            let owner = nacre_osd::Owner { cluster, osd: id, osd_uuid: uuid, store };
            nacre_osd::mkfs_on_devices(place.path(), owner, &devices, key.as_ref())
        }
        None => {
            let size = capacity_bytes(folder, options.osd_size, StoreKind::File, 1)?;
            let dirs = options.device_dirs.device_dirs();
            nacre_osd::mkfs(place.path(), store, (size, partitions), &dirs, key.as_ref()).map(|_| size)
        }
    };
    let size = outcome.with_context(|| format!("cannot make the store of osd.{id}"))?;
    let is_elsewhere = options.ceph.as_ref().is_some_and(|ceph| ceph.keyring.is_some());
    let made = options.key.is_none() && !is_elsewhere;
    let generate = || CryptoKey::generate(&mut SystemEntropy::default(), RealClock::start().wall());
    let key = options.key.clone().or_else(|| made.then(generate));
    place.write_lockbox_keyring(lockbox.map(|lockbox| dmcrypt::lockbox_text(uuid, lockbox)).as_deref())?;
    place.write_identity(id, uuid, key.as_ref())?;
    let encrypted = if lockbox.is_some() { ", encrypted" } else { "" };
    outln!("osd.{id} made in {shown} with {size} bytes, store {uuid}{encrypted}");
    if made {
        let keyring = place.keyring();
        outln!("if the cluster does not have its key yet:");
        outln!(
            "  ceph auth add osd.{id} mon 'allow profile osd' mgr 'allow profile osd' osd 'allow *' -i {}",
            keyring.display()
        );
    }
    Ok(())
}

/// Runs until SIGTERM or Ctrl-C.
pub(crate) fn run(options: &OsdArgs) -> Result<()> {
    if options.mkfs {
        return mkfs(&Folder::open(&options.dir)?, options);
    }
    if options.encryption.rotate_dmcrypt_key {
        let [id] = options.id[..] else { bail!("--rotate-dmcrypt-key is for one OSD: give one --id") };
        return dmcrypt::rotate(&Folder::open(&options.dir)?, id);
    }
    if options.device_dirs.is_given() {
        bail!(
            "--wal-dir and --meta-dir are for a new store, with --mkfs; docs/runbooks/raw-devices.md says how log and metadata of one that is \
             there are moved"
        );
    }
    let stop = Stop::register()?;
    let listen = options.listen.unwrap_or(Ipv4Addr::LOCALHOST.into());
    check_listen(listen)?;
    let folder = Folder::open(&options.dir)?;
    let ids = if options.id.is_empty() {
        folder.osds()?
    } else {
        options.id.iter().copied().collect::<BTreeSet<_>>().into_iter().collect()
    };
    let Some(first) = ids.first() else {
        bail!("{} has no OSD", folder.path().display());
    };
    crash_reports::begin(&folder, &daemon(*first));
    let in_memory = folder.identity()?.is_some_and(|identity| identity.store == StoreKind::Memory);
    if in_memory {
        bail!("{} keeps objects in memory: such OSDs run only inside `nacre up`", folder.path().display());
    }
    let defaults = OsdDefaults {
        address: folder.address()?,
        listen,
        shards: options.shards.map(|shards| shards as usize),
        store: StoreKind::File,
        capacity_bytes: 0,
        memory_bytes: options.memory.bytes(),
        stop: stop.clone(),
    };
    let locked = lock_all(&folder, &ids)?;
    // Opening a store takes a while after a crash; an operator who wants to end the process meanwhile must find its pid file.
    ids.iter().try_for_each(|id| folder.write_pid(&daemon(*id)))?;
    let outcome = Hosted::start(&folder, locked, &defaults);
    let mut hosted = outcome.inspect_err(|_| ids.iter().for_each(|id| folder.remove_pid(&daemon(*id))))?;
    let outcome = host(&mut hosted, &stop);
    // The first reason is the one that counts.
    let stopped = hosted.stop();
    outcome.and(stopped)
}

/// Says of each OSD when it is up, and waits for the end.
fn host(hosted: &mut Hosted<'_>, stop: &Stop) -> Result<()> {
    let mut said = BTreeSet::new();
    stop.watch(|| {
        for osd in hosted.running().iter().filter(|osd| osd.handle.is_booted()) {
            if said.insert(osd.id) {
                sd_notify::say_ready(&daemon(osd.id))?;
                outln!("osd.{} is up", osd.id);
            }
        }
        hosted.check_alive()
    })
}

//! An OSD keeps to its memory target (docs/memory.md): each runs in a cgroup of the kernel's with a fifth more than that, and is
//! killed if it needs more, while clients do what takes memory.
#![allow(clippy::print_stderr, reason = "what was measured is to be read")]

use nacre_interop::{Client, Cluster, MemoryCgroup, Shell, Wire};
use nacre_types::EntityKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// As little as the contract is for.
const TARGET_BYTES: u64 = 256 * MIB;
/// For 250 PGs.
const MANY_PGS_TARGET_BYTES: u64 = 450 * MIB;
/// How often memory is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// OSDs that are looked at, one process each.
const OSDS: u32 = 3;

/// A cluster each of whose OSDs is in a cgroup of its own.
struct Rig {
    /// Its processes end before the cgroups go.
    cluster: Cluster,
    cgroups: Vec<Arc<MemoryCgroup>>,
    shell: Shell,
    target_bytes: u64,
}

impl Rig {
    /// `None` where there can be no such cgroups, or the daemons are not ours.
    fn start(target_bytes: u64, pg_num: u32) -> Option<Self> {
        Self::of(target_bytes, || Cluster::start_processes(OSDS), pg_num)
    }

    fn of(target_bytes: u64, start: impl FnOnce() -> Option<Cluster>, pg_num: u32) -> Option<Self> {
        let mut cgroups = Vec::new();
        for osd in 0..OSDS {
            match MemoryCgroup::new(&format!("{target_bytes}-{osd}"), target_bytes / 5 * 6) {
                Ok(cgroup) => cgroups.push(Arc::new(cgroup)),
                Err(why) => {
                    eprintln!("skipped: {why}");
                    return None;
                }
            }
        }
        let cluster = start()?;
        let shell = cluster.pool("memory", pg_num);
        let files: Vec<String> =
            cgroups.iter().map(|cgroup| cgroup.processes().display().to_string()).collect();
        let shell = shell.with("CGROUPS", files.join(":")).with("TARGET", target_bytes);
        let rig = Self { cluster, cgroups, shell, target_bytes };
        rig.run("move", 0);
        Some(rig)
    }

    fn run(&self, load: &str, seconds: u64) {
        let shell = self.shell.with("LOAD", load).with("SECONDS", seconds).within(600);
        shell.python(concat!(include_str!("gone.py"), include_str!("memory.py")));
    }

    fn pids(&self) -> String {
        self.shell.sh("cat $DIR/run/osd.*.pid")
    }

    /// Does `work` while all cgroups are looked at, and says what they needed at most.
    fn watch(&self, what: &str, work: impl FnOnce()) {
        let watches: Vec<Watch> =
            self.cgroups.iter().map(|cgroup| Watch::begin(Arc::clone(cgroup))).collect();
        work();
        let most: Vec<u64> = watches.into_iter().map(|watch| watch.end() / MIB).collect();
        eprintln!(
            "{what}: {most:?} MiB of {}, limit {}",
            self.target_bytes / MIB,
            self.target_bytes / 5 * 6 / MIB
        );
        let kills: Vec<u64> = self.cgroups.iter().map(|cgroup| cgroup.kills()).collect();
        assert_eq!(kills, vec![0; self.cgroups.len()], "{what}: OSDs were killed for their memory");
    }

    /// Runs a load that leaves all OSDs running.
    fn endure(&self, load: &str, seconds: u64) {
        let before = self.pids();
        self.watch(load, || self.run(load, seconds));
        assert_eq!(self.pids(), before, "{load}: the same processes");
    }

    /// Holds connections, each of which asks for something again and again.
    fn connect(&self, count: usize) {
        let mut client = Client::new(&self.cluster);
        let map = client.osdmap().expect("a map, and tickets");
        let open = |osd| client.daemon(EntityKind::OSD, map.client_addr(osd).expect("it is up").front());
        let osds = (0..OSDS.cast_signed()).flat_map(|osd| std::iter::repeat_n(osd, count));
        let mut wires: Vec<Wire> = osds.map(|osd| open(osd).expect("a session")).collect();
        // A keepalive each, and again: all of them have something to read and to write.
        for _ in 0..3 {
            for wire in &mut wires {
                wire.keep_alive().expect("the connection holds");
            }
            for wire in &mut wires {
                wire.take().expect("the connection holds");
            }
        }
    }
}

/// Looks at a cgroup's memory from a thread of its own.
struct Watch {
    stop: Arc<AtomicBool>,
    most: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Watch {
    fn begin(cgroup: Arc<MemoryCgroup>) -> Self {
        let (stop, most) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (told, seen) = (Arc::clone(&stop), Arc::clone(&most));
        let thread = std::thread::spawn(move || {
            while !told.load(Ordering::Acquire) {
                seen.fetch_max(cgroup.anonymous_bytes(), Ordering::AcqRel);
                std::thread::sleep(LOOK_INTERVAL);
            }
        });
        Self { stop, most, thread }
    }

    /// The most that was seen, in bytes.
    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("it only looks");
        self.most.load(Ordering::Acquire)
    }
}

#[test]
fn osds_with_a_fifth_above_their_target_are_not_killed_by_what_clients_do() {
    let Some(rig) = Rig::start(TARGET_BYTES, 16) else { return };
    rig.endure("unaligned", 3);
    rig.endure("omap", 2);
    rig.endure("deep", 2);
    rig.endure("frozen", 2);
    rig.watch("300 connections", || rig.connect(300));
}

/// With as many PGs as an OSD is to have at most by default, and the memory that these want.
#[test]
#[ignore = "a quarter of an hour: cargo test -p nacre-interop --test all memory:: -- --ignored --nocapture"]
fn osds_are_not_killed_by_anything_for_minutes() {
    // What all loads leave is three quarters of a gigabyte.
    let start = || Cluster::start_sized(OSDS, "3G");
    let Some(rig) = Rig::of(MANY_PGS_TARGET_BYTES, start, 250) else { return };
    for load in ["unaligned", "omap", "deep", "frozen"] {
        rig.endure(load, 60);
    }
    rig.watch("1,000 connections", || rig.connect(1000));
    rig.watch("recovery", || rig.run("recovery", 60));
    rig.endure("scrub", 0);
    rig.endure("unaligned,omap,deep", 30);
}

/// What costs memory beside that: a store divided between threads, data that are compressed, connections that are encrypted, chunks.
#[test]
#[ignore = "minutes: cargo test -p nacre-interop --test all memory:: -- --ignored --nocapture"]
fn osds_of_two_threads_are_not_killed_by_compressed_encrypted_and_coded_data() {
    let Some(mut rig) = Rig::of(TARGET_BYTES, || Cluster::start_sharded(OSDS, 2), 16) else { return };
    for load in ["unaligned", "omap", "deep", "frozen"] {
        rig.endure(load, 10);
    }
    rig.shell.sh(
        "ceph osd pool set $POOL compression_mode force; ceph osd pool set $POOL compression_algorithm zstd",
    );
    for load in ["unaligned", "deep"] {
        rig.endure(load, 10);
    }
    // Of clients in SECURE mode each byte is there once more, decrypted.
    rig.shell.sh("printf '[global]\nms_client_mode = secure\n' >> $CEPH_CONF; [ $(ceph-conf -n client.admin --show-config-value ms_client_mode) = secure ]");
    for load in ["deep", "frozen"] {
        rig.endure(load, 10);
    }
    rig.shell.sh(
        "ceph osd erasure-code-profile set two k=2 m=1 crush-failure-domain=osd; ceph osd pool create coded 16 16 erasure two
        ceph osd pool set coded allow_ec_overwrites true; ceph osd pool application enable coded rados",
    );
    rig.cluster.await_clean();
    rig.shell = rig.shell.with("POOL", "coded");
    for load in ["unaligned", "deep"] {
        rig.endure(load, 10);
    }
}

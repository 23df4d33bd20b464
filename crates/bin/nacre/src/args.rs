//! The command line: subcommands, their arguments, and how these are read. What they do is in `up`, `mon` and `osd`.

use crate::device_args::{DeviceArgs, RawDeviceArgs};
use crate::dmcrypt_args::DmcryptArgs;
use anyhow::{Result, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use nacre_auth::{AuthMethod, CryptoKey};
use nacre_store_tool::parse_size;
use nacre_types::{OsdId, Uuid};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A store with less would do nothing but read its metadata.
const MEMORY_BYTES_MIN: u64 = 64 << 20;

/// A storage cluster that speaks the Ceph wire protocol.
#[derive(Debug, Parser)]
#[command(name = "nacre", version, about)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a whole cluster on this machine: one monitor or several, and some OSDs, in this process or in several.
    Up(UpArgs),
    /// Run a monitor of a cluster; or make one, move one, remove one.
    Mon(MonArgs),
    /// Run OSDs of a cluster.
    Osd(OsdArgs),
    /// What clients may feel of recovery, and when it will have ended.
    #[command(subcommand)]
    Recovery(RecoveryCommand),
    /// Say which clients and images the OSDs spend their processor time on.
    Bill(BillArgs),
    /// Measure how long a synchronous write takes on this host, again and again, and tell the cluster, whose metrics show it.
    Probe(ProbeArgs),
    /// Look at, check, repair and move what a stopped OSD keeps; measure a store.
    #[command(subcommand)]
    Store(nacre_store_tool::Command),
    /// Measure clusters, and say which of two is better.
    #[command(subcommand)]
    Bench(nacre_bench::Command),
    /// Say what is wrong with this machine and with a cluster, the costliest first.
    Doctor(nacre_doctor::Options),
    /// Watch a cluster, and say where the time goes that clients wait for it.
    WhySlow(nacre_doctor::WhySlowOptions),
    /// Show how a cluster is, in this terminal and every second.
    Top(nacre_top::Options),
}

impl Command {
    /// As which user a daemon is to run, and in which folder; none for what is no daemon.
    pub(crate) fn user(&self) -> Option<(Option<&str>, &Path)> {
        match self {
            Self::Up(args) => Some(args.user()),
            Self::Mon(args) => Some(args.user()),
            Self::Osd(args) => Some(args.user()),
            Self::Bill(_)
            | Self::Probe(_)
            | Self::Recovery(_)
            | Self::Store(_)
            | Self::Bench(_)
            | Self::Doctor(_)
            | Self::WhySlow(_)
            | Self::Top(_) => None,
        }
    }
}

/// Options of `nacre probe`.
#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    /// Pool to write to.
    #[arg(long)]
    pub(crate) pool: String,
    /// Seconds between two writes.
    #[arg(long, default_value_t = 1.0, value_parser = parse_interval)]
    pub(crate) interval: f64,
    /// Bytes of a write, at most 64K.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..=65536))]
    pub(crate) size: u64,
    /// Seconds after which a write without an answer has failed.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) timeout: u64,
    /// Ends after so many seconds; by default with SIGTERM.
    #[arg(long)]
    pub(crate) seconds: Option<u64>,
    /// Client of the keyring; it needs the caps osd 'allow rw pool=POOL namespace=NAMESPACE' and mon 'allow r, allow command "probe report"'.
    #[arg(long, default_value = "admin")]
    pub(crate) id: String,
    /// Namespace of its objects, none of which stays.
    #[arg(long, default_value = ".nacre-probe")]
    pub(crate) namespace: String,
    /// Folder with `ceph.conf` and `keyring`.
    #[arg(long, default_value = "nacre-data")]
    pub(crate) dir: PathBuf,
    /// Instead of the folder's `ceph.conf`.
    #[arg(long)]
    pub(crate) conf: Option<PathBuf>,
    /// Instead of the folder's `keyring`.
    #[arg(long)]
    pub(crate) keyring: Option<PathBuf>,
}

/// Options of `nacre bill`.
#[derive(Debug, Args)]
pub(crate) struct BillArgs {
    /// Folder of the cluster, or any with its `ceph.conf` and `keyring`.
    #[arg(long, default_value = "nacre-data")]
    pub(crate) dir: PathBuf,
    /// How many seconds back, 5 to 120.
    #[arg(long, default_value_t = 30)]
    pub(crate) seconds: u64,
    /// How many lines, the costliest first.
    #[arg(long, default_value_t = 20)]
    pub(crate) limit: u64,
    /// Print JSON in place of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `nacre up`.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Folder of the cluster; made if it does not exist.
    #[arg(long, default_value = "nacre-data")]
    pub(crate) dir: PathBuf,
    /// Started as root: go on as this user (a name, or numbers as USER:GROUP), which owns the folder.
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// Number of OSDs of a new cluster; an existing one keeps its own.
    #[arg(long)]
    pub(crate) osds: Option<usize>,
    /// Number of monitors of a new cluster, an odd one: a majority of them must run. An existing cluster keeps its own.
    #[arg(long)]
    pub(crate) mons: Option<usize>,
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) listen: IpAddr,
    /// Addresses of a new cluster's monitors, one for each with commas between them, instead of that of --listen.
    #[arg(long, value_delimiter = ',')]
    pub(crate) mon_listen: Vec<IpAddr>,
    /// Port of the first monitor of a new cluster; a free one between 20000 and 32000 if not given, as those of the others are.
    #[arg(long)]
    pub(crate) port: Option<u16>,
    /// Threads per OSD, each with parts of its store: those of a new cluster in files are made for as many, one if not given, and never have
    /// more. In memory by default as many as the machine has processors for each OSD, at least one.
    #[arg(long, value_parser = parse_shards)]
    pub(crate) shards: Option<u32>,
    /// Size of an OSD's store, in bytes or with K, M, G, T, which a new store takes from the disk at once; by default 10G, or its
    /// part of a quarter of the free disk space if that is less. In memory its part of half the memory. Only for a new cluster, or in memory.
    #[arg(long, value_parser = parse_size)]
    pub(crate) osd_size: Option<u64>,
    #[command(flatten)]
    pub(crate) device_dirs: DeviceArgs,
    /// Options of a new cluster, as `ceph config set global NAME VALUE` sets them later; may be given several times.
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub(crate) options: Vec<(String, String)>,
    /// How clients prove who they are; a cluster keeps what it was last given.
    #[arg(long, value_enum)]
    pub(crate) auth: Option<Auth>,
    /// Where a new cluster keeps objects; an existing one keeps its own.
    #[arg(long, value_enum)]
    pub(crate) store: Option<StoreKind>,
    /// Run each daemon as a process of its own, with pid files in run/ and logs in log/.
    #[arg(long)]
    pub(crate) processes: bool,
    /// With --processes: start a daemon again that has ended.
    #[arg(long, requires = "processes")]
    pub(crate) restart: bool,
    /// Start Debian's radosgw, too: S3 at this port of --listen.
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "7480")]
    pub(crate) rgw: Option<u16>,
    /// Start Debian's ceph-mds, too. A cluster without a file system gets one, cephfs.
    #[arg(long)]
    pub(crate) mds: bool,
    #[command(flatten)]
    pub(crate) memory: MemoryOptions,
}

impl UpArgs {
    /// As which user to run, and in which folder.
    pub(crate) fn user(&self) -> (Option<&str>, &Path) {
        (self.user.as_deref(), &self.dir)
    }
}

/// Options of `nacre mon`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct MonArgs {
    #[command(subcommand)]
    pub(crate) command: Option<MonCommand>,
    /// Which monitor of the cluster.
    #[arg(long, default_value = "a")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}

/// Where a monitor's files are, and whose.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// Folder of the cluster, made by `nacre up`, or with its ceph.conf and keyring.
    #[arg(long, default_value = "nacre-data")]
    pub(crate) dir: PathBuf,
    /// Started as root: go on as this user (a name, or numbers as USER:GROUP), which owns the folder.
    #[arg(long)]
    pub(crate) user: Option<String>,
}

/// What is done about monitors besides running one. docs/runbooks/mon-add-remove.md says when.
#[derive(Debug, Subcommand)]
pub(crate) enum MonCommand {
    /// Make the store of a new monitor of a cluster that runs, or of one whose store is lost. `nacre mon` runs it then.
    Join {
        /// Name of the monitor that is to be made.
        #[arg(long)]
        name: String,
        /// Where it is to listen, as IP or IP:PORT; needed when the cluster does not know it yet.
        #[arg(long)]
        addr: Option<String>,
        /// It votes and keeps what is committed, and leads only while no other can: for a third site that is far away or small.
        #[arg(long)]
        witness: bool,
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Remove a monitor from a cluster that runs; its process ends.
    Rm {
        /// Name of the monitor that is to go.
        #[arg(long)]
        name: String,
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Give a monitor of a cluster that runs another address.
    Move {
        /// Name of the monitor that is to move.
        #[arg(long)]
        name: String,
        /// Where it is to listen from now on, as IP:PORT.
        addr: String,
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Give monitors other addresses in the store of one that does not run; to be done alike to the store of each.
    SetAddrs {
        /// The monitor whose store it is.
        #[arg(long)]
        name: String,
        /// NAME=IP:PORT, for each monitor that moves.
        #[arg(required = true)]
        addrs: Vec<String>,
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Begin anew with one monitor, by what one has left, or by what OSDs have kept, when most of the monitors are lost for good, or all.
    /// Whatever others still have is not part of the cluster any more.
    Recover {
        /// Folder of a monitor's store that is left, such as nacre-data/mon.b; it stays as it is.
        #[arg(long, required_unless_present = "from_osd", conflicts_with = "from_osd")]
        from: Option<PathBuf>,
        /// Folders of OSDs that are stopped, such as nacre-data/osd.0, when no monitor's store is left; they stay as they are. One is
        /// enough; the more, the surer is the newest map among theirs.
        #[arg(long, num_args = 1.., requires = "recovery_key")]
        from_osd: Vec<PathBuf>,
        /// The recovery key that was shown when the cluster was made, or when it was rotated last; - reads it from standard input.
        #[arg(long, requires = "from_osd")]
        recovery_key: Option<String>,
        /// Files with the keys of encrypted OSDs, as a copy of `ceph config-key get dm-crypt/osd/UUID/luks` has them.
        #[arg(long = "key-file", requires = "from_osd")]
        key_files: Vec<PathBuf>,
        /// Name of the monitor with which the cluster goes on.
        #[arg(long)]
        name: String,
        /// Where it is to listen, as IP or IP:PORT.
        #[arg(long)]
        addr: String,
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Show which OSDs keep what the recovery key opens; or make another key. The key itself is shown once, when it is made.
    RecoveryKey {
        /// Make another key and show it; the one before opens nothing from then on.
        #[arg(long)]
        rotate: bool,
        #[command(flatten)]
        place: PlaceArgs,
    },
}

impl MonArgs {
    /// As which user to run, and in which folder.
    pub(crate) fn user(&self) -> (Option<&str>, &Path) {
        let place = match &self.command {
            None => &self.place,
            Some(
                MonCommand::Join { place, .. }
                | MonCommand::Rm { place, .. }
                | MonCommand::Move { place, .. }
                | MonCommand::SetAddrs { place, .. }
                | MonCommand::Recover { place, .. }
                | MonCommand::RecoveryKey { place, .. },
            ) => place,
        };
        (place.user.as_deref(), &place.dir)
    }
}

/// What is asked or said of recovery.
#[derive(Debug, Subcommand)]
pub(crate) enum RecoveryCommand {
    /// Show, or set for all OSDs at once, what 99 of 100 writes of clients may take while something is recovered: p99=5ms; or p99=2x, a
    /// multiple of what they take without; or off.
    Target {
        /// What they may take.
        target: Option<RecoveryTarget>,
        /// Folder with ceph.conf and keyring of the cluster.
        #[arg(long, default_value = "nacre-data")]
        dir: PathBuf,
    },
    /// Show the target, how far recovery is, and how long it will take yet.
    Status {
        /// Folder with ceph.conf and keyring of the cluster.
        #[arg(long, default_value = "nacre-data")]
        dir: PathBuf,
    },
}

/// What 99 of 100 writes of clients may take beside recovery.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum RecoveryTarget {
    /// As long as they do: recovery takes all there is.
    Off,
    /// So many milliseconds.
    Millis(f64),
    /// So many times what they take without recovery.
    Multiple(f64),
}

impl FromStr for RecoveryTarget {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let number =
            |text: &str, unit: &str| text.strip_suffix(unit).and_then(|number| number.parse::<f64>().ok());
        let Some(value) = text.strip_prefix("p99=") else {
            return if text == "off" { Ok(Self::Off) } else { bail!("a target is p99=5ms, p99=2x or off") };
        };
        let millis = number(value, "ms").or_else(|| number(value, "s").map(|seconds| seconds * 1000.0));
        match (millis, number(value, "x")) {
            (Some(millis), _) if (0.1..=60_000.0).contains(&millis) => Ok(Self::Millis(millis)),
            (None, Some(multiple)) if (1.0..=1000.0).contains(&multiple) => Ok(Self::Multiple(multiple)),
            _ => bail!(
                "a target is 0.1ms to 60s, as in p99=5ms, or 1 to 1000 times the calm, as in p99=2x, or off"
            ),
        }
    }
}

/// Options of `nacre osd`.
#[derive(Debug, Args)]
pub(crate) struct OsdArgs {
    /// Folder with ceph.conf and the folders of the OSDs (osd.N).
    #[arg(long, default_value = "nacre-data")]
    pub(crate) dir: PathBuf,
    /// Started as root: go on as this user (a name, or numbers as USER:GROUP), which owns the folder.
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// OSD to run; may be given several times. Without it: all that have a folder.
    #[arg(long)]
    pub(crate) id: Vec<OsdId>,
    /// Address to listen on; 127.0.0.1 if not given, or with --conf by what stands there.
    #[arg(long)]
    pub(crate) listen: Option<IpAddr>,
    #[command(flatten)]
    pub(crate) ceph: Option<CephArgs>,
    /// Make the folder and the store of the one OSD given with --id, and end. See
    /// docs/runbooks/osd-add-remove.md, or nacre-osds-in-a-ceph-cluster.md for --conf.
    #[arg(long, requires = "id")]
    pub(crate) mkfs: bool,
    /// With --mkfs: identity of the store, as given to `ceph osd new`; random if not given.
    #[arg(long, requires = "mkfs", value_parser = parse_uuid)]
    pub(crate) uuid: Option<Uuid>,
    /// With --mkfs: the OSD's key, as given to `ceph osd new`; without it a key is made, and printed in the
    /// command that tells the cluster of it.
    #[arg(long, requires = "mkfs", value_parser = parse_key)]
    pub(crate) key: Option<CryptoKey>,
    /// With --mkfs and --conf: the device class that it takes; by default ssd or hdd, as the kernel says.
    #[arg(long, requires_all = ["mkfs", "conf"])]
    pub(crate) crush_device_class: Option<String>,
    /// With --mkfs: size of the store, in bytes or with K, M, G, T; by default a quarter of the free disk space.
    #[arg(long, requires = "mkfs", value_parser = parse_size)]
    pub(crate) osd_size: Option<u64>,
    /// Threads of each OSD, which have parts of the store. With --mkfs: for how many the store is made, one if not given. Without: how
    /// many there are from this start on, by default and at most as many as it was made for.
    #[arg(long, value_parser = parse_shards)]
    pub(crate) shards: Option<u32>,
    #[command(flatten)]
    pub(crate) memory: MemoryOptions,
    #[command(flatten)]
    pub(crate) device_dirs: DeviceArgs,
    #[command(flatten)]
    pub(crate) raw: RawDeviceArgs,
    #[command(flatten)]
    pub(crate) encryption: DmcryptArgs,
}

impl OsdArgs {
    /// As which user to run, and in which folder.
    pub(crate) fn user(&self) -> (Option<&str>, &Path) {
        (self.user.as_deref(), self.ceph.as_ref().map_or(&self.dir, |ceph| &ceph.data))
    }
}

/// An OSD of a cluster whose monitors are Ceph's.
#[derive(Debug, Args)]
pub(crate) struct CephArgs {
    /// The ceph.conf of a cluster whose monitors are Ceph's: run the OSD there.
    #[arg(long, required = false, requires_all = ["data", "id"], conflicts_with = "dir")]
    pub(crate) conf: PathBuf,
    /// With --conf: folder of the OSD, with its store.
    #[arg(long, required = false, requires = "conf")]
    pub(crate) data: PathBuf,
    /// With --conf: file with the OSD's key; by default what the configuration says, or `keyring` in its folder.
    #[arg(long, requires = "conf")]
    pub(crate) keyring: Option<PathBuf>,
}

/// How much memory an OSD may use.
#[derive(Debug, Args)]
pub(crate) struct MemoryOptions {
    /// Memory that an OSD keeps to, in bytes or with K, M, G, T; at least 64M, and 1G if not given. Under a limit of a fifth more it is not
    /// killed, from 256M on.
    #[arg(long, value_parser = parse_memory)]
    osd_memory_target: Option<u64>,
}

/// Threads of an OSD at most: each has a log and metadata of its own.
const SHARDS_MAX: u32 = 64;
/// What a store keeps to unless it is told otherwise.
const MEMORY_BYTES_DEFAULT: u64 = 1 << 30;

impl MemoryOptions {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes_or(None)
    }

    /// What is given here, or else what a file says; at least what a store needs.
    pub(crate) fn bytes_or(&self, configured: Option<u64>) -> usize {
        let bytes = self.osd_memory_target.or(configured).unwrap_or(MEMORY_BYTES_DEFAULT);
        usize::try_from(bytes.max(MEMORY_BYTES_MIN)).unwrap_or(usize::MAX)
    }
}

/// Where objects are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreKind {
    /// In files of the cluster's folder: they survive a crash.
    File,
    /// In memory: they are gone when the process ends.
    Memory,
}

/// How clients prove who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Auth {
    /// With keys and tickets.
    Cephx,
    /// Not at all: everybody who reaches the ports may do everything. The daemons still know each other by keys.
    None,
}

impl Auth {
    pub(crate) fn methods(self) -> Vec<AuthMethod> {
        match self {
            Self::Cephx => vec![AuthMethod::Cephx],
            Self::None => vec![AuthMethod::None, AuthMethod::Cephx],
        }
    }

    /// As in `ceph.conf`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cephx => "cephx",
            Self::None => "none",
        }
    }
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    pair.map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| format!("'{text}' is not NAME=VALUE"))
}

/// Seconds between two things, a millisecond at least.
fn parse_interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("'{text}' is no number of seconds"))?;
    if (0.001..=3600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("from 0.001 to 3600 seconds".to_owned())
    }
}

/// Threads of an OSD.
fn parse_shards(text: &str) -> Result<u32, String> {
    let shards: u32 = text.parse().map_err(|_| format!("'{text}' is no number"))?;
    if (1..=SHARDS_MAX).contains(&shards) { Ok(shards) } else { Err(format!("from 1 to {SHARDS_MAX}")) }
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

/// Refuses what no client could connect to.
pub(crate) fn check_listen(listen: IpAddr) -> Result<()> {
    if listen.is_unspecified() {
        bail!("--listen {listen} is no address that clients can connect to; give one of this machine's");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_and_bounds() {
        assert_eq!(parse_size("10G"), Ok(10 << 30));
        assert_eq!(parse_size("512MiB"), Ok(512 << 20));
        assert_eq!(parse_size("7"), Ok(7));
        for wrong in ["", "G", "1X", "0", "99999999999T"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}

//! Statistics of an OSD.
//!
//! Source: Ceph `osd_stat_t` and `objectstore_perf_stat_t` in `src/osd/osd_types.h`, v16.2.15.

use super::StoreStatfs;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{Epoch, OsdId, seconds};
use std::collections::BTreeMap;
use std::time::Duration;

/// Latencies of the store. Ceph `objectstore_perf_stat_t`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct OsdPerfStat {
    /// Of a commit, nanoseconds.
    pub commit_latency_ns: u64,
    /// Of an apply, nanoseconds.
    pub apply_latency_ns: u64,
}

/// Round trip times over one network, microseconds: averages over 1, 5 and 15 minutes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PingWindow {
    /// Averages over 1, 5 and 15 minutes.
    pub average: [u32; 3],
    /// The least in 1, 5 and 15 minutes.
    pub min: [u32; 3],
    /// The greatest in 1, 5 and 15 minutes.
    pub max: [u32; 3],
    /// The last one.
    pub last: u32,
}

/// Round trip times to one peer. Ceph `osd_stat_t::Interfaces`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PingTimes {
    /// When they were measured, seconds since 1970.
    pub last_update: u32,
    /// Round trips on the cluster network.
    pub back: PingWindow,
    /// Public network; all zero when there is only one.
    pub front: PingWindow,
}

impl PingWindow {
    /// The slowest of the averages.
    #[must_use]
    pub fn slowest(&self) -> u32 {
        self.average.into_iter().max().unwrap_or(0)
    }

    /// True when the average falls from a longer time to a shorter one.
    #[must_use]
    pub fn is_improving(&self) -> bool {
        self.average.is_sorted_by(|shorter, longer| shorter < longer)
    }
}

impl PingTimes {
    /// From how many microseconds on pings are slow, by Ceph's options: `mon_warn_on_slow_ping_time` in ms, or, where that is 0,
    /// `mon_warn_on_slow_ping_ratio` of `osd_heartbeat_grace`.
    #[must_use]
    pub fn slow_us(time_ms: f64, ratio: f64, grace: Duration) -> u64 {
        let slow =
            if time_ms > 0.0 { seconds(time_ms / 1000.0) } else { seconds(grace.as_secs_f64() * ratio) };
        u64::try_from(slow.as_micros()).unwrap_or(u64::MAX)
    }
}

/// Codes of [`OsdStat::alerts`] that are ours. Ceph's managers make a health check of any code, with no words of their own.
pub mod osd_alert {
    /// Other OSDs said what it could not read.
    pub const PEER_MESSAGES: &str = "OSD_PEER_MESSAGES";
    /// Records of its copies were damaged, and what it alone had is lost.
    pub const COPIES_LOST: &str = "OSD_COPIES_LOST";
    /// Clients exhaust what they may have, and wait.
    pub const CLIENTS_THROTTLED: &str = "OSD_CLIENTS_THROTTLED";
    /// Messages of clients take too long; the text is [`super::SlowOps`].
    pub const SLOW_OPS: &str = "OSD_SLOW_OPS";
}

/// Messages of clients that take longer than `osd_op_complaint_time`. To Ceph's managers they go as
/// [`crate::daemon_metric::SLOW_OPS`], to our monitor as the text of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SlowOps {
    /// How many there are.
    pub count: u32,
    /// Seconds since the oldest of them came.
    pub oldest_s: u32,
}

impl SlowOps {
    /// Those of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { count: self.count.saturating_add(other.count), oldest_s: self.oldest_s.max(other.oldest_s) }
    }

    /// What an alert says: none where nothing is slow.
    #[must_use]
    pub fn to_alert(self) -> Option<String> {
        let Self { count, oldest_s } = self;
        (count > 0).then(|| format!("{count} slow ops, oldest one blocked for {oldest_s} sec"))
    }

    /// What an alert says; `None` where that is nothing that [`SlowOps::to_alert`] writes.
    #[must_use]
    pub fn from_alert(text: &str) -> Option<Self> {
        let (count, rest) = text.split_once(" slow ops, oldest one blocked for ")?;
        let slow = Self { count: count.parse().ok()?, oldest_s: rest.strip_suffix(" sec")?.parse().ok()? };
        (slow.to_alert().as_deref() == Some(text)).then_some(slow)
    }
}

/// What an OSD says about itself. Ceph `osd_stat_t`, version 14, compat 2.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct OsdStat {
    /// Snapshots yet to be trimmed.
    pub snap_trim_queue_len: u32,
    /// Snapshots being trimmed.
    pub num_snap_trimming: u32,
    /// Peers that it exchanges heartbeats with.
    pub hb_peers: Vec<OsdId>,
    /// Ages of queued operations, a histogram over powers of two.
    pub op_queue_age_hist: Vec<i32>,
    /// How long its commits and applies take.
    pub perf_stat: OsdPerfStat,
    /// Epoch in which it became up.
    pub up_from: Epoch,
    /// Number of the report, counted by its sender.
    pub seq: u64,
    /// PGs that it hosts.
    pub num_pgs: u32,
    /// KiB of data.
    pub kb_used_data: i64,
    /// KiB of omap.
    pub kb_used_omap: i64,
    /// KiB of the store's own metadata.
    pub kb_used_meta: i64,
    /// How large and how full its store is.
    pub statfs: StoreStatfs,
    /// Alerts: OSD, code (Ceph's are its store's, ours see [`osd_alert`]), text.
    pub alerts: BTreeMap<OsdId, BTreeMap<String, String>>,
    /// Shards repaired by reads.
    pub num_shards_repaired: u64,
    /// OSDs summed up here.
    pub num_osds: u32,
    /// Of those, that report capacity by pool.
    pub num_per_pool_osds: u32,
    /// Of those, that report omap by pool.
    pub num_per_pool_omap_osds: u32,
    /// Round trip times by peer.
    pub hb_pingtime: BTreeMap<OsdId, PingTimes>,
}

impl OsdStat {
    /// Writes what readers before the capacity struct want: KiB in all, used, available.
    fn encode_kb(&self, w: &mut Writer) {
        w.i64(self.statfs.total >> 10);
        w.i64(self.statfs.used_raw() >> 10);
        w.i64(self.statfs.available >> 10);
    }

    fn decode_tail(&mut self, r: &mut Reader) -> Result<(), DecodeError> {
        self.alerts = r.get()?;
        self.num_shards_repaired = r.u64()?;
        self.num_osds = r.u32()?;
        self.num_per_pool_osds = r.u32()?;
        self.num_per_pool_omap_osds = r.u32()?;
        self.hb_pingtime = r.get()?;
        Ok(())
    }

    fn decode_fields(r: &mut Reader) -> Result<Self, DecodeError> {
        r.skip(3 * 8)?; // KiB, which follow from the capacity
        let (snap_trim_queue_len, num_snap_trimming, hb_peers) = (r.u32()?, r.u32()?, r.get()?);
        let _obsolete_peers: Vec<OsdId> = r.get()?;
        let mut stat = Self {
            snap_trim_queue_len,
            num_snap_trimming,
            hb_peers,
            op_queue_age_hist: r.envelope("pow2_hist_t", 1, |_, r| r.get())?,
            perf_stat: r.get()?,
            up_from: r.u32()?,
            seq: r.u64()?,
            num_pgs: r.u32()?,
            kb_used_data: r.i64()?,
            kb_used_omap: r.i64()?,
            kb_used_meta: r.i64()?,
            statfs: r.get()?,
            ..Self::default()
        };
        stat.decode_tail(r)?;
        Ok(stat)
    }
}

impl Encode for OsdStat {
    fn encode(&self, w: &mut Writer) {
        w.envelope(14, 2, |w| {
            self.encode_kb(w);
            w.u32(self.snap_trim_queue_len);
            w.u32(self.num_snap_trimming);
            w.put(&self.hb_peers);
            w.u32(0); // peers on another network, obsolete
            w.envelope(1, 1, |w| w.put(&self.op_queue_age_hist));
            w.put(&self.perf_stat);
            w.u32(self.up_from);
            w.u64(self.seq);
            w.u32(self.num_pgs);
            w.i64(self.kb_used_data);
            w.i64(self.kb_used_omap);
            w.i64(self.kb_used_meta);
            w.put(&self.statfs);
            w.put(&self.alerts);
            w.u64(self.num_shards_repaired);
            w.u32(self.num_osds);
            w.u32(self.num_per_pool_osds);
            w.u32(self.num_per_pool_omap_osds);
            w.put(&self.hb_pingtime);
        });
    }
}

impl Decode for OsdStat {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("osd_stat_t", 14, |version, r| match version {
            0..14 => Err(DecodeError::Invalid { what: "osd_stat_t version", value: version.into() }),
            _ => Self::decode_fields(r),
        })
    }
}

const NS_PER_MS: u64 = 1_000_000;

/// Written as version 1, milliseconds: what 16.2.15 sends for want of a feature bit that nobody has yet.
impl Encode for OsdPerfStat {
    fn encode(&self, w: &mut Writer) {
        let ms = |ns: u64| u32::try_from(ns / NS_PER_MS).unwrap_or(u32::MAX);
        w.envelope(1, 1, |w| {
            w.u32(ms(self.commit_latency_ns));
            w.u32(ms(self.apply_latency_ns));
        });
    }
}

impl Decode for OsdPerfStat {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("objectstore_perf_stat_t", 2, |version, r| {
            if version >= 2 {
                return Ok(Self { commit_latency_ns: r.u64()?, apply_latency_ns: r.u64()? });
            }
            let mut ns = || Ok(u64::from(r.u32()?) * NS_PER_MS);
            Ok(Self { commit_latency_ns: ns()?, apply_latency_ns: ns()? })
        })
    }
}

/// Numbers in a [`PingWindow`].
const WINDOW_WORDS: usize = 10;

impl Encode for PingWindow {
    fn encode(&self, w: &mut Writer) {
        let words = [self.average, self.min, self.max].into_iter().flatten().chain([self.last]);
        words.for_each(|word| w.u32(word));
    }
}

impl Decode for PingWindow {
    const MIN_BYTES: usize = WINDOW_WORDS * 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let mut three = || Ok([r.u32()?, r.u32()?, r.u32()?]);
        Ok(Self { average: three()?, min: three()?, max: three()?, last: r.u32()? })
    }
}

impl Encode for PingTimes {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.last_update);
        w.put(&self.back);
        w.put(&self.front);
    }
}

impl Decode for PingTimes {
    const MIN_BYTES: usize = 4 + 2 * PingWindow::MIN_BYTES;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { last_update: r.u32()?, back: r.get()?, front: r.get()? })
    }
}

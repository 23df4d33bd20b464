//! What the map remembers of one OSD's past. Ceph `osd_info_t`, `osd_xinfo_t`.

use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{Epoch, UTime};

/// Epochs of an OSD's life. Ceph `osd_info_t`, version 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OsdInfo {
    /// First epoch of the last interval that ended with a clean stop.
    pub last_clean_begin: Epoch,
    /// Last epoch of that interval.
    pub last_clean_end: Epoch,
    /// Epoch in which it last came up.
    pub up_from: Epoch,
    /// Latest epoch through which its peers may assume that it was really serving.
    pub up_thru: Epoch,
    /// Epoch in which it last went down.
    pub down_at: Epoch,
    /// Last epoch in which its data was declared lost.
    pub lost_at: Epoch,
}

/// More of it. Ceph `osd_xinfo_t`, version 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct XInfo {
    /// When it was last marked down.
    pub down_stamp: UTime,
    /// Probability that it is slow rather than dead, in units of 1 / 0xffffffff.
    pub laggy_probability: u32,
    /// Mean seconds from being marked down to coming back.
    pub laggy_interval: u32,
    /// Feature bits that it booted with.
    pub features: u64,
    /// Weight before it was marked out automatically.
    pub old_weight: u32,
    /// When purged snapshots were last checked.
    pub last_purged_snaps_scrub: UTime,
    /// Latest epoch in which it was certainly not running.
    pub dead_epoch: Epoch,
}

impl Encode for OsdInfo {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.u32(self.last_clean_begin);
        w.u32(self.last_clean_end);
        w.u32(self.up_from);
        w.u32(self.up_thru);
        w.u32(self.down_at);
        w.u32(self.lost_at);
    }
}

impl Decode for OsdInfo {
    const MIN_BYTES: usize = 25;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let version = r.u8()?;
        if version != 1 {
            return Err(DecodeError::Invalid { what: "osd_info_t version", value: version.into() });
        }
        Ok(Self {
            last_clean_begin: r.u32()?,
            last_clean_end: r.u32()?,
            up_from: r.u32()?,
            up_thru: r.u32()?,
            down_at: r.u32()?,
            lost_at: r.u32()?,
        })
    }
}

impl Encode for XInfo {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 1, |w| {
            w.put(&self.down_stamp);
            w.u32(self.laggy_probability);
            w.u32(self.laggy_interval);
            w.u64(self.features);
            w.u32(self.old_weight);
            w.put(&self.last_purged_snaps_scrub);
            w.u32(self.dead_epoch);
        });
    }
}

impl Decode for XInfo {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("osd_xinfo_t", 4, |version, r| {
            let mut info = Self {
                down_stamp: r.get()?,
                laggy_probability: r.u32()?,
                laggy_interval: r.u32()?,
                features: r.u64()?,
                old_weight: r.u32()?,
                ..Self::default()
            };
            if version >= 4 {
                info.last_purged_snaps_scrub = r.get()?;
                info.dead_epoch = r.u32()?;
            }
            Ok(info)
        })
    }
}

//! What metadata servers say to the monitors.
//!
//! Source: Ceph `MMDSBeacon.h`, `MMDSLoadTargets.h`, v16.2.15.

use crate::body::{Body, body, fields, read_psm, write_psm};
use crate::compat::Compat;
use nacre_buf::BufList;
use nacre_denc::{DecodeError, Reader, Writer};
use nacre_types::Uuid;
use std::collections::{BTreeMap, BTreeSet};

/// States of a metadata server: those above 0 hold a rank and its journal. Ceph `MDSMap::DaemonState`.
pub mod mds_state {
    /// It asks to be forgotten: its process ends.
    pub const DNE: i32 = 0;
    /// Its rank has nothing left to serve.
    pub const STOPPED: i32 = -1;
    /// Just started; the beacon carries `sys_info`.
    pub const BOOT: i32 = -4;
    /// Waiting for a rank.
    pub const STANDBY: i32 = -5;
    /// Making a new rank.
    pub const CREATING: i32 = -6;
    /// Taking up a rank that was stopped.
    pub const STARTING: i32 = -7;
    /// Following the journal of a rank that another holds.
    pub const STANDBY_REPLAY: i32 = -8;
    /// Reading a predecessor's journal.
    pub const REPLAY: i32 = 8;
    /// Settling with the other ranks what was under way between them.
    pub const RESOLVE: i32 = 9;
    /// Waiting for clients of before.
    pub const RECONNECT: i32 = 10;
    /// Taking over caches and locks.
    pub const REJOIN: i32 = 11;
    /// Doing again what clients had been promised.
    pub const CLIENTREPLAY: i32 = 12;
    /// The MDS serves clients.
    pub const ACTIVE: i32 = 13;
    /// Handing its directories to other ranks.
    pub const STOPPING: i32 = 14;
    /// The rank's metadata cannot be used.
    pub const DAMAGED: i32 = 15;

    /// As commands show it.
    #[must_use]
    pub fn name(state: i32) -> &'static str {
        match state {
            DNE => "down:dne",
            STOPPED => "down:stopped",
            DAMAGED => "down:damaged",
            BOOT => "up:boot",
            STANDBY => "up:standby",
            STANDBY_REPLAY => "up:standby-replay",
            CREATING => "up:creating",
            STARTING => "up:starting",
            REPLAY => "up:replay",
            RESOLVE => "up:resolve",
            RECONNECT => "up:reconnect",
            REJOIN => "up:rejoin",
            CLIENTREPLAY => "up:clientreplay",
            ACTIVE => "up:active",
            STOPPING => "up:stopping",
            _ => "???",
        }
    }
}

/// One complaint of a metadata server. Ceph `MDSHealthMetric`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MdsHealthMetric {
    /// What it complains about.
    pub kind: u16,
    /// Health status: 0 error, 1 warning, 2 fine.
    pub severity: u8,
    /// Text for people.
    pub message: String,
    /// Names and values of further details.
    pub metadata: BTreeMap<String, String>,
}
fields!(MdsHealthMetric, "MDSHealthMetric", 1, 1; kind, severity, message, metadata);

/// `MMDSBeacon`: the monitor echoes it with its own view of state and sequence.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MdsBeacon {
    /// Last epoch of the map that the sender saw.
    pub version: u64,
    /// Id of the cluster that the sender belongs to.
    pub fsid: Uuid,
    /// Id of the daemon's instance, from its session with the monitors.
    pub global_id: u64,
    /// Wanted or acknowledged state.
    pub state: i32,
    /// Number of the beacon, counted by its sender.
    pub seq: u64,
    /// The daemon's name.
    pub name: String,
    /// What it can read and write.
    pub compat: Compat,
    /// What the daemon complains about.
    pub health: Vec<MdsHealthMetric>,
    /// About its machine; only in state [`mds_state::BOOT`].
    pub sys_info: BTreeMap<String, String>,
    /// Features of the sender, one bit each (`CEPH_FEATURE_*`).
    pub features: u64,
    /// File system that it wants to join, or empty.
    pub fs: String,
}

impl Body for MdsBeacon {
    const NAME: &'static str = "MdsBeacon";
    const KIND: u16 = 100;
    const VERSION: u16 = 8;
    const COMPAT: u16 = 6;
    const OLDEST: u16 = 8;
    const PRIORITY: u16 = crate::priority::HIGH;

    fn read(_version: u16, r: &mut Reader, _data: BufList) -> Result<Self, DecodeError> {
        let (version, fsid, global_id, state) = (read_psm(r)?, r.get()?, r.u64()?, r.i32()?);
        let (seq, name) = (r.u64()?, r.text()?);
        r.skip(4)?; // rank to stand by for, obsolete
        r.str()?; // name of the same
        let compat = r.get()?;
        let health = r.envelope("MDSHealth", 1, |_, r| r.get())?;
        let sys_info = if state == mds_state::BOOT { r.get()? } else { BTreeMap::new() };
        let features = r.u64()?;
        r.skip(4 + 1)?; // file system and replay flag to stand by for, obsolete
        let fs = r.text()?;
        Ok(Self { version, fsid, global_id, state, seq, name, compat, health, sys_info, features, fs })
    }

    fn write(self, w: &mut Writer) -> BufList {
        write_psm(w, self.version);
        w.put(&self.fsid);
        w.u64(self.global_id);
        w.i32(self.state);
        w.u64(self.seq);
        w.str(&self.name);
        w.i32(-1);
        w.str("");
        w.put(&self.compat);
        w.envelope(1, 1, |w| w.put(&self.health));
        if self.state == mds_state::BOOT {
            w.put(&self.sys_info);
        }
        w.u64(self.features);
        w.i32(-1);
        w.bool(false);
        w.str(&self.fs);
        BufList::new()
    }
}

/// `MMDSLoadTargets`: ranks that the sender hands directories to.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MdsLoadTargets {
    /// Version of the map that the sender knows; it says 0.
    pub version: u64,
    /// Id of the daemon's instance.
    pub global_id: u64,
    /// Ranks of its file system, without its own.
    pub targets: BTreeSet<i32>,
}
body!(MdsLoadTargets = 0x20a, 1 / 1; @version; global_id, targets);

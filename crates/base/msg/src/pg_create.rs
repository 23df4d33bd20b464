//! [`OsdPgCreate2`]: the monitor tells an OSD which PGs it is to create.
//!
//! Source: Ceph `MOSDPGCreate2.h`, v16.2.15; type 120, header version 2, compat 1.

use crate::body::{Body, raw_envelope};
use nacre_buf::{BufList, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{Epoch, SpgId, UTime};
use std::collections::BTreeMap;

/// `MOSDPGCreate2`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct OsdPgCreate2 {
    /// Epoch of the map that the sender looked at.
    pub epoch: Epoch,
    /// When each PG was created: epoch and time.
    pub pgs: BTreeMap<SpgId, (Epoch, UTime)>,
    /// What is known of each PG's past since.
    pub pg_extra: BTreeMap<SpgId, PgCreated>,
}

/// A PG's past since its creation.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PgCreated {
    /// Encoded `pg_history_t`, with its envelope.
    pub history: Bytes,
    /// Encoded `PastIntervals`, with its envelope.
    pub past_intervals: Bytes,
}

impl Encode for PgCreated {
    fn encode(&self, w: &mut Writer) {
        w.raw(&self.history);
        w.raw(&self.past_intervals);
    }
}

impl Decode for PgCreated {
    const MIN_BYTES: usize = 12;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { history: raw_envelope(r)?, past_intervals: raw_envelope(r)? })
    }
}

impl Body for OsdPgCreate2 {
    const NAME: &'static str = "OsdPgCreate2";
    const KIND: u16 = 120;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 1;
    const PRIORITY: u16 = crate::priority::HIGH;

    fn read(version: u16, r: &mut Reader, _data: BufList) -> Result<Self, DecodeError> {
        let (epoch, pgs) = (r.u32()?, r.get()?);
        let pg_extra = if version >= 2 { r.get()? } else { BTreeMap::new() };
        Ok(Self { epoch, pgs, pg_extra })
    }

    fn write(self, w: &mut Writer) -> BufList {
        w.u32(self.epoch);
        w.put(&self.pgs);
        w.put(&self.pg_extra);
        BufList::new()
    }
}

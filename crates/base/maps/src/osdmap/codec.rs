//! Bytes of the full map.
//!
//! Ceph `OSDMap::encode` at v16.2.15: an envelope (8, 7) around a client section (9), an OSD section (9, or 11
//! when there are ranges of blocklisted addresses; 10 brought stretch clusters, which we do not have) and the CRC-32C of all other bytes of the envelope, its header included.

use super::OsdMap;
use crate::{OSDS_MAX, wire};
use nacre_buf::crc::crc32c;
use nacre_crush::CrushMap;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use std::sync::Arc;

const VERSION: u8 = 8;
const SECTION_VERSION: u8 = 9;
/// `stretch_bucket_count`, `degraded_stretch_mode`, `recovering_stretch_mode`, `stretch_mode_bucket`.
const STRETCH_WORDS: usize = 4;

impl Encode for OsdMap {
    fn encode(&self, w: &mut Writer) {
        let start = w.len();
        w.envelope(VERSION, 7, |w| {
            w.envelope(SECTION_VERSION, 1, |w| self.encode_client(w));
            let ranges = !self.range_blocklist.is_empty();
            let version = if ranges { wire::RANGES_VERSION } else { SECTION_VERSION };
            w.envelope(version, 1, |w| {
                self.encode_osd(w);
                if ranges {
                    w.u8(0); // stretch_mode_enabled
                    w.zeros(STRETCH_WORDS * 4);
                    wire::put_blocklist(w, &self.range_blocklist);
                }
            });
            w.u32(0);
        });
        wire::seal(w, start, 4);
    }
}

impl OsdMap {
    /// The encoding and its checksum: what [`crate::Incremental::full_crc`] must be.
    #[must_use]
    pub fn to_bytes_and_crc(&self) -> (nacre_buf::Bytes, u32) {
        let bytes = self.to_bytes();
        let crc = bytes.last_chunk().map_or(0, |tail| u32::from_le_bytes(*tail));
        (bytes, crc)
    }

    fn encode_client(&self, w: &mut Writer) {
        w.put(&self.fsid);
        w.u32(self.epoch);
        w.put(&self.created);
        w.put(&self.modified);
        w.put(&self.pools);
        w.put(&self.pool_names);
        w.i32(self.pool_max);
        w.u32(self.flags);
        w.count(self.max_osd());
        w.put(&self.osd_state);
        w.put(&self.osd_weight);
        w.put(&self.client_addrs);
        w.put(&self.pg_temp);
        w.put(&self.primary_temp);
        w.put(&self.osd_primary_affinity);
        w.nested(|w| w.put(&*self.crush));
        w.put(&self.erasure_code_profiles);
        w.put(&self.pg_upmap);
        w.put(&self.pg_upmap_items);
        w.i32(self.crush_version);
        w.put(&self.new_removed_snaps);
        w.put(&self.new_purged_snaps);
        w.put(&self.last_up_change);
        w.put(&self.last_in_change);
    }

    fn encode_osd(&self, w: &mut Writer) {
        w.put(&self.hb_back_addrs);
        w.put(&self.osd_info);
        wire::put_blocklist(w, &self.blocklist);
        w.put(&self.cluster_addrs);
        w.u32(0); // cluster_snapshot_epoch
        w.str(""); // cluster_snapshot
        w.put(&self.osd_uuid);
        w.put(&self.osd_xinfo);
        w.put(&self.hb_front_addrs);
        w.put(&self.nearfull_ratio);
        w.put(&self.full_ratio);
        w.put(&self.backfillfull_ratio);
        w.u8(self.require_min_compat_client);
        w.u8(self.require_osd_release);
        w.put(&self.removed_snaps_queue);
        w.put(&self.crush_node_flags);
        w.put(&self.device_class_flags);
    }

    fn decode_client(&mut self, r: &mut Reader) -> Result<(), DecodeError> {
        self.fsid = r.get()?;
        self.epoch = r.u32()?;
        self.created = r.get()?;
        self.modified = r.get()?;
        self.pools = r.get()?;
        self.pool_names = r.get()?;
        self.pool_max = r.i32()?;
        self.flags = r.u32()?;
        let max_osd = r.u32()?;
        if max_osd as usize > OSDS_MAX {
            return Err(DecodeError::Invalid { what: "OSDMap.max_osd", value: max_osd.into() });
        }
        self.osd_state = r.get()?;
        self.osd_weight = r.get()?;
        self.client_addrs = r.get()?;
        self.pg_temp = r.get()?;
        self.primary_temp = r.get()?;
        self.osd_primary_affinity = r.get()?;
        self.crush = Arc::new(CrushMap::from_bytes(r.blob()?)?);
        self.erasure_code_profiles = r.get()?;
        self.pg_upmap = r.get()?;
        self.pg_upmap_items = r.get()?;
        self.crush_version = r.i32()?;
        self.new_removed_snaps = r.get()?;
        self.new_purged_snaps = r.get()?;
        self.last_up_change = r.get()?;
        self.last_in_change = r.get()?;
        if self.max_osd() != max_osd as usize {
            return Err(DecodeError::Invalid { what: "OSDMap.max_osd", value: max_osd.into() });
        }
        Ok(())
    }

    fn decode_osd(&mut self, version: u8, r: &mut Reader) -> Result<(), DecodeError> {
        self.hb_back_addrs = r.get()?;
        self.osd_info = r.get()?;
        self.blocklist = r.get()?;
        self.cluster_addrs = r.get()?;
        let _epoch = r.u32()?;
        let _snapshot = r.str()?;
        self.osd_uuid = r.get()?;
        self.osd_xinfo = r.get()?;
        self.hb_front_addrs = r.get()?;
        self.nearfull_ratio = r.get()?;
        self.full_ratio = r.get()?;
        self.backfillfull_ratio = r.get()?;
        self.require_min_compat_client = r.u8()?;
        self.require_osd_release = r.u8()?;
        self.removed_snaps_queue = r.get()?;
        self.crush_node_flags = r.get()?;
        self.device_class_flags = r.get()?;
        if version > SECTION_VERSION {
            r.skip(1 + STRETCH_WORDS * 4)?;
        }
        if version >= wire::RANGES_VERSION {
            self.range_blocklist = r.get()?;
        }
        Ok(())
    }

    /// All vectors over OSDs have the same length, so that an id below `max_osd` finds its entry in each.
    fn check_lengths(&self) -> Result<(), DecodeError> {
        let max_osd = self.max_osd();
        let affinity = self.osd_primary_affinity.len();
        let lengths = [
            self.osd_weight.len(),
            self.client_addrs.len(),
            self.hb_back_addrs.len(),
            self.hb_front_addrs.len(),
            self.cluster_addrs.len(),
            self.osd_info.len(),
            self.osd_xinfo.len(),
            self.osd_uuid.len(),
            if affinity == 0 { max_osd } else { affinity },
        ];
        match lengths.iter().find(|length| **length != max_osd) {
            None => Ok(()),
            Some(length) => Err(DecodeError::Invalid { what: "OSDMap vector length", value: *length as u64 }),
        }
    }
}

fn section(
    r: &mut Reader,
    what: &'static str,
    body: impl FnOnce(u8, &mut Reader) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    r.envelope(what, wire::RANGES_VERSION, |version, r| {
        if version < SECTION_VERSION {
            return Err(DecodeError::Invalid { what, value: version.into() });
        }
        body(version, r)
    })
}

impl Decode for OsdMap {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let whole = r.rest();
        let mut map = Self::default();
        let (covered, crc) = r.envelope("OSDMap", VERSION, |_, r| {
            section(r, "OSDMap client section", |_, r| map.decode_client(r))?;
            section(r, "OSDMap OSD section", |version, r| map.decode_osd(version, r))?;
            // Behind the envelope's header of six bytes.
            Ok((r.offset() + 6, r.u32()?))
        })?;
        let found = whole.get(..covered).unwrap_or_default();
        let computed = crc32c(u32::MAX, found);
        if computed != crc {
            return Err(DecodeError::Checksum { what: "OSDMap", found: crc, computed });
        }
        map.check_lengths()?;
        Ok(map)
    }
}

//! Bytes of an incremental.
//!
//! Ceph `OSDMap::Incremental::encode` at v16.2.15: an envelope (8, 7) around a client section (8), an OSD section
//! (9, or 11 when ranges of blocklisted addresses change; 10 brought stretch clusters, which we do not have), its own CRC-32C (over all other bytes, so also over what follows) and the CRC of the map it makes.

use super::Incremental;
use crate::wire;
use nacre_buf::crc::crc32c;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};

const VERSION: u8 = 8;
const CLIENT_VERSION: u8 = 8;
const OSD_VERSION: u8 = 9;
/// `change_stretch_mode`, four words of its settings, `stretch_mode_enabled`.
const STRETCH_BYTES: usize = 1 + 4 * 4 + 1;

impl Encode for Incremental {
    fn encode(&self, w: &mut Writer) {
        let start = w.len();
        w.envelope(VERSION, 7, |w| {
            w.envelope(CLIENT_VERSION, 1, |w| self.encode_client(w));
            let ranges = !self.new_range_blocklist.is_empty() || !self.old_range_blocklist.is_empty();
            let version = if ranges { wire::RANGES_VERSION } else { OSD_VERSION };
            w.envelope(version, 1, |w| {
                self.encode_osd(w);
                if ranges {
                    w.zeros(STRETCH_BYTES);
                    wire::put_blocklist(w, &self.new_range_blocklist);
                    w.put(&self.old_range_blocklist);
                }
            });
            w.u32(0);
            w.u32(self.full_crc);
        });
        wire::seal(w, start, 8);
    }
}

impl Incremental {
    fn encode_client(&self, w: &mut Writer) {
        w.put(&self.fsid);
        w.u32(self.epoch);
        w.put(&self.modified);
        w.i64(self.new_pool_max);
        w.i32(self.new_flags);
        w.put(&self.fullmap);
        w.put(&self.crush);
        w.i32(self.new_max_osd);
        w.put(&self.new_pools);
        w.put(&self.new_pool_names);
        w.put(&self.old_pools);
        w.put(&self.new_up_client);
        w.put(&self.new_state);
        w.put(&self.new_weight);
        w.put(&self.new_pg_temp);
        w.put(&self.new_primary_temp);
        w.put(&self.new_primary_affinity);
        w.put(&self.new_erasure_code_profiles);
        w.put(&self.old_erasure_code_profiles);
        w.put(&self.new_pg_upmap);
        w.put(&self.old_pg_upmap);
        w.put(&self.new_pg_upmap_items);
        w.put(&self.old_pg_upmap_items);
        w.put(&self.new_removed_snaps);
        w.put(&self.new_purged_snaps);
        w.put(&self.new_last_up_change);
        w.put(&self.new_last_in_change);
    }

    fn encode_osd(&self, w: &mut Writer) {
        w.put(&self.new_hb_back_up);
        w.put(&self.new_up_thru);
        w.put(&self.new_last_clean_interval);
        w.put(&self.new_lost);
        wire::put_blocklist(w, &self.new_blocklist);
        w.put(&self.old_blocklist);
        w.put(&self.new_up_cluster);
        w.str(""); // cluster_snapshot
        w.put(&self.new_uuid);
        w.put(&self.new_xinfo);
        w.put(&self.new_hb_front_up);
        w.u64(self.encode_features);
        w.put(&self.new_nearfull_ratio);
        w.put(&self.new_full_ratio);
        w.put(&self.new_backfillfull_ratio);
        w.u8(self.new_require_min_compat_client);
        w.u8(self.new_require_osd_release);
        w.put(&self.new_crush_node_flags);
        w.put(&self.new_device_class_flags);
    }

    fn decode_client(&mut self, r: &mut Reader) -> Result<(), DecodeError> {
        self.fsid = r.get()?;
        self.epoch = r.u32()?;
        self.modified = r.get()?;
        self.new_pool_max = r.i64()?;
        self.new_flags = r.i32()?;
        self.fullmap = r.get()?;
        self.crush = r.get()?;
        self.new_max_osd = r.i32()?;
        self.new_pools = r.get()?;
        self.new_pool_names = r.get()?;
        self.old_pools = r.get()?;
        self.new_up_client = r.get()?;
        self.new_state = r.get()?;
        self.new_weight = r.get()?;
        self.new_pg_temp = r.get()?;
        self.new_primary_temp = r.get()?;
        self.new_primary_affinity = r.get()?;
        self.new_erasure_code_profiles = r.get()?;
        self.old_erasure_code_profiles = r.get()?;
        self.new_pg_upmap = r.get()?;
        self.old_pg_upmap = r.get()?;
        self.new_pg_upmap_items = r.get()?;
        self.old_pg_upmap_items = r.get()?;
        self.new_removed_snaps = r.get()?;
        self.new_purged_snaps = r.get()?;
        self.new_last_up_change = r.get()?;
        self.new_last_in_change = r.get()?;
        Ok(())
    }

    fn decode_osd(&mut self, version: u8, r: &mut Reader) -> Result<(), DecodeError> {
        self.new_hb_back_up = r.get()?;
        self.new_up_thru = r.get()?;
        self.new_last_clean_interval = r.get()?;
        self.new_lost = r.get()?;
        self.new_blocklist = r.get()?;
        self.old_blocklist = r.get()?;
        self.new_up_cluster = r.get()?;
        let _snapshot = r.str()?;
        self.new_uuid = r.get()?;
        self.new_xinfo = r.get()?;
        self.new_hb_front_up = r.get()?;
        self.encode_features = r.u64()?;
        self.new_nearfull_ratio = r.get()?;
        self.new_full_ratio = r.get()?;
        self.new_backfillfull_ratio = r.get()?;
        self.new_require_min_compat_client = r.u8()?;
        self.new_require_osd_release = r.u8()?;
        self.new_crush_node_flags = r.get()?;
        self.new_device_class_flags = r.get()?;
        if version > OSD_VERSION {
            r.skip(STRETCH_BYTES)?;
        }
        if version >= wire::RANGES_VERSION {
            self.new_range_blocklist = r.get()?;
            self.old_range_blocklist = r.get()?;
        }
        Ok(())
    }
}

fn section(
    r: &mut Reader,
    what: &'static str,
    version_min: u8,
    body: impl FnOnce(u8, &mut Reader) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    r.envelope(what, wire::RANGES_VERSION, |version, r| {
        if version < version_min {
            return Err(DecodeError::Invalid { what, value: version.into() });
        }
        body(version, r)
    })
}

impl Decode for Incremental {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let whole = r.rest();
        let mut inc = Self::new(nacre_types::Uuid::NIL, 0);
        let (at, crc) = r.envelope("OSDMap::Incremental", VERSION, |_, r| {
            section(r, "OSDMap::Incremental client section", CLIENT_VERSION, |_, r| inc.decode_client(r))?;
            section(r, "OSDMap::Incremental OSD section", OSD_VERSION, |version, r| {
                inc.decode_osd(version, r)
            })?;
            // Behind the envelope's header of six bytes.
            let at = r.offset() + 6;
            let crc = r.u32()?;
            inc.full_crc = r.u32()?;
            Ok((at, crc))
        })?;
        let end = whole.len() - r.left();
        let front = crc32c(u32::MAX, whole.get(..at).unwrap_or_default());
        let computed = crc32c(front, whole.get(at + 4..end).unwrap_or_default());
        if computed != crc {
            return Err(DecodeError::Checksum { what: "OSDMap::Incremental", found: crc, computed });
        }
        Ok(inc)
    }
}

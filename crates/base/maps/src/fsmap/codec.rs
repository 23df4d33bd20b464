//! Bytes of the file-system map. Ceph `FSMap::encode` and `MDSMap::encode` at v16.2.15.

use super::{FileSystem, FsMap, MdsInfo, MdsMap};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};

const VERSION: u8 = 7;
const MDSMAP_VERSION: u8 = 5;
const MDSMAP_EXTENSION_VERSION: u16 = 16;
const INFO_VERSION: u8 = 10;

impl Encode for MdsInfo {
    fn encode(&self, w: &mut Writer) {
        w.envelope(INFO_VERSION, 4, |w| {
            w.u64(self.global_id);
            w.str(&self.name);
            w.i32(self.rank);
            w.i32(self.inc);
            w.i32(self.state);
            w.u64(self.state_seq);
            w.put(&self.addrs);
            w.put(&self.laggy_since);
            w.i32(-1); // standby_for_rank
            w.str(""); // standby_for_name
            w.put(&self.export_targets);
            w.u64(self.mds_features);
            w.i32(self.join_fscid);
            w.bool(false); // standby_replay
            w.u64(self.flags);
            w.put(&self.compat);
        });
    }
}

impl Decode for MdsInfo {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("MDSMap::mds_info_t", INFO_VERSION, |version, r| {
            if version < INFO_VERSION {
                return Err(DecodeError::Invalid { what: "mds_info_t version", value: version.into() });
            }
            let mut info = Self {
                global_id: r.u64()?,
                name: r.text()?,
                rank: r.i32()?,
                inc: r.i32()?,
                state: r.i32()?,
                state_seq: r.u64()?,
                addrs: r.get()?,
                laggy_since: r.get()?,
                ..Self::default()
            };
            r.skip(4)?; // standby_for_rank
            let _standby_for_name = r.str()?;
            info.export_targets = r.get()?;
            info.mds_features = r.u64()?;
            info.join_fscid = r.i32()?;
            r.skip(1)?; // standby_replay
            info.flags = r.u64()?;
            info.compat = r.get()?;
            Ok(info)
        })
    }
}

impl MdsMap {
    fn encode_base(&self, w: &mut Writer) {
        w.u32(self.epoch);
        w.u32(self.flags);
        w.u32(self.last_failure);
        w.i32(self.root);
        w.u32(self.session_timeout);
        w.u32(self.session_autoclose);
        w.u64(self.max_file_size);
        w.i32(self.max_mds);
        w.put(&self.mds_info);
        w.put(&self.data_pools);
        w.i64(-1); // cas_pool
    }

    fn encode_extension(&self, w: &mut Writer) {
        w.u16(MDSMAP_EXTENSION_VERSION);
        w.put(&self.compat);
        w.i64(self.metadata_pool);
        w.put(&self.created);
        w.put(&self.modified);
        w.i32(self.tableserver);
        w.put(&self.in_ranks);
        w.put(&self.inc);
        w.put(&self.up);
        w.put(&self.failed);
        w.put(&self.stopped);
        w.u32(self.last_failure_osd_epoch);
        w.u8(self.ever_allowed_features);
        w.u8(self.explicitly_allowed_features);
        w.bool(self.inline_data_enabled);
        w.bool(self.enabled);
        w.str(&self.fs_name);
        w.put(&self.damaged);
        w.str(&self.balancer);
        w.i32(self.standby_count_wanted);
        w.i32(self.old_max_mds);
        w.u8(self.min_compat_client);
        w.put(&self.required_client_features);
    }
}

impl Encode for MdsMap {
    fn encode(&self, w: &mut Writer) {
        w.envelope(MDSMAP_VERSION, 4, |w| {
            self.encode_base(w);
            self.encode_extension(w);
        });
    }
}

impl Decode for MdsMap {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("MDSMap", MDSMAP_VERSION, |version, r| {
            if version < MDSMAP_VERSION {
                return Err(DecodeError::Invalid { what: "MDSMap version", value: version.into() });
            }
            let mut map = Self {
                epoch: r.u32()?,
                flags: r.u32()?,
                last_failure: r.u32()?,
                root: r.i32()?,
                session_timeout: r.u32()?,
                session_autoclose: r.u32()?,
                max_file_size: r.u64()?,
                max_mds: r.i32()?,
                mds_info: r.get()?,
                data_pools: r.get()?,
                ..Self::default()
            };
            r.skip(8)?; // cas_pool
            map.decode_extension(r)?;
            Ok(map)
        })
    }
}

impl MdsMap {
    fn decode_extension(&mut self, r: &mut Reader) -> Result<(), DecodeError> {
        let version = r.u16()?;
        if version < MDSMAP_EXTENSION_VERSION {
            return Err(DecodeError::Invalid { what: "MDSMap extension", value: version.into() });
        }
        self.compat = r.get()?;
        self.metadata_pool = r.i64()?;
        self.created = r.get()?;
        self.modified = r.get()?;
        self.tableserver = r.i32()?;
        self.in_ranks = r.get()?;
        self.inc = r.get()?;
        self.up = r.get()?;
        self.failed = r.get()?;
        self.stopped = r.get()?;
        self.last_failure_osd_epoch = r.u32()?;
        self.ever_allowed_features = r.u8()?;
        self.explicitly_allowed_features = r.u8()?;
        self.inline_data_enabled = r.bool()?;
        self.enabled = r.bool()?;
        self.fs_name = r.text()?;
        self.damaged = r.get()?;
        self.balancer = r.text()?;
        self.standby_count_wanted = r.i32()?;
        self.old_max_mds = r.i32()?;
        self.min_compat_client = r.u8()?;
        self.required_client_features = r.get()?;
        Ok(())
    }
}

impl Encode for FileSystem {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.i32(self.fscid);
            w.nested(|w| w.put(&self.mds_map));
            w.raw(&self.mirror_info);
        });
    }
}

impl Decode for FileSystem {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("Filesystem", 2, |_, r| {
            let fscid = r.i32()?;
            let mds_map = MdsMap::from_bytes(r.blob()?)?;
            Ok(Self { fscid, mds_map, mirror_info: r.rest() })
        })
    }
}

impl Encode for FsMap {
    fn encode(&self, w: &mut Writer) {
        w.envelope(VERSION, 6, |w| {
            w.u32(self.epoch);
            w.u64(self.next_filesystem_id);
            w.i32(self.legacy_client_fscid);
            w.put(&self.default_compat);
            w.bool(self.enable_multiple);
            w.put(&self.filesystems);
            w.put(&self.mds_roles);
            w.put(&self.standby_daemons);
            w.put(&self.standby_epochs);
            w.bool(self.ever_enabled_multiple);
        });
    }
}

impl Decode for FsMap {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("FSMap", VERSION, |version, r| {
            if version < VERSION {
                return Err(DecodeError::Invalid { what: "FSMap version", value: version.into() });
            }
            Ok(Self {
                epoch: r.u32()?,
                next_filesystem_id: r.u64()?,
                legacy_client_fscid: r.i32()?,
                default_compat: r.get()?,
                enable_multiple: r.bool()?,
                filesystems: r.get()?,
                mds_roles: r.get()?,
                standby_daemons: r.get()?,
                standby_epochs: r.get()?,
                ever_enabled_multiple: r.bool()?,
            })
        })
    }
}

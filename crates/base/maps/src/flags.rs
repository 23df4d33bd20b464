//! Flag bits of the OSD map, of OSDs and of pools, with the names that commands and JSON use.

/// Flags of the whole map (`CEPH_OSDMAP_*`).
pub mod osdmap {
    /// Some OSD is near full (historic).
    pub const NEARFULL: u32 = 0x1;
    /// Some OSD is full (historic).
    pub const FULL: u32 = 0x2;
    /// Clients do not read.
    pub const PAUSE_READ: u32 = 0x4;
    /// Clients do not write.
    pub const PAUSE_WRITE: u32 = 0x8;
    /// No recovery (historic).
    pub const PAUSE_RECOVERY: u32 = 0x10;
    /// OSDs may not boot.
    pub const NOUP: u32 = 0x20;
    /// OSDs are not marked down.
    pub const NODOWN: u32 = 0x40;
    /// OSDs are not marked out.
    pub const NOOUT: u32 = 0x80;
    /// OSDs are not marked in.
    pub const NOIN: u32 = 0x100;
    /// No PG is backfilled.
    pub const NOBACKFILL: u32 = 0x200;
    /// No object is recovered.
    pub const NORECOVER: u32 = 0x400;
    /// No scrub begins by itself.
    pub const NOSCRUB: u32 = 0x800;
    /// No deep scrub.
    pub const NODEEP_SCRUB: u32 = 0x1000;
    /// No cache tiering work.
    pub const NOTIERAGENT: u32 = 0x2000;
    /// Recovery of degraded PGs only.
    pub const NOREBALANCE: u32 = 0x4000;
    /// Objects are listed in bitwise order: always set.
    pub const SORTBITWISE: u32 = 0x8000;
    /// Deletes are done during recovery: always set.
    pub const RECOVERY_DELETES: u32 = 0x8_0000;
    /// Snap sets are purged: always set.
    pub const PURGED_SNAPDIRS: u32 = 0x10_0000;
    /// No snapshot trimming.
    pub const NOSNAPTRIM: u32 = 0x20_0000;
    /// PG logs have a hard limit: always set.
    pub const PGLOG_HARDLIMIT: u32 = 0x40_0000;
    /// What a fresh cluster has.
    pub const FRESH: u32 = SORTBITWISE | RECOVERY_DELETES | PURGED_SNAPDIRS | PGLOG_HARDLIMIT;

    /// Flag and name, in the order in which Ceph prints them.
    pub const NAMES: &[(u32, &str)] = &[
        (NEARFULL, "nearfull"),
        (FULL, "full"),
        (PAUSE_READ, "pauserd"),
        (PAUSE_WRITE, "pausewr"),
        (PAUSE_RECOVERY, "pauserec"),
        (NOUP, "noup"),
        (NODOWN, "nodown"),
        (NOOUT, "noout"),
        (NOIN, "noin"),
        (NOBACKFILL, "nobackfill"),
        (NOREBALANCE, "norebalance"),
        (NORECOVER, "norecover"),
        (NOSCRUB, "noscrub"),
        (NODEEP_SCRUB, "nodeep-scrub"),
        (NOTIERAGENT, "notieragent"),
        (NOSNAPTRIM, "nosnaptrim"),
        (SORTBITWISE, "sortbitwise"),
        (RECOVERY_DELETES, "recovery_deletes"),
        (PURGED_SNAPDIRS, "purged_snapdirs"),
        (PGLOG_HARDLIMIT, "pglog_hardlimit"),
    ];
}

/// State bits of one OSD (`CEPH_OSD_*`).
pub mod osd {
    /// The id is in use.
    pub const EXISTS: u32 = 0x1;
    /// The daemon runs.
    pub const UP: u32 = 0x2;
    /// Marked out by the monitor, not by a person.
    pub const AUTOOUT: u32 = 0x4;
    /// Never marked in yet.
    pub const NEW: u32 = 0x8;
    /// Over the full ratio.
    pub const FULL: u32 = 0x10;
    /// Over the nearfull ratio.
    pub const NEARFULL: u32 = 0x20;
    /// Over the backfillfull ratio.
    pub const BACKFILLFULL: u32 = 0x40;
    /// Destroyed: the id is kept for a replacement.
    pub const DESTROYED: u32 = 0x80;
    /// May not boot.
    pub const NOUP: u32 = 0x100;
    /// Is not marked down.
    pub const NODOWN: u32 = 0x200;
    /// Is not marked in.
    pub const NOIN: u32 = 0x400;
    /// Is not marked out.
    pub const NOOUT: u32 = 0x800;

    /// Bit and name, in the order in which Ceph prints them.
    pub const NAMES: &[(u32, &str)] = &[
        (EXISTS, "exists"),
        (UP, "up"),
        (AUTOOUT, "autoout"),
        (NEW, "new"),
        (FULL, "full"),
        (NEARFULL, "nearfull"),
        (BACKFILLFULL, "backfillfull"),
        (DESTROYED, "destroyed"),
        (NOUP, "noup"),
        (NODOWN, "nodown"),
        (NOIN, "noin"),
        (NOOUT, "noout"),
    ];
}

/// Flags of one pool (`pg_pool_t::FLAG_*`).
pub mod pool {
    /// Pools hash to unlike OSDs: always set.
    pub const HASHPSPOOL: u64 = 0x1;
    /// Over its quota or on full OSDs.
    pub const FULL: u64 = 0x2;
    /// An erasure-coded pool takes partial overwrites.
    pub const EC_OVERWRITES: u64 = 0x4;
    /// May have incomplete clones (cache tier).
    pub const INCOMPLETE_CLONES: u64 = 0x8;
    /// Cannot be deleted.
    pub const NODELETE: u64 = 0x10;
    /// `pg_num` cannot be changed.
    pub const NOPGCHANGE: u64 = 0x20;
    /// `size` cannot be changed.
    pub const NOSIZECHANGE: u64 = 0x40;
    /// Writes carry "do not cache".
    pub const WRITE_FADVISE_DONTNEED: u64 = 0x80;
    /// No scrub of this pool begins by itself.
    pub const NOSCRUB: u64 = 0x100;
    /// No deep scrub.
    pub const NODEEP_SCRUB: u64 = 0x200;
    /// Over its quota.
    pub const FULL_QUOTA: u64 = 0x400;
    /// The pool has nearly reached its quota.
    pub const NEARFULL: u64 = 0x800;
    /// Too full for backfill.
    pub const BACKFILLFULL: u64 = 0x1000;
    /// Snapshots are made by clients.
    pub const SELFMANAGED_SNAPS: u64 = 0x2000;
    /// Snapshots are made of the pool.
    pub const POOL_SNAPS: u64 = 0x4000;
    /// PGs are still being made.
    pub const CREATING: u64 = 0x8000;
    /// The pool is expected to be large: the autoscaler gives it its full share of PGs from the beginning.
    pub const BULK: u64 = 0x2_0000;

    /// Flag and name, in the order in which Ceph prints them.
    pub const NAMES: &[(u64, &str)] = &[
        (HASHPSPOOL, "hashpspool"),
        (FULL, "full"),
        (EC_OVERWRITES, "ec_overwrites"),
        (INCOMPLETE_CLONES, "incomplete_clones"),
        (NODELETE, "nodelete"),
        (NOPGCHANGE, "nopgchange"),
        (NOSIZECHANGE, "nosizechange"),
        (WRITE_FADVISE_DONTNEED, "write_fadvise_dontneed"),
        (NOSCRUB, "noscrub"),
        (NODEEP_SCRUB, "nodeep-scrub"),
        (FULL_QUOTA, "full_quota"),
        (NEARFULL, "nearfull"),
        (BACKFILLFULL, "backfillfull"),
        (SELFMANAGED_SNAPS, "selfmanaged_snaps"),
        (POOL_SNAPS, "pool_snaps"),
        (CREATING, "creating"),
        (BULK, "bulk"),
    ];
}

/// The names of the bits set in `flags`, joined with commas.
#[must_use]
pub fn join<T: Copy + Into<u64>>(flags: T, names: &[(T, &str)]) -> String {
    let set: Vec<&str> =
        names.iter().filter(|(bit, _)| flags.into() & (*bit).into() != 0).map(|(_, name)| *name).collect();
    set.join(",")
}

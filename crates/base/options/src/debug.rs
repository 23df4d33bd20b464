//! Log levels by subsystem.

use crate::info::{Kind, OptionInfo, row};

const fn level(name: &'static str, default: &'static str) -> OptionInfo {
    row(
        name,
        Kind::DebugLevel,
        default,
        "Log level of the subsystem: level to write, or level to write and level to keep in memory",
    )
}

pub(super) static TABLE: &[OptionInfo] = &[
    level("debug_asok", "1/5"),
    level("debug_auth", "1/5"),
    level("debug_bdev", "1/3"),
    level("debug_bluefs", "1/5"),
    level("debug_bluestore", "1/5"),
    level("debug_buffer", "0/1"),
    level("debug_client", "0/5"),
    level("debug_context", "0/1"),
    level("debug_crush", "1/1"),
    level("debug_crypto", "1/5"),
    level("debug_filer", "0/1"),
    level("debug_finisher", "1/1"),
    level("debug_heartbeatmap", "1/5"),
    level("debug_journaler", "0/5"),
    level("debug_lockdep", "0/1"),
    level("debug_mds", "1/5"),
    level("debug_mgr", "2/5"),
    level("debug_mgrc", "1/5"),
    level("debug_mon", "1/5"),
    level("debug_monc", "0/10"),
    level("debug_ms", "0/0"),
    level("debug_none", "0/5"),
    level("debug_objclass", "0/5"),
    level("debug_objectcacher", "0/5"),
    level("debug_objecter", "0/1"),
    level("debug_optracker", "0/5"),
    level("debug_osd", "1/5"),
    level("debug_paxos", "1/5"),
    level("debug_perfcounter", "1/5"),
    level("debug_rados", "0/5"),
    level("debug_rbd", "0/5"),
    level("debug_rgw", "1/5"),
    level("debug_rocksdb", "4/5"),
    level("debug_striper", "0/1"),
    level("debug_throttle", "1/1"),
    level("debug_timer", "0/1"),
    level("debug_tp", "0/5"),
];

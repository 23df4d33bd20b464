//! Statistics inside messages: of objects, stores, pools, PGs and OSDs.

mod object;
mod osd;
mod pg;
mod store;

pub use object::{ObjStatColl, ObjStatSum};
pub use osd::{OsdPerfStat, OsdStat, PingTimes, PingWindow, SlowOps, osd_alert};
pub use pg::{PgShard, PgStat, PoolStat, pg_state};
pub use store::StoreStatfs;

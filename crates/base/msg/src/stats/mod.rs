//! Statistics inside messages: of objects, stores, pools, PGs and OSDs.

mod object;
mod osd;
mod pg;
mod store;

pub use object::{ObjStatColl, ObjStatSum};
pub use osd::{OsdPerfStat, OsdStat, PingTimes, PingWindow, SlowOps, osd_alert};
pub use pg::{PgShard, PgStat, PoolStat, pg_state};
pub use store::StoreStatfs;

/// Bytes that the recovery of one OSD moves in a second at least, however slow its clients' operations are: slow ones are often not its
/// fault, and a pool that is degraded for hours is a risk of its own. Whoever reads the statistics of PGs can reckon with it.
pub const RECOVERY_RATE_MIN: u64 = 8 << 20;

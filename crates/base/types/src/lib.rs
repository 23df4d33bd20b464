//! The nouns of RADOS: epochs, versions, PGs, objects, names, addresses, times.
//!
//! Each type encodes as its Ceph namesake at v16.2.15 (named in its documentation). Layer: base; uses buf
//! and denc.

pub mod addr;
pub mod build_kind;
pub mod compression;
pub mod device_latency;
pub mod dmcrypt;
pub mod entropy;
pub mod errno;
pub mod features;
pub mod hash;
pub mod ids;
pub mod interval_set;
pub mod name;
pub mod object;
pub mod pg;
pub mod reqid;
pub mod time;
pub mod version;

pub use addr::{AddrKind, AddrVec, EntityAddr};
pub use compression::{Compression, CompressionAlgorithm, CompressionHint, CompressionMode};
pub use device_latency::{DeviceLatencies, DeviceWork, LatencyHistogram, RequestClass};
pub use entropy::Entropy;
pub use errno::Errno;
pub use ids::{Epoch, Eversion, OsdId, PoolId, SnapId, Uuid};
pub use interval_set::IntervalSet;
pub use name::{AuthName, EntityKind, EntityName};
pub use object::{HObject, ObjectLocator};
pub use pg::{PgId, SHARD_NONE, SpgId};
pub use reqid::ReqId;
pub use time::{Stamp, UTime, seconds};

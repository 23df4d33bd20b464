//! Snapshots of objects: which clone a snapshot sees, and when a write must make one.
//!
//! Source: behaviour of ceph-osd v16.2.15 (`PrimaryLogPG::make_writeable`, `find_object_context`), measured; `protocol` words are Ceph's.

mod context;
pub mod mapper;
mod resolve;
mod snapset;

pub use context::SnapContext;
pub use resolve::{Resolved, resolve_snap};
pub(crate) use snapset::{NewClone, apply_snapset};

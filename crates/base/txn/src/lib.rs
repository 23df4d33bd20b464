//! What a PG asks of a store, as data, and what it may read back.
//!
//! A [`Transaction`] is atomic over any number of objects of one collection (one PG): all of it or nothing
//! after a crash. A submitted transaction is visible to reads at once; it is durable when the store says so.
//! Layer: base; uses buf, denc and types.

mod codec;
mod extents;
mod op;
mod view;

pub use extents::{EXTENT_BYTES, Extents, span};
pub use op::{Op, StoreToken, Token, Transaction};
pub use view::{FetchFrom, ObjectView, OmapPage, ReadError};

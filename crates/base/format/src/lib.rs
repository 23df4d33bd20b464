//! What commands print: one tree of values for every machine-readable format, and aligned tables and units for people.
//!
//! | file | what it holds |
//! |---|---|
//! | `node` | [`Node`], the tree; its renderings as JSON and XML, plain and pretty |
//! | `table` | [`Table`]: aligned columns |
//! | `units` | bytes, counts, weights, percentages, stamps and ages as Ceph prints them |
//! | `number` | floating point numbers as C and C++ print them |
//!
//! Layer: base; uses types.

mod node;
mod number;
mod table;
mod units;

pub use node::{Format, Node, Section};
pub use number::{fixed, general};
pub use table::{Align, Table};
pub use units::{age, bytes, low_precision, percent, si, stamp, weight};

//! What commands print: one tree of values for every machine-readable format, aligned tables and units for people.

mod node;
mod number;
mod table;
mod units;

pub use node::{Format, Node, Section};
pub use number::{fixed, general};
pub use table::{Align, Table};
pub use units::{age, bytes, low_precision, percent, si, stamp, weight};

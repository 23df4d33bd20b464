//! The table of options: Ceph's names, types, defaults and bounds, and what each means here; the values that one daemon has.
//!
//! Facts are those of Ceph v16.2.15 (`ceph config help`), except where the sentence says otherwise. `config set` checks values against the
//! table; the OSD, the monitor and `config help|ls` read it.
//!
//! | file | what it holds |
//! |---|---|
//! | `info` | [`OptionInfo`], one row |
//! | `table` | [`all`], [`find`] |
//! | `osd`, `mon`, `client`, `common`, `debug` | the rows, by topic |
//! | `check` | whether a value is one that the option may have, and its normal form |
//! | `readers` | which daemons read an option, and what holds instead where none does |
//! | `values` | [`Values`]: what the options of one daemon are set to |
//!
//! Layer: base; uses format and types.

mod check;
mod client;
mod common;
mod debug;
mod info;
mod mds;
mod mon;
mod osd;
mod readers;
mod table;
mod values;

pub use check::OptionError;
pub use info::{Kind, Level, OptionInfo};
pub use readers::{FOR_OSD, FOR_OWN_MANAGER};
pub use table::{all, find};
pub use values::{Layer, Values};

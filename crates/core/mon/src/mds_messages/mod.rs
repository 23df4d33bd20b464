//! What metadata servers say to the monitors and hear from them.
//!
//! | file | |
//! | --- | --- |
//! | `beacon.rs` | beacons: who comes, what states servers ask for, what they complain about |
//! | `maps.rs` | which map each subscriber is sent |

mod beacon;
mod maps;

pub(crate) use maps::{FSMAP, FSMAP_USER, is_mdsmap, shown_map};

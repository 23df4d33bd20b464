//! What managers say to the monitors and hear from them.
//!
//! | file | |
//! | --- | --- |
//! | `beacon.rs` | beacons of stock managers: who becomes active, and who is given up |
//! | `report.rs` | what the active manager reports, and what it is told |
//! | `keys.rs` | keys and values that managers subscribe to |
//! | `services.rs` | the service map of our own manager |

mod beacon;
mod keys;
mod report;
mod services;

pub(crate) use report::DIGEST_TOPIC;

//! One PG as a machine: events in, effects out.
//!
//! [`Pg::handle`] takes what happened ([`Event`]) with what the PG may see ([`Cx`]); what it wants done
//! collects in [`Effects`]. The PG owns no clock, socket, disk or thread, so that a whole cluster runs in
//! one thread from one seed. Layer: core; uses base, core/auth and core/cls.
//!
//! What the copy is lies in `state`; each part below owns what it has under way and the methods on it, and gets the state with the event's
//! [`Cx`]. `pg` leads each event to its part, `client_ops`, `commit`, `maps`, `activation` and `route` lead what comes of it to the others.
//!
//! | folder | holds |
//! |---|---|
//! | `pg`, `client_ops`, `commit`, `maps`, `activation`, `route`, `status` | events to the parts, from part to part, and what the OSD asks |
//! | `state` | interval, log, info, what is missing, what is known of other copies |
//! | `interval`, `phase`, `peer`, `progress`, `stamps`, `coding`, `tokens` | what the state is made of |
//! | `storage` | what of it is stored, and how it is found again |
//! | `early` | peers' messages that come before their map |
//! | `stats` | the report for the manager |
//! | `event`, `effect`, `session`, `permit`, `merge_role`, `ops_in_flight` | what passes between a PG and its OSD |
//! | `reserver`, `throttle`, `turn` | what all PGs of a shard share |
//! | `pipeline`, `reply` | a client's message from arrival to reply: checks, order per object, waiting |
//! | `ops`, `snap`, `object`, `list` | execution of operations into a transaction |
//! | `backend` | writes in flight to the replicas and their completion in order |
//! | `log` | the PG log, duplicates of requests, merging of logs |
//! | `peering` | intervals, and agreement of the members on one log |
//! | `recovery` | objects brought up to date, pulled and pushed; slots for that |
//! | `watch` | watchers and notifies |
//! | `moving` | more PGs, or fewer: splits and merges |
//! | `relocation` | a copy's way to another store of its OSD |
//! | `scrub`, `digest`, `snaptrim` | background work |

mod activation;
mod backend;
mod client_ops;
mod coding;
mod commit;
mod digest;
mod early;
mod effect;
mod event;
#[cfg(test)]
mod harness;
mod interval;
pub mod list;
mod log;
mod maps;
mod merge_role;
mod moving;
pub mod object;
pub mod ops;
mod ops_in_flight;
mod peer;
mod peering;
mod permit;
mod pg;
mod phase;
mod pipeline;
mod progress;
mod recovery;
mod relocation;
mod reply;
mod reserver;
mod route;
mod scrub;
mod session;
pub mod snap;
mod snaptrim;
mod stamps;
mod state;
mod stats;
mod status;
mod storage;
#[cfg(test)]
mod tests;
mod throttle;
mod tokens;
mod tuning;
mod turn;
mod watch;

pub use effect::{Effect, Effects};
pub use event::{ClientOp, Cx, Event, Lost, RecoveryKind, StoreRoom};
pub use log::{LOG_ENTRIES_MAX, LOG_ENTRIES_TARGET, LOG_TRIM_ENTRIES_MIN, LogLimits};
pub use merge_role::{MergeRole, MergeState};
pub use ops::{MessageLimits, expected_bytes, looks};
pub use ops_in_flight::{OpInFlight, OpStage};
pub use peering::{Lineage, PgCreateInfo, reply_without_pg};
pub use permit::{Budget, Permit};
pub use pg::Pg;
pub use recovery::{LOST_OBJECTS_MAX, LostError, MissingObject};
pub use relocation::{Arriving, CollectionCopy, CopyStep, PIECE_BYTES};
pub use reserver::{Decision, Reserver, Side};
pub use scrub::{ScrubDue, ScrubIntervals};
pub use session::{Session, SessionId, Trace};
pub use throttle::{KeptSeconds, RecoveryThrottle};
pub use tuning::{FUTURE_MESSAGES_MAX, Planted, QueueLimits, Tuning};
pub use turn::{TURN_WORK_MAX, TurnWork};

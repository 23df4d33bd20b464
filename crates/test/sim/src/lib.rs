//! The simulation: a whole cluster in one thread from one seed.
//!
//! The daemons are the real ones, down to the bytes on the wires and on the disks; only the machine below them
//! is not: time, randomness, sockets and devices are the world's, and everything in them follows from the seed.
//! Layer: test; uses everything.
//!
//! | file | holds |
//! |---|---|
//! | `world` | machines, processes, the one loop |
//! | `net`, `clock`, `kv` | what the machines are made of, beside io/simdisk |
//! | `workload`, `model`, `history` | what clients do, what must come of it, whether it did |
//! | `watching` | clients that watch and notify, and what they may rely on |
//! | `story` | what goes wrong, and how it must end |
//! | `mon_load`, `register` | clients of several monitors, and whether their answers make sense |
//! | `ask` | questions of tests that tell a story of their own |

mod ask;
mod clock;
mod history;
mod kv;
mod model;
mod mon_load;
mod net;
mod register;
mod story;
mod watching;
mod workload;
mod world;

pub use clock::SimClock;
pub use kv::SimKv;
pub use mon_load::{AdminAnswer, CLIENTS, MonLoad, mon_seeds};
pub use net::{Fabric, Host, SimNet, Wires};
pub use register::{Asked, Register};
pub use story::{Flaw, Kind, Outcome, Plan, Story, tell};

pub use nacre_client::{Client, Finished};
pub use world::{Config, OsdCopy, Proc, Restored, World};

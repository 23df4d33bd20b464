//! Object classes: server-side methods that clients call with the op `CALL`, in Rust, in one table.
//!
//! A method reads the object as it was before the message and adds its changes to the message's
//! transaction; a negative result aborts the whole message. Names, flags, payloads and error numbers are
//! those of Ceph's classes at v16.2.15. Layer: core; uses base.

mod cas;
mod cx;
mod fifo;
mod hello;
mod journal;
mod keys;
mod lock;
mod log;
mod method;
mod numops;
mod otp;
mod queue;
mod rbd;
mod refcount;
mod registry;
#[cfg(test)]
mod replay;
mod rgw;
mod sdk;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod timeindex;
mod user;
mod version;

pub use cx::{Caller, ClassCx, Fault, MethodResult};
pub use method::{Flags, Method};
pub use registry::{CLASSES, Class, lookup};

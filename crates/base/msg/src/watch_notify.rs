//! What an OSD says to a client on its own: [`WatchNotify`] and [`OsdBackoff`].
//!
//! Source: Ceph `MWatchNotify.h` (header version 3, compat 1; the body begins with a bare version byte) and
//! `MOSDBackoff.h` (1, 1), v16.2.15.

use crate::body::{Body, body};
use nacre_buf::{BufList, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{Epoch, HObject, SpgId};

/// Version byte that begins the body.
const BODY_VERSION: u8 = 1;

/// Values of [`WatchNotify::op`].
pub mod notify_op {
    /// To a watcher: a client notifies.
    pub const NOTIFY: u8 = 1;
    /// To the notifier: all have answered, or time is up.
    pub const COMPLETE: u8 = 2;
    /// To a watcher: its watch is gone.
    pub const DISCONNECT: u8 = 3;
}

/// `MWatchNotify`. Its tid is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchNotify {
    /// See [`notify_op`].
    pub op: u8,
    /// The watcher's handle, or the notifier's in a completion.
    pub cookie: u64,
    /// User version of the object.
    pub version: u64,
    /// Names the notify.
    pub notify_id: u64,
    /// What the notifier sends to the watchers.
    pub payload: Bytes,
    /// Of a completion: 0, or negated `ETIMEDOUT`.
    pub return_code: i32,
    /// Global id of the notifier.
    pub notifier_gid: u64,
    /// Of a completion: a [`NotifyOutcome`].
    pub data: BufList,
}

impl Body for WatchNotify {
    const NAME: &'static str = "WatchNotify";
    const KIND: u16 = 44;
    const VERSION: u16 = 3;
    const COMPAT: u16 = 1;
    const OLDEST: u16 = 3;

    fn read(_version: u16, r: &mut Reader, data: BufList) -> Result<Self, DecodeError> {
        r.u8()?; // newer body versions only append
        Ok(Self {
            op: r.u8()?,
            cookie: r.u64()?,
            version: r.u64()?,
            notify_id: r.u64()?,
            payload: r.blob()?,
            return_code: r.i32()?,
            notifier_gid: r.u64()?,
            data,
        })
    }

    fn write(self, w: &mut Writer) -> BufList {
        w.u8(BODY_VERSION);
        w.u8(self.op);
        w.u64(self.cookie);
        w.u64(self.version);
        w.u64(self.notify_id);
        w.put(&self.payload);
        w.i32(self.return_code);
        w.u64(self.notifier_gid);
        self.data
    }
}

/// The data of a completed notify: what each watcher answered, and which did not.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct NotifyOutcome {
    /// (global id, cookie) and reply of each watcher that acknowledged.
    pub replies: Vec<((u64, u64), Bytes)>,
    /// (global id, cookie) of each watcher that did not in time.
    pub timeouts: Vec<(u64, u64)>,
}

impl Encode for NotifyOutcome {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.replies);
        w.put(&self.timeouts);
    }
}

impl Decode for NotifyOutcome {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { replies: r.get()?, timeouts: r.get()? })
    }
}

/// Values of [`OsdBackoff::op`].
pub mod backoff_op {
    /// Hold operations on the range.
    pub const BLOCK: u8 = 1;
    /// The client does.
    pub const ACK_BLOCK: u8 = 2;
    /// The client may send again.
    pub const UNBLOCK: u8 = 3;
}

/// `MOSDBackoff`: hold operations on the objects `begin .. end` of a PG.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsdBackoff {
    /// PG that the backoff is about.
    pub spg: SpgId,
    /// The sender's map epoch.
    pub map_epoch: Epoch,
    /// See [`backoff_op`].
    pub op: u8,
    /// Names the backoff within the session.
    pub id: u64,
    /// First object that the backoff covers.
    pub begin: HObject,
    /// Behind the last object; equal to `begin` for that object alone.
    pub end: HObject,
}

body!(OsdBackoff = 61, 1 / 1; spg, map_epoch, op, id, begin, end);

//! [`OsdPing`]: heartbeats between OSDs.
//!
//! Source: Ceph `MOSDPing.h`, v16.2.15; header version 5, compat 4. Clock readings travel as `i32` seconds
//! and `i32` nanoseconds, both negative in a negative duration.

use crate::body::Body;
use nacre_buf::BufList;
use nacre_denc::{DecodeError, Reader, Writer};
use nacre_types::{Epoch, UTime, Uuid};

/// Values of [`OsdPing::op`].
pub mod ping_op {
    /// The sender's map says that the receiver is down.
    pub const YOU_DIED: u8 = 2;
    /// Are you there?
    pub const PING: u8 = 4;
    /// The answer to a ping.
    pub const PING_REPLY: u8 = 5;
}

/// Largest padding that we write, bytes.
const PADDING_BYTES_MAX: u32 = 64 << 10;
/// Bytes in front of the padding's length.
const HEAD_BYTES: u32 = 16 + 4 + 1 + 8;
const NS_PER_S: i64 = 1_000_000_000;

/// `MOSDPing`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct OsdPing {
    /// Id of the cluster that the sender belongs to.
    pub fsid: Uuid,
    /// Epoch of the sender's map.
    pub map_epoch: Epoch,
    /// See [`ping_op`].
    pub op: u8,
    /// The pinger's clock; a reply echoes it.
    pub ping_stamp: UTime,
    /// Pads the message to about this many bytes, so that a network that drops large packets is noticed.
    /// 2000 by default; replies copy it.
    pub min_message_bytes: u32,
    /// Epoch in which the sender became up.
    pub up_from: Epoch,
    /// The pinger's monotonic clock, nanoseconds; a reply echoes it.
    pub mono_ping_stamp_ns: i64,
    /// The sender's monotonic clock at sending, nanoseconds.
    pub mono_send_stamp_ns: i64,
    /// Upper bound of how far the receiver's monotonic clock is ahead of the sender's, nanoseconds.
    pub delta_ub_ns: Option<i64>,
}

fn read_span(r: &mut Reader) -> Result<i64, DecodeError> {
    Ok(i64::from(r.i32()?) * NS_PER_S + i64::from(r.i32()?))
}

fn write_span(w: &mut Writer, ns: i64) {
    let limit = i64::from(i32::MAX);
    w.i32(i32::try_from((ns / NS_PER_S).clamp(-limit, limit)).unwrap_or(0));
    w.i32(i32::try_from(ns % NS_PER_S).unwrap_or(0));
}

impl Body for OsdPing {
    const NAME: &'static str = "OsdPing";
    const KIND: u16 = 70;
    const VERSION: u16 = 5;
    const COMPAT: u16 = 4;
    const OLDEST: u16 = 5;

    fn read(_version: u16, r: &mut Reader, _data: BufList) -> Result<Self, DecodeError> {
        let (fsid, map_epoch, op, ping_stamp) = (r.get()?, r.u32()?, r.u8()?, r.get()?);
        let padding = r.u32()?;
        Ok(Self {
            fsid,
            map_epoch,
            op,
            ping_stamp,
            min_message_bytes: if padding == 0 { 0 } else { padding.saturating_add(HEAD_BYTES) },
            up_from: r.u32()?,
            mono_ping_stamp_ns: read_span(r)?,
            mono_send_stamp_ns: read_span(r)?,
            delta_ub_ns: if r.bool()? { Some(read_span(r)?) } else { None },
        })
    }

    fn write(self, w: &mut Writer) -> BufList {
        let padding = self.min_message_bytes.saturating_sub(HEAD_BYTES).min(PADDING_BYTES_MAX);
        w.put(&self.fsid);
        w.u32(self.map_epoch);
        w.u8(self.op);
        w.put(&self.ping_stamp);
        w.u32(padding);
        w.u32(self.up_from);
        write_span(w, self.mono_ping_stamp_ns);
        write_span(w, self.mono_send_stamp_ns);
        w.bool(self.delta_ub_ns.is_some());
        if let Some(delta) = self.delta_ub_ns {
            write_span(w, delta);
        }
        w.zeros(padding as usize);
        BufList::new()
    }
}

//! [`Client`]: the record of a journal's client, and where it is kept.

use crate::keys::{all, get, set, stored};
use crate::{ClassCx, Fault};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};

pub(super) const PREFIX: &str = "client_";
/// State of a client that no longer holds back trimming.
const DISCONNECTED: u8 = 1;

/// `cls::journal::ObjectPosition`: one entry of the journal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) object_number: u64,
    pub(super) tag_tid: u64,
    pub(super) entry_tid: u64,
}

impl Encode for Position {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u64(self.object_number);
            w.u64(self.tag_tid);
            w.u64(self.entry_tid);
        });
    }
}

impl Decode for Position {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("ObjectPosition", 1, |_, r| {
            Ok(Self { object_number: r.u64()?, tag_tid: r.u64()?, entry_tid: r.u64()? })
        })
    }
}

/// `cls::journal::ObjectSetPosition`: what a client has committed, newest entry first.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Positions(pub(super) Vec<Position>);

impl Encode for Positions {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| w.put(&self.0));
    }
}

impl Decode for Positions {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("ObjectSetPosition", 1, |_, r| Ok(Self(r.get()?)))
    }
}

/// `cls::journal::Client`
pub(super) struct Client {
    pub(super) id: ByteStr,
    pub(super) data: Bytes,
    pub(super) committed: Positions,
    pub(super) state: u8,
}

impl Encode for Client {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.id);
            w.put(&self.data);
            w.put(&self.committed);
            w.u8(self.state);
        });
    }
}

impl Decode for Client {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("Client", 1, |_, r| {
            Ok(Self { id: r.get()?, data: r.get()?, committed: r.get()?, state: r.u8()? })
        })
    }
}

pub(super) fn key(id: &ByteStr) -> String {
    format!("{PREFIX}{id}")
}

impl Client {
    pub(super) fn load(cx: &dyn ClassCx, id: &ByteStr) -> Result<Self, Fault> {
        get(cx, &key(id))
    }

    pub(super) fn all(cx: &dyn ClassCx) -> Result<Vec<Self>, Fault> {
        all(cx, PREFIX).into_iter().map(|(_, value)| stored(value)).collect()
    }

    pub(super) fn save(&self, cx: &mut dyn ClassCx) {
        set(cx, key(&self.id), self);
    }

    pub(super) fn is_disconnected(&self) -> bool {
        self.state == DISCONNECTED
    }

    /// Entries up to which this client needs nothing any more.
    pub(super) fn committed(&self) -> &[Position] {
        &self.committed.0
    }
}

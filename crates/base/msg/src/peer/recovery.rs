//! Bringing copies up to date, object by object.

use super::coded::{coded, coded_message, message_parts};
use super::{PeerHeader, PgInfo};
use nacre_buf::{BufList, ByteStr};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_txn::Transaction;
use nacre_types::{Eversion, HObject};

/// Where a part of an object begins. Parts come in this order; one goes on into the next stage when it has room.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum PartCursor {
    /// At the beginning: the object is made anew.
    #[default]
    Start,
    /// At the first attribute whose name is not less.
    Attrs(ByteStr),
    /// At the first omap entry whose key is not less.
    Omap(ByteStr),
    /// At this byte of the data.
    Data(u64),
}

/// Written for a cursor that a byte of data alone cannot say, accepted besides version 1: its reader would take any
/// other for the beginning.
const CURSOR_VERSION: u8 = 2;

mod stage {
    pub(super) const START: u8 = 0;
    pub(super) const ATTRS: u8 = 1;
    pub(super) const OMAP: u8 = 2;
    pub(super) const DATA: u8 = 3;
}

impl PartCursor {
    /// As version 1 has it: the first byte of data, 0 for the beginning.
    fn offset(&self) -> u64 {
        if let Self::Data(offset) = self { *offset } else { 0 }
    }

    fn of_offset(offset: u64) -> Self {
        if offset == 0 { Self::Start } else { Self::Data(offset) }
    }

    fn version(&self) -> u8 {
        if *self == Self::of_offset(self.offset()) { 1 } else { CURSOR_VERSION }
    }

    /// What version 2 adds behind the offset: which stage, and the name or key.
    fn write_stage(&self, w: &mut Writer) {
        let (stage, key) = match self {
            Self::Start => (stage::START, &ByteStr::EMPTY),
            Self::Attrs(name) => (stage::ATTRS, name),
            Self::Omap(key) => (stage::OMAP, key),
            Self::Data(_) => (stage::DATA, &ByteStr::EMPTY),
        };
        w.u8(stage);
        w.put(key);
    }

    fn read_stage(offset: u64, version: u8, r: &mut Reader) -> Result<Self, DecodeError> {
        if version < CURSOR_VERSION {
            return Ok(Self::of_offset(offset));
        }
        match (r.u8()?, r.get()?) {
            (stage::START, _) => Ok(Self::Start),
            (stage::ATTRS, name) => Ok(Self::Attrs(name)),
            (stage::OMAP, key) => Ok(Self::Omap(key)),
            (stage::DATA, _) => Ok(Self::Data(offset)),
            (stage, _) => {
                Err(DecodeError::Invalid { what: "stage of an object's part", value: stage.into() })
            }
        }
    }
}

/// Which objects do you have, from here on?
#[derive(Debug, Clone, PartialEq)]
pub struct Scan {
    /// PG and epoch.
    pub header: PeerHeader,
    /// First object wanted.
    pub from: HObject,
}

coded_message!(Scan, "Scan", { header, from });

/// An object and the version of its copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScannedObject {
    /// Name of the object that it is about.
    pub object: HObject,
    /// Version of the copy; zero when it is only partly there.
    pub version: Eversion,
}

coded!(ScannedObject, "scanned object", { object, version });

/// These objects, in these versions.
#[derive(Debug, Clone, PartialEq)]
pub struct ScanReply {
    /// PG and epoch.
    pub header: PeerHeader,
    /// Where it begins, echoed.
    pub from: HObject,
    /// Objects and their versions, ascending.
    pub objects: Vec<ScannedObject>,
    /// First object not listed; the maximum when the list is complete.
    pub next: HObject,
}

coded_message!(ScanReply, "ScanReply", { header, from, objects, next });

/// Send me this object.
#[derive(Debug, Clone, PartialEq)]
pub struct Pull {
    /// PG and epoch.
    pub header: PeerHeader,
    /// Name of the object that it is about.
    pub object: HObject,
    /// The version that is needed.
    pub need: Eversion,
    /// Which part is wanted.
    pub at: PartCursor,
}

impl Encode for Pull {
    fn encode(&self, w: &mut Writer) {
        let version = self.at.version();
        w.envelope(version, version, |w| {
            w.put(&self.header);
            w.put(&self.object);
            w.put(&self.need);
            w.u64(self.at.offset());
            if version >= CURSOR_VERSION {
                self.at.write_stage(w);
            }
        });
    }
}

impl Decode for Pull {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("Pull", CURSOR_VERSION, |version, r| {
            let (header, object, need, offset) = (r.get()?, r.get()?, r.get()?, r.u64()?);
            Ok(Self { header, object, need, at: PartCursor::read_stage(offset, version, r)? })
        })
    }
}

message_parts!(Pull);

/// Here is (a part of) an object, or the order to drop it.
#[derive(Debug, Clone, PartialEq)]
pub struct Push {
    /// PG and epoch.
    pub header: PeerHeader,
    /// Name of the object that it is about.
    pub object: HObject,
    /// Its version; zero when it must not exist.
    pub version: Eversion,
    /// This part begins here.
    pub at: PartCursor,
    /// The next part begins here; `None` when this is the last one.
    pub next: Option<PartCursor>,
    /// True when the receiver asked for it with [`Pull`].
    pub pulled: bool,
    /// The change to apply.
    pub txn: Transaction,
}

impl Push {
    pub(super) fn encode_parts(&self, w: &mut Writer) -> BufList {
        let mut data = BufList::new();
        let version = self.next.as_ref().map_or(1, PartCursor::version).max(self.at.version());
        w.envelope(version, version, |w| {
            w.put(&self.header);
            w.put(&self.object);
            w.put(&self.version);
            w.u64(self.at.offset());
            w.put(&self.next.as_ref().map(PartCursor::offset));
            w.bool(self.pulled);
            if version >= CURSOR_VERSION {
                self.at.write_stage(w);
                self.next.iter().for_each(|next| next.write_stage(w));
            }
            data = self.txn.encode_parts(w);
        });
        data
    }

    pub(super) fn decode_parts(r: &mut Reader, data: &BufList) -> Result<Self, DecodeError> {
        r.envelope("Push", CURSOR_VERSION, |form, r| {
            let (header, object, version, offset) = (r.get()?, r.get()?, r.get()?, r.u64()?);
            let (next, pulled): (Option<u64>, bool) = (r.get()?, r.bool()?);
            let at = PartCursor::read_stage(offset, form, r)?;
            let next = next.map(|offset| PartCursor::read_stage(offset, form, r)).transpose()?;
            let txn = Transaction::decode_parts(r, data)?;
            Ok(Self { header, object, version, at, next, pulled, txn })
        })
    }
}

/// The part is durable here, or I cannot give the object.
#[derive(Debug, Clone, PartialEq)]
pub struct PushReply {
    /// PG and epoch.
    pub header: PeerHeader,
    /// Name of the object that it is about.
    pub object: HObject,
    /// The version that was pushed or asked for.
    pub version: Eversion,
    /// The part that is durable.
    pub at: PartCursor,
    /// An answer to [`Pull`]: this copy does not have that version.
    pub absent: bool,
}

impl Encode for PushReply {
    fn encode(&self, w: &mut Writer) {
        let version = self.at.version();
        w.envelope(version, version, |w| {
            w.put(&self.header);
            w.put(&self.object);
            w.put(&self.version);
            w.u64(self.at.offset());
            w.bool(self.absent);
            if version >= CURSOR_VERSION {
                self.at.write_stage(w);
            }
        });
    }
}

impl Decode for PushReply {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("PushReply", CURSOR_VERSION, |form, r| {
            let (header, object, version, offset) = (r.get()?, r.get()?, r.get()?, r.u64()?);
            let absent = r.bool()?;
            Ok(Self { header, object, version, at: PartCursor::read_stage(offset, form, r)?, absent })
        })
    }
}

message_parts!(PushReply);

/// What the primary knows of the receiver now: it misses nothing any more, or the PG's history moved on.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// PG and epoch.
    pub header: PeerHeader,
    /// The primary's info; its history, purged snapshots and counters are taken over.
    pub info: PgInfo,
    /// The receiver has all objects as of `info.last_update`.
    pub complete: bool,
    /// The receiver has those before this one, or its log tells what it lacks of them. Since version 2; the minimum in
    /// version 1.
    pub last_backfill: HObject,
}

const PROGRESS_VERSION: u8 = 2;

impl Encode for Progress {
    fn encode(&self, w: &mut Writer) {
        w.envelope(PROGRESS_VERSION, 1, |w| {
            w.put(&self.header);
            w.put(&self.info);
            w.bool(self.complete);
            w.put(&self.last_backfill);
        });
    }
}

impl Decode for Progress {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("Progress", PROGRESS_VERSION, |version, r| {
            let (header, info, complete) = (r.get()?, r.get()?, r.bool()?);
            let last_backfill = if version >= 2 { r.get()? } else { HObject::MIN };
            Ok(Self { header, info, complete, last_backfill })
        })
    }
}

message_parts!(Progress);

/// The PG is clean without you: drop your copy.
#[derive(Debug, Clone, PartialEq)]
pub struct Release {
    /// PG and epoch.
    pub header: PeerHeader,
}

coded_message!(Release, "Release", { header });

//! The record of a queue that is spread over many objects: which of them there are, and which one takes new entries. It is
//! the data of the queue's first object.

use super::{ENTRY_OVERHEAD_BYTES, HEADER_BYTES, Params};
use crate::keys::{input, output};
use crate::method::{done, fail};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::Errno;
use std::collections::{BTreeMap, BTreeSet};

/// Random characters in the names of parts, and in versions.
const PREFIX_CHARS: usize = 12;
const INSTANCE_CHARS: usize = 16;

/// `rados::cls::fifo::objv`: which state of the record a client means.
#[derive(Clone, PartialEq, Eq)]
struct Version {
    instance: ByteStr,
    number: u64,
}

impl Encode for Version {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.instance);
            w.u64(self.number);
        });
    }
}

impl Decode for Version {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("fifo::objv", 1, |_, r| Ok(Self { instance: r.get()?, number: r.u64()? }))
    }
}

/// `rados::cls::fifo::journal_entry`: a step that a client has begun with a part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Step {
    /// 1 create, 2 make it the head, 3 remove.
    op: i32,
    part: i64,
}

impl Encode for Step {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.i32(self.op);
            w.i64(self.part);
            w.str(""); // a tag once
        });
    }
}

impl Decode for Step {
    const MIN_BYTES: usize = 22;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("fifo::journal_entry", 1, |_, r| {
            let step = Self { op: r.i32()?, part: r.i64()? };
            r.str()?;
            Ok(step)
        })
    }
}

/// `rados::cls::fifo::info`
#[derive(Clone, PartialEq)]
struct Info {
    id: ByteStr,
    version: Version,
    /// Parts are called this with their number behind it.
    prefix: ByteStr,
    params: Params,
    tail_part: i64,
    head_part: i64,
    push_part_min: i64,
    push_part_max: i64,
    journal: BTreeSet<Step>,
}

impl Encode for Info {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.id);
            w.put(&self.version);
            w.put(&self.prefix);
            w.put(&self.params);
            w.i64(self.tail_part);
            w.i64(self.head_part);
            w.i64(self.push_part_min);
            w.i64(self.push_part_max);
            w.count(0); // tags of parts once
            w.str("");
            w.count(self.journal.len());
            for step in &self.journal {
                w.i64(step.part);
                w.put(step);
            }
        });
    }
}

impl Decode for Info {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("fifo::info", 1, |_, r| {
            let mut info = Self {
                id: r.get()?,
                version: r.get()?,
                prefix: r.get()?,
                params: r.get()?,
                tail_part: r.i64()?,
                head_part: r.i64()?,
                push_part_min: r.i64()?,
                push_part_max: r.i64()?,
                journal: BTreeSet::new(),
            };
            r.get::<BTreeMap<i64, ByteStr>>()?;
            r.str()?;
            let journal: Vec<(i64, Step)> = r.get()?;
            info.journal = journal.into_iter().map(|(_, step)| step).collect();
            Ok(info)
        })
    }
}

impl Info {
    /// The record, in the version that the client means if it means one.
    fn load(cx: &dyn ClassCx, version: Option<&Version>) -> Result<Self, Fault> {
        if !cx.exists() {
            return fail(Errno::ENOENT);
        }
        if cx.size() == 0 {
            return fail(Errno::ENODATA);
        }
        let data = cx.read(0, cx.size())?;
        let info = Self::from_bytes(data).map_err(|_| Fault::Errno(Errno::EIO))?;
        if version.is_some_and(|version| *version != info.version) {
            return fail(Errno::ECANCELED);
        }
        Ok(info)
    }

    fn save(&self, cx: &mut dyn ClassCx) {
        cx.write_full(self.to_bytes().into());
    }
}

/// `rados::cls::fifo::op::create_meta`
struct CreateOp {
    id: ByteStr,
    version: Option<Version>,
    prefix: Option<ByteStr>,
    part_bytes_max: u64,
    entry_bytes_max: u64,
    exclusive: bool,
}

impl Decode for CreateOp {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("fifo::op::create_meta", 1, |_, r| {
            let (id, version) = (r.get()?, r.get()?);
            let (_pool, _namespace): (ByteStr, ByteStr) = (r.get()?, r.get()?);
            Ok(Self {
                id,
                version,
                prefix: r.get()?,
                part_bytes_max: r.u64()?,
                entry_bytes_max: r.u64()?,
                exclusive: r.bool()?,
            })
        })
    }
}

/// Random characters of base 64.
fn random_text(cx: &mut dyn ClassCx, chars: usize) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    (0..chars).map(|_| char::from(ALPHABET[(cx.random() % 64) as usize])).collect()
}

/// Makes a queue; one that is as described may be there already, unless `exclusive`.
pub(super) fn create(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let op: CreateOp = input(bytes)?;
    let fits = op.entry_bytes_max != 0 && op.entry_bytes_max <= op.part_bytes_max;
    if op.id.is_empty() || !fits {
        return fail(Errno::EINVAL);
    }
    if cx.exists() {
        if op.exclusive {
            return fail(Errno::EEXIST);
        }
        if cx.size() == 0 {
            return fail(Errno::EIO);
        }
        let info = Info::load(cx, None)?;
        let is_same = info.id == op.id
            && op.prefix.is_none_or(|prefix| prefix == info.prefix)
            && op.version.is_none_or(|version| version == info.version);
        return if is_same { done() } else { fail(Errno::EEXIST) };
    }
    let version =
        op.version.unwrap_or_else(|| Version { instance: random_text(cx, INSTANCE_CHARS).into(), number: 1 });
    let prefix = op.prefix.unwrap_or_else(|| {
        let random = random_text(cx, PREFIX_CHARS);
        ByteStr::from([op.id.as_bytes(), b".", random.as_bytes()].concat())
    });
    let params = Params {
        part_bytes_max: op.part_bytes_max,
        entry_bytes_max: op.entry_bytes_max,
        full_bytes: op.part_bytes_max.wrapping_sub(op.entry_bytes_max).wrapping_sub(ENTRY_OVERHEAD_BYTES),
    };
    let (tail_part, head_part, push_part_min, push_part_max) = (0, -1, 0, -1);
    Info {
        id: op.id,
        version,
        prefix,
        params,
        tail_part,
        head_part,
        push_part_min,
        push_part_max,
        journal: BTreeSet::new(),
    }
    .save(cx);
    done()
}

/// `opt<version>`
pub(super) fn get(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let version: Option<Version> = Reader::new(bytes).envelope("fifo::op::get_meta", 1, |_, r| r.get())?;
    let info = Info::load(cx, version.as_ref())?;
    output(|w| {
        w.envelope(1, 1, |w| {
            w.put(&info);
            w.u32(HEADER_BYTES as u32);
            w.u32(ENTRY_OVERHEAD_BYTES as u32);
        });
    })
}

/// `rados::cls::fifo::op::update_meta`
struct UpdateOp {
    version: Version,
    tail_part: Option<i64>,
    head_part: Option<i64>,
    push_part_min: Option<i64>,
    push_part_max: Option<i64>,
    added: Vec<Step>,
    removed: Vec<Step>,
}

impl Decode for UpdateOp {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("fifo::op::update_meta", 1, |_, r| {
            Ok(Self {
                version: r.get()?,
                tail_part: r.get()?,
                head_part: r.get()?,
                push_part_min: r.get()?,
                push_part_max: r.get()?,
                added: r.get()?,
                removed: r.get()?,
            })
        })
    }
}

/// Changes the record, and if that makes a difference its version.
pub(super) fn update(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let op: UpdateOp = input(bytes)?;
    if op.version.instance.is_empty() {
        return fail(Errno::EINVAL);
    }
    let mut info = Info::load(cx, Some(&op.version))?;
    let before = info.clone();
    let parts = [
        (&mut info.tail_part, op.tail_part),
        (&mut info.head_part, op.head_part),
        (&mut info.push_part_min, op.push_part_min),
        (&mut info.push_part_max, op.push_part_max),
    ];
    for (part, new) in parts {
        *part = new.unwrap_or(*part);
    }
    info.journal.extend(op.added);
    info.journal.retain(|step| !op.removed.contains(step));
    if info != before {
        info.version.number = info.version.number.wrapping_add(1);
    }
    info.save(cx);
    done()
}

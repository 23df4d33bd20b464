//! [`Object`]: what an object must be like after each message, without any of the machinery.

use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, Reader, Writer};
use nacre_msg::osd_op::{Extent, code, compare_op};
use nacre_msg::{OsdOpReply, SubOp};
use nacre_types::{Errno, ObjectLocator, PoolId, SnapId};
use std::collections::BTreeMap;
use std::fmt;

/// Flag of `create`: fail when the object exists. Ceph `CEPH_OSD_OP_FLAG_EXCL`.
const EXCLUSIVE: u32 = 1;
/// Mode of comparison: as text. Ceph `CEPH_OSD_CMPXATTR_MODE_STRING`.
const COMPARE_TEXT: u8 = 1;

/// What the class `hello` reads of an object at most.
const AMPLIFIED_BYTES_MAX: usize = 1100;
/// Attributes in which that class says who called it, which is no matter of the object's.
const SIGNATURES: [&str; 2] = ["said_by", "amplified_by"];

/// What one object holds.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Content {
    /// Data of the object.
    pub(crate) data: Vec<u8>,
    /// Attributes of the object, by name.
    pub(crate) attrs: BTreeMap<String, String>,
    /// Omap of the object, by key.
    pub(crate) omap: BTreeMap<String, String>,
}

/// Written as text, where it is text; many zeros as `\0*8000`.
impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |run: &[u8]| match run {
            [0, ..] if run.len() >= 8 => format!("\\0*{} ", run.len()),
            _ => run.escape_ascii().to_string(),
        };
        let data: String = self.data.chunk_by(|a, b| a == b).map(text).collect();
        write!(f, "\"{data}\" {:?} {:?}", self.attrs, self.omap)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Clone_ {
    id: u64,
    snaps: Vec<u64>,
    content: Content,
}

/// An object with its snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Object {
    head: Option<Content>,
    /// Newest snapshot that a write has known of.
    seq: u64,
    clones: Vec<Clone_>,
}

/// What one message does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Action {
    /// Creates, or fails.
    #[default]
    Create,
    /// Appends this text to the data.
    Append(String),
    /// Appends to an erasure-coded object, whose last stripe of so many bytes must be full.
    Extend(String, usize),
    /// Replaces the bytes.
    WriteFull(String),
    /// Writes at an offset.
    Write(usize, String),
    /// Cuts the bytes, or makes them more.
    Truncate(usize),
    /// Makes bytes zeros, from an offset on that many.
    Zero(usize, usize),
    /// Removes the object.
    Delete,
    /// Sets an attribute.
    SetAttr(String, String),
    /// Sets an entry of the omap.
    SetOmap(String, String),
    /// Replaces the bytes and sets an attribute and an entry, together.
    SetAll(String, String),
    /// Replaces the bytes if the attribute `k` has this value, and sets it anew.
    Swap(String, String),
    /// Calls a class that greets, unless the object exists.
    Greet(String),
    /// Calls a class that makes the bytes upper case.
    Amplify,
    /// Replaces all of it by a copy of an object of this name, which holds this and never changes.
    CopyFrom(PoolId, String, Content),
    /// Makes the head what it was at a snapshot.
    Rollback(u64),
    /// Reads everything, of the head or at a snapshot.
    Read(Option<u64>),
}

/// The answer to a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Of a message that changes something, or fails.
    Result(i32),
    /// Of one that reads.
    Content(Content),
    /// Of one for which there was no room: nothing has changed.
    Refused,
}

/// The snapshots that a message knows of.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Snaps {
    /// Newest that ever was.
    pub(crate) seq: u64,
    /// Those that exist, newest first.
    pub(crate) ids: Vec<u64>,
}

fn omap_entry(key: &str, value: &str) -> SubOp {
    let mut w = Writer::new();
    w.put(&vec![(ByteStr::from(key.to_owned()), Bytes::from(value.to_owned()))]);
    SubOp::new(code::OMAPSETVALS).with_indata(w.finish().into())
}

fn set_attr(key: &str, value: &str) -> SubOp {
    SubOp::with_xattr(code::SETXATTR, key.as_bytes(), value.as_bytes(), 0, 0)
}

fn all_of_omap() -> SubOp {
    let mut w = Writer::new();
    w.put(&ByteStr::EMPTY);
    w.u64(1000);
    w.put(&ByteStr::EMPTY);
    SubOp::new(code::OMAPGETVALS).with_indata(w.finish().into())
}

fn extent(op: u16, offset: usize, length: usize) -> SubOp {
    SubOp::with_extent(op, Extent { offset: offset as u64, length: length as u64, ..Extent::default() })
}

fn bytes(text: &str) -> nacre_buf::BufList {
    text.as_bytes().to_vec().into()
}

impl Action {
    /// True when it changes nothing.
    #[must_use]
    pub(crate) fn is_read(&self) -> bool {
        matches!(self, Self::Read(_))
    }

    /// The operations of the message.
    #[must_use]
    pub(crate) fn ops(&self) -> Vec<SubOp> {
        match self {
            Self::Append(text) | Self::Extend(text, _) => vec![SubOp::append(bytes(text))],
            Self::WriteFull(text) => vec![SubOp::write_full(bytes(text))],
            Self::Write(at, text) => vec![SubOp::write(*at as u64, bytes(text))],
            Self::Truncate(size) => vec![extent(code::TRUNCATE, *size, 0)],
            Self::Zero(at, length) => vec![extent(code::ZERO, *at, *length)],
            Self::Create => vec![SubOp::new(code::CREATE).with_flags(EXCLUSIVE)],
            Self::Delete => vec![SubOp::new(code::DELETE)],
            Self::SetAttr(key, value) => vec![set_attr(key, value)],
            Self::SetOmap(key, value) => vec![omap_entry(key, value)],
            Self::SetAll(text, value) => {
                vec![SubOp::write_full(bytes(text)), set_attr("k", value), omap_entry("k", value)]
            }
            Self::Swap(old, new) => vec![
                SubOp::with_xattr(code::CMPXATTR, b"k", old.as_bytes(), compare_op::EQ, COMPARE_TEXT),
                SubOp::write_full(bytes(new)),
                set_attr("k", new),
            ],
            Self::Greet(text) => vec![SubOp::call("hello", "record_hello", text.as_bytes())],
            Self::Amplify => vec![SubOp::call("hello", "turn_it_to_11", b"")],
            Self::CopyFrom(pool, name, _) => vec![SubOp::copy_of(name, &ObjectLocator::in_pool(*pool), 0)],
            Self::Rollback(snap) => vec![SubOp::rollback(SnapId(*snap))],
            Self::Read(_) => vec![SubOp::read(0, 0), SubOp::new(code::GETXATTRS), all_of_omap()],
        }
    }

    /// What the answer says.
    ///
    /// # Panics
    /// When it does not decode.
    #[must_use]
    pub(crate) fn seen(&self, reply: &OsdOpReply) -> Seen {
        if !self.is_read() || reply.result < 0 {
            return Seen::Result(reply.result);
        }
        let outputs: Vec<Bytes> = reply.ops.iter().map(|op| op.outdata.to_bytes()).collect();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let attrs: BTreeMap<ByteStr, Bytes> =
            BTreeMap::from_bytes(outputs[1].clone()).expect("attributes decode");
        let mut r = Reader::new(outputs[2].clone());
        let omap: Vec<(ByteStr, Bytes)> = r.get().expect("an omap decodes");
        Seen::Content(Content {
            data: outputs[0].to_vec(),
            attrs: attrs
                .iter()
                .map(|(key, value)| (text(key), text(value)))
                .filter(|(key, _)| !SIGNATURES.contains(&key.as_str()))
                .collect(),
            omap: omap.iter().map(|(key, value)| (text(key), text(value))).collect(),
        })
    }
}

impl Object {
    /// What a message gives and leaves.
    #[must_use]
    pub(crate) fn after(&self, action: &Action, snaps: &Snaps) -> (Self, Seen) {
        let failed = |errno: Errno| (self.clone(), Seen::Result(errno.negated()));
        let head = self.head.clone();
        let next = match action {
            Action::Read(snap) => {
                let found = snap.map_or(head.as_ref(), |snap| self.at(snap));
                return match found {
                    Some(content) => (self.clone(), Seen::Content(content.clone())),
                    None => failed(Errno::ENOENT),
                };
            }
            Action::Create | Action::Greet(_) if head.is_some() => return failed(Errno::EEXIST),
            Action::Delete if head.is_none() => return failed(Errno::ENOENT),
            Action::Swap(old, _) => match &head {
                None => return failed(Errno::ENOENT),
                Some(content) if content.attrs.get("k").map_or("", String::as_str) != old => {
                    return failed(Errno::ECANCELED);
                }
                Some(content) => Some(content.clone()),
            },
            Action::Extend(_, stripe)
                if head.as_ref().is_some_and(|head| !head.data.len().is_multiple_of(*stripe)) =>
            {
                return failed(Errno::EOPNOTSUPP);
            }
            Action::Truncate(_) | Action::Zero(..) if head.is_none() => {
                return (self.clone(), Seen::Result(0));
            }
            Action::Zero(at, _) if head.as_ref().is_some_and(|head| *at >= head.data.len()) => {
                return (self.clone(), Seen::Result(0));
            }
            Action::Delete => None,
            Action::Rollback(snap) => match self.at(*snap) {
                Some(content) => Some(content.clone()),
                // Nothing was there: the head goes, if there is one.
                None if head.is_none() => return (self.clone(), Seen::Result(0)),
                None => None,
            },
            _ => Some(head.unwrap_or_default()),
        };
        let mut object = self.clone();
        object.preserve(snaps);
        object.head = next.map(|content| changed(content, action));
        if object.head.is_none() && object.clones.is_empty() {
            object.seq = 0;
        }
        (object, Seen::Result(0))
    }

    /// What its head holds, if there is one.
    #[must_use]
    pub(crate) fn into_head(self) -> Option<Content> {
        self.head
    }

    fn at(&self, snap: u64) -> Option<&Content> {
        if snap > self.seq {
            return self.head.as_ref();
        }
        let clone = self.clones.iter().find(|clone| clone.id >= snap)?;
        clone.snaps.contains(&snap).then_some(&clone.content)
    }

    /// Keeps the head for the snapshots that were made since the last write.
    fn preserve(&mut self, snaps: &Snaps) {
        let since: Vec<u64> = snaps.ids.iter().copied().filter(|snap| *snap > self.seq).collect();
        if let (Some(content), false) = (&self.head, since.is_empty()) {
            self.clones.push(Clone_ { id: snaps.seq, snaps: since, content: content.clone() });
        }
        self.seq = self.seq.max(snaps.seq);
    }
}

fn changed(mut content: Content, action: &Action) -> Content {
    match action {
        Action::Append(text) | Action::Extend(text, _) => content.data.extend_from_slice(text.as_bytes()),
        Action::WriteFull(text) => content.data = text.as_bytes().to_vec(),
        Action::Write(at, text) => {
            let end = at + text.len();
            content.data.resize(content.data.len().max(end), 0);
            content.data[*at..end].copy_from_slice(text.as_bytes());
        }
        Action::Truncate(size) => content.data.resize(*size, 0),
        Action::Zero(at, length) => match content.data.get_mut(*at..at + length) {
            Some(inside) => inside.fill(0),
            None => content.data.truncate(*at), // to the end: it ends there
        },
        Action::SetAttr(key, value) => drop(content.attrs.insert(key.clone(), value.clone())),
        Action::SetOmap(key, value) => drop(content.omap.insert(key.clone(), value.clone())),
        Action::SetAll(text, value) => {
            content.data = text.as_bytes().to_vec();
            content.attrs.insert("k".to_owned(), value.clone());
            content.omap.insert("k".to_owned(), value.clone());
        }
        Action::Swap(_, new) => {
            content.data = new.as_bytes().to_vec();
            content.attrs.insert("k".to_owned(), new.clone());
        }
        Action::Greet(text) => content.data = format!("Hello, {text}!").into_bytes(),
        Action::Amplify => {
            content.data.truncate(AMPLIFIED_BYTES_MAX);
            content.data.make_ascii_uppercase();
        }
        Action::CopyFrom(_, _, source) => content.clone_from(source),
        Action::Create | Action::Delete | Action::Rollback(_) | Action::Read(_) => {}
    }
    content
}

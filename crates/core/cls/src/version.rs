//! Class `version`: a counter with a tag, compared and raised together with other changes.
//! Formats: Ceph `src/cls/version/cls_version_types.h`, v16.2.15.

use crate::keys::{input, stored};
use crate::method::{Method, done, fail, read, write};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::Errno;

pub(crate) static METHODS: &[Method] = &[
    write("set", set),
    write("inc", inc),
    write("inc_conds", inc_conds),
    read("read", read_version),
    read("check_conds", check_conds),
];

const ATTR: &str = "ceph.objclass.version";
/// Characters of a new tag.
const TAG_CHARS: usize = 24;

/// `obj_version`
#[derive(Clone, Default, PartialEq)]
struct Version {
    number: u64,
    tag: ByteStr,
}

impl Encode for Version {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u64(self.number);
            w.put(&self.tag);
        });
    }
}

impl Decode for Version {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("obj_version", 1, |_, r| Ok(Self { number: r.u64()?, tag: r.get()? }))
    }
}

/// `obj_version_cond`
struct Condition {
    version: Version,
    code: u32,
}

impl Decode for Condition {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("obj_version_cond", 1, |_, r| Ok(Self { version: r.get()?, code: r.u32()? }))
    }
}

impl Condition {
    fn holds(&self, found: &Version) -> bool {
        let wanted = &self.version;
        match self.code {
            0 => true,
            1 => found == wanted,
            2 => found.number > wanted.number,
            3 => found.number >= wanted.number,
            4 => found.number < wanted.number,
            5 => found.number <= wanted.number,
            6 => found.tag == wanted.tag,
            7 => found.tag != wanted.tag,
            // What 16.2 does not know does not hold anybody back there.
            _ => true,
        }
    }
}

/// A list of conditions, as `check_conds` and `inc_conds` take it behind a version.
struct Conditions(Vec<Condition>);

impl Decode for Conditions {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("cls_version_check_op", 1, |_, r| {
            let _given: Version = r.get()?;
            Ok(Self(r.get()?))
        })
    }
}

impl Conditions {
    fn check(&self, found: &Version) -> Result<(), Fault> {
        if self.0.iter().all(|condition| condition.holds(found)) { Ok(()) } else { fail(Errno::ECANCELED) }
    }
}

fn load(cx: &dyn ClassCx) -> Result<Option<Version>, Fault> {
    cx.attr(ATTR.as_bytes()).map(stored).transpose()
}

fn save(cx: &mut dyn ClassCx, version: &Version) {
    cx.set_attr(ByteStr::from_static(ATTR), version.to_bytes());
}

/// The stored version, or a first one with a random tag, raised by one.
fn raised(cx: &mut dyn ClassCx) -> Result<Version, Fault> {
    let mut version = match load(cx)? {
        Some(version) => version,
        None => Version { number: 0, tag: random_tag(cx) },
    };
    version.number = version.number.wrapping_add(1);
    Ok(version)
}

fn random_tag(cx: &mut dyn ClassCx) -> ByteStr {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let tag: Vec<u8> = (0..TAG_CHARS).map(|_| ALPHABET[(cx.random() % 64) as usize]).collect();
    ByteStr::from(tag)
}

fn set(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let version = Reader::new(bytes).envelope("cls_version_set_op", 1, |_, r| r.get())?;
    save(cx, &version);
    done()
}

fn inc(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let _given: Version = Reader::new(bytes).envelope("cls_version_inc_op", 1, |_, r| r.get())?;
    raise(cx)
}

fn raise(cx: &mut dyn ClassCx) -> MethodResult {
    let version = raised(cx)?;
    save(cx, &version);
    done()
}

fn inc_conds(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let conditions: Conditions = input(bytes)?;
    conditions.check(&load(cx)?.unwrap_or_default())?;
    raise(cx)
}

fn read_version(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    let version = load(cx)?.unwrap_or_default();
    crate::keys::output(|w| w.envelope(1, 1, |w| w.put(&version)))
}

fn check_conds(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let conditions: Conditions = input(bytes)?;
    conditions.check(&load(cx)?.unwrap_or_default())?;
    done()
}

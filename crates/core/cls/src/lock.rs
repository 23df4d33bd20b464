//! Class `lock`: advisory locks on an object. Formats: Ceph `src/cls/lock/cls_lock_types.h`, v16.2.15.
//!
//! A lock lives in the attribute `lock.<name>` as `lock_info_t`.

use crate::keys::{input, output, stored};
use crate::method::{Method, done, fail, read, write};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{AddrKind, EntityAddr, EntityName, Errno, UTime};
use std::collections::BTreeMap;

pub(crate) static METHODS: &[Method] = &[
    write("lock", lock),
    write("unlock", unlock),
    write("break_lock", break_lock),
    write("set_cookie", set_cookie),
    read("get_info", get_info),
    read("list_locks", list_locks),
    read("assert_locked", assert_locked),
];

const ATTR_PREFIX: &str = "lock.";
const EXCLUSIVE: u8 = 1;
const SHARED: u8 = 2;
const EXCLUSIVE_EPHEMERAL: u8 = 3;
const MAY_RENEW: u8 = 1;
const MUST_RENEW: u8 = 2;

fn is_exclusive(kind: u8) -> bool {
    kind == EXCLUSIVE || kind == EXCLUSIVE_EPHEMERAL
}

/// `locker_id_t`
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct LockerId {
    name: EntityName,
    cookie: ByteStr,
}

impl Encode for LockerId {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.name);
            w.put(&self.cookie);
        });
    }
}

impl Decode for LockerId {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("locker_id_t", 1, |_, r| Ok(Self { name: r.get()?, cookie: r.get()? }))
    }
}

/// `locker_info_t`
struct Locker {
    /// Zero: until unlocked.
    expiration: UTime,
    addr: EntityAddr,
    description: ByteStr,
}

impl Encode for Locker {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.expiration);
            w.put(&self.addr);
            w.put(&self.description);
        });
    }
}

impl Decode for Locker {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("locker_info_t", 1, |_, r| {
            Ok(Self { expiration: r.get()?, addr: r.get()?, description: r.get()? })
        })
    }
}

/// `lock_info_t`; also the reply of `get_info`.
#[derive(Default)]
struct Lock {
    lockers: BTreeMap<LockerId, Locker>,
    kind: u8,
    tag: ByteStr,
}

impl Encode for Lock {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.lockers);
            w.u8(self.kind);
            w.put(&self.tag);
        });
    }
}

impl Decode for Lock {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("lock_info_t", 1, |_, r| Ok(Self { lockers: r.get()?, kind: r.u8()?, tag: r.get()? }))
    }
}

fn attr_name(name: &ByteStr) -> ByteStr {
    ByteStr::from([ATTR_PREFIX.as_bytes(), name.as_bytes()].concat())
}

/// The lock without expired lockers; an empty one when it was never taken.
fn load(cx: &dyn ClassCx, name: &ByteStr) -> Result<Lock, Fault> {
    let Some(value) = cx.attr(&attr_name(name)) else { return Ok(Lock::default()) };
    let mut lock: Lock = stored(value)?;
    let now = cx.now();
    lock.lockers.retain(|_, locker| locker.expiration.is_zero() || locker.expiration > now);
    Ok(lock)
}

fn save(cx: &mut dyn ClassCx, name: &ByteStr, lock: &Lock) {
    cx.set_attr(attr_name(name), lock.to_bytes());
}

fn caller_id(cx: &dyn ClassCx, cookie: ByteStr) -> LockerId {
    LockerId { name: cx.caller().name, cookie }
}

/// `cls_lock_lock_op`
struct LockInput {
    name: ByteStr,
    kind: u8,
    cookie: ByteStr,
    tag: ByteStr,
    description: ByteStr,
    duration: UTime,
    flags: u8,
}

impl Decode for LockInput {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("cls_lock_lock_op", 1, |_, r| {
            Ok(Self {
                name: r.get()?,
                kind: r.u8()?,
                cookie: r.get()?,
                tag: r.get()?,
                description: r.get()?,
                duration: r.get()?,
                flags: r.u8()?,
            })
        })
    }
}

fn lock(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let wanted: LockInput = input(bytes)?;
    let known = matches!(wanted.kind, EXCLUSIVE | SHARED | EXCLUSIVE_EPHEMERAL);
    if !known || wanted.name.is_empty() || wanted.flags & (MAY_RENEW | MUST_RENEW) == MAY_RENEW | MUST_RENEW {
        return fail(Errno::EINVAL);
    }
    let mut lock = load(cx, &wanted.name)?;
    if !lock.lockers.is_empty() && lock.tag != wanted.tag {
        return fail(Errno::EBUSY);
    }
    let id = caller_id(cx, wanted.cookie);
    let held = lock.lockers.remove(&id).is_some();
    if held && wanted.flags == 0 {
        return fail(Errno::EEXIST);
    }
    if !held && wanted.flags & MUST_RENEW != 0 {
        return fail(Errno::ENOENT);
    }
    if !lock.lockers.is_empty() && (is_exclusive(wanted.kind) || lock.kind != wanted.kind) {
        return fail(Errno::EBUSY);
    }
    let forever = wanted.duration.is_zero();
    let expiration = if forever { UTime::ZERO } else { cx.now().after(wanted.duration.to_unix()) };
    // Lockers are shown with a legacy address, watchers with one of kind any: measured at a real OSD.
    let addr = cx.caller().addr.with_kind(AddrKind::Legacy);
    lock.lockers.insert(id, Locker { expiration, addr, description: wanted.description });
    lock.kind = wanted.kind;
    lock.tag = wanted.tag;
    save(cx, &wanted.name, &lock);
    done()
}

fn release(cx: &mut dyn ClassCx, name: &ByteStr, id: &LockerId) -> MethodResult {
    let mut lock = load(cx, name)?;
    if lock.lockers.remove(id).is_none() {
        return fail(Errno::ENOENT);
    }
    if lock.lockers.is_empty() && lock.kind == EXCLUSIVE_EPHEMERAL {
        cx.remove();
    } else {
        save(cx, name, &lock);
    }
    done()
}

fn unlock(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (name, cookie) =
        Reader::new(bytes).envelope("cls_lock_unlock_op", 1, |_, r| Ok((r.str()?, r.str()?)))?;
    let id = caller_id(cx, cookie);
    release(cx, &name, &id)
}

fn break_lock(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (name, id) = Reader::new(bytes).envelope("cls_lock_break_op", 1, |_, r| {
        Ok((r.str()?, LockerId { name: r.get()?, cookie: r.get()? }))
    })?;
    release(cx, &name, &id)
}

/// The lock, if the caller holds it under just this kind, cookie and tag; else `EBUSY`.
fn held(
    cx: &dyn ClassCx,
    name: &ByteStr,
    kind: u8,
    cookie: ByteStr,
    tag: &ByteStr,
) -> Result<(Lock, LockerId), Fault> {
    if !matches!(kind, EXCLUSIVE | SHARED | EXCLUSIVE_EPHEMERAL) || name.is_empty() {
        return fail(Errno::EINVAL);
    }
    if !cx.exists() {
        return fail(Errno::ENOENT);
    }
    let lock = load(cx, name)?;
    let id = caller_id(cx, cookie);
    if lock.kind != kind || lock.tag != *tag || !lock.lockers.contains_key(&id) {
        return fail(Errno::EBUSY);
    }
    Ok((lock, id))
}

fn set_cookie(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (name, kind, cookie, tag, new_cookie) =
        Reader::new(bytes).envelope("cls_lock_set_cookie_op", 1, |_, r| {
            Ok((r.str()?, r.u8()?, r.str()?, r.str()?, r.str()?))
        })?;
    let (mut lock, id) = held(cx, &name, kind, cookie, &tag)?;
    let new_id = caller_id(cx, new_cookie);
    if lock.lockers.contains_key(&new_id) {
        return fail(Errno::EBUSY);
    }
    if let Some(locker) = lock.lockers.remove(&id) {
        lock.lockers.insert(new_id, locker);
    }
    save(cx, &name, &lock);
    done()
}

fn get_info(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let name = Reader::new(bytes).envelope("cls_lock_get_info_op", 1, |_, r| r.str())?;
    Ok(load(cx, &name)?.to_bytes())
}

fn list_locks(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    let prefix = ATTR_PREFIX.as_bytes();
    let names: Vec<ByteStr> =
        cx.attrs().keys().filter_map(|name| name.strip_prefix(prefix)).map(ByteStr::from).collect();
    output(|w| w.envelope(1, 1, |w| w.put(&names)))
}

fn assert_locked(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (name, kind, cookie, tag) = Reader::new(bytes)
        .envelope("cls_lock_assert_op", 1, |_, r| Ok((r.str()?, r.u8()?, r.str()?, r.str()?)))?;
    held(cx, &name, kind, cookie, &tag)?;
    done()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestObject;

    fn wanted(kind: u8, cookie: &str, tag: &str, flags: u8) -> Bytes {
        let mut w = Writer::new();
        w.envelope(1, 1, |w| {
            w.str("l");
            w.u8(kind);
            w.str(cookie);
            w.str(tag);
            w.str("");
            w.put(&UTime::ZERO);
            w.u8(flags);
        });
        w.finish()
    }

    fn named(parts: &[&str]) -> Bytes {
        output(|w| w.envelope(1, 1, |w| parts.iter().for_each(|part| w.str(part)))).expect("encodes")
    }

    #[test]
    fn an_exclusive_lock_keeps_others_out() {
        let mut object = TestObject::default();
        assert_eq!(object.call("lock", "lock", wanted(EXCLUSIVE, "a", "", 0)), Ok(Bytes::new()));
        assert_eq!(object.call("lock", "lock", wanted(EXCLUSIVE, "a", "", 0)), Err(Errno::EEXIST));
        assert_eq!(object.call("lock", "lock", wanted(EXCLUSIVE, "a", "", MAY_RENEW)), Ok(Bytes::new()));
        assert_eq!(object.call("lock", "lock", wanted(EXCLUSIVE, "b", "", 0)), Err(Errno::EBUSY));
        assert_eq!(object.call("lock", "lock", wanted(EXCLUSIVE, "a", "t", 0)), Err(Errno::EBUSY));
        assert_eq!(object.call("lock", "unlock", named(&["l", "b"])), Err(Errno::ENOENT));
        assert_eq!(object.call("lock", "unlock", named(&["l", "a"])), Ok(Bytes::new()));
        assert_eq!(object.call("lock", "lock", wanted(SHARED, "b", "", MUST_RENEW)), Err(Errno::ENOENT));
    }

    #[test]
    fn shared_locks_are_held_together_and_asserted() {
        let mut object = TestObject::default();
        for cookie in ["a", "b"] {
            assert!(object.call("lock", "lock", wanted(SHARED, cookie, "t", 0)).is_ok());
        }
        let asserted = |kind: u8, cookie: &str| {
            output(|w| {
                w.envelope(1, 1, |w| {
                    w.str("l");
                    w.u8(kind);
                    w.str(cookie);
                    w.str("t");
                });
            })
            .expect("encodes")
        };
        assert!(object.call("lock", "assert_locked", asserted(SHARED, "a")).is_ok());
        assert_eq!(object.call("lock", "assert_locked", asserted(EXCLUSIVE, "a")), Err(Errno::EBUSY));
        assert_eq!(object.call("lock", "assert_locked", asserted(SHARED, "c")), Err(Errno::EBUSY));
        let info: Lock =
            input(object.call("lock", "get_info", named(&["l"])).expect("info")).expect("decodes");
        assert_eq!((info.lockers.len(), info.kind, info.tag == "t"), (2, SHARED, true));
    }

    #[test]
    fn an_unlocked_object_answers_with_the_bytes_of_a_real_osd() {
        let mut object = TestObject::existing();
        let info = object.call("lock", "get_info", named(&["rbd_lock"])).expect("info");
        assert_eq!(&info[..], [1, 1, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}

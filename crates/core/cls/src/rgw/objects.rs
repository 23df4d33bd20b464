//! Checks and changes of the objects that hold data, in the messages that write them.
//! Formats: Ceph `src/cls/rgw/cls_rgw_ops.h`; behaviour measured at v16.2.15.

use crate::method::{done, fail};
use crate::{ClassCx, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Encode, Reader};
use nacre_types::{Errno, UTime};

/// `list<str>`: removes the object, but for attributes that begin with one of these.
pub(super) fn remove(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let prefixes: Vec<ByteStr> = Reader::new(bytes).envelope("rgw_cls_obj_remove_op", 1, |_, r| r.get())?;
    if !cx.exists() {
        return fail(Errno::ENOENT);
    }
    let attrs = if prefixes.is_empty() { Default::default() } else { cx.attrs() };
    cx.remove();
    let mut is_new = true;
    for (name, value) in attrs {
        if prefixes.iter().any(|prefix| name.starts_with(prefix)) {
            if std::mem::take(&mut is_new) {
                cx.create();
            }
            cx.set_attr(name, value);
        }
    }
    done()
}

/// `str attr`: keeps in an attribute how far the PG is.
pub(super) fn store_pg_version(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let name = Reader::new(bytes).envelope("rgw_cls_obj_store_pg_ver_op", 1, |_, r| r.str())?;
    let version = cx.last_user_version();
    cx.set_attr(name, version.to_bytes());
    done()
}

/// `str prefix, bool fail_if_exist`: whether there is an attribute that begins with the prefix.
pub(super) fn check_attrs_prefix(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (prefix, fail_if_exist) =
        Reader::new(bytes).envelope("rgw_cls_obj_check_attrs_prefix", 1, |_, r| Ok((r.str()?, r.bool()?)))?;
    if prefix.is_empty() {
        return fail(Errno::EINVAL);
    }
    let exists = cx.attrs().keys().any(|name| name.starts_with(&prefix));
    if exists == fail_if_exist { fail(Errno::ECANCELED) } else { done() }
}

/// `utime, u8 comparison, bool high_precision`: whether the object's time stands so to a given one.
pub(super) fn check_mtime(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (mut given, comparison, high_precision) =
        Reader::new(bytes).envelope("rgw_cls_obj_check_mtime", 2, |version, r| {
            Ok((r.get::<UTime>()?, r.u8()?, version >= 2 && r.bool()?))
        })?;
    let mut mtime = if cx.exists() { cx.mtime() } else { UTime::ZERO };
    if !high_precision {
        (mtime.nsec, given.nsec) = (0, 0);
    }
    let holds = match comparison {
        0 => mtime == given,
        1 => mtime < given,
        2 => mtime <= given,
        3 => mtime > given,
        4 => mtime >= given,
        _ => return fail(Errno::EINVAL),
    };
    if holds { done() } else { fail(Errno::ECANCELED) }
}

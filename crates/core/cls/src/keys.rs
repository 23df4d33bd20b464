//! Typed values under omap keys and in attributes.

use crate::{ClassCx, Fault};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, Encode, Reader, Writer};
use nacre_types::Errno;

/// Entries fetched at a time where a method walks over many.
const PAGE_MAX: usize = 1024;

/// Entries that [`values`] pages at most: `osd_max_omap_entries_per_request`.
const VALUES_MAX: u64 = 1024;

/// Decodes the whole input of a method.
pub(crate) fn input<T: Decode>(bytes: Bytes) -> Result<T, Fault> {
    Ok(T::from_bytes(bytes)?)
}

/// Encodes an output from whatever `write` puts down.
pub(crate) fn output(write: impl FnOnce(&mut Writer)) -> Result<Bytes, Fault> {
    let mut w = Writer::new();
    write(&mut w);
    Ok(w.finish())
}

/// A value that was stored under `key`, if there is one.
///
/// # Errors
/// `EIO` when what is there does not decode: it was written by us, so it is damaged.
pub(crate) fn find<T: Decode>(cx: &dyn ClassCx, key: &str) -> Result<Option<T>, Fault> {
    let Some(value) = cx.omap_value(key.as_bytes()) else { return Ok(None) };
    stored(value).map(Some)
}

/// A value that must be there.
///
/// # Errors
/// `ENOENT` when it is not, `EIO` when it is damaged.
pub(crate) fn get<T: Decode>(cx: &dyn ClassCx, key: &str) -> Result<T, Fault> {
    find(cx, key)?.ok_or(Fault::Errno(Errno::ENOENT))
}

/// Decodes a value that we stored.
pub(crate) fn stored<T: Decode>(value: Bytes) -> Result<T, Fault> {
    T::from_bytes(value).map_err(|_| Fault::Errno(Errno::EIO))
}

/// Stores one value.
pub(crate) fn set<T: Encode + ?Sized>(cx: &mut dyn ClassCx, key: impl Into<String>, value: &T) {
    let mut w = Writer::new();
    w.put(value);
    cx.omap_set(vec![(ByteStr::from(key.into()), w.finish())]);
}

/// Removes one key, if it is there.
pub(crate) fn remove(cx: &mut dyn ClassCx, key: impl Into<String>) {
    if cx.exists() {
        cx.omap_remove(vec![ByteStr::from(key.into())]);
    }
}

/// Removes one key, if it is there, of an object that must be there.
///
/// # Errors
/// `ENOENT` without the object: the answer of the methods that hand on what removing said.
pub(crate) fn remove_of_existing(cx: &mut dyn ClassCx, key: impl Into<String>) -> Result<(), Fault> {
    if !cx.exists() {
        return Err(Fault::Errno(Errno::ENOENT));
    }
    remove(cx, key);
    Ok(())
}

/// All entries whose keys begin with `prefix`, the prefix cut off.
pub(crate) fn all(cx: &dyn ClassCx, prefix: &str) -> Vec<(ByteStr, Bytes)> {
    let mut out = Vec::new();
    let mut after = ByteStr::EMPTY; // the key that is just the prefix is one of them
    loop {
        let (page, more) = cx.omap_after(&after, prefix.as_bytes(), PAGE_MAX);
        let Some((last, _)) = page.last() else { return out };
        after = last.clone();
        out.extend(page.into_iter().map(|(key, value)| (cut(&key, prefix), value)));
        if !more {
            return out;
        }
    }
}

/// Up to `count_max` entries behind `prefix` + `after`, the prefix cut off: the paging of list methods. An
/// empty `after` skips the key that is just the prefix.
pub(crate) fn page(cx: &dyn ClassCx, prefix: &str, after: &[u8], count_max: u64) -> Vec<(ByteStr, Bytes)> {
    let from = ByteStr::from([prefix.as_bytes(), after].concat());
    let count_max = usize::try_from(count_max).unwrap_or(usize::MAX);
    let (entries, _) = cx.omap_after(&from, prefix.as_bytes(), count_max);
    entries.into_iter().map(|(key, value)| (cut(&key, prefix), value)).collect()
}

/// Up to `count_max` entries behind the key `after` that begin with `prefix`, as Ceph pages them for its classes, and
/// whether more follow.
pub(crate) fn values(
    cx: &dyn ClassCx,
    after: &[u8],
    prefix: &[u8],
    count_max: u64,
) -> (Vec<(ByteStr, Bytes)>, bool) {
    cx.omap_after(after, prefix, usize::try_from(count_max.min(VALUES_MAX)).unwrap_or(usize::MAX))
}

fn cut(key: &ByteStr, prefix: &str) -> ByteStr {
    ByteStr::from(key.to_shared().slice(prefix.len()..))
}

/// The arguments `str start_after, u64 max` of the list methods.
pub(crate) fn page_input(bytes: Bytes) -> Result<(ByteStr, u64), Fault> {
    let mut r = Reader::new(bytes);
    Ok((r.str()?, r.u64()?))
}

//! Names of images, pool and image metadata, namespaces.

use super::header::require_object;
use crate::keys::{find, get, input, output, page, page_input, remove, remove_of_existing, set};
use crate::method::{done, fail};
use crate::{ClassCx, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Encode, Reader};
use nacre_types::Errno;
use std::collections::BTreeMap;

const METADATA: &str = "metadata_";
/// Entries of a listing whose caller does not say how many.
const METADATA_PAGE: u64 = 64;
const NAMESPACE: &str = "name_";
const STATE: &str = "state";
const STATE_READY: u8 = 0;
const STATE_ADD_DISABLED: u8 = 1;

pub(super) fn name_key(name: &ByteStr) -> String {
    format!("name_{name}")
}

pub(super) fn id_key(id: &ByteStr) -> String {
    format!("id_{id}")
}

/// Ids become parts of object names.
pub(super) fn is_valid_id(id: &ByteStr) -> bool {
    !id.is_empty() && id.iter().all(u8::is_ascii_alphanumeric)
}

/// `rbd_id.<name>` holds the id as its data.
pub(super) fn get_id(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    let data = cx.read(0, cx.size())?;
    if data.is_empty() {
        return fail(Errno::ENOENT);
    }
    let id: ByteStr = crate::keys::stored(data)?;
    Ok(id.to_bytes())
}

pub(super) fn set_id(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    require_object(cx)?;
    let id: ByteStr = input(bytes)?;
    if !is_valid_id(&id) {
        return fail(Errno::EINVAL);
    }
    if cx.size() > 0 {
        return fail(Errno::EEXIST);
    }
    cx.write(0, id.to_bytes().into());
    done()
}

pub(super) fn dir_get_id(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let name: ByteStr = input(bytes)?;
    Ok(get::<ByteStr>(cx, &name_key(&name))?.to_bytes())
}

pub(super) fn dir_get_name(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let id: ByteStr = input(bytes)?;
    Ok(get::<ByteStr>(cx, &id_key(&id))?.to_bytes())
}

pub(super) fn dir_list(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    list_directory(cx, bytes)
}

/// `str start_after, u64 max` -> names and ids, of images or of groups.
pub(super) fn list_directory(cx: &dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (after, count_max) = page_input(bytes)?;
    let mut found = BTreeMap::new();
    for (name, id) in page(cx, "name_", &after, count_max) {
        found.insert(name, crate::keys::stored::<ByteStr>(id)?);
    }
    output(|w| w.put(&found))
}

/// Adds a name and its id, both new.
pub(super) fn add_to_directory(cx: &mut dyn ClassCx, name: &ByteStr, id: &ByteStr) -> MethodResult {
    if name.is_empty() || !is_valid_id(id) {
        return fail(Errno::EINVAL);
    }
    if find::<ByteStr>(cx, &name_key(name))?.is_some() {
        return fail(Errno::EEXIST);
    }
    if find::<ByteStr>(cx, &id_key(id))?.is_some() {
        return fail(Errno::EBADF);
    }
    set(cx, name_key(name), id);
    set(cx, id_key(id), name);
    done()
}

/// Removes a name that must belong to `id`.
pub(super) fn remove_from_directory(cx: &mut dyn ClassCx, name: &ByteStr, id: &ByteStr) -> MethodResult {
    let stored_id: ByteStr = get(cx, &name_key(name))?;
    let stored_name: ByteStr = get(cx, &id_key(id))?;
    if stored_id != *id || stored_name != *name {
        return fail(Errno::ESTALE);
    }
    remove(cx, name_key(name));
    remove(cx, id_key(id));
    done()
}

/// Gives `id`, now called `source`, the new name `target`.
pub(super) fn rename_in_directory(
    cx: &mut dyn ClassCx,
    source: &ByteStr,
    target: &ByteStr,
    id: &ByteStr,
) -> MethodResult {
    remove_from_directory(cx, source, id)?;
    if target.is_empty() {
        return fail(Errno::EINVAL);
    }
    if find::<ByteStr>(cx, &name_key(target))?.is_some() {
        return fail(Errno::EEXIST);
    }
    set(cx, name_key(target), id);
    set(cx, id_key(id), target);
    done()
}

pub(super) fn dir_add_image(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (name, id): (ByteStr, ByteStr) = input(bytes)?;
    add_to_directory(cx, &name, &id)
}

pub(super) fn dir_remove_image(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (name, id): (ByteStr, ByteStr) = input(bytes)?;
    remove_from_directory(cx, &name, &id)
}

pub(super) fn dir_rename_image(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let (source, target, id) = (r.str()?, r.str()?, r.str()?);
    rename_in_directory(cx, &source, &target, &id)
}

/// A directory whose state was never set has none: clients take that `ENOENT` for an old one.
pub(super) fn dir_state_assert(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let wanted: u8 = input(bytes)?;
    if get::<u8>(cx, STATE)? == wanted { done() } else { fail(Errno::ENOENT) }
}

pub(super) fn dir_state_set(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let wanted: u8 = input(bytes)?;
    match wanted {
        STATE_READY => {}
        STATE_ADD_DISABLED => {
            require_object(cx)?;
            if !page(cx, "name_", b"", 1).is_empty() {
                return fail(Errno::EBUSY);
            }
        }
        _ => return fail(Errno::EINVAL),
    }
    set(cx, STATE, &wanted);
    done()
}

fn metadata_key(name: &ByteStr) -> String {
    format!("{METADATA}{name}")
}

pub(super) fn metadata_list(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (after, count_max) = page_input(bytes)?;
    // 0 asks for as many as we like.
    let count_max = if count_max == 0 { METADATA_PAGE } else { count_max };
    let found: BTreeMap<ByteStr, Bytes> = page(cx, METADATA, &after, count_max).into_iter().collect();
    output(|w| w.put(&found))
}

pub(super) fn metadata_get(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let name: ByteStr = input(bytes)?;
    match cx.omap_value(metadata_key(&name).as_bytes()) {
        Some(value) => Ok(value.to_bytes()),
        None => fail(Errno::ENOENT),
    }
}

pub(super) fn metadata_set(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let values: BTreeMap<ByteStr, Bytes> = input(bytes)?;
    let entries = values.into_iter().map(|(name, value)| (ByteStr::from(metadata_key(&name)), value));
    cx.omap_set(entries.collect());
    done()
}

pub(super) fn metadata_remove(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let name: ByteStr = input(bytes)?;
    remove_of_existing(cx, metadata_key(&name))?;
    done()
}

pub(super) fn namespace_add(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let name: ByteStr = input(bytes)?;
    let key = name_key(&name);
    if cx.omap_value(key.as_bytes()).is_some() {
        return fail(Errno::EEXIST);
    }
    cx.omap_set(vec![(key.into(), Bytes::new())]);
    done()
}

pub(super) fn namespace_remove(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let name: ByteStr = input(bytes)?;
    let key = name_key(&name);
    if cx.omap_value(key.as_bytes()).is_none() {
        return fail(Errno::ENOENT);
    }
    remove(cx, key);
    done()
}

pub(super) fn namespace_list(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (after, count_max) = page_input(bytes)?;
    let names: Vec<ByteStr> =
        page(cx, NAMESPACE, &after, count_max).into_iter().map(|(name, _)| name).collect();
    output(|w| w.put(&names))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestObject;
    use nacre_denc::Decode;

    fn pair(a: &str, b: &str) -> Bytes {
        (ByteStr::from(a), ByteStr::from(b)).to_bytes()
    }

    #[test]
    fn a_directory_maps_both_ways_and_guards_both() {
        let mut object = TestObject::default();
        assert!(object.call("rbd", "dir_add_image", pair("a", "1")).is_ok());
        assert_eq!(object.call("rbd", "dir_add_image", pair("a", "2")), Err(Errno::EEXIST));
        assert_eq!(object.call("rbd", "dir_add_image", pair("b", "1")), Err(Errno::EBADF));
        assert_eq!(
            object.call("rbd", "dir_get_id", ByteStr::from("a").to_bytes()),
            Ok(ByteStr::from("1").to_bytes())
        );
        assert!(object.call("rbd", "dir_add_image", pair("b", "2")).is_ok());
        assert_eq!(object.call("rbd", "dir_remove_image", pair("a", "2")), Err(Errno::ESTALE));
        let rename = output(|w| ["a", "c", "1"].iter().for_each(|part| w.str(part))).expect("encodes");
        assert!(object.call("rbd", "dir_rename_image", rename).is_ok());
        let listed = object.call(
            "rbd",
            "dir_list",
            output(|w| {
                w.str("");
                w.u64(10)
            })
            .expect("encodes"),
        );
        let listed: BTreeMap<String, String> = Decode::from_bytes(listed.expect("a list")).expect("a map");
        assert_eq!(listed, [("b".into(), "2".into()), ("c".into(), "1".into())].into());
    }

    #[test]
    fn an_id_is_set_once_on_an_object_that_exists() {
        let id = ByteStr::from("111b65eb63d7").to_bytes();
        assert_eq!(TestObject::default().call("rbd", "set_id", id.clone()), Err(Errno::ENOENT));
        let mut object = TestObject::existing();
        assert_eq!(object.call("rbd", "get_id", Bytes::new()), Err(Errno::ENOENT));
        assert!(object.call("rbd", "set_id", id.clone()).is_ok());
        assert_eq!(object.call("rbd", "set_id", id.clone()), Err(Errno::EEXIST));
        assert_eq!(object.call("rbd", "get_id", Bytes::new()), Ok(id));
    }
}

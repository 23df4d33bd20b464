//! Images that are mirrored, by id and by the id that they have in all clusters.

use super::image::{Image, global_key, image_key};
use super::statuses;
use crate::keys::{find, get, input, output, page_input, remove, set};
use crate::method::{done, fail};
use crate::{ClassCx, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Encode, Reader};
use nacre_types::Errno;
use std::collections::BTreeMap;

const DISABLING: u8 = 0;

/// Ids and global ids of the images, paged.
pub(in crate::rbd) fn list(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (after, count_max) = page_input(bytes)?;
    let mut found = BTreeMap::new();
    for (id, image) in Image::page(cx, &after, count_max)? {
        found.insert(id, image.global_id);
    }
    output(|w| w.put(&found))
}

pub(in crate::rbd) fn get_image(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let id: ByteStr = input(bytes)?;
    Ok(get::<Image>(cx, &image_key(&id))?.to_bytes())
}

pub(in crate::rbd) fn get_image_id(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let global_id: ByteStr = input(bytes)?;
    Ok(get::<ByteStr>(cx, &global_key(&global_id))?.to_bytes())
}

pub(in crate::rbd) fn set_image(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let (id, image): (ByteStr, Image) = (r.get()?, r.get()?);
    match find::<Image>(cx, &image_key(&id))? {
        Some(old) if old.global_id != image.global_id => return fail(Errno::EINVAL),
        Some(_) => {}
        None if find::<ByteStr>(cx, &global_key(&image.global_id))?.is_some() => return fail(Errno::EEXIST),
        // Another client was faster in disabling it.
        None if image.state == DISABLING => return fail(Errno::ENOENT),
        None => {}
    }
    set(cx, image_key(&id), &image);
    set(cx, global_key(&image.global_id), &id);
    done()
}

pub(in crate::rbd) fn remove_image(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let id: ByteStr = input(bytes)?;
    let image: Image = get(cx, &image_key(&id))?;
    if image.state != DISABLING {
        return fail(Errno::EBUSY);
    }
    remove(cx, image_key(&id));
    remove(cx, global_key(&image.global_id));
    statuses::forget(cx, &image.global_id);
    done()
}

//! Images that are mirrored, by id and by the id that they have in all clusters.

use super::statuses;
use crate::keys::{all, find, get, input, output, page, page_input, remove, set, stored};
use crate::method::{done, fail};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::Errno;
use std::collections::BTreeMap;

const IMAGE: &str = "image_";
const GLOBAL: &str = "global_";
const DISABLING: u8 = 0;
const ENABLED: u8 = 1;

/// `cls::rbd::MirrorImage`
pub(super) struct Image {
    pub(super) global_id: ByteStr,
    state: u8,
    mode: u8,
}

impl Encode for Image {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.put(&self.global_id);
            w.u8(self.state);
            w.u8(self.mode);
        });
    }
}

impl Decode for Image {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("MirrorImage", 2, |version, r| {
            Ok(Self { global_id: r.get()?, state: r.u8()?, mode: if version >= 2 { r.u8()? } else { 0 } })
        })
    }
}

impl Image {
    /// All images, ascending by id.
    pub(super) fn all(cx: &dyn ClassCx) -> Result<Vec<Self>, Fault> {
        all(cx, IMAGE).into_iter().map(|(_, value)| stored(value)).collect()
    }

    /// Ids and images behind `after`, at most `count_max`.
    pub(super) fn page(
        cx: &dyn ClassCx,
        after: &[u8],
        count_max: u64,
    ) -> Result<Vec<(ByteStr, Self)>, Fault> {
        page(cx, IMAGE, after, count_max).into_iter().map(|(id, value)| Ok((id, stored(value)?))).collect()
    }
}

/// True when the image with this global id is there and enabled: only such ones have a status.
pub(super) fn is_enabled(cx: &dyn ClassCx, global_id: &ByteStr) -> Result<bool, Fault> {
    let Some(id) = find::<ByteStr>(cx, &global_key(global_id))? else { return Ok(false) };
    Ok(find::<Image>(cx, &image_key(&id))?.is_some_and(|image| image.state == ENABLED))
}

fn image_key(id: &ByteStr) -> String {
    format!("{IMAGE}{id}")
}

fn global_key(global_id: &ByteStr) -> String {
    format!("{GLOBAL}{global_id}")
}

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
        // Somebody else was faster in disabling it.
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

//! [`Image`]: the record of a mirrored image, and where it is kept.

use crate::keys::{all, find, page, stored};
use crate::{ClassCx, Fault};
use nacre_buf::ByteStr;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};

pub(super) const IMAGE: &str = "image_";
pub(super) const GLOBAL: &str = "global_";
pub(super) const ENABLED: u8 = 1;

/// `cls::rbd::MirrorImage`
pub(super) struct Image {
    pub(super) global_id: ByteStr,
    pub(super) state: u8,
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

pub(super) fn image_key(id: &ByteStr) -> String {
    format!("{IMAGE}{id}")
}

pub(super) fn global_key(global_id: &ByteStr) -> String {
    format!("{GLOBAL}{global_id}")
}

//! Mirroring metadata: what `rbd mirror` commands and `rbd-mirror` daemons keep in the cluster.

mod image;
pub(super) mod images;
pub(super) mod instances;
pub(super) mod peers;
pub(super) mod snapshots;
pub(super) mod statuses;

use crate::keys::{find, get, input, output, remove, set};
use crate::method::{done, fail};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::Encode;
use nacre_types::Errno;

const MODE: &str = "mirror_mode";
const UUID: &str = "mirror_uuid";
const MODE_MAX: u32 = 2;

fn is_enabled(cx: &dyn ClassCx) -> Result<bool, Fault> {
    Ok(find::<u32>(cx, MODE)?.unwrap_or(0) > 0)
}

pub(super) fn mode_get(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    let mode: u32 = get(cx, MODE)?;
    output(|w| w.u32(mode))
}

pub(super) fn mode_set(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mode: u32 = input(bytes)?;
    if mode > MODE_MAX {
        return fail(Errno::EINVAL);
    }
    if mode > 0 {
        // Without an identity of our own our images could not be told from the peer's.
        get::<ByteStr>(cx, UUID).map_err(|_| Fault::Errno(Errno::EINVAL))?;
        set(cx, MODE, &mode);
        return done();
    }
    if peers::any(cx) {
        return fail(Errno::EBUSY);
    }
    remove(cx, MODE);
    remove(cx, UUID);
    done()
}

pub(super) fn uuid_get(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    Ok(get::<ByteStr>(cx, UUID)?.to_bytes())
}

pub(super) fn uuid_set(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let uuid: ByteStr = input(bytes)?;
    if uuid.is_empty() || is_enabled(cx)? {
        return fail(Errno::EINVAL);
    }
    set(cx, UUID, &uuid);
    done()
}

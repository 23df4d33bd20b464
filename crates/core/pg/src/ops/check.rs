//! [`check_limits`]: what no message may exceed, checked before it is queued or touches an object.

use super::{Intent, MessageLimits, NAME_BYTES_MAX, NAMESPACE_BYTES_MAX, OPS_MAX, SNAPS_MAX};
use crate::snap::SnapContext;
use nacre_msg::OsdOp;
use nacre_types::{Errno, SnapId};

/// Checks names, sizes and the snapshot context of a message.
///
/// # Errors
/// `ENAMETOOLONG`, `EMSGSIZE`, `E2BIG` for too many operations or snapshots, or `EINVAL` for an empty name, a write to a snapshot and a snapshot context out
/// of order.
pub fn check_limits(op: &OsdOp, intent: &Intent, limits: MessageLimits) -> Result<(), Errno> {
    if op.name.len() > NAME_BYTES_MAX
        || op.locator.key.len() > NAME_BYTES_MAX
        || op.locator.namespace.len() > NAMESPACE_BYTES_MAX
    {
        return Err(Errno::ENAMETOOLONG);
    }
    if op.name.is_empty() && !intent.on_pg {
        return Err(Errno::EINVAL);
    }
    if op.ops.len() > OPS_MAX || op.snaps.len() > SNAPS_MAX {
        return Err(Errno::E2BIG);
    }
    if intent.may_write() && (op.snap != SnapId::HEAD || !SnapContext::is_valid(op.snap_seq, &op.snaps)) {
        return Err(Errno::EINVAL);
    }
    if op.ops.iter().map(|sub_op| sub_op.indata.len()).sum::<usize>() > limits.input_bytes {
        return Err(Errno::EMSGSIZE);
    }
    Ok(())
}

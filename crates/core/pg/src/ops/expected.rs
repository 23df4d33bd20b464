//! [`expected_bytes`]: how much memory a message may come to take, before anybody has looked at its object.

use super::{MessageLimits, OBJECT_BYTES_MAX};
use nacre_msg::osd_op::code;
use nacre_msg::{OsdOp, SubOp};

/// What a read to the end of an object is taken for: objects of images and buckets are as long.
const WHOLE_OBJECT_BYTES: u64 = 4 << 20;
/// What a class method, attributes or a list is taken for.
const SMALL_BYTES: u64 = 64 << 10;

/// About how many bytes of memory a message takes beside its own, by what it asks for: its answer mostly. A read of more than there is
/// counts as much as it asks for: whoever asks for 4 MiB of objects of 4 KiB has fewer messages under way at a time.
#[must_use]
pub fn expected_bytes(op: &OsdOp, limits: MessageLimits) -> u64 {
    let sum = op.ops.iter().map(|sub_op| of_operation(sub_op, limits)).fold(0, u64::saturating_add);
    sum.min(limits.reply_bytes.max(limits.transaction_bytes as u64))
}

fn of_operation(op: &SubOp, limits: MessageLimits) -> u64 {
    match op.code {
        code::READ | code::SYNC_READ | code::SPARSE_READ => match op.extent().length {
            0 => WHOLE_OBJECT_BYTES,
            length => length.min(OBJECT_BYTES_MAX),
        },
        // Summed and compared in memory, and not sent.
        code::CHECKSUM => op.checksum().length.min(OBJECT_BYTES_MAX),
        // A few bytes that become many.
        code::WRITESAME => op.writesame().length.min(OBJECT_BYTES_MAX),
        code::OMAPGETKEYS | code::OMAPGETVALS | code::OMAPGETVALSBYKEYS => limits.omap_bytes as u64,
        code if code::is_read(code) => SMALL_BYTES,
        _ => 0,
    }
}

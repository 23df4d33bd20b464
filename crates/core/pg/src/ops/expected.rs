//! [`expected_bytes`]: how much memory a message may come to take, before anybody has looked at its object.

use super::copied::PART_BYTES_MAX;
use super::{LISTED_MAX, MessageLimits, OBJECT_BYTES_MAX};
use nacre_denc::Reader;
use nacre_msg::osd_op::code;
use nacre_msg::{OsdOp, SubOp};

/// What attributes are taken for, and the value of a key that was asked for.
const SMALL_BYTES: u64 = 64 << 10;
/// What a call of a class method is taken for: a thousand entries of a bucket's index are as long. Few return more (the map of a large
/// image's objects has megabytes); it counts when it is made.
const CALL_BYTES: u64 = 256 << 10;
/// What a name in a list of objects is taken for, with what makes the list.
const LISTED_BYTES: u64 = 512;

/// About how many bytes of memory a message takes beside its own, by what it asks for: its answer mostly. A read of more than there is
/// counts as much as it asks for: whoever asks for 4 MiB of objects of 4 KiB has fewer messages under way at a time. So does a read to the
/// end of an object, whose length only its PG knows: it counts for the longest until then.
#[must_use]
pub fn expected_bytes(op: &OsdOp, limits: MessageLimits) -> u64 {
    expected_of_object(op, limits, OBJECT_BYTES_MAX)
}

/// The same once it is known how long the object is that it is about.
#[must_use]
pub(crate) fn expected_of_object(op: &OsdOp, limits: MessageLimits, object_bytes: u64) -> u64 {
    let sum = op.ops.iter().map(|sub_op| of_operation(sub_op, limits, object_bytes));
    let sum = sum.fold(0, u64::saturating_add);
    sum.min(limits.reply_bytes.max(limits.transaction_bytes as u64))
}

fn of_operation(op: &SubOp, limits: MessageLimits, object_bytes: u64) -> u64 {
    let to_the_end = |length: u64| if length == 0 { object_bytes } else { length.min(object_bytes) };
    let omap_bytes = limits.omap_bytes as u64;
    match op.code {
        code::READ | code::SYNC_READ | code::SPARSE_READ => to_the_end(op.extent().length),
        // Summed or compared in memory, and not sent.
        code::CHECKSUM => to_the_end(op.checksum().length),
        code::CMPEXT => op.extent().length.min(object_bytes),
        // A few bytes that become many.
        code::WRITESAME => op.writesame().length.min(OBJECT_BYTES_MAX),
        code::COPY_FROM | code::COPY_FROM2 => limits.copied_bytes.saturating_add(PART_BYTES_MAX) as u64,
        code::OMAPGETKEYS | code::OMAPGETVALS => omap_bytes,
        code::OMAPGETVALSBYKEYS => {
            let keys = Reader::new(op.indata.to_bytes()).u32().unwrap_or(0);
            u64::from(keys).saturating_mul(SMALL_BYTES).min(omap_bytes)
        }
        code::PGLS | code::PGNLS | code::PGLS_FILTER | code::PGNLS_FILTER => {
            op.pg_list().count.min(LISTED_MAX as u64) * LISTED_BYTES
        }
        code::CALL => CALL_BYTES,
        // A notification waits for it, and its answer is empty.
        code::NOTIFY_ACK => 0,
        code if code::is_read(code) => SMALL_BYTES,
        _ => 0,
    }
}

//! [`looks`]: what of an object's metadata a message looks at, before anybody has looked at the object.

use nacre_msg::osd_op::code;
use nacre_msg::{OsdOp, SubOp};
use nacre_txn::span;
use nacre_types::HObject;
use std::ops::Range;

/// All data of an object.
const WHOLE: Range<u64> = 0..u64::MAX;

/// The object that a message is about, by its head. Owns its name: the log keeps it longer than the message.
pub(crate) fn head_of(op: &OsdOp) -> HObject {
    let locator = &op.locator;
    let (namespace, key, name) = (locator.namespace.detached(), locator.key.detached(), op.name.detached());
    HObject::head(locator.pool, namespace, key, name)
}

/// The object that a message is about, by its head, and the bytes of it whose places are looked at, if any; `None` of one that is about a
/// whole PG. More than is said may be looked at: clones, all of what the first write since a snapshot copies, the end that is appended to,
/// and what a class method reads.
#[must_use]
pub fn looks(op: &OsdOp) -> Option<(HObject, Range<u64>)> {
    if op.name.is_empty() {
        return None;
    }
    let object = head_of(op);
    Some((object, op.ops.iter().map(bytes_of).fold(0..0, span)))
}

fn bytes_of(op: &SubOp) -> Range<u64> {
    let (offset, length) = match op.code {
        code::READ | code::SYNC_READ | code::SPARSE_READ | code::MAPEXT => match op.extent() {
            extent if extent.length == 0 => return extent.offset..u64::MAX,
            extent => (extent.offset, extent.length),
        },
        code::CMPEXT | code::WRITE | code::ZERO => (op.extent().offset, op.extent().length),
        code::CHECKSUM => (op.checksum().offset, op.checksum().length),
        code::WRITESAME => (op.writesame().offset, op.writesame().length),
        code::TRUNCATE => return op.extent().offset..u64::MAX,
        code::WRITEFULL | code::DELETE | code::ROLLBACK | code::COPY_FROM | code::COPY_FROM2 => return WHOLE,
        _ => return 0..0,
    };
    offset..offset.saturating_add(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::Client;
    use nacre_buf::BufList;

    fn message(name: &'static str, ops: Vec<SubOp>) -> OsdOp {
        OsdOp { name: name.into(), ..Client::default().message(ops) }
    }

    fn write(offset: u64, length: usize) -> SubOp {
        SubOp::write(offset, BufList::from(vec![7; length]))
    }

    #[test]
    fn reads_and_writes_look_at_what_they_name_and_others_at_all_or_nothing() {
        let bytes = |ops| looks(&message("a", ops)).map(|(_, bytes)| bytes);
        assert_eq!(bytes(vec![SubOp::read(8192, 4096)]), Some(8192..12288));
        assert_eq!(bytes(vec![SubOp::read(8192, 0)]), Some(8192..u64::MAX), "to the end");
        assert_eq!(bytes(vec![SubOp::new(code::STAT)]), Some(0..0));
        assert_eq!(bytes(vec![write(4096, 10), SubOp::read(100, 10)]), Some(100..4106));
        assert_eq!(bytes(vec![SubOp::new(code::STAT), write(4096, 10)]), Some(4096..4106));
        assert_eq!(bytes(vec![SubOp::new(code::DELETE)]), Some(WHOLE));
        assert_eq!(bytes(vec![write(u64::MAX, 10)]), Some(u64::MAX..u64::MAX), "whatever a client claims");
    }

    #[test]
    fn a_message_for_a_pg_is_about_no_object() {
        assert_eq!(looks(&message("", vec![SubOp::new(code::PGNLS)])), None);
    }
}

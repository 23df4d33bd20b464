//! Execution against a store in a map. Expected values marked "measured" come from a real 16.2.15 OSD.

mod budget;
mod data;
mod effects;
mod map_and_attrs;
mod methods;
mod random;
mod snapshots;
mod visibility;

use super::Outcome;
use nacre_denc::Encode;
use nacre_msg::SubOp;
use nacre_msg::osd_op::{Extent, code};

fn op(code: u16) -> SubOp {
    SubOp::new(code)
}

fn extent(code: u16, offset: u64, length: u64) -> SubOp {
    SubOp::with_extent(code, Extent { offset, length, ..Extent::default() })
}

fn full(data: &str) -> SubOp {
    SubOp::write_full(data.as_bytes().to_vec().into())
}

fn write(offset: u64, data: &str) -> SubOp {
    SubOp::write(offset, data.as_bytes().to_vec().into())
}

fn append(data: &str) -> SubOp {
    SubOp::append(data.as_bytes().to_vec().into())
}

fn read() -> SubOp {
    SubOp::read(0, 0)
}

fn stat() -> SubOp {
    op(code::STAT)
}

fn delete() -> SubOp {
    op(code::DELETE)
}

fn create() -> SubOp {
    op(code::CREATE)
}

fn get_attr(name: &str) -> SubOp {
    SubOp::with_xattr(code::GETXATTR, name.as_bytes(), b"", 0, 0)
}

fn compare_attr(name: &str, compare_op: u8, value: &str) -> SubOp {
    SubOp::with_xattr(code::CMPXATTR, name.as_bytes(), value.as_bytes(), compare_op, 1)
}

fn with_input<T: Encode>(code: u16, input: &T) -> SubOp {
    SubOp::new(code).with_indata(input.to_bytes().into())
}

fn omap_get(key: &str) -> SubOp {
    with_input(code::OMAPGETVALSBYKEYS, &vec![nacre_buf::ByteStr::from(key)])
}

/// What `omap_get(key)` answers.
fn omap_answer(entries: &[(&str, &str)]) -> Vec<u8> {
    let owned = |text: &str| nacre_buf::ByteStr::from(text);
    entries.iter().map(|(key, value)| (owned(key), owned(value))).collect::<Vec<_>>().to_bytes().to_vec()
}

/// Result of each operation, and its output.
fn answers(outcome: &Outcome) -> Vec<(i32, Vec<u8>)> {
    outcome.ops.iter().map(|op| (op.rval, op.out.to_bytes().to_vec())).collect()
}

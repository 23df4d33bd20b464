//! [`looks`]: what a transaction looks at before it changes it.

use nacre_txn::{Op, Transaction, span};
use nacre_types::HObject;
use std::ops::Range;

/// Objects that a transaction is about in its own collection, each once, and the bytes of each whose places it looks at, if any; as
/// [`crate::ObjectStore::warm`] wants them.
#[must_use]
pub fn looks(txn: &Transaction) -> Vec<(&HObject, Range<u64>)> {
    let mut looks: Vec<(&HObject, Range<u64>)> = Vec::new();
    // One or two objects as a rule, many operations on each.
    let mut add = |object, bytes: Range<u64>| match looks.iter_mut().find(|(known, _)| *known == object) {
        Some((_, known)) => *known = span(known.clone(), bytes),
        None => looks.push((object, bytes)),
    };
    let whole = 0..u64::MAX;
    for op in &txn.ops {
        match op {
            Op::Write { object, offset, data } => {
                add(object, *offset..offset.saturating_add(data.len() as u64));
            }
            Op::Zero { object, offset, length } => add(object, *offset..offset.saturating_add(*length)),
            Op::Truncate { object, size } => add(object, *size..u64::MAX),
            Op::Remove(object) => add(object, whole.clone()),
            Op::Clone { source, target } | Op::CloneExtents { source, target, .. } => {
                add(source, whole.clone());
                add(target, whole.clone());
            }
            Op::Rename { source, target } => {
                add(source, 0..0);
                add(target, whole.clone());
            }
            Op::Touch(object)
            | Op::ClearAttrs(object)
            | Op::OmapClear(object)
            | Op::SetMeta { object, .. }
            | Op::SetAttr { object, .. }
            | Op::RemoveAttr { object, .. }
            | Op::OmapSet { object, .. }
            | Op::OmapRemove { object, .. }
            | Op::OmapRemoveRange { object, .. }
            | Op::OmapSetHeader { object, .. } => add(object, 0..0),
            _ => (),
        }
    }
    looks
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_buf::{BufList, Bytes};
    use nacre_types::{PgId, SpgId};

    #[test]
    fn what_a_write_touches_is_what_it_looks_at_and_a_clone_looks_at_all() {
        let object = |name: &'static str| HObject::head(1, "".into(), "".into(), name.into());
        let write = |offset| Op::Write { object: object("a"), offset, data: BufList::from(vec![7; 4096]) };
        let txn = |ops| Transaction { collection: SpgId::replicated(PgId::new(1, 0)), ops };
        let meta = || Op::SetMeta { object: object("a"), meta: Bytes::from_static(b"m") };
        assert_eq!(looks(&txn(vec![meta(), write(8192), meta()])), [(&object("a"), 8192..12288)]);
        assert_eq!(looks(&txn(vec![write(8192), write(0)])), [(&object("a"), 0..12288)]);
        assert_eq!(looks(&txn(vec![meta()])), [(&object("a"), 0..0)]);
        let clone = Op::Clone { source: object("a"), target: object("b") };
        let all = 0..u64::MAX;
        assert_eq!(looks(&txn(vec![clone, write(0)])), [(&object("a"), all.clone()), (&object("b"), all)]);
        assert_eq!(looks(&txn(vec![Op::CreateCollection])), []);
    }
}

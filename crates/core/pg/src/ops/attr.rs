//! Operations on user attributes.

use super::execution::{Done, Execution, OpReturn};
use super::{ATTR_NAME_BYTES_MAX, ATTR_VALUE_BYTES_MAX};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, Encode};
use nacre_msg::SubOp;
use nacre_msg::osd_op::{CompareMode, code, compare_op};
use nacre_types::Errno;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Result of a comparison that holds; it becomes the message's when it comes last.
const MATCHED: i32 = 1;

impl Execution<'_, '_> {
    pub(super) fn attr_op(&mut self, op: &SubOp) -> OpReturn {
        match op.code {
            code::GETXATTR => self.attr(op),
            code::GETXATTRS => self.attrs(),
            code::CMPXATTR => self.compare_attr(op),
            code::SETXATTR => self.set_attr(op),
            code::RMXATTR => self.remove_attr(op),
            _ => Err(Errno::EOPNOTSUPP.into()),
        }
    }

    /// An attribute as it was before the message.
    pub(super) fn base_attr(&self, name: &[u8]) -> Option<Bytes> {
        self.env.view.attr(&self.env.collection, self.target, name)
    }

    /// All attributes, likewise.
    pub(super) fn base_attrs(&self) -> Result<BTreeMap<ByteStr, Bytes>, Errno> {
        let attrs = self.env.view.attrs(&self.env.collection, self.target);
        let bytes = attrs.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.budget.spend_on_keys(attrs.len(), bytes)?;
        Ok(attrs)
    }

    fn attr(&mut self, op: &SubOp) -> OpReturn {
        self.counters.reads += 1;
        let (name, _) = op.xattr_parts()?;
        self.require_base()?;
        let value = self.base_attr(&name).ok_or(Errno::ENODATA)?;
        self.budget.spend_on_keys(1, value.len())?;
        self.counters.read_bytes += i64::try_from(value.len()).unwrap_or(i64::MAX);
        Ok(value.into())
    }

    fn attrs(&mut self) -> OpReturn {
        self.counters.reads += 1;
        self.require_base()?;
        Ok(self.base_attrs()?.to_bytes().into())
    }

    fn compare_attr(&mut self, op: &SubOp) -> OpReturn {
        self.require_object()?;
        self.require_base()?;
        self.counters.reads += 1;
        let (name, want) = op.xattr_parts()?;
        let found = self.base_attr(&name).unwrap_or_default();
        let args = op.xattr();
        let ordering = match args.mode().ok_or(Errno::EINVAL)? {
            CompareMode::Text => want[..].cmp(&found[..]),
            CompareMode::Number => u64::from_bytes(want)?.cmp(&decimal(&found)),
        };
        if holds(ordering, args.compare_op)? {
            Ok(Done { rval: MATCHED, ..Done::default() })
        } else {
            Err(Errno::ECANCELED.into())
        }
    }

    fn set_attr(&mut self, op: &SubOp) -> OpReturn {
        self.counters.writes += 1;
        let args = op.xattr();
        if args.value_len > ATTR_VALUE_BYTES_MAX {
            return Err(Errno::EFBIG.into());
        }
        if args.name_len > ATTR_NAME_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let (name, value) = op.xattr_parts()?;
        self.pending.set_attr(name, value);
        Ok(Done::default())
    }

    fn remove_attr(&mut self, op: &SubOp) -> OpReturn {
        self.counters.writes += 1;
        self.require_object()?;
        let (name, _): (ByteStr, Bytes) = op.xattr_parts()?;
        self.pending.remove_attr(name);
        Ok(Done::default())
    }
}

/// Whether `asked OP stored` holds, given how they compare.
fn holds(ordering: Ordering, operator: u8) -> Result<bool, Errno> {
    Ok(match operator {
        compare_op::EQ => ordering.is_eq(),
        compare_op::NE => ordering.is_ne(),
        compare_op::GT => ordering.is_gt(),
        compare_op::GTE => ordering.is_ge(),
        compare_op::LT => ordering.is_lt(),
        compare_op::LTE => ordering.is_le(),
        _ => return Err(Errno::EINVAL),
    })
}

/// A stored attribute as a number, the way C's `atoll` reads it: leading blanks, a sign, digits, and
/// whatever follows is ignored.
fn decimal(text: &[u8]) -> u64 {
    let text = text.trim_ascii_start();
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    let value =
        digits.fold(0_i64, |value, byte| value.saturating_mul(10).saturating_add(i64::from(byte - b'0')));
    (if negative { -value } else { value }).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_c_does() {
        let cases: [(&[u8], u64); 6] =
            [(b"", 0), (b"42", 42), (b" 7x9", 7), (b"-1", u64::MAX), (b"x", 0), (b"+3", 3)];
        for (text, want) in cases {
            assert_eq!(decimal(text), want, "{}", text.escape_ascii());
        }
    }
}

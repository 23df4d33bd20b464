//! Helpers of several tests: times, names, a source of random bytes.

use nacre_types::{AuthName, EntityKind, Entropy, UTime};

pub(crate) fn at(sec: u32) -> UTime {
    UTime { sec, nsec: 0 }
}

pub(crate) fn client(id: &str) -> AuthName {
    AuthName::new(EntityKind::CLIENT, id)
}

/// A random number below `end`, which is small.
pub(crate) fn below(entropy: &mut dyn Entropy, end: usize) -> usize {
    usize::from(u16::try_from(entropy.u64() & 0xffff).expect("16 bits")) % end
}

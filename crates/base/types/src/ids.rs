//! Small identifiers: epochs, versions, pools, OSDs, snapshots, UUIDs.

use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use std::fmt;

/// Version of a cluster map; 0 is "none yet". Ceph `epoch_t`.
pub type Epoch = u32;
/// A pool's number, never used again after deletion.
pub type PoolId = i64;
/// An OSD's number.
pub type OsdId = i32;

/// A snapshot's number; the three largest have meanings of their own. Ceph `snapid_t`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SnapId(pub u64);

impl SnapId {
    /// The writable object, `CEPH_NOSNAP`.
    pub const HEAD: Self = Self(u64::MAX - 1);
    /// The directory of an object's clones, `CEPH_SNAPDIR`; only a listing asks for it.
    pub const SNAPDIR: Self = Self(u64::MAX);
    /// Largest real snapshot, `CEPH_MAXSNAP`.
    pub const MAX: Self = Self(u64::MAX - 2);

    /// True for [`SnapId::HEAD`].
    #[must_use]
    pub fn is_head(self) -> bool {
        self == Self::HEAD
    }
}

impl fmt::Debug for SnapId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::HEAD => f.write_str("head"),
            Self::SNAPDIR => f.write_str("snapdir"),
            Self(id) => write!(f, "{id:x}"),
        }
    }
}

impl Encode for SnapId {
    #[inline]
    fn encode(&self, w: &mut Writer) {
        w.u64(self.0);
    }
}

impl Decode for SnapId {
    const MIN_BYTES: usize = 8;
    #[inline]
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.u64().map(Self)
    }
}

/// A PG log version: compared epoch first, encoded version first. Ceph `eversion_t`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Eversion {
    /// Epoch in which the entry was made.
    pub epoch: Epoch,
    /// Position in the PG's log; grows by one per entry.
    pub version: u64,
}

impl Eversion {
    /// Before the first entry, printed `0'0`.
    pub const ZERO: Self = Self { epoch: 0, version: 0 };

    /// Version `version` made in `epoch`.
    #[must_use]
    pub const fn new(epoch: Epoch, version: u64) -> Self {
        Self { epoch, version }
    }
}

impl fmt::Display for Eversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}'{}", self.epoch, self.version)
    }
}

impl fmt::Debug for Eversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Encode for Eversion {
    #[inline]
    fn encode(&self, w: &mut Writer) {
        w.u64(self.version);
        w.u32(self.epoch);
    }
}

impl Decode for Eversion {
    const MIN_BYTES: usize = 12;
    #[inline]
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { version: r.u64()?, epoch: r.u32()? })
    }
}

/// 16 raw bytes, printed as usual. Ceph `uuid_d`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// All zeros: "not set".
    pub const NIL: Self = Self([0; 16]);

    /// A version 4 UUID from 16 random bytes.
    #[must_use]
    pub fn from_random(mut bytes: [u8; 16]) -> Self {
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        Self(bytes)
    }

    /// Reads the text form, with hyphens in the usual places.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        if bytes.len() != 36 || [8, 13, 18, 23].iter().any(|at| bytes[*at] != b'-') {
            return None;
        }
        let mut digits = bytes.iter().filter(|byte| **byte != b'-').map(|byte| (*byte as char).to_digit(16));
        let mut out = [0; 16];
        for byte in &mut out {
            *byte = u8::try_from(digits.next()?? << 4 | digits.next()??).ok()?;
        }
        digits.next().is_none().then_some(Self(out))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if [4, 6, 8, 10].contains(&index) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Encode for Uuid {
    fn encode(&self, w: &mut Writer) {
        w.raw(&self.0);
    }
}

impl Decode for Uuid {
    const MIN_BYTES: usize = 16;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.array().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_epoch_first() {
        assert!(Eversion::new(2, 1) > Eversion::new(1, 9));
        assert_eq!(Eversion::new(3, 7).to_string(), "3'7");
    }

    #[test]
    fn uuid_text_round_trips() {
        let text = "0e1c2d3f-4a5b-4c6d-8e7f-9a0b1c2d3e4f";
        assert_eq!(Uuid::parse(text).map(|uuid| uuid.to_string()).as_deref(), Some(text));
        assert_eq!(Uuid::parse("0e1c2d3f-4a5b-4c6d-8e7f-9a0b1c2d3e4"), None);
        assert_eq!(Uuid::parse("0e1c2d3f-4a5b-4c6d-8e7f-9a0b1c2d3e4g"), None);
    }
}

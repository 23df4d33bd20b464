//! Connection feature bits (Ceph `src/include/ceph_features.h`, v16.2.15).

/// What every 16.2.15 component offers; all encodings of ours assume all of them.
pub const SUPPORTED: u64 = 0x3f01_cfbd_fffd_ffff;
/// `RADOS_BACKOFF`: a client holds operations back when told to. Bit 21 of the second incarnation, whose mark is bit 57.
pub const RADOS_BACKOFF: u64 = 1 << 21 | 1 << 57;
/// `MSG_ADDR2`: the only feature that we insist on from a peer.
pub const REQUIRED: u64 = 1 << 59;

/// An OSD of ours says so to the monitors with this bit when it boots, and the map hands it on (`osd_xinfo_t::features`). No release of Ceph
/// uses it: up to Tentacle bit 62 is kept free as a sentinel that nothing reads. It is never offered to a peer on a connection.
pub const NACRE_OSD: u64 = 1 << 62;

/// Marks of the second and third use of the bits: a feature bit means what it says only together with its mark.
const SECOND: u64 = 1 << 57;
const THIRD: u64 = SECOND | 1 << 28;

/// What an OSD of release `release` (12 is Luminous) or later offers, `SERVER_<RELEASE>`; `None` for releases that have no
/// such feature or that 16.2.15 does not know.
#[must_use]
pub fn of_release(release: u8) -> Option<u64> {
    match release {
        12 => Some(SECOND | 1 << 21),
        13 => Some(SECOND | 1 << 28),
        14 => Some(THIRD | 1 << 2),
        15 => Some(THIRD | 1 << 16),
        16 => Some(THIRD | 1 << 20),
        _ => None,
    }
}

/// The newest release that `features` speak of.
#[must_use]
pub fn newest_release(features: u64) -> Option<u8> {
    (12..=16).rev().find(|release| of_release(*release).is_some_and(|bits| features & bits == bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_offer_is_pacific() {
        assert_eq!(newest_release(SUPPORTED), Some(16));
        assert_eq!(newest_release(SUPPORTED & !(1 << 20)), Some(15));
        assert_eq!(SUPPORTED & NACRE_OSD, 0);
        assert_eq!(newest_release(SUPPORTED & !SECOND), None, "the bits alone mean something older");
    }
}

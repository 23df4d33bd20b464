//! The omap keys of a bucket index. Source: Ceph `src/cls/rgw/cls_rgw.cc` at v16.2.15.
//!
//! | key | value |
//! | --- | --- |
//! | name | the object, or a placeholder when it has versions |
//! | name `00` `v`epoch `00` `i`instance | a version, where listings find it: newer ones first |
//! | `80` `1000_` name `00` `i`instance | the same version, where writers find it |
//! | `80` `1001_` name | which version is current |
//! | `80` `0_` id | an entry of the bucket's log |
//!
//! The marker of a deletion under the empty instance has another `00` `d` behind it.

use super::entry::{DirEntry, Key};
use nacre_buf::ByteStr;

/// First byte of all keys that are not in listings; no name in UTF-8 begins with it.
pub(super) const SPECIAL: u8 = 0x80;
pub(super) const LOG_PREFIX: &[u8] = b"\x800_";
pub(super) const INSTANCE_PREFIX: &[u8] = b"\x801000_";
pub(super) const OLH_PREFIX: &[u8] = b"\x801001_";

pub(super) fn is_special(key: &[u8]) -> bool {
    key.first() == Some(&SPECIAL)
}

/// Where writers find a version.
pub(super) fn instance_key(key: &Key, is_null_delete_marker: bool) -> ByteStr {
    let suffix: &[u8] = if is_null_delete_marker { b"\0d" } else { b"" };
    ByteStr::from([INSTANCE_PREFIX, key.name.as_bytes(), b"\0i", key.instance.as_bytes(), suffix].concat())
}

/// Where writers find an object or version.
pub(super) fn object_key(key: &Key) -> ByteStr {
    if key.instance.is_empty() { key.name.clone() } else { instance_key(key, false) }
}

/// Where listings find a version.
pub(super) fn list_key(entry: &DirEntry) -> ByteStr {
    let epoch = decreasing(entry.versioned_epoch);
    let (name, instance) = (entry.key.name.as_bytes(), entry.key.instance.as_bytes());
    ByteStr::from([name, b"\0v", epoch.as_bytes(), b"\0i", instance].concat())
}

/// Where it stands which version is current.
pub(super) fn olh_key(name: &[u8]) -> ByteStr {
    ByteStr::from([OLH_PREFIX, name].concat())
}

/// Text that sorts the other way round than the number.
fn decreasing(number: u64) -> String {
    match number {
        0..0x10 => format!("9{:02}", 15 - number),
        0x10..0x100 => format!("8{:03}", 255 - number),
        0x100..0x1000 => format!("7{:04}", 4095 - number),
        0x1000..0x1_0000 => format!("6{:05}", 65535 - number),
        0x1_0000..0x1_0000_0000 => format!("5{:010}", 0xffff_ffff - number),
        _ => format!("4{:020}", number.cast_signed().wrapping_neg()),
    }
}

/// The name in a key of a listing; none when it is not such a key.
pub(super) fn listed_name(key: &ByteStr) -> Option<ByteStr> {
    let Some(end) = key.iter().position(|byte| *byte == 0) else { return Some(key.clone()) };
    let rest = key.get(end + 1..).filter(|rest| !rest.is_empty())?;
    let is_number = |text: &[u8]| std::str::from_utf8(text).is_ok_and(|text| text.parse::<i64>().is_ok());
    let mut parts = rest.split(|byte| *byte == 0);
    let is_right = parts.all(|part| part.strip_prefix(b"v").is_none_or(is_number));
    is_right.then(|| ByteStr::from(key.to_shared().slice(..end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_versions_sort_first() {
        let epochs =
            [1, 2, 0xf, 0x10, 0xff, 0x100, 0xfff, 0x1000, 0xffff, 0x1_0000, 0xffff_ffff, 0x1_0000_0000];
        let texts = epochs.map(decreasing);
        assert!(texts.windows(2).all(|pair| pair[0] > pair[1]), "{texts:?}");
        assert_eq!((&texts[1][..], &texts[11][..]), ("913", "4-0000000004294967296"));
    }
}

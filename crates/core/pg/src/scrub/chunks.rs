//! Comparing chunks: they differ from each other, and yet must belong together.

use nacre_ec::Codec;
use nacre_msg::peer::ScrubObject;
use nacre_types::{HObject, OsdId};
use std::collections::{BTreeMap, BTreeSet};

/// Objects whose chunks do not belong together, by their linear sums; looks at those that all shards can read in one
/// version. Takes the sums out of the lists: in all else chunks of an object are equal.
///
/// Which chunk is wrong the sums do not tell, so this alone orders no repair; a store that notices that a chunk is
/// damaged does.
pub(super) fn unrelated(
    codec: &Codec,
    chunk_of: impl Fn(OsdId, &HObject) -> Option<u8>,
    lists: &mut BTreeMap<OsdId, Vec<ScrubObject>>,
    deep: bool,
) -> BTreeSet<HObject> {
    let mut found: BTreeMap<HObject, BTreeMap<u8, (ScrubObject, u32)>> = BTreeMap::new();
    for (osd, list) in lists {
        for copy in list {
            let Some(chunk) = chunk_of(*osd, &copy.object) else { continue };
            let sum = std::mem::take(&mut copy.data_crc);
            found.entry(copy.object.clone()).or_default().insert(chunk, (copy.clone(), sum));
        }
    }
    if !deep {
        return BTreeSet::new();
    }
    let is_wrong = |chunks: &BTreeMap<u8, (ScrubObject, u32)>| {
        let Some((first, _)) = chunks.values().next() else { return false };
        let comparable = chunks.len() == codec.shards() && !first.damaged;
        let equal = chunks.values().all(|(copy, _)| copy == first);
        let sums: Vec<u32> = chunks.values().map(|(_, sum)| *sum).collect();
        comparable && equal && !codec.is_consistent(&sums)
    };
    found.into_iter().filter(|(_, chunks)| is_wrong(chunks)).map(|(object, _)| object).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_ec::{Code, Technique};
    use nacre_types::Eversion;

    #[test]
    fn chunks_that_do_not_belong_together_are_found() {
        let codec = Codec::new(&Code::new(Technique::JerasureReedSolVan, 2, 1, 4096).expect("a code"));
        let data: [&[u8]; 2] = [b"some data", b"more data"];
        let parity = codec.encode(&data);
        let shards: BTreeMap<OsdId, u8> = [(4, 0), (7, 1), (2, 2)].into();
        let chunk_of = |osd, _: &HObject| shards.get(&osd).copied();
        let copy = |bytes: &[u8], version| ScrubObject {
            object: HObject::MIN,
            version: Eversion::new(1, version),
            meta_crc: 1,
            attrs_crc: 1,
            data_crc: codec.linear_sum(0, 0, bytes),
            size: 18,
            damaged: false,
        };
        let lists = |second: &[u8], version| -> BTreeMap<OsdId, Vec<ScrubObject>> {
            let (first, third) = (vec![copy(data[0], 1)], vec![copy(&parity[0], 1)]);
            [(4, first), (7, vec![copy(second, version)]), (2, third)].into()
        };
        let mut good = lists(data[1], 1);
        assert!(unrelated(&codec, chunk_of, &mut good, true).is_empty());
        assert!(good.values().flatten().all(|copy| copy.data_crc == 0));
        assert_eq!(unrelated(&codec, chunk_of, &mut lists(b"other dat", 1), true).len(), 1);
        assert!(unrelated(&codec, chunk_of, &mut lists(b"other dat", 1), false).is_empty());
        assert!(unrelated(&codec, chunk_of, &mut lists(b"other dat", 2), true).is_empty(), "differs anyway");
    }
}

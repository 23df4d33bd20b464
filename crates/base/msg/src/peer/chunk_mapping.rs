//! [`ChunkMapping`]: which chunk of an object a shard of an erasure-coded PG holds.

use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{OsdId, PgId, hash};
use std::collections::BTreeMap;

/// More PGs than any pool has that may have been merged into one (`nacre_maps::POOL_PGS_MAX`).
const PGS_MAX: usize = 65_536;

/// Shard numbers of the members of a PG.
pub type Shards = BTreeMap<OsdId, u8>;

/// Which chunk of an object a shard holds: that of its own number, but for objects of PGs that were merged into this one, whose copies on
/// the same OSDs held other shards than those of the PG that took them in.
///
/// ```text
///   1.3 (takes in)   osd.4: 0   osd.7: 1   osd.2: 2       shards, before and after
///   1.7 (ends)       osd.4: 2   osd.7: 0   osd.2: 1
///   7 -> [2, 0, 1]                                        chunks that shards 0, 1 and 2 of 1.3 hold of what was in 1.7
/// ```
/// Ceph's shards are places in the acting set, and equal in both; its codes have a `chunk_mapping` for all objects alike.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChunkMapping {
    /// For each PG (by its seed) that was merged: the chunk of each shard of objects that were in it when the pool had one PG more than the
    /// seed says. Of several such PGs the one with the largest seed counts.
    merged: BTreeMap<u32, Vec<u8>>,
    /// Nobody knows which chunks this copy has.
    is_unknown: bool,
}

impl ChunkMapping {
    /// That of a copy of which nobody knows what it holds.
    #[must_use]
    pub fn unknown() -> Self {
        Self { is_unknown: true, ..Self::default() }
    }

    /// See [`ChunkMapping::unknown`].
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.is_unknown
    }

    /// Each shard holds the chunks of its own number.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it can be one of a code of `count` chunks.
    #[must_use]
    pub fn fits(&self, count: usize) -> bool {
        self.merged.values().all(|chunks| chunks.len() == count)
    }

    /// Which chunk of an object with this hash `shard` holds.
    #[must_use]
    pub fn chunk_of(&self, hash: u32, shard: u8) -> u8 {
        let chunks = self.chunks_below(hash, u32::MAX);
        chunks.and_then(|chunks| chunks.get(usize::from(shard))).copied().unwrap_or(shard)
    }

    /// The chunks of objects with this hash, by the merges of PGs with seeds up to `seed_max`. An object was in the PG with the seed `s`
    /// exactly if its hash ends with the bits of `s`.
    fn chunks_below(&self, hash: u32, seed_max: u32) -> Option<&Vec<u8>> {
        let (largest, _) = self.merged.range(..=seed_max).next_back()?;
        let bits = u32::BITS - largest.leading_zeros();
        let seeds = (0..=bits).rev().map(|bits| hash & low_bits(bits)).filter(|seed| *seed <= seed_max);
        seeds.filter_map(|seed| self.merged.get(&seed)).next()
    }

    /// What of it is about objects of `pg`, one of `pg_num`.
    fn of_pg(&self, pg: PgId, pg_num: u32) -> Self {
        let is_inside = |seed: &u32| *seed >= pg_num && hash::stable_mod(*seed, pg_num) == pg.seed;
        let inside = self.merged.iter().filter(|(seed, _)| is_inside(seed));
        let mut merged: BTreeMap<u32, Vec<u8>> = inside.map(|(seed, it)| (*seed, it.clone())).collect();
        if let Some(chunks) = self.chunks_below(pg.seed, pg.seed) {
            merged.insert(pg.seed, chunks.clone());
        }
        Self { merged, is_unknown: self.is_unknown }
    }

    /// That of `target`, one of `pg_num`, when it has taken in `source`; each with the mapping that it had, and the shards of its members.
    /// The members keep the shards that they have in `target`. `None` if that cannot be told: the members are not the same, or two of them
    /// have the same shard.
    #[must_use]
    pub fn of_merge(
        target: (PgId, &Self, &Shards),
        source: (PgId, &Self, &Shards),
        pg_num: u32,
    ) -> Option<Self> {
        let ((target, ours, our_shards), (source, theirs, their_shards)) = (target, source);
        let count = our_shards.len();
        if ours.is_unknown || theirs.is_unknown || !ours.fits(count) || !theirs.fits(count) {
            return None;
        }
        let mut shards: Vec<Option<u8>> = vec![None; count];
        for (osd, shard) in our_shards {
            let place = shards.get_mut(usize::from(*shard)).filter(|place| place.is_none())?;
            *place = Some(*their_shards.get(osd)?);
        }
        let shards: Vec<u8> = shards.into_iter().collect::<Option<_>>()?;
        if their_shards.len() != count || !is_permutation(&shards) {
            return None;
        }
        let theirs = theirs.of_pg(source, source.seed + 1);
        let mut merged = ours.of_pg(target, pg_num).merged;
        let plain = (0..).take(count).collect();
        let chunks_of = |chunks: &Vec<u8>| -> Vec<u8> {
            shards.iter().filter_map(|shard| chunks.get(usize::from(*shard))).copied().collect()
        };
        merged.insert(source.seed, chunks_of(theirs.merged.get(&source.seed).unwrap_or(&plain)));
        merged.extend(
            theirs
                .merged
                .iter()
                .filter(|(seed, _)| **seed != source.seed)
                .map(|(seed, it)| (*seed, chunks_of(it))),
        );
        let mut mapping = Self { merged, is_unknown: false };
        mapping.drop_redundant(&plain);
        Some(mapping)
    }

    /// Drops what would be found without it.
    fn drop_redundant(&mut self, plain: &Vec<u8>) {
        let seeds: Vec<u32> = self.merged.keys().copied().collect();
        for seed in seeds {
            let without =
                seed.checked_sub(1).and_then(|below| self.chunks_below(seed, below)).unwrap_or(plain);
            if self.merged.get(&seed) == Some(without) {
                self.merged.remove(&seed);
            }
        }
    }
}

fn low_bits(count: u32) -> u32 {
    1_u32.checked_shl(count).map_or(u32::MAX, |bit| bit - 1)
}

fn is_permutation(chunks: &[u8]) -> bool {
    let mut seen = vec![false; chunks.len()];
    chunks
        .iter()
        .all(|chunk| seen.get_mut(usize::from(*chunk)).is_some_and(|seen| !std::mem::replace(seen, true)))
}

impl Encode for ChunkMapping {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.is_unknown);
        w.put(&self.merged);
    }
}

impl Decode for ChunkMapping {
    const MIN_BYTES: usize = 5;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let mapping = Self { is_unknown: r.get()?, merged: r.get()? };
        let is_bad = |(_, chunks): &(&u32, &Vec<u8>)| chunks.is_empty() || !is_permutation(chunks);
        let beyond = mapping.merged.keys().nth(PGS_MAX);
        match mapping.merged.iter().find(is_bad).map(|(seed, _)| seed).or(beyond) {
            Some(seed) => Err(DecodeError::Invalid { what: "chunks of a merged PG", value: (*seed).into() }),
            None => Ok(mapping),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMBERS: [OsdId; 3] = [4, 7, 2];

    fn shards(of: [u8; 3]) -> Shards {
        MEMBERS.into_iter().zip(of).collect()
    }

    /// One PG as the test knows it: the shard of each member, and the mapping.
    #[derive(Clone)]
    struct Copy(ChunkMapping, [u8; 3]);

    fn merge(target: (u32, &Copy), source: (u32, &Copy)) -> Copy {
        let of = |(seed, copy): (u32, &Copy)| (PgId::new(1, seed), copy.0.clone(), shards(copy.1));
        let ((target, ours, our_shards), (source, theirs, their_shards)) = (of(target), of(source));
        let mapping = ChunkMapping::of_merge(
            (target, &ours, &our_shards),
            (source, &theirs, &their_shards),
            source.seed,
        );
        Copy(mapping.expect("the same members"), [0, 1, 2].map(|at| our_shards[&MEMBERS[at]]))
    }

    #[test]
    fn shards_of_a_merged_pg_hold_the_chunks_that_they_held() {
        let (target, source) =
            (Copy(ChunkMapping::default(), [0, 1, 2]), Copy(ChunkMapping::default(), [2, 0, 1]));
        let merged = merge((3, &target), (7, &source)).0;
        assert_eq!([0, 1, 2].map(|shard| merged.chunk_of(0xf7, shard)), [2, 0, 1]);
        assert_eq!([0, 1, 2].map(|shard| merged.chunk_of(0xf3, shard)), [0, 1, 2]);
        assert!(merge((3, &target), (7, &target)).0.is_plain(), "alike");
    }

    /// Merged and split at random, every object's chunk stays where it is.
    #[test]
    fn no_chunk_moves_however_pgs_are_merged_and_split() {
        let permutations = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        for seed in 0..200_usize {
            let mut random = seed * 7919 + 1;
            let mut below = |most: usize| {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 33) % most
            };
            let mut pgs: Vec<Copy> =
                (0..8).map(|_| Copy(ChunkMapping::default(), permutations[below(6)])).collect();
            let hashes: Vec<u32> = (0..64_u32).map(|hash| hash.wrapping_mul(0x9e37_79b9) ^ hash).collect();
            let pg_of = |hash: u32, pgs: &[Copy]| {
                hash::stable_mod(hash, u32::try_from(pgs.len()).expect("few")) as usize
            };
            let chunks = |pgs: &[Copy]| -> Vec<[u8; 3]> {
                let of = |hash: &u32| {
                    let Copy(mapping, shards) = &pgs[pg_of(*hash, pgs)];
                    shards.map(|shard| mapping.chunk_of(*hash, shard))
                };
                hashes.iter().map(of).collect()
            };
            let before = chunks(&pgs);
            for _ in 0..40 {
                if pgs.len() > 1 && (pgs.len() > 15 || below(2) == 0) {
                    let source = pgs.pop().expect("a PG");
                    let (left, seed) =
                        (u32::try_from(pgs.len()).expect("few"), u32::try_from(pgs.len()).expect("few"));
                    let target = hash::stable_mod(seed, left);
                    let taken = merge((target, &pgs[target as usize]), (seed, &source));
                    pgs[target as usize] = taken;
                } else {
                    let child = u32::try_from(pgs.len()).expect("few");
                    let parent = hash::stable_mod(child, child);
                    pgs.push(pgs[parent as usize].clone());
                }
                assert_eq!(chunks(&pgs), before, "seed {seed}, {} PGs", pgs.len());
            }
            assert!(pgs.iter().all(|pg| pg.0.merged.len() < 40), "bounded by the PGs that there were");
        }
    }

    #[test]
    fn members_that_differ_have_no_mapping() {
        let plain = ChunkMapping::default();
        let of = |ours: &Shards, theirs: &Shards| {
            ChunkMapping::of_merge((PgId::new(1, 3), &plain, ours), (PgId::new(1, 7), &plain, theirs), 7)
        };
        let all = shards([0, 1, 2]);
        assert!(of(&all, &all).is_some());
        assert!(of(&all, &[(4, 0), (7, 1), (3, 2)].into()).is_none(), "another member");
        assert!(of(&all, &shards([0, 1, 1])).is_none() && of(&shards([0, 1, 1]), &all).is_none(), "twins");
        assert!(of(&all, &[(4, 0), (7, 1)].into()).is_none() && of(&[(4, 0), (7, 1)].into(), &all).is_none());
        assert!(of(&shards([0, 1, 3]), &all).is_none(), "there is no such shard");
    }

    #[test]
    fn what_is_no_mapping_is_refused() {
        let mapping = |chunks: Vec<u8>| ChunkMapping { merged: [(5, chunks)].into(), is_unknown: false };
        let good = mapping(vec![1, 0, 2]);
        assert_eq!(ChunkMapping::from_bytes(good.to_bytes()), Ok(good.clone()));
        assert!(good.fits(3) && !good.fits(4));
        for bad in [vec![], vec![1, 1, 2], vec![1, 2, 3]] {
            assert!(ChunkMapping::from_bytes(mapping(bad).to_bytes()).is_err());
        }
    }
}

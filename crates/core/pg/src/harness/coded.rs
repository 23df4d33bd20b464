//! The same cluster with an erasure-coded pool.

use super::World;
use super::world::{POOL, pg};
use crate::coding::{Coding, is_rollback_gen};
use crate::object::ObjectContext;
use crate::ops::testing::Stored;
use nacre_buf::BufList;
use nacre_ec::{Code, Profile, Shards};
use nacre_maps::{Pool, PoolKind, flags};
use nacre_types::{HObject, OsdId};
use std::collections::BTreeMap;

/// What profiles say beside `k` and `m`; the seed decides. All have chunks of 4096 bytes in a stripe. Without the first key the code is
/// the one of older programs.
const PROFILES: [&str; 5] = [
    "nacre-parity=ceph plugin=jerasure technique=reed_sol_van",
    "plugin=jerasure technique=reed_sol_van",
    "nacre-parity=ceph plugin=jerasure technique=cauchy_good packetsize=128",
    "nacre-parity=ceph plugin=isa technique=reed_sol_van",
    "nacre-parity=ceph plugin=isa technique=cauchy stripe_unit=1024",
];

fn profile(seed: u64, k: u8, m: u8) -> Profile {
    let number = usize::try_from((seed + seed / 5) % 5).expect("small");
    let text = format!("k={k} m={m} {}", PROFILES[number]);
    let pairs = text.split(' ').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

impl World {
    /// A PG of `k + m` chunks; whatever can be read may be written to with one chunk more, as Ceph has it.
    pub(crate) fn coded(seed: u64, clients: usize, k: u8, m: u8) -> Self {
        let flags = flags::pool::HASHPSPOOL | flags::pool::CREATING;
        let profile = profile(seed, k, m);
        let pool = Pool {
            kind: PoolKind::Erasure,
            size: k + m,
            min_size: k + 1.min(m - 1),
            stripe_width: Code::of_profile(&profile).expect("a code").stripe_bytes(),
            erasure_code_profile: "profile".to_owned(),
            pg_num: 1,
            pgp_num: 1,
            flags,
            ..Pool::default()
        };
        Self::with_pool(seed, clients, pool, profile)
    }

    /// Likewise, of objects that may be changed in part.
    pub(crate) fn overwritten(seed: u64, clients: usize, k: u8, m: u8) -> Self {
        let mut world = Self::coded(seed, clients, k, m);
        world.publish(|map| map.pools.values_mut().for_each(|pool| pool.flags |= flags::pool::EC_OVERWRITES));
        world
    }

    pub(super) fn is_coded(&self) -> bool {
        self.map().pools.get(&POOL).is_some_and(|pool| !pool.is_replicated())
    }

    /// Members hold chunks of the same objects in the same versions, each a different one, and all belong together.
    pub(super) fn assert_related_chunks(&mut self) {
        let coding = Coding::of(self.map(), POOL).expect("a coded pool");
        let members = self.map().pg_to_up_acting(pg()).acting;
        let mut shards: BTreeMap<u8, (OsdId, BTreeMap<HObject, Stored>)> = BTreeMap::new();
        for osd in members {
            let shard = self.pg(osd).and_then(|pg| pg.info().shard).expect("a shard");
            let objects = self.disk(osd).objects().clone();
            assert!(objects.keys().all(|object| !is_rollback_gen(object)), "osd.{osd} keeps what is safe");
            let before = shards.insert(shard, (osd, objects));
            assert!(before.is_none(), "osd.{osd} holds the shard of another");
        }
        assert_eq!(shards.len(), coding.codec.shards());
        let first = shards.values().next().map(|(_, objects)| objects.clone()).unwrap_or_default();
        for (osd, objects) in shards.values() {
            assert!(objects.keys().eq(first.keys()), "osd.{osd} has other objects");
        }
        let primary = self.primary();
        let mapping = self.pg(primary).map(|pg| pg.info().mapping.clone()).expect("a copy");
        for (object, stored) in &first {
            let of = |(shard, (_, objects)): (&u8, &'_ (OsdId, BTreeMap<HObject, Stored>))| {
                (mapping.chunk_of(object.hash, *shard), objects[object].clone())
            };
            let chunks: BTreeMap<u8, Stored> = shards.iter().map(of).collect();
            let chunks: Vec<&Stored> = chunks.values().collect();
            let size = ObjectContext::from_record(stored.meta.clone()).expect("a record").info.size;
            for chunk in &chunks {
                assert_eq!((&chunk.meta, &chunk.attrs), (&stored.meta, &stored.attrs), "{object}");
                assert_eq!(chunk.data.len() as u64, coding.layout.chunk_bytes(size), "{object}");
            }
            let sums: Vec<u32> =
                chunks.iter().map(|chunk| coding.codec.linear_sum(0, 0, &chunk.data)).collect();
            assert!(coding.codec.is_consistent(&sums), "{object}: chunks of different writes");
            let last: Shards<'_> = (0..)
                .zip(&chunks)
                .skip(chunks.len() - coding.codec.data_shards())
                .map(|(at, chunk)| (at, &chunk.data[..]))
                .collect();
            let data: Vec<BufList> = chunks.iter().map(|chunk| chunk.data.clone().into()).collect();
            let whole = coding.layout.join(&data[..coding.codec.data_shards()]).to_bytes();
            let size = usize::try_from(size).expect("small in tests");
            assert!(whole[size..].iter().all(|byte| *byte == 0), "{object}: bytes behind its end");
            assert_eq!(
                coding.codec.recover(&last, &[0]).expect("k chunks"),
                [chunks[0].data.to_vec()],
                "{object}"
            );
        }
    }
}

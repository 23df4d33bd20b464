//! Which code a pool's objects have: the one place where that is decided.

use crate::{OsdMap, Pool};
use nacre_ec::{Code, STRIPE_UNIT_BYTES, Technique, is_marked};

impl OsdMap {
    /// The code of `pool`; `None` if it is replicated, or its numbers make no code.
    ///
    /// It is what the pool's erasure-code profile says, if that has [`nacre_ec::PARITY_KEY`]. A profile without it is of the time when
    /// the pool's own numbers alone said how it was coded, with chunks of 4096 bytes in a stripe and Nacre's own matrix.
    #[must_use]
    pub fn code_of(&self, pool: &Pool) -> Option<Code> {
        if pool.is_replicated() {
            return None;
        }
        match self.erasure_code_profiles.get(&pool.erasure_code_profile).filter(|profile| is_marked(profile))
        {
            Some(profile) => {
                let fits = |code: &Code| code.size() == pool.size && code.stripe_bytes() == pool.stripe_width;
                Code::of_profile(profile).ok().filter(fits)
            }
            None => {
                let k = u8::try_from(pool.stripe_width / STRIPE_UNIT_BYTES).ok()?;
                Code::new(Technique::Own, k, pool.size.checked_sub(k)?, STRIPE_UNIT_BYTES)
            }
        }
    }

    /// Bytes stored for each byte of data of `pool` when nothing is degraded. Ceph `OSDMap::pool_raw_used_rate`.
    #[must_use]
    pub fn raw_used_rate(&self, pool: &Pool) -> f64 {
        f64::from(pool.size) / self.code_of(pool).map_or(1.0, |code| f64::from(code.k()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PoolKind;

    fn map(profile: &str) -> OsdMap {
        let pairs = profile.split(' ').filter_map(|pair| pair.split_once('='));
        let profile = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        OsdMap { erasure_code_profiles: [("p".to_owned(), profile)].into(), ..OsdMap::default() }
    }

    fn pool(size: u8, stripe_width: u32) -> Pool {
        let kind = PoolKind::Erasure;
        Pool { kind, size, stripe_width, erasure_code_profile: "p".to_owned(), ..Pool::default() }
    }

    #[test]
    fn a_pool_has_the_code_of_its_profile() {
        let map = map("nacre-parity=ceph k=4 m=2 plugin=isa technique=cauchy stripe_unit=16K");
        let found = pool(6, 65536);
        let code = map.code_of(&found).expect("a code");
        assert_eq!((code.technique(), code.k(), code.m()), (Technique::IsaCauchy, 4, 2));
        assert!((map.raw_used_rate(&found) - 1.5).abs() < 1e-9);
        for other in [pool(5, 65536), pool(6, 4 * 4096)] {
            assert_eq!(map.code_of(&other), None, "the profile is not the one that it was made by");
        }
    }

    #[test]
    fn a_pool_of_an_older_program_has_its_matrix_still() {
        for profile in ["k=4 m=2 plugin=isa technique=reed_sol_van", "k=2 m=1 made=by-force"] {
            let map = map(profile);
            let code = map.code_of(&pool(6, 4 * 4096)).expect("a code");
            assert_eq!((code.technique(), code.k(), code.m()), (Technique::Own, 4, 2), "{profile}");
        }
        let unknown = Pool { erasure_code_profile: "gone".to_owned(), ..pool(3, 8192) };
        assert_eq!(map("k=2").code_of(&unknown).map(|code| code.technique()), Some(Technique::Own));
        assert_eq!(map("k=2").code_of(&Pool::default()), None, "a replicated one");
    }
}

//! Every target over its seeds and some mutations of them, without the fuzzer. `FUZZ_MUTATIONS=5000` tries more of each seed.

use nacre_types::Entropy;
use nacre_types::entropy::SeededEntropy;

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 17] = [
    ("message", crate::message),
    ("osdmap", crate::osdmap),
    ("osdmap_incremental", crate::osdmap_incremental),
    ("crush", crate::crush),
    ("monmap", crate::monmap),
    ("mgrmap", crate::mgrmap),
    ("fsmap", crate::fsmap),
    ("auth", crate::auth),
    ("class_calls", crate::class_calls),
    ("store_metadata", crate::store_metadata),
    ("device_label", crate::device_label),
    ("transaction", crate::transaction),
    ("keyring", crate::keyring),
    ("frames", crate::frames),
    ("mon_link", crate::mon_link),
    ("recovery_key", crate::recovery_key),
    ("recovery_snapshot", crate::recovery_snapshot),
];
/// Of each seed, unless the environment says otherwise.
const MUTATIONS: usize = 50;

fn mutated(bytes: &[u8], entropy: &mut SeededEntropy) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let limit = bytes.len().max(1);
    let mut below = |limit: usize| usize::try_from(entropy.u64() >> 32).expect("32 bits") % limit;
    for _ in 0..=below(3) {
        let (at, value) = (below(limit), below(256));
        if let Some(byte) = bytes.get_mut(at) {
            *byte = u8::try_from(value).expect("below 256");
        }
    }
    bytes
}

#[test]
fn no_target_fails_on_its_seeds_or_near_them() {
    let asked = std::env::var("FUZZ_MUTATIONS").ok();
    let mutations = asked.map_or(MUTATIONS, |count| count.parse().expect("FUZZ_MUTATIONS is a number"));
    let mut entropy = SeededEntropy(7);
    let seeds = crate::seeds();
    for (name, target) in TARGETS {
        let own: Vec<&[u8]> =
            seeds.iter().filter(|(of, _)| *of == name).map(|(_, bytes)| &bytes[..]).collect();
        assert!(!own.is_empty(), "no seed for {name}");
        for seed in own {
            target(seed);
            (0..mutations).for_each(|_| target(&mutated(seed, &mut entropy)));
        }
    }
}

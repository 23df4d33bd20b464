//! Every target over its seeds and some mutations of them, without the fuzzer.

use nacre_types::Entropy;
use nacre_types::entropy::SeededEntropy;

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 8] = [
    ("message", nacre_fuzz::message),
    ("osdmap", nacre_fuzz::osdmap),
    ("osdmap_incremental", nacre_fuzz::osdmap_incremental),
    ("crush", nacre_fuzz::crush),
    ("monmap", nacre_fuzz::monmap),
    ("transaction", nacre_fuzz::transaction),
    ("keyring", nacre_fuzz::keyring),
    ("frames", nacre_fuzz::frames),
];
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
    let mut entropy = SeededEntropy(7);
    let seeds = nacre_fuzz::seeds();
    for (name, target) in TARGETS {
        let own: Vec<&[u8]> =
            seeds.iter().filter(|(of, _)| *of == name).map(|(_, bytes)| &bytes[..]).collect();
        assert!(!own.is_empty(), "no seed for {name}");
        for seed in own {
            target(seed);
            (0..MUTATIONS).for_each(|_| target(&mutated(seed, &mut entropy)));
        }
    }
}

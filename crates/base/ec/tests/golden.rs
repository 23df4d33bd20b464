//! Chunks have the bytes of a real OSD's: `testdata/ec/chunks.txt`, as `record.py` beside it recorded them.

use nacre_buf::{BufList, Bytes};
use nacre_ec::{Code, Codec, Profile, Shards, Technique};

const GOLDEN: &str = include_str!("../../../../testdata/ec/chunks.txt");

struct Case {
    name: String,
    code: Code,
    length: usize,
    /// CRC-32C of each shard's chunk, as Ceph has it.
    sums: Vec<u32>,
}

fn cases() -> Vec<Case> {
    let case = |line: &str| {
        let (pairs, rest): (Vec<&str>, Vec<&str>) = line.split(' ').partition(|word| word.contains('='));
        let name = pairs.join(" ");
        let pairs = pairs.iter().filter_map(|pair| pair.split_once('='));
        let mut profile: Profile = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        profile.insert("nacre-parity".to_owned(), "ceph".to_owned());
        profile.insert("stripe_unit".to_owned(), rest[0].to_owned());
        let sums = rest[2..].iter().map(|sum| u32::from_str_radix(sum, 16).expect("a checksum")).collect();
        let code = Code::of_profile(&profile).expect(line);
        Case { name, code, length: rest[1].parse().expect("a length"), sums }
    };
    GOLDEN.lines().map(case).collect()
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 7 + at / 251 + at / 65521) % 251).expect("small")).collect()
}

/// The chunks of all shards.
fn chunks(codec: &Codec, case: &Case) -> Vec<Bytes> {
    let data = case.code.layout().split(&Bytes::from(content(case.length)).into());
    let mut chunks: Vec<Bytes> = data.iter().map(BufList::to_bytes).collect();
    let parity = codec.encode(&chunks.iter().map(|chunk| &chunk[..]).collect::<Vec<_>>());
    chunks.extend(parity.into_iter().map(Bytes::from));
    chunks
}

#[test]
fn chunks_are_those_of_a_real_osd() {
    let cases = cases();
    for case in &cases {
        let chunks = chunks(&Codec::new(&case.code), case);
        let found: Vec<u32> = chunks.iter().map(|chunk| nacre_buf::crc::crc32c(u32::MAX, chunk)).collect();
        assert_eq!(found, case.sums, "{}", case.name);
    }
    let are_there =
        |is: fn(&Technique) -> bool| cases.iter().filter(|case| is(&case.code.technique())).count();
    assert!(are_there(|of| *of == Technique::JerasureReedSolVan) >= 10);
    assert!(are_there(|of| *of == Technique::IsaReedSolVan) >= 10);
    assert!(are_there(|of| *of == Technique::IsaCauchy) >= 10);
    assert!(are_there(|of| matches!(of, Technique::JerasureCauchyGood { .. })) >= 10);
}

#[test]
fn data_comes_back_from_the_last_chunks_of_a_real_osd() {
    for case in cases() {
        let codec = Codec::new(&case.code);
        let chunks = chunks(&codec, &case);
        let lost: Vec<u8> = (0..case.code.m().min(case.code.k())).collect();
        let have: Shards<'_> =
            (0..).zip(&chunks).skip(lost.len()).map(|(shard, chunk)| (shard, &chunk[..])).collect();
        let found = codec.recover(&have, &lost).expect("enough chunks");
        assert!(found.iter().zip(&chunks).all(|(found, chunk)| *found == *chunk), "{}", case.name);
        let sums: Vec<u32> = chunks.iter().map(|chunk| codec.linear_sum(0, 0, chunk)).collect();
        assert!(codec.is_consistent(&sums), "{}", case.name);
    }
}

/// Of the shards of 8+3.
const OLD_8_3: [u32; 11] = [
    0x0336_4a2e,
    0x033d_e089,
    0x9658_17af,
    0x42b1_7640,
    0x3245_a056,
    0x9f84_c72c,
    0x97c8_5402,
    0xbe3a_e152,
    0x8e62_fcf8,
    0xd9d5_9a79,
    0x6f10_9239,
];

/// A code that older programs wrote: recorded from the last of them. Its chunks decode for as long as there are pools of theirs.
#[test]
fn chunks_of_older_programs_are_what_they_were() {
    let golden: [(u8, u8, &[u32]); 3] = [
        (2, 2, &[0x843f_c653, 0x34f5_3b3d, 0x6e79_18f4, 0x4631_422d]),
        (4, 2, &[0x7931_a1d4, 0x6fd5_885e, 0x47b3_5979, 0xe2a1_a3fa, 0x6d45_3693, 0x177b_b3e7]),
        (8, 3, &OLD_8_3),
    ];
    for (k, m, sums) in golden {
        let code = Code::new(Technique::Own, k, m, 4096).expect("a code");
        let case = Case {
            name: format!("{k}+{m}"),
            code,
            length: usize::from(k) * 8192 + 2065,
            sums: sums.to_vec(),
        };
        let chunks = chunks(&Codec::new(&code), &case);
        let found: Vec<u32> = chunks.iter().map(|chunk| nacre_buf::crc::crc32c(u32::MAX, chunk)).collect();
        assert_eq!(found, case.sums, "{}", case.name);
    }
}

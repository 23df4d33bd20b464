//! How fast codes encode, and decode with the first `m` shards lost, on one processor: GB of data per second of its time, the median of nine rounds.
//! `cargo run --release -p nacre-ec --example speed`
#![expect(clippy::print_stdout, reason = "a measurement for people")]

use nacre_ec::{Code, Codec, Shards, Technique};
use std::hint::black_box;

/// As in the program: glibc's gives large buffers back to the system, and asks for them anew, page fault by page fault.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: usize = 9;
const ROUND_NS: u64 = 50_000_000;

/// Processor time of this thread: what others do on the machine counts not.
fn spent_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("nanoseconds")
}

fn gigabytes_per_second(bytes: usize, mut work: impl FnMut()) -> f64 {
    let mut round = || {
        let (begin, mut times) = (spent_ns(), 0_u32);
        while spent_ns() - begin < ROUND_NS {
            (0..64).for_each(|_| work());
            times += 64;
        }
        bytes as f64 * f64::from(times) / (spent_ns() - begin) as f64
    };
    let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| round()).collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn main() {
    let packets = Technique::JerasureCauchyGood { packet_bytes: 128 };
    for technique in [Technique::JerasureReedSolVan, Technique::IsaReedSolVan, Technique::IsaCauchy, packets]
    {
        for (k, m) in [(4, 2), (8, 3)] {
            for chunk in [4096, 128 << 10] {
                let codec = Codec::new(&Code::new(technique, k, m, 4096).expect("a code"));
                let byte =
                    |at: usize, shard: u8| u8::try_from((at * 31 + at / 251 + usize::from(shard)) % 256);
                let data: Vec<Vec<u8>> = (0..k)
                    .map(|shard| (0..chunk).map(|at| byte(at, shard).expect("a byte")).collect())
                    .collect();
                let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
                let parity = codec.encode(&data);
                let all = data.iter().copied().chain(parity.iter().map(Vec::as_slice));
                let have: Shards<'_> = (0..).zip(all).skip(usize::from(m)).collect();
                let lost: Vec<u8> = (0..m).collect();
                let bytes = usize::from(k) * chunk;
                let encode = gigabytes_per_second(bytes, || drop(black_box(codec.encode(black_box(&data)))));
                let decode =
                    gigabytes_per_second(bytes, || drop(black_box(codec.recover(black_box(&have), &lost))));
                println!(
                    "{technique:?} {k}+{m} {chunk:>6}: encode {encode:5.1} GB/s, decode {decode:5.1} GB/s"
                );
            }
        }
    }
}

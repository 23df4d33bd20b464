//! What the dearest transactions cost the thread of a shard.

use super::rig::Rig;
use crate::Options;
use nacre_buf::{AlignedBuf, Bytes};
use nacre_store::ObjectStore;
use nacre_txn::{Op, StoreToken, Transaction};
use nacre_types::{HObject, PgId, SpgId};

fn cpu_us() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse::<u64>().ok()).unwrap_or(0) / 1000
}

/// A buffer as a message's, which was written before.
fn message(length: usize) -> Bytes {
    let mut buffer = AlignedBuf::with_len(length);
    buffer.fill(7);
    buffer.freeze()
}

/// `cargo test -p nacre-blockstore --release dearest -- --ignored --nocapture`
#[test]
#[ignore = "prints what transactions cost; asserts nothing of time"]
fn the_dearest_transactions() {
    let object = HObject::head(1, "".into(), "".into(), "o".into());
    let parts = |count: usize, length: usize| {
        let all = message(count * length);
        (0..count)
            .map(move |n| (format!("k{n:07}").into(), all.slice(n * length..(n + 1) * length)))
            .collect::<Vec<_>>()
    };
    let omap = |entries| vec![Op::OmapSet { object: object.clone(), entries }];
    let attrs = |entries: Vec<_>| {
        let set = |(name, value)| Op::SetAttr { object: object.clone(), name, value };
        entries.into_iter().map(set).collect::<Vec<_>>()
    };
    let write =
        |offset, length| vec![Op::Write { object: object.clone(), offset, data: message(length).into() }];
    for (what, ops) in [
        ("an omap value of 85 MiB", omap(parts(1, 85 << 20))),
        ("640 omap values of 64 KiB", omap(parts(640, 64 << 10))),
        ("1,024 attributes of 64 KiB", attrs(parts(1024, 64 << 10))),
        ("128 Ki omap keys", omap(parts(128 << 10, 1))),
        ("64 MiB of data", write(0, 64 << 20)),
        ("64 MiB of data off its pages", write(18, 64 << 20)),
    ] {
        // As of an OSD of 4 GiB and more.
        let mut store = Rig::new(1, 4 << 30, Options::default()).open();
        let before = cpu_us();
        store
            .submit(
                Transaction { collection: SpgId::replicated(PgId::new(1, 0)), ops },
                StoreToken::without_pg(1),
            )
            .expect("room");
        let by_submit = cpu_us() - before;
        store.drain(&mut Vec::new());
        println!("{what}: submit {by_submit} us, with the first turn {} us", cpu_us() - before);
    }
}

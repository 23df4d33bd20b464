//! What every [`KvStore`] must do, as checks that its tests run.

use crate::{Durability, KvBatch, KvStore, KvTag};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

/// Runs all checks, each on a fresh store.
///
/// # Panics
/// When the store does not conform.
pub fn check<S: KvStore>(fresh: &mut impl FnMut() -> S) {
    later_changes_of_a_batch_win(&mut fresh());
    ranges_respect_their_bounds(&mut fresh());
    any_bytes_are_keys_and_values(&mut fresh());
    keys_have_a_limit(&mut fresh());
    agrees_with_a_model(&mut fresh());
    submitted_batches_complete_in_order(&mut fresh());
    prefixes_are_deleted_first(&mut fresh());
    a_reader_sees_one_moment(&mut fresh());
}

fn put<S: KvStore>(store: &mut S, pairs: &[(&str, &str)]) {
    let mut batch = KvBatch::default();
    for (key, value) in pairs {
        batch.put(key.as_bytes().to_vec(), value.as_bytes().to_vec());
    }
    store.commit(&batch, Durability::Durable).expect("a healthy store");
}

fn later_changes_of_a_batch_win<S: KvStore>(store: &mut S) {
    put(store, &[("kept", "old"), ("gone", "old")]);
    let mut batch = KvBatch::default();
    batch.delete("kept");
    batch.put("kept", "new");
    batch.put("gone", "new");
    batch.delete("gone");
    batch.delete("never there");
    store.commit(&batch, Durability::Buffered).expect("a healthy store");
    assert_eq!(store.get(b"kept").expect("a healthy store").as_deref(), Some(&b"new"[..]));
    assert_eq!(store.get(b"gone").expect("a healthy store"), None);
}

fn ranges_respect_their_bounds<S: KvStore>(store: &mut S) {
    put(store, &[("a", "1"), ("ab", "2"), ("b", "3"), ("c", "4")]);
    let keys = |start, end, max| {
        let pairs = store.scan(start, end, max).expect("a healthy store");
        pairs.into_iter().map(|(key, _)| String::from_utf8_lossy(&key).into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(keys(Unbounded, Unbounded, usize::MAX), ["a", "ab", "b", "c"]);
    assert_eq!(keys(Included(b"ab"), Excluded(b"c"), usize::MAX), ["ab", "b"]);
    assert_eq!(keys(Excluded(b"ab"), Included(b"c"), usize::MAX), ["b", "c"]);
    assert_eq!(keys(Unbounded, Unbounded, 2), ["a", "ab"]);
    assert!(keys(Included(b"z"), Excluded(b"a"), usize::MAX).is_empty());
    assert!(keys(Excluded(b"a"), Excluded(b"a"), usize::MAX).is_empty());
    assert_eq!(store.scan_prefix(b"a").expect("a healthy store").len(), 2);
}

fn a_reader_sees_one_moment<S: KvStore>(store: &mut S) {
    put(store, &[("a", "1"), ("b", "22"), ("c", "3"), ("d", "4"), ("e", "5")]);
    let mut reader = store.reader(Included(b"b"), Excluded(b"e")).expect("a healthy store");
    let mut batch = KvBatch::default();
    batch.delete("c");
    batch.put("b", "new");
    batch.put("cc", "new");
    store.commit(&batch, Durability::Durable).expect("a healthy store");
    let mut part = |bytes| {
        let pairs = reader.read(bytes).expect("a healthy store").into_iter();
        pairs.map(|(key, value)| [key.as_ref(), value.as_ref()].concat()).collect::<Vec<_>>()
    };
    assert_eq!(part(0), [b"b22".to_vec()]);
    assert_eq!(part(4), [b"c3".to_vec(), b"d4".to_vec()]);
    assert!(part(4).is_empty() && part(4).is_empty());
    let mut none = store.reader(Excluded(b"a"), Excluded(b"a")).expect("a healthy store");
    assert!(none.read(9).expect("a healthy store").is_empty());
}

fn any_bytes_are_keys_and_values<S: KvStore>(store: &mut S) {
    let mut batch = KvBatch::default();
    let all: Vec<u8> = (0..=u8::MAX).collect();
    batch.put(all.clone(), vec![0_u8; 1 << 20]);
    batch.put(vec![u8::MAX; 3], Bytes::new());
    store.commit(&batch, Durability::Durable).expect("a healthy store");
    assert_eq!(store.get(&all).expect("a healthy store").map(|value| value.len()), Some(1 << 20));
    assert_eq!(store.scan_prefix(&[u8::MAX]).expect("a healthy store").len(), 1);
}

fn keys_have_a_limit<S: KvStore>(store: &mut S) {
    let mut batch = KvBatch::default();
    batch.put(vec![0_u8; crate::KEY_BYTES_MAX + 1], Bytes::new());
    assert!(store.commit(&batch, Durability::Durable).is_err());
    put(store, &[("after", "1")]);
}

/// Pseudo-random batches against a map of the standard library.
fn agrees_with_a_model<S: KvStore>(store: &mut S) {
    let mut model = BTreeMap::new();
    let mut seed = 1_u32;
    let mut next = |bound: u32| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 16) % bound
    };
    for round in 0..200_u32 {
        let mut batch = KvBatch::default();
        for _ in 0..next(8) {
            let key = format!("key{}", next(40));
            if next(3) == 0 {
                batch.delete(key.clone());
                model.remove(&key);
            } else {
                batch.put(key.clone(), round.to_string());
                model.insert(key, round.to_string());
            }
        }
        let durability = if next(10) == 0 { Durability::Durable } else { Durability::Buffered };
        store.commit(&batch, durability).expect("a healthy store");
    }
    let found = store.scan_prefix(b"key").expect("a healthy store");
    let wanted: Vec<(Bytes, Bytes)> =
        model.into_iter().map(|(key, value)| (Bytes::from(key), Bytes::from(value))).collect();
    assert_eq!(found, wanted);
}

fn submitted_batches_complete_in_order<S: KvStore>(store: &mut S) {
    let mut out = Vec::new();
    store.wait();
    store.drain(&mut out);
    assert!(out.is_empty(), "nothing was submitted");
    for nth in 0..10 {
        let mut batch = KvBatch::default();
        batch.put("last", nth.to_string());
        batch.put(format!("each{nth}"), "x");
        store.submit(batch, KvTag(nth));
    }
    let mut batch = KvBatch::default();
    batch.put("last", "committed");
    store.commit(&batch, Durability::Durable).expect("a healthy store");
    while out.len() < 10 {
        store.wait();
        store.drain(&mut out);
    }
    assert!(out.iter().all(|completion| completion.result.is_ok()));
    assert!(out.iter().map(|completion| completion.tag.0).eq(0..10));
    assert_eq!(store.get(b"last").expect("a healthy store").as_deref(), Some(&b"committed"[..]));
    assert_eq!(store.scan_prefix(b"each").expect("a healthy store").len(), 10);
    let mut batch = KvBatch::default();
    batch.put(vec![0_u8; crate::KEY_BYTES_MAX + 1], Bytes::new());
    store.submit(batch, KvTag(11));
    store.wait();
    store.drain(&mut out);
    assert!(out.last().is_some_and(|completion| completion.tag == KvTag(11) && completion.result.is_err()));
}

fn prefixes_are_deleted_first<S: KvStore>(store: &mut S) {
    put(store, &[("a", "1"), ("b", "1"), ("b1", "1"), ("b2", "1"), ("c", "1")]);
    let mut batch = KvBatch::default();
    batch.put("b1", "2");
    batch.delete_prefix("b");
    batch.delete_prefix("none");
    store.commit(&batch, Durability::Durable).expect("a healthy store");
    let found = store.scan_prefix(b"").expect("a healthy store");
    let keys: Vec<&[u8]> = found.iter().map(|(key, _)| key.as_ref()).collect();
    assert_eq!(keys, [&b"a"[..], b"b1", b"c"]);
}

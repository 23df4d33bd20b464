//! Bytes of a store's file that are not as they were written: an error that says so, never other content, and never a panic, which in
//! a release build would end every OSD of the process.

use crate::{Durability, KvBatch, KvError, KvStore, KvTag, RedbKv};
use redb::{Database, TableDefinition};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use tempfile::tempdir;

const PAGE: usize = 4096;
/// Flips within each page that is used.
const FLIPS_PER_PAGE: usize = 2;

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// Keys and values of all sizes: some pages hold many, some values are longer than a page.
fn content() -> Content {
    let value = |nth: usize| vec![nth as u8; [3, 40, 300, 9000][nth % 4] + nth];
    (0..120).map(|nth| (format!("key {:05}", nth * 7).into_bytes(), value(nth))).collect()
}

fn batch(content: &Content) -> KvBatch {
    let mut batch = KvBatch::default();
    content.iter().for_each(|(key, value)| batch.put(key.clone(), value.clone()));
    batch
}

/// Reads everything in every way; true when it is all there, false when an error says that it is damaged.
fn is_whole(path: &Path, content: &Content) -> bool {
    let damaged = |error: KvError| match error {
        KvError::Damaged(_) => false,
        other => panic!("rot is not {other:?}"),
    };
    let kv = match RedbKv::open(path) {
        Ok(kv) => kv,
        Err(error) => return damaged(error),
    };
    for (key, value) in content {
        match kv.get(key) {
            Ok(found) => assert_eq!(found.as_deref(), Some(&value[..]), "{}", String::from_utf8_lossy(key)),
            Err(error) => return damaged(error),
        }
        match kv.get(&[key, &b"?"[..]].concat()) {
            Ok(found) => assert_eq!(found, None),
            Err(error) => return damaged(error),
        }
    }
    match kv.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX) {
        Ok(all) => {
            let all: Content = all.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
            assert_eq!(all.len(), content.len());
            assert!(all == *content);
            true
        }
        Err(error) => damaged(error),
    }
}

/// Flips one bit at many places of a file, one after the other; how many were noticed.
fn flip_everywhere(whole: &[u8], content: &Content) -> (usize, usize) {
    let folder = tempdir().expect("a writable temporary folder");
    let path = folder.path().join("kv.redb");
    let (mut count, mut noticed) = (0, 0);
    let used = |page: &[u8]| page.iter().any(|byte| *byte != 0);
    for (nth, page) in whole.chunks(PAGE).enumerate().filter(|(_, page)| used(page)) {
        // What is used of a page is at its beginning, mostly; of the heads every place counts.
        let steps = if nth < 2 { 12 } else { FLIPS_PER_PAGE };
        for step in 0..steps {
            let at = if nth < 2 { step * 41 } else { [nth * 31 % 60, nth * 977 % PAGE][step] };
            let at = nth * PAGE + at.min(page.len() - 1);
            let mut rotten = whole.to_vec();
            rotten[at] ^= 1 << (at % 8);
            std::fs::write(&path, &rotten).expect("a writable folder");
            count += 1;
            noticed += usize::from(!is_whole(&path, content));
        }
    }
    (count, noticed)
}

#[test]
fn rot_in_a_closed_store_is_noticed_wherever_it_is() {
    let (folder, content) = (tempdir().expect("a writable temporary folder"), content());
    let path = folder.path().join("kv.redb");
    let mut kv = RedbKv::open(&path).expect("a new store");
    kv.commit(&batch(&content), Durability::Durable).expect("a healthy device");
    assert!(kv.has_checksums());
    drop(kv);
    assert!(is_whole(&path, &content));
    let (count, noticed) = flip_everywhere(&std::fs::read(&path).expect("the file"), &content);
    // The rest is in one copy of the head, which the other stands in for, or in what nothing refers to any more.
    assert!(count > 150 && noticed > count / 2, "{noticed} of {count}");
}

#[test]
fn rot_in_a_store_that_was_killed_is_noticed_too() {
    let (folder, content) = (tempdir().expect("a writable temporary folder"), content());
    let path = folder.path().join("kv.redb");
    let mut kv = RedbKv::open(&path).expect("a new store");
    kv.submit(batch(&content), KvTag(1));
    let mut done = Vec::new();
    while done.is_empty() {
        kv.wait();
        kv.drain(&mut done);
    }
    let killed = std::fs::read(&path).expect("the file");
    drop(kv);
    let copy = folder.path().join("copy.redb");
    std::fs::write(&copy, &killed).expect("a writable folder");
    assert!(is_whole(&copy, &content));
    let (count, noticed) = flip_everywhere(&killed, &content);
    assert!(count > 150 && noticed > count / 2, "{noticed} of {count}");
}

#[test]
fn a_damaged_page_is_named_and_nothing_more_is_given_or_taken() {
    let (folder, content) = (tempdir().expect("a writable temporary folder"), content());
    let path = folder.path().join("kv.redb");
    let mut kv = RedbKv::open(&path).expect("a new store");
    kv.commit(&batch(&content), Durability::Durable).expect("a healthy device");
    drop(kv);
    let mut bytes = std::fs::read(&path).expect("the file");
    let needle = [57; 30]; // of a value
    let at = bytes.windows(needle.len()).position(|window| window == needle).expect("a value");
    bytes[at] ^= 0x10;
    std::fs::write(&path, &bytes).expect("a writable folder");
    let mut kv = RedbKv::open(&path).expect("the damage is deeper");
    let error = kv.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX).expect_err("it is damaged");
    let place = format!("at byte {},", at / PAGE * PAGE);
    assert!(error.to_string().contains(&place), "{error}: {place}");
    // redb says nothing more of a file of which a read failed; the reason stays the same.
    let again = kv.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX).expect_err("damaged").to_string();
    assert_eq!(again, error.to_string());
    let mut more = KvBatch::default();
    more.put("a", "b");
    assert!(matches!(kv.commit(&more, Durability::Durable), Err(KvError::Damaged(_))));
}

#[test]
fn a_store_of_an_older_program_gets_checksums_when_it_is_opened() {
    const TABLE: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("kv");
    let (folder, content) = (tempdir().expect("a writable temporary folder"), content());
    let path = folder.path().join("kv.redb");
    let make = |path: &Path| {
        let database = Database::create(path).expect("a new file");
        let transaction = database.begin_write().expect("a transaction");
        {
            let mut table = transaction.open_table(TABLE).expect("a table");
            for (key, value) in &content {
                table.insert(&key[..], &value[..]).expect("inserted");
            }
        }
        transaction.commit().expect("committed");
    };
    make(&path);
    // The metadata may be elsewhere, and what is in the store's folder a link.
    let link = folder.path().join("link.redb");
    std::os::unix::fs::symlink(&path, &link).expect("a link");
    assert!(RedbKv::open(&link).expect("the old store").has_checksums());
    assert!(link.symlink_metadata().expect("it").is_symlink());
    assert!(is_whole(&link, &content) && is_whole(&path, &content));
    assert!(!folder.path().join("kv.redb.new").exists());
    let (count, noticed) = flip_everywhere(&std::fs::read(&path).expect("the file"), &content);
    assert!(noticed > count / 2, "{noticed} of {count}");
    // One that is damaged already is not given checksums that prove the damage right.
    let old = folder.path().join("old.redb");
    make(&old);
    let mut bytes = std::fs::read(&old).expect("the file");
    let needle = [57; 30];
    let at = bytes.windows(needle.len()).position(|window| window == needle).expect("a value");
    bytes[at] ^= 0x10;
    std::fs::write(&old, &bytes).expect("a writable folder");
    assert!(matches!(RedbKv::open(&old), Err(KvError::Damaged(_))));
}

/// Power fails in a commit of one flush: of what was under way any part is there, and any part of its checksums.
#[test]
fn a_torn_commit_is_no_rot() {
    const SUMS: std::ops::Range<usize> = 2 * PAGE..3 * PAGE;
    let (folder, before) = (tempdir().expect("a writable temporary folder"), content());
    let path = folder.path().join("kv.redb");
    let mut kv = RedbKv::open(&path).expect("a new store");
    kv.commit(&batch(&before), Durability::Durable).expect("a healthy device");
    let old = std::fs::read(&path).expect("the file");
    let mut after = before.clone();
    let mut change = KvBatch::default();
    for (nth, (key, value)) in after.iter_mut().enumerate().filter(|(nth, _)| nth % 3 == 0) {
        *value = vec![0xee; value.len() + nth];
        change.put(key.clone(), value.clone());
    }
    kv.commit(&change, Durability::Durable).expect("a healthy device");
    let new = std::fs::read(&path).expect("the file");
    drop(kv);
    assert_eq!(old.len(), new.len(), "or pages cannot be taken from either");
    let torn = folder.path().join("torn.redb");
    let check = |bytes: &[u8], content: &Content, what: &str| {
        std::fs::write(&torn, bytes).expect("a writable folder");
        assert!(is_whole(&torn, content), "{what}");
        // It was closed meanwhile: what was believed has its checksum now.
        assert!(is_whole(&torn, content), "{what}, again");
    };
    let with = |base: &[u8], other: &[u8], range: std::ops::Range<usize>| {
        let mut mixed = base.to_vec();
        mixed[range.clone()].copy_from_slice(&other[range]);
        mixed
    };
    check(&with(&new, &old, SUMS), &after, "checksums are late");
    check(&with(&old, &new, SUMS), &before, "checksums are early");
    check(&with(&new, &old, 0..2 * PAGE), &before, "the head is late");
    check(&with(&new, &old, 0..PAGE), &after, "one copy of the head is late");
    let differs = |page: &usize| old[page * PAGE..][..PAGE] != new[page * PAGE..][..PAGE];
    let changed: Vec<usize> = (3..old.len() / PAGE).filter(differs).collect();
    assert!(changed.len() > 3, "{changed:?}");
    for page in &changed {
        check(&with(&new, &old, page * PAGE..(page + 1) * PAGE), &before, "a page is late");
    }
}

#[test]
fn pages_are_checked_after_many_commits_that_take_and_free_them() {
    let folder = tempdir().expect("a writable temporary folder");
    let path = folder.path().join("kv.redb");
    let mut kv = RedbKv::open(&path).expect("a new store");
    let mut expected = Content::new();
    for round in 0..30_usize {
        let mut batch = KvBatch::default();
        for nth in 0..60_usize {
            let key = format!("key {:04}", (round * 37 + nth * 11) % 500).into_bytes();
            if (round + nth) % 3 == 0 {
                batch.delete(key.clone());
                expected.remove(&key);
            } else {
                let value = vec![round as u8; nth * 200];
                batch.put(key.clone(), value.clone());
                expected.insert(key, value);
            }
        }
        let how = if round % 4 == 0 { Durability::Buffered } else { Durability::Durable };
        kv.commit(&batch, how).expect("a healthy device");
        if round % 5 == 4 && how == Durability::Durable {
            // As a kill leaves it: buffered commits were taken back, or not.
            let copy = folder.path().join("copy.redb");
            std::fs::copy(&path, &copy).expect("a copy");
            assert!(is_whole(&copy, &expected), "round {round}");
        }
        if round % 7 == 6 {
            drop(kv);
            kv = RedbKv::open(&path).expect("the store");
        }
    }
    drop(kv);
    assert!(is_whole(&path, &expected));
    RedbKv::compact(&path).expect("a healthy device");
    assert!(is_whole(&path, &expected));
}

//! The journal with stores in memory and in files: what it keeps, finds and refuses.

mod crash;

use super::*;
use crate::journal::merging::APPENDED;
use crate::{COMMITTED, KvOptions, MemoryKv, RedbKv, Warmed};
use bytes::Bytes;
use nacre_simdisk::SimFile;
use std::ops::Bound;
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::tempdir;

const ID: [u8; 16] = [5; 16];
const HALF_BYTES: u64 = 64 << 10;

fn options(half_bytes: u64) -> JournalOptions {
    JournalOptions { id: ID, half_bytes, mark: KvBatch::default() }
}

fn open<S: KvStore>(below: S, file: &SimFile) -> Result<JournaledKv<S>, KvError> {
    open_sized(below, Arc::new(file.open()), HALF_BYTES)
}

/// Opens the journal, or makes it.
fn open_sized<S: KvStore>(below: S, file: Arc<dyn File>, half_bytes: u64) -> Result<JournaledKv<S>, KvError> {
    if has_journal(&below)? {
        return JournaledKv::open(below, file, Some(half_bytes));
    }
    JournaledKv::make(below, file, options(half_bytes)).map_err(|(_, error)| error)
}

fn open_below(file: &SimFile) -> RedbKv {
    let file = file.clone();
    let options = KvOptions { cache_bytes: 64 << 10, ..KvOptions::default() };
    RedbKv::open_on(move || Ok(Arc::new(file.open()) as Arc<dyn File>), options).expect("a healthy file")
}

fn batch(pairs: &[(&str, usize)]) -> KvBatch {
    let mut batch = KvBatch::default();
    for (key, bytes) in pairs {
        batch.put(key.as_bytes().to_vec(), vec![7; *bytes]);
    }
    batch
}

fn keys<S: KvStore>(kv: &JournaledKv<S>) -> Vec<String> {
    let pairs = kv.scan_prefix(b"").expect("a healthy store").into_iter();
    pairs.map(|(key, _)| String::from_utf8_lossy(&key).into_owned()).collect()
}

fn damage<S: KvStore>(opened: Result<JournaledKv<S>, KvError>) -> String {
    match opened {
        Err(KvError::Damaged(text)) => text,
        other => panic!("{other:?}"),
    }
}

/// Changes a byte of the journal.
fn rot(file: &SimFile, at: u64) {
    let handle = file.open();
    let mut byte = [0];
    handle.read(at, &mut byte).expect("within the file");
    handle.write(at, &[!byte[0]]).expect("within the file");
    handle.sync().expect("a healthy file");
}

#[test]
fn conforms_over_memory_with_halves_that_are_full_all_the_time() {
    for half_bytes in [16 << 10, HALF_BYTES, 8 << 20] {
        crate::conformance::check(&mut || {
            let file = SimFile::new(1);
            open_sized(MemoryKv::new(), Arc::new(file.open()), half_bytes).expect("a blank file")
        });
    }
}

/// Its own, which appends, and that of the store below, to which a batch went that is too large for the journal.
#[test]
fn all_threads_give_memory_back() {
    static THREADS: AtomicU32 = AtomicU32::new(0);
    let files = [1, 2].map(SimFile::new);
    let mut kv = open(open_below(&files[0]), &files[1]).expect("a blank file");
    for (tag, bytes) in [(1, 100), (2, 200 << 10)] {
        kv.submit(batch(&[("a", bytes)]), KvTag(tag));
        let mut done = Vec::new();
        while done.is_empty() {
            kv.wait();
            kv.drain(&mut done);
        }
        assert!(done.iter().all(|done| done.result.is_ok()), "{done:?}");
    }
    kv.give_back(|| {
        THREADS.fetch_add(1, Ordering::AcqRel);
    });
    while THREADS.load(Ordering::Acquire) < 2 {
        std::thread::yield_now();
    }
}

#[test]
fn conforms_over_files() {
    let folder = tempdir().expect("a writable temporary folder");
    let mut count = 0;
    crate::conformance::check(&mut || {
        count += 1;
        let below = RedbKv::open(&folder.path().join(format!("{count}.redb"))).expect("a new store");
        let path = folder.path().join(format!("{count}.journal"));
        open_sized(below, crate::create_file(&path).expect("a new file"), HALF_BYTES).expect("a new journal")
    });
}

/// Has it trimmed until nothing is left of that.
fn rest<S: KvStore>(kv: &mut JournaledKv<S>) -> Result<(), KvError> {
    while kv.idle_trim()? {
        std::thread::yield_now();
    }
    Ok(())
}

#[test]
fn what_was_committed_is_there_after_a_restart_and_merged_when_the_store_rests() {
    let (journal, file) = (SimFile::new(1), SimFile::new(2));
    let mut kv = open(open_below(&file), &journal).expect("blank files");
    kv.commit(&batch(&[("a", 3000), ("b", 1), ("pa", 1)]), Durability::Durable).expect("healthy");
    let mut second = batch(&[("c", 1), ("pb", 1)]);
    second.delete_prefix("p");
    second.delete("b");
    kv.commit(&second, Durability::Durable).expect("healthy");
    assert_eq!(kv.below().scan_prefix(b"").expect("healthy").len(), 1, "its marker");
    drop(kv);
    let mut kv = open(open_below(&file), &journal).expect("as it was left");
    assert_eq!(keys(&kv), ["a", "c", "pb"]);
    assert!(kv.journal_bytes() > 3000);
    // Who keeps what it was given does not keep the records.
    let mut given = vec![kv.get(b"a").expect("healthy").expect("it is there")];
    given.extend(kv.scan_prefix(b"").expect("healthy").into_iter().flat_map(|(key, value)| [key, value]));
    assert!(given.iter().all(Bytes::is_unique));
    rest(&mut kv).expect("healthy");
    assert_eq!(keys(&kv), ["a", "c", "pb"]);
    assert_eq!(
        kv.below().scan_prefix(b"").expect("healthy").len(),
        4,
        "all but what was deleted, and the marker"
    );
    assert_eq!(kv.journal_bytes(), 0);
}

#[test]
fn a_reader_goes_on_while_what_it_reads_is_merged_and_deleted() {
    let (journal, file) = (SimFile::new(1), SimFile::new(2));
    let mut kv = open(open_below(&file), &journal).expect("blank files");
    let all: Vec<String> = (0..40).map(|nth| format!("{nth:02}")).collect();
    for key in &all {
        kv.commit(&batch(&[(key, 3000)]), Durability::Durable).expect("healthy");
    }
    let mut reader = kv.reader(Bound::Unbounded, Bound::Unbounded).expect("healthy");
    let mut everything = KvBatch::default();
    everything.delete_prefix("");
    kv.commit(&everything, Durability::Durable).expect("healthy");
    rest(&mut kv).expect("healthy");
    let mut found = Vec::new();
    while let Some(part) = Some(reader.read(9000).expect("healthy")).filter(|part| !part.is_empty()) {
        found.extend(part.into_iter().map(|(key, _)| String::from_utf8_lossy(&key).into_owned()));
    }
    assert_eq!(found, all);
    assert!(keys(&kv).is_empty());
}

/// Submits and looks until the journal has it, whether or not it is complete.
fn submit<S: KvStore>(kv: &mut JournaledKv<S>, batch: KvBatch, tag: u64) {
    kv.submit(batch, KvTag(tag));
    while !kv.is_settled() {
        kv.background.wait();
        kv.advance();
    }
}

#[test]
fn completions_wait_for_the_merge_and_those_of_an_empty_half_do_not() {
    let (journal, mut below) = (SimFile::new(1), MemoryKv::new());
    below.hold();
    let mut kv = open(below, &journal).expect("a blank file");
    let (mut nth, mut done) = (0, Vec::new());
    while kv.core.view().frozen.is_none() {
        let waits = kv.waiting.len();
        assert_eq!(waits, 0, "nothing is merged yet");
        submit(&mut kv, batch(&[(&format!("{nth}"), 11_000)]), nth);
        nth += 1;
    }
    kv.drain(&mut done);
    assert_eq!(done.len() as u64, nth, "before the first of the other half that was empty");
    submit(&mut kv, batch(&[("last", 11_000)]), nth);
    kv.drain(&mut done);
    assert_eq!(done.len() as u64, nth, "the second waits for as much as the first takes");
    assert!(kv.progress() < COMMITTED && kv.progress() >= APPENDED);
    while done.len() as u64 <= nth {
        kv.wait();
        kv.drain(&mut done);
    }
    assert!(done.iter().all(|done| done.result.is_ok()) && done.iter().map(|done| done.tag.0).eq(0..=nth));
    assert_eq!(keys(&kv).len() as u64, nth + 1);
}

#[test]
fn a_merge_is_unhurried_until_somebody_waits_for_it() {
    let (journal, mut below) = (SimFile::new(1), MemoryKv::new());
    below.hold();
    let mut kv = open_sized(below, Arc::new(journal.open()), 4 << 20).expect("a blank file");
    let mut done = Vec::new();
    // Two parts, the second one small.
    let mut many = KvBatch::default();
    (0..70_000_u32).for_each(|nth| many.put(nth.to_be_bytes().to_vec(), vec![7; 20]));
    submit(&mut kv, many, 0);
    assert!(kv.below().is_hurried(), "nothing is merged");
    assert!(kv.idle_trim().expect("healthy"), "a merge is under way");
    assert!(kv.below().is_hurried(), "the second batch as long would wait");
    kv.background.wait();
    kv.advance();
    kv.below.step();
    kv.advance();
    assert!(!kv.below().is_hurried(), "it would not now");
    submit(&mut kv, batch(&[("a", 2 << 20)]), 1);
    kv.drain(&mut done);
    assert_eq!((done.len(), kv.below().is_hurried()), (2, true), "another one as long would wait again");
    submit(&mut kv, batch(&[("b", 1000)]), 2);
    kv.drain(&mut done);
    assert_eq!((done.len(), kv.below().is_hurried()), (3, false), "none as long as this one would");
    kv.submit(batch(&[("c", 5 << 20)]), KvTag(3));
    while matches!(kv.under, Under::Append(_)) {
        kv.background.wait();
        kv.advance();
    }
    assert!(kv.below().is_hurried(), "it waits for the end of the merge");
    while done.len() < 4 {
        kv.wait();
        kv.drain(&mut done);
    }
    assert!(done.iter().all(|done| done.result.is_ok()));
}

#[test]
fn a_batch_that_no_half_has_room_for_comes_after_those_before_it() {
    let journal = SimFile::new(1);
    let mut kv = open(MemoryKv::new(), &journal).expect("a blank file");
    let mut done = Vec::new();
    kv.submit(batch(&[("a", 1), ("b", 1)]), KvTag(0));
    let mut large = batch(&[("c", 200_000)]);
    large.delete("a");
    large.delete_prefix("\u{0}");
    kv.submit(large, KvTag(1));
    kv.submit(batch(&[("d", 1)]), KvTag(2));
    while done.len() < 3 {
        kv.wait();
        kv.drain(&mut done);
    }
    assert!(done.iter().all(|done| done.result.is_ok()) && done.iter().map(|done| done.tag.0).eq(0..3));
    assert_eq!(keys(&kv), ["b", "c", "d"]);
    let below = std::mem::take(&mut kv.below);
    drop(kv);
    assert_eq!(keys(&open(below.crash(0), &journal).expect("as it was left")), ["b", "c", "d"]);
}

#[test]
fn a_durable_record_that_is_damaged_is_an_error_even_the_last_one() {
    for nth in 0..3 {
        let (journal, file) = (SimFile::new(1), SimFile::new(2));
        let mut kv = open(open_below(&file), &journal).expect("blank files");
        for key in ["a", "b", "c"] {
            kv.commit(&batch(&[(key, 9)]), Durability::Durable).expect("healthy");
        }
        drop(kv);
        rot(&journal, head::HEADS_BYTES + nth * 4096 + 60);
        let text = damage(open(open_below(&file), &journal));
        assert!(text.contains(&format!("record {} ", nth + 1)), "{text}");
    }
}

#[test]
fn records_behind_one_that_was_lost_do_not_come_back() {
    let (journal, file) = (SimFile::new(1), SimFile::new(2));
    let mut kv = open(open_below(&file), &journal).expect("blank files");
    kv.commit(&batch(&[("lost", 9)]), Durability::Buffered).expect("healthy");
    kv.commit(&batch(&[("behind", 9)]), Durability::Buffered).expect("healthy");
    drop(kv);
    rot(&journal, head::HEADS_BYTES + 60);
    let mut kv = open(open_below(&file), &journal).expect("nothing was durable");
    assert!(keys(&kv).is_empty());
    kv.commit(&batch(&[("new", 9)]), Durability::Buffered).expect("healthy");
    drop(kv);
    assert_eq!(keys(&open(open_below(&file), &journal).expect("whole")), ["new"]);
}

#[test]
fn one_damaged_head_is_survived_and_two_are_not() {
    let (journal, file) = (SimFile::new(1), SimFile::new(2));
    let mut kv = open(open_below(&file), &journal).expect("blank files");
    kv.commit(&batch(&[("a", 9)]), Durability::Durable).expect("healthy");
    drop(kv);
    rot(&journal, 20);
    assert_eq!(keys(&open(open_below(&file), &journal).expect("the other one")), ["a"]);
    rot(&journal, 20);
    rot(&journal, 4096 + 20);
    assert!(damage(open(open_below(&file), &journal)).contains("heads"));
}

#[test]
fn a_journal_stays_with_its_store() {
    let (journal, file) = (SimFile::new(1), SimFile::new(2));
    drop(open(open_below(&file), &journal).expect("blank files"));
    assert!(damage(open(open_below(&file), &SimFile::new(3))).contains("is empty"));
    let made = |options| {
        JournaledKv::make(MemoryKv::new(), Arc::new(journal.open()), options).map_err(|(_, error)| error)
    };
    let other = JournalOptions { id: [6; 16], ..options(HALF_BYTES) };
    assert!(damage(made(other)).contains("another store"));
    let mut kv = open(open_below(&file), &journal).expect("they belong together");
    kv.commit(&batch(&[("a", 9)]), Durability::Durable).expect("healthy");
    drop(kv);
    assert!(damage(made(options(HALF_BYTES))).contains("the store is one of before"));
    let (other_journal, other_file) = (SimFile::new(3), SimFile::new(4));
    let other = JournalOptions { id: [6; 16], ..options(HALF_BYTES) };
    drop(JournaledKv::make(open_below(&other_file), Arc::new(other_journal.open()), other).expect("blank"));
    assert!(damage(open(open_below(&file), &other_journal)).contains("another store"));
}

/// A copy of what is in a file.
fn copy(file: &SimFile) -> SimFile {
    let (from, copy) = (file.open(), SimFile::new(9));
    let mut content = vec![0; usize::try_from(from.length().expect("healthy")).expect("small")];
    from.read(0, &mut content).expect("healthy");
    let to = copy.open();
    to.set_length(content.len() as u64).expect("healthy");
    to.write(0, &content).expect("healthy");
    to.sync().expect("healthy");
    copy
}

#[test]
fn a_store_of_before_is_refused_once_something_was_merged_and_a_journal_of_before_brings_nothing_back() {
    let (journal, file) = (SimFile::new(1), SimFile::new(2));
    let mut kv = open(open_below(&file), &journal).expect("blank files");
    kv.commit(&batch(&[("a", 3000), ("b", 1)]), Durability::Durable).expect("healthy");
    drop(kv);
    let (older_journal, older_file) = (copy(&journal), copy(&file));
    let mut kv = open(open_below(&file), &journal).expect("as it was left");
    let mut later = batch(&[("c", 1)]);
    later.delete("a");
    kv.commit(&later, Durability::Durable).expect("healthy");
    kv.merge_all().expect("healthy");
    drop(kv);
    let said = damage(open(open_below(&older_file), &journal));
    assert!(said.contains("it is an older copy"), "{said}");
    assert_eq!(keys(&open(open_below(&file), &older_journal).expect("nothing is wanted of it")), ["b", "c"]);
    // What went past the journal counts as well.
    let older_file = copy(&file);
    let mut kv = open(open_below(&file), &journal).expect("as it was left");
    kv.commit(&batch(&[("large", 200_000)]), Durability::Durable).expect("healthy");
    drop(kv);
    assert_eq!(keys(&open(open_below(&file), &journal).expect("as it was left")), ["b", "c", "large"]);
    let said = damage(open(open_below(&older_file), &journal));
    assert!(said.contains("it is an older copy"), "{said}");
}

#[test]
fn halves_get_another_size_when_the_journal_is_opened_and_keep_all() {
    let (journal, file) = (SimFile::new(1), SimFile::new(2));
    let mut wanted = Vec::new();
    for (nth, half_bytes) in [HALF_BYTES, 4 * HALF_BYTES, 32 << 10, 32 << 10, 1 << 20].into_iter().enumerate()
    {
        let mut kv =
            open_sized(open_below(&file), Arc::new(journal.open()), half_bytes).expect("healthy files");
        assert_eq!((kv.half_bytes(), keys(&kv)), (half_bytes, wanted.clone()));
        for key in ["x", "y", "z"] {
            wanted.push(format!("{nth}{key}"));
            let key = wanted.last().map_or("", String::as_str);
            kv.commit(&batch(&[(key, 9000)]), Durability::Durable).expect("healthy");
        }
        drop(kv);
        assert_eq!(journal.open().length().expect("healthy"), journal_file_bytes(half_bytes));
    }
    let kv = JournaledKv::open(open_below(&file), Arc::new(journal.open()), None).expect("healthy files");
    assert_eq!((kv.half_bytes(), keys(&kv)), (1 << 20, wanted));
}

#[test]
fn without_room_for_a_journal_the_store_has_none_and_a_larger_one_stays_small() {
    let (journal, file) = (SimFile::new(1), SimFile::new(2));
    let fill = |quota| {
        journal.set_quota(quota);
        open(open_below(&file), &journal)
    };
    assert!(matches!(fill(20 << 10), Err(KvError::Full)));
    assert!(!has_journal(&open_below(&file)).expect("healthy"));
    assert_eq!(fill(1 << 20).expect("room").half_bytes(), HALF_BYTES);
    journal.set_quota(150 << 10);
    let kv = open_sized(open_below(&file), Arc::new(journal.open()), 1 << 20).expect("as it was");
    assert_eq!(kv.half_bytes(), HALF_BYTES);
}

#[test]
fn a_merge_that_fails_fences_the_store_and_keeps_what_the_journal_has() {
    let (journal, mut below) = (SimFile::new(1), MemoryKv::new());
    below.fail_after(1);
    let mut kv = open(below, &journal).expect("a blank file");
    let (mut nth, mut done, mut kept) = (0, Vec::new(), 0);
    loop {
        kv.submit(batch(&[(&format!("{nth:03}"), 11_000)]), KvTag(nth));
        while done.len() as u64 <= nth {
            kv.wait();
            kv.drain(&mut done);
        }
        if done.last().is_some_and(|done| done.result.is_err()) {
            break;
        }
        nth += 1;
        kept += 1;
        assert!(nth < 100, "a merge began");
    }
    assert!(matches!(kv.commit(&batch(&[("z", 1)]), Durability::Durable), Err(KvError::Fenced)));
    let below = std::mem::take(&mut kv.below);
    drop(kv);
    let kv = open(below.crash(0), &journal).expect("as it was left");
    assert!(keys(&kv).len() >= kept && kept > 4, "{kept}");
}

#[test]
fn keys_that_the_journal_has_need_not_be_read() {
    let mut below = MemoryKv::new();
    below.commit(&batch(&[("below", 10), ("both", 10)]), Durability::Durable).expect("memory does not fail");
    below.set_cold();
    let mut kv = open(below, &SimFile::new(1)).expect("a healthy store");
    kv.commit(&batch(&[("both", 20), ("above", 20)]), Durability::Durable).expect("a healthy store");
    let keys =
        |names: &[&'static str]| names.iter().map(|name| Bytes::from_static(name.as_bytes())).collect();
    assert!(kv.waits_for_device());
    assert!(!kv.warm(keys(&["both", "above"]), None, KvTag(1)));
    assert!(kv.warm(keys(&["both", "below", "above"]), None, KvTag(2)));
    let mut warm = Vec::new();
    kv.drain_warm(&mut warm);
    assert_eq!(warm, []);
    assert!(kv.below.step_warm() && !kv.below.step_warm());
    kv.drain_warm(&mut warm);
    assert_eq!(warm, [Warmed { tag: KvTag(2), found: vec![("below".into(), Some(vec![7; 10].into()))] }]);
}

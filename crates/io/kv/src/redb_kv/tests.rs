use super::*;
use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use tempfile::tempdir;

#[test]
fn conforms() {
    let folder = tempdir().expect("a writable temporary folder");
    let mut count = 0;
    crate::conformance::check(&mut || {
        count += 1;
        RedbKv::open(&folder.path().join(format!("{count}.redb"))).expect("a new store")
    });
}

#[test]
fn durable_batches_are_there_after_a_restart() {
    let folder = tempdir().expect("a writable temporary folder");
    let path = folder.path().join("kv.redb");
    let mut kv = RedbKv::open(&path).expect("a new store");
    let mode = std::fs::metadata(&path).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it may hold keys");
    let mut batch = KvBatch::default();
    batch.put("a", "1");
    kv.commit(&batch, Durability::Durable).expect("a healthy device");
    assert!(matches!(RedbKv::open(&path), Err(KvError::InUse)));
    drop(kv);
    let kv = RedbKv::open(&path).expect("the store");
    assert_eq!(kv.get(b"a").expect("a healthy device").as_deref(), Some(&b"1"[..]));
}

#[test]
fn what_was_submitted_is_there_when_the_store_was_dropped() {
    let folder = tempdir().expect("a writable temporary folder");
    let path = folder.path().join("kv.redb");
    let mut kv = RedbKv::open(&path).expect("a new store");
    let mut batch = KvBatch::default();
    batch.put("a", vec![7; 1 << 20]);
    kv.submit(batch, KvTag(1));
    drop(kv);
    let kv = RedbKv::open(&path).expect("the store");
    assert_eq!(kv.get(b"a").expect("a healthy device").map(|value| value.len()), Some(1 << 20));
}

#[test]
fn a_reader_keeps_its_pairs_and_a_store_with_one_does_not_rest() {
    let folder = tempdir().expect("a writable temporary folder");
    let mut kv = RedbKv::open(&folder.path().join("kv.redb")).expect("a new store");
    let mut batch = KvBatch::default();
    (0..20_u64).for_each(|nth| batch.put(nth.to_string(), vec![7; 1 << 20]));
    kv.commit(&batch, Durability::Durable).expect("a healthy device");
    let mut reader = kv.reader(Bound::Unbounded, Bound::Unbounded).expect("a healthy device");
    kv.idle_trim().expect("a healthy device");
    let mut batch = KvBatch::default();
    batch.delete_prefix("");
    kv.commit(&batch, Durability::Durable).expect("a healthy device");
    let mut parts = Vec::new();
    while let Some(part) =
        Some(reader.read(3 << 20).expect("a healthy device")).filter(|part| !part.is_empty())
    {
        assert!(part.len() <= 3 && part.iter().all(|(_, value)| *value == vec![7; 1 << 20]));
        parts.push(part.len());
    }
    assert_eq!(parts.iter().sum::<usize>(), 20);
    drop(reader);
    kv.idle_trim().expect("a healthy device");
    assert!(kv.scan_prefix(b"").expect("a healthy device").is_empty());
}

#[test]
fn a_store_that_rested_has_no_pages_in_memory_and_all_of_its_content() {
    let folder = tempdir().expect("a writable temporary folder");
    let path = folder.path().join("kv.redb");
    let mut kv = RedbKv::open(&path).expect("a new store");
    let mut finished = Vec::new();
    for round in 0..3_u8 {
        for nth in 0..10_u64 {
            let mut batch = KvBatch::default();
            batch.put(nth.to_string(), vec![round; 1 << 20]);
            kv.submit(batch, KvTag(nth));
        }
        assert_eq!(kv.get(b"-").expect("a healthy device"), None);
        kv.idle_trim().expect("a healthy device");
        while finished.len() < 10 * (usize::from(round) + 1) {
            kv.wait();
            kv.drain(&mut finished);
        }
        while kv.cached_bytes() < REST_BYTES_MIN {
            assert_eq!(kv.scan_prefix(b"").expect("a healthy device").len(), 10);
        }
        kv.idle_trim().expect("a healthy device");
        assert!(kv.cached_bytes() < 1 << 20, "{} bytes", kv.cached_bytes());
        let value = kv.get(b"7").expect("a healthy device").expect("as it was put");
        assert!(value.len() == 1 << 20 && value.iter().all(|byte| *byte == round));
    }
    assert!(finished.iter().all(|completion| completion.result.is_ok()));
    assert!(matches!(RedbKv::open(&path), Err(KvError::InUse)));
}

#[test]
fn a_file_that_is_no_store_is_an_error() {
    let folder = tempdir().expect("a writable temporary folder");
    let path = folder.path().join("kv.redb");
    std::fs::write(&path, [0x5a; 8192]).expect("a writable folder");
    assert!(matches!(RedbKv::open(&path), Err(KvError::Damaged(_))));
}

/// Waits until so much of what was to be read has come.
fn read(kv: &mut RedbKv, count: usize) -> Vec<Warmed> {
    let mut read = Vec::new();
    while read.len() < count {
        kv.drain_warm(&mut read);
        std::thread::yield_now();
    }
    read
}

/// The tags of that.
fn warmed(kv: &mut RedbKv, count: usize) -> Vec<KvTag> {
    let mut tags: Vec<_> = read(kv, count).into_iter().map(|warmed| warmed.tag).collect();
    tags.sort_unstable();
    tags
}

#[test]
fn keys_are_read_in_the_background_into_the_cache() {
    let folder = tempdir().expect("a writable temporary folder");
    let path = folder.path().join("kv.redb");
    let mut kv = RedbKv::open(&path).expect("a new store");
    let mut batch = KvBatch::default();
    (0..350_u64).for_each(|nth| batch.put(nth.to_string(), vec![7; 20_000]));
    kv.commit(&batch, Durability::Durable).expect("a healthy device");
    drop(kv);
    let mut kv = RedbKv::open(&path).expect("the store");
    let before = kv.cached_bytes();
    for nth in 0..350_u64 {
        let keys = vec![Bytes::from(nth.to_string()), Bytes::from_static(b"never there")];
        assert!(kv.warm(keys, None, KvTag(nth)));
    }
    assert_eq!(warmed(&mut kv, 350), (0..350).map(KvTag).collect::<Vec<_>>());
    let warm = kv.cached_bytes();
    assert!(warm > before + REST_BYTES_MIN, "{before}, then {warm}");
    assert_eq!(kv.get(b"77").expect("a healthy device").map(|value| value.len()), Some(20_000));
    assert_eq!(kv.cached_bytes(), warm, "it was there");
    // The file is opened anew while threads read it, and they read it again.
    (0..50).for_each(|nth| {
        assert!(kv.warm(vec![Bytes::from_static(b"1"), Bytes::from_static(b"2")], None, KvTag(nth)))
    });
    kv.idle_trim().expect("a healthy device");
    assert!(kv.cached_bytes() < REST_BYTES_MIN / 8, "{} bytes", kv.cached_bytes());
    assert!(kv.warm(vec![Bytes::from_static(b"3")], None, KvTag(50)));
    assert_eq!(warmed(&mut kv, 51), (0..51).map(KvTag).collect::<Vec<_>>());
    // What is found under one key names another.
    let mut batch = KvBatch::default();
    batch.put("to 50", Bytes::from_static(b"50"));
    batch.put("to 60", Bytes::from_static(b"60"));
    kv.commit(&batch, Durability::Durable).expect("a healthy device");
    let named: Follow = |value| Some(Bytes::copy_from_slice(value));
    for (pointer, follow, target) in [("to 50", None, "50"), ("to 60", Some(named), "60")] {
        assert!(kv.warm(vec![pointer.into()], follow, KvTag(60)));
        let found = read(&mut kv, 1).remove(0).found;
        let before = kv.cached_bytes();
        let value = kv.get(target.as_bytes()).expect("a healthy device");
        let grew = kv.cached_bytes() - before;
        assert_eq!(grew == 0, follow.is_some(), "{pointer}: {grew} bytes");
        let first = (pointer.into(), Some(target.into()));
        let second = follow.map(|_| (target.into(), value));
        assert_eq!(found, [first].into_iter().chain(second).collect::<Vec<_>>());
    }
}

/// What is read may be of before a commit or of behind it: nobody takes it for what is there.
#[test]
fn what_was_read_before_a_commit_is_not_what_is_there() {
    let folder = tempdir().expect("a writable temporary folder");
    let mut kv = RedbKv::open(&folder.path().join("kv.redb")).expect("a new store");
    for value in 0..50_u8 {
        let mut batch = KvBatch::default();
        batch.put("key", vec![value]);
        let key = || vec![Bytes::from_static(b"key"), Bytes::from_static(b"none")];
        if value % 2 == 0 {
            assert!(kv.warm(key(), None, KvTag(1)));
            kv.commit(&batch, Durability::Durable).expect("a healthy device");
        } else {
            kv.submit(batch, KvTag(7));
            assert!(kv.warm(key(), None, KvTag(1)));
            kv.wait();
            kv.drain(&mut Vec::new());
        }
        let warmed = read(&mut kv, 1).remove(0);
        let here = vec![("key".into(), Some(vec![value].into())), ("none".into(), None)];
        assert!(warmed.found.is_empty() || warmed.found == here, "{value}: {warmed:?}");
        assert!(kv.warm(key(), None, KvTag(2)));
        assert_eq!(read(&mut kv, 1), [Warmed { tag: KvTag(2), found: here }]);
    }
}

const PATIENCE: Duration = Duration::from_secs(10);

/// A file whose pages go to the device when the test says so.
#[derive(Debug)]
struct Slow {
    file: Arc<dyn File>,
    /// Said at each write-back, and what it waits for then.
    begun: Mutex<Sender<()>>,
    go_on: Mutex<Receiver<()>>,
}

impl File for Slow {
    fn length(&self) -> std::io::Result<u64> {
        self.file.length()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.file.read(offset, out)
    }
    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.file.write(offset, data)
    }
    fn set_length(&self, length: u64) -> std::io::Result<()> {
        self.file.set_length(length)
    }
    fn sync(&self) -> std::io::Result<()> {
        self.file.sync()
    }
    fn write_back(&self) -> std::io::Result<()> {
        // Nobody is there any more when the test is through with it.
        if self.begun.lock().expect("no panic").send(()).is_ok()
            && self.go_on.lock().expect("no panic").recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout)
        {
            return Err(std::io::Error::other("the test waits for this"));
        }
        Ok(())
    }
    fn reserve(&self, bytes: u64) -> std::io::Result<()> {
        self.file.reserve(bytes)
    }
    fn room(&self) -> std::io::Result<FileRoom> {
        self.file.room()
    }
}

/// An empty store with little memory, what lets a write-back go on, and what says that one has begun.
fn slow_store() -> (RedbKv, Sender<()>, Receiver<()>) {
    let ((begun, has_begun), (go_on, may_go_on)) = (channel(), channel());
    let file = nacre_simdisk::SimFile::new(1);
    let slow = Slow { file: Arc::new(file.open()), begun: Mutex::new(begun), go_on: Mutex::new(may_go_on) };
    let slow: Arc<dyn File> = Arc::new(slow);
    let options = KvOptions { cache_bytes: 64 << 10, ..KvOptions::default() };
    let kv = RedbKv::open_on(move || Ok(Arc::clone(&slow)), options).expect("a healthy file");
    (kv, go_on, has_begun)
}

/// Pairs of 2 MB: more than the cache of [`slow_store`] has room for.
fn large_batch() -> KvBatch {
    let mut batch = KvBatch::default();
    (0..2000_u32).for_each(|nth| batch.put(nth.to_be_bytes().to_vec(), vec![7; 1000]));
    batch
}

#[test]
fn nobody_who_reads_waits_for_pages_that_go_to_the_device() {
    let (mut kv, go_on, has_begun) = slow_store();
    kv.submit(large_batch(), KvTag(1));
    // Of several write-backs in the tree and after it.
    for _ in 0..6 {
        has_begun.recv_timeout(2 * PATIENCE).expect("the commit goes on");
        let begin = kv.core.progress.so_far();
        kv.reader(Bound::Unbounded, Bound::Unbounded).expect("healthy");
        assert_eq!(kv.get(&7_u32.to_be_bytes()).expect("healthy"), None);
        assert_eq!(kv.core.progress.so_far(), begin, "the commit stood still meanwhile");
        go_on.send(()).expect("the commit is there");
    }
    drop((go_on, has_begun));
    let mut done = Vec::new();
    while done.is_empty() {
        kv.wait();
        kv.drain(&mut done);
    }
    assert_eq!(kv.get(&7_u32.to_be_bytes()).expect("healthy").map(|value| value.len()), Some(1000));
}

#[test]
fn a_commit_pauses_while_nobody_waits_and_hurries_for_a_commit_in_a_call() {
    let (mut kv, go_on, has_begun) = slow_store();
    let paused = |kv: &RedbKv| kv.core.progress.paused_nanos();
    kv.set_hurried(false);
    kv.submit(large_batch(), KvTag(1));
    has_begun.recv_timeout(2 * PATIENCE).expect("the commit goes on");
    go_on.send(()).expect("the commit is there");
    has_begun.recv_timeout(2 * PATIENCE).expect("the commit goes on");
    assert!(paused(&kv) > 0);
    drop((go_on, has_begun));
    kv.commit(&KvBatch::default(), Durability::Durable).expect("healthy");
    kv.submit(large_batch(), KvTag(2));
    kv.wait();
    assert_eq!(paused(&kv), 0, "somebody waits until it is said otherwise again");
}

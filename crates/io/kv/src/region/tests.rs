use super::*;
use crate::{KvBatch, KvError, KvOptions, KvStore, KvTag, RedbKv};
use nacre_simdisk::SimFile;
use nacre_types::Entropy;
use nacre_types::entropy::SeededEntropy;

const PLACE: RegionPlace = RegionPlace { offset: 8192, length: 1 << 20, owner: [7; 16] };
const CHUNK: u64 = 64 << 10;
const GARBAGE: u8 = 0xa5;

/// A device on which somebody had data before.
fn device(seed: u64) -> SimFile {
    let file = SimFile::new(seed);
    file.open().write(0, &vec![GARBAGE; 2 << 20]).expect("room");
    file
}

fn create(file: &SimFile) -> RegionFile {
    RegionFile::create_small(Arc::new(file.open()), PLACE).expect("a healthy device")
}

fn open(file: &SimFile) -> io::Result<RegionFile> {
    RegionFile::open_small(Arc::new(file.open()), PLACE)
}

fn content(file: &RegionFile, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![1; length];
    file.read(offset, &mut bytes).expect("within the file");
    bytes
}

fn kind(outcome: io::Result<()>) -> Option<ErrorKind> {
    outcome.err().map(|error| error.kind())
}

#[test]
fn a_file_grows_by_zeros_whatever_the_device_held() {
    let disk = device(1);
    let file = create(&disk);
    file.set_length(3 * CHUNK).expect("room");
    file.write(CHUNK + 100, &[7; 50]).expect("room");
    let mut expected = vec![0; 3 * CHUNK as usize];
    expected[CHUNK as usize + 100..CHUNK as usize + 150].fill(7);
    assert!(content(&file, 0, expected.len()) == expected);
    assert_eq!(file.room().expect("known").used_bytes, CHUNK, "only what was written takes room");
    // What is cut off in the middle of a chunk does not come back, nor do whole chunks.
    file.write(2 * CHUNK, &[8; 10]).expect("room");
    file.set_length(CHUNK + 120).expect("cut");
    file.set_length(3 * CHUNK).expect("room");
    expected[CHUNK as usize + 120..].fill(0);
    assert!(content(&file, 0, expected.len()) == expected);
    file.sync().expect("a healthy device");
    drop(file);
    let file = open(&disk).expect("a region");
    assert_eq!(file.length().expect("known"), 3 * CHUNK);
    assert!(content(&file, 0, expected.len()) == expected);
    assert_eq!(kind(file.read(3 * CHUNK - 1, &mut [0; 2])), Some(ErrorKind::UnexpectedEof));
}

#[test]
fn a_length_may_exceed_the_region_and_what_has_no_room_is_refused() {
    let file = create(&device(2));
    let room = file.room().expect("known");
    assert_eq!((room.used_bytes, room.available_bytes), (0, room.total_bytes));
    file.set_length(1 << 40).expect("nothing is written");
    assert!(content(&file, 1 << 39, 4096) == [0; 4096]);
    assert_eq!(kind(file.write(1 << 39, &[1])), Some(ErrorKind::StorageFull));
    let chunks = room.total_bytes / CHUNK;
    file.reserve(2 * CHUNK).expect("room");
    for chunk in 0..chunks {
        let outcome = file.write(chunk * CHUNK, &[1]);
        assert_eq!(outcome.is_ok(), chunk < chunks - 2, "{chunk}");
    }
    assert_eq!(file.room().expect("known").available_bytes, 0);
    assert_eq!(kind(file.reserve(3 * CHUNK)), Some(ErrorKind::StorageFull), "no more than there is");
    file.reserve(0).expect("given up");
    file.write((chunks - 2) * CHUNK, &[1; 2 * CHUNK as usize]).expect("what was reserved");
    file.write(5, &[2]).expect("chunks that there are take no more");
    file.set_length(CHUNK).expect("cut");
    assert_eq!(file.room().expect("known").used_bytes, CHUNK);
}

#[test]
fn one_damaged_head_harms_nothing_and_another_owners_is_none() {
    let disk = device(3);
    let file = create(&disk);
    file.set_length(5000).expect("room");
    file.write(0, &[7; 5000]).expect("room");
    file.sync().expect("a healthy device");
    let head_bytes = file.geometry.head_bytes;
    drop(file);
    for copy in 0..2 {
        let device = disk.open();
        let at = PLACE.offset + copy * head_bytes + 70;
        let mut old = [0; 1];
        device.read(at, &mut old).expect("there");
        device.write(at, &[!old[0]]).expect("there");
        let file = open(&disk).expect("the other copy");
        assert!(content(&file, 0, 5000) == [7; 5000]);
        // A sync repairs it.
        file.sync().expect("a healthy device");
    }
    let other = RegionPlace { owner: [8; 16], ..PLACE };
    let error = RegionFile::open_small(Arc::new(disk.open()), other).expect_err("another's");
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    disk.open().write(PLACE.offset, &vec![0; 2 * head_bytes as usize]).expect("there");
    assert_eq!(open(&disk).expect_err("no head").kind(), ErrorKind::InvalidData);
    let tiny = RegionPlace { length: 8192, ..PLACE };
    assert!(RegionFile::create(Arc::new(disk.open()), tiny).is_err());
}

#[test]
fn heads_are_read_with_bounds_whatever_they_hold() {
    let geometry = Geometry::new(PLACE.length, CHUNK).expect("room");
    let head = Head { length: 77, ..Head::new(&geometry) };
    let bytes = head.encode(&PLACE, &geometry, 9);
    assert_eq!(Head::decode(&bytes, &PLACE, &geometry).expect("ours"), Some((head.clone(), 9)));
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        assert!(matches!(Head::decode(&changed, &PLACE, &geometry), Ok(None)), "byte {at}");
        assert!(matches!(Head::decode(&bytes[..at], &PLACE, &geometry), Ok(None)), "{at} bytes");
    }
    for (head, why) in [
        (Head { length: LENGTH_MAX + 1, ..head.clone() }, "a length that overflows"),
        (Head { written: vec![0xff; head.written.len()], ..head }, "chunks behind the region"),
    ] {
        let bytes = head.encode(&PLACE, &geometry, 9);
        assert_eq!(Head::decode(&bytes, &PLACE, &geometry).expect("ours"), None, "{why}");
    }
    // All sizes up to the largest devices have a head of bounded size.
    for length in [1 << 30, 1 << 40, 1 << 50] {
        let geometry = Geometry::new(length, CHUNK_BYTES).expect("room");
        assert!(geometry.head_bytes <= 36 << 10 && geometry.capacity() >= length / 100 * 99, "{geometry:?}");
    }
}

/// What the file may be after a loss of power, by byte: what it was at the last sync, or what was written since.
#[test]
fn power_goes_at_any_moment() {
    const SPAN: usize = 4 * CHUNK as usize;
    let (mut old_heads, mut in_the_act) = (0, 0);
    for seed in 0..400 {
        let (disk, mut rng) = (device(seed), SeededEntropy(seed));
        let mut file = create(&disk);
        file.set_length(SPAN as u64).expect("room");
        file.sync().expect("a healthy device");
        let mut durable = vec![0_u8; SPAN];
        for round in 1..=4_u8 {
            disk.lose_power_after(rng.u64() % 30);
            let mut written = vec![None; SPAN];
            let mut work =
                |file: &RegionFile, written: &mut [Option<u8>], durable: &mut [u8]| -> io::Result<()> {
                    for step in 0..6 {
                        let at = (rng.u64() % (SPAN as u64 - 3000)) as usize;
                        written[at..at + 3000].fill(Some(round));
                        file.write(at as u64, &vec![round; 3000])?;
                        if step % 3 == 2 {
                            file.sync()?;
                            for (byte, new) in durable.iter_mut().zip(written.iter_mut()) {
                                *byte = new.take().unwrap_or(*byte);
                            }
                        }
                    }
                    Ok(())
                };
            let outcome = work(&file, &mut written, &mut durable);
            in_the_act += usize::from(outcome.is_err());
            drop(file);
            disk.crash();
            file = open(&disk).unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
            old_heads += usize::from(file.state().is_changed);
            let found = content(&file, 0, SPAN);
            for (at, byte) in found.iter().enumerate() {
                let fits = *byte == durable[at] || written[at] == Some(*byte);
                assert!(fits, "seed {seed}, round {round}, byte {at}: {byte}");
            }
            durable = found;
        }
    }
    assert!(old_heads > 50 && in_the_act > 300, "{old_heads} {in_the_act}");
}

#[test]
fn a_store_in_a_region_that_is_full_says_so_and_is_as_it_was() {
    let disk = device(4);
    let place = RegionPlace { length: 6 << 20, ..PLACE };
    disk.open().write(0, &vec![GARBAGE; 8 << 20]).expect("room");
    let region = RegionFile::create_small(Arc::new(disk.open()), place).expect("a healthy device");
    let region = Arc::new(region);
    let options = KvOptions { reserve_bytes: 1 << 20, ..KvOptions::default() };
    let open_kv = || {
        let region = Arc::clone(&region);
        RedbKv::open_on(move || Ok(Arc::clone(&region) as Arc<dyn File>), options)
    };
    let mut kv = open_kv().expect("a new store");
    let mut kept = 0_u64;
    let error = loop {
        let mut batch = KvBatch::default();
        batch.put(kept.to_be_bytes().to_vec(), vec![7; 100_000]);
        kv.submit(batch, KvTag(kept));
        let mut done = Vec::new();
        kv.wait();
        kv.drain(&mut done);
        match done.pop().expect("it has finished").result {
            Ok(()) => kept += 1,
            Err(error) => break error,
        }
        assert!(kept < 100, "6 MiB hold no more");
        if kept == 5 {
            assert!(kv.room().is_some_and(|room| room.available_bytes > 0 && room.total_bytes <= 6 << 20));
        }
    };
    assert!(matches!(error, KvError::Full), "{error}");
    assert!(kept > 10, "{kept}");
    assert_eq!(kv.room().map(|room| room.available_bytes), Some(0), "the reserve was needed");
    drop(kv);
    let kv = open_kv().expect("the store");
    assert_eq!(kv.scan_prefix(b"").expect("a healthy device").len() as u64, kept);
}

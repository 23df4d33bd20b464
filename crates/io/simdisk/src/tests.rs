use crate::{Failing, Faults, SimConfig, SimDevice};
use nacre_buf::{AlignedBuf, Bytes};
use nacre_env::disk::{BLOCK_BYTES, Disk, DiskTag, Durability, SECTOR_BYTES, blocking, conformance};

const BLOCK: u64 = BLOCK_BYTES as u64;
const SIZE: u64 = 4 << 20;

fn device(seed: u64) -> SimDevice {
    SimDevice::new(SimConfig::new(SIZE, seed))
}

fn full_of(byte: u8, blocks: usize) -> Bytes {
    let mut buf = AlignedBuf::with_len(blocks * BLOCK_BYTES);
    buf.fill(byte);
    buf.freeze()
}

#[test]
fn conforms() {
    for seed in 0..5 {
        let device = SimDevice::new(SimConfig::new(conformance::SIZE_BYTES, seed));
        conformance::run(|| device.open());
    }
}

/// Old and new sectors as bits over all seeds: what a crash left of a write of 2s over durable 1s.
fn sectors_left(durability: Durability, flush: bool, in_flight: bool) -> Vec<u32> {
    let one = |seed| {
        let device = device(seed);
        let mut disk = device.open();
        blocking::write(&mut disk, 0, full_of(1, 1).into(), Durability::Durable).expect("write");
        if in_flight {
            disk.write(0, full_of(2, 1).into(), durability, DiskTag(1));
            disk.submit();
        } else {
            blocking::write(&mut disk, 0, full_of(2, 1).into(), durability).expect("write");
        }
        if flush {
            blocking::flush(&mut disk).expect("flush");
        }
        device.crash();
        let left = device.peek(0, BLOCK_BYTES);
        left.chunks(SECTOR_BYTES).zip(0..).fold(0, |bits, (sector, index)| {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "torn within a sector");
            bits | u32::from(sector[0] == 2) << index
        })
    };
    let mut seen: Vec<u32> = (0..300).map(one).collect();
    seen.sort_unstable();
    seen.dedup();
    seen
}

#[test]
fn a_crash_tears_what_was_not_durable_and_only_that() {
    assert_eq!(sectors_left(Durability::Durable, false, false), [0xff]);
    assert_eq!(sectors_left(Durability::Cached, true, false), [0xff]);
    for uncertain in
        [sectors_left(Durability::Cached, false, false), sectors_left(Durability::Durable, false, true)]
    {
        assert!(uncertain.contains(&0) && uncertain.contains(&0xff), "kept and lost");
        assert!(uncertain.len() > 30, "torn in many ways: {}", uncertain.len());
    }
}

#[test]
fn unsynced_writes_are_kept_whatever_the_order() {
    let kept: Vec<bool> = (0..200)
        .map(|seed| {
            let device = device(seed);
            let mut disk = device.open();
            for index in 0..2 {
                blocking::write(&mut disk, index * BLOCK, full_of(7, 1).into(), Durability::Cached)
                    .expect("write");
            }
            device.crash();
            device.peek(0, 1)[0] == 0 && device.peek(BLOCK, BLOCK_BYTES) == full_of(7, 1)
        })
        .collect();
    assert!(kept.contains(&true), "the younger without the older");
}

#[test]
fn a_flush_covers_only_what_was_known_to_be_done() {
    let lost = (0..200).any(|seed| {
        let device = device(seed);
        let mut disk = device.open();
        disk.write(0, full_of(1, 1).into(), Durability::Cached, DiskTag(1));
        disk.flush(DiskTag(2));
        disk.submit();
        device.settle();
        device.crash();
        device.peek(0, 1)[0] == 0
    });
    assert!(lost, "a flush beside a write promises nothing");
}

#[test]
fn an_older_write_never_comes_back_over_a_durable_one() {
    for seed in 0..100 {
        let device = device(seed);
        let mut disk = device.open();
        blocking::write(&mut disk, 0, full_of(1, 4).into(), Durability::Cached).expect("write");
        blocking::write(&mut disk, BLOCK, full_of(2, 1).into(), Durability::Durable).expect("write");
        device.crash();
        assert_eq!(device.peek(BLOCK, BLOCK_BYTES), full_of(2, 1), "seed {seed}");
    }
}

#[test]
fn the_holder_is_cut_off_by_a_crash() {
    let device = device(1);
    let mut old = device.open();
    old.write(0, full_of(1, 1).into(), Durability::Durable, DiskTag(1));
    device.crash();
    old.submit();
    old.wait();
    let mut out = Vec::new();
    old.drain(&mut out);
    assert!(out.is_empty() && device.in_flight() == 0);
    assert_eq!(device.peek(0, 1), [0]);
    drop(old);
    blocking::read(&mut device.open(), 0, BLOCK_BYTES).expect("a new holder");
}

#[test]
fn orders_to_fail_are_kept() {
    let device = device(3);
    let mut disk = device.open();
    let write =
        |disk: &mut dyn Disk| blocking::write(disk, 0, full_of(1, 1).into(), Durability::Durable).is_ok();
    device.fail_after(2, Failing::Once);
    assert_eq!(
        [write(&mut disk), write(&mut disk), write(&mut disk), write(&mut disk)],
        [true, true, false, true]
    );
    device.fail_after(0, Failing::FromThenOn);
    assert_eq!([write(&mut disk), blocking::flush(&mut disk).is_ok(), write(&mut disk)], [false; 3]);
    device.heal();
    assert!(write(&mut disk));
    device.fail_reads_at(BLOCK);
    assert!(blocking::read(&mut disk, 0, 2 * BLOCK_BYTES).is_err());
    blocking::write(&mut disk, BLOCK, full_of(1, 1).into(), Durability::Cached).expect("write");
    blocking::read(&mut disk, 0, 2 * BLOCK_BYTES).expect("written blocks can be read again");
    assert_eq!(device.counters().errors, 5);
}

#[test]
fn a_failed_flush_may_lose_what_a_later_one_claims() {
    let lost = (0..50).any(|seed| {
        let device = device(seed);
        let mut disk = device.open();
        blocking::write(&mut disk, 0, full_of(1, 1).into(), Durability::Cached).expect("write");
        device.fail_after(0, Failing::Once);
        assert!(blocking::flush(&mut disk).is_err());
        blocking::flush(&mut disk).expect("the second flush");
        device.crash();
        device.peek(0, 1)[0] == 0
    });
    assert!(lost);
}

#[test]
fn rot_flips_one_durable_bit() {
    let device = device(5);
    let mut disk = device.open();
    assert!(!device.rot(0, SIZE));
    blocking::write(&mut disk, 3 * BLOCK, full_of(0, 1).into(), Durability::Durable).expect("write");
    assert!(device.rot(0, SIZE));
    let bits: u32 = device.peek(0, SIZE as usize).iter().map(|byte| byte.count_ones()).sum();
    assert_eq!(bits, 1);
}

#[test]
fn lost_and_misdirected_writes_are_said_to_be_done() {
    for (lost_ppm, misdirected_ppm) in [(1_000_000, 0), (0, 1_000_000)] {
        let device = device(9);
        device.set_faults(Faults { lost_ppm, misdirected_ppm, ..Faults::default() });
        blocking::write(&mut device.open(), 0, full_of(1, 1).into(), Durability::Durable)
            .expect("said to be done");
        assert_eq!(device.counters().betrayals, 1);
        assert_eq!(device.peek(0, 1), [0]);
        assert_eq!(device.peek(0, SIZE as usize).contains(&1), misdirected_ppm > 0);
    }
}

#[test]
fn one_seed_gives_one_story() {
    let story = |seed| {
        let device = SimDevice::new(SimConfig {
            size_bytes: SIZE,
            seed,
            faults: Faults {
                read_errors_ppm: 50_000,
                write_errors_ppm: 50_000,
                flush_errors_ppm: 50_000,
                latent_ppm: 50_000,
                lost_ppm: 50_000,
                misdirected_ppm: 50_000,
            },
        });
        let mut log = String::new();
        for life in 0..10 {
            let mut disk = device.open();
            let mut out = Vec::new();
            for index in 0..100 {
                disk.write(index % 13 * BLOCK, full_of(life, 2).into(), Durability::Cached, DiskTag(index));
                disk.read(index % 7 * BLOCK, AlignedBuf::with_len(BLOCK_BYTES), DiskTag(1000 + index));
                if index % 10 == 0 {
                    disk.flush(DiskTag(2000 + index));
                }
                disk.submit();
                device.step();
                disk.drain(&mut out);
            }
            device.crash();
            log += &format!("{out:?} {:x}", nacre_buf::crc::crc32c(0, &device.peek(0, SIZE as usize)));
        }
        log + &format!("{:?}", device.counters())
    };
    assert_eq!(story(1), story(1));
    assert_ne!(story(1), story(2));
}

#[test]
fn a_restored_device_is_what_it_was() {
    let device = device(1);
    let mut disk = device.open();
    blocking::write(&mut disk, 0, full_of(1, 2).into(), Durability::Durable).expect("write");
    let image = device.image();
    blocking::write(&mut disk, 0, full_of(2, 1).into(), Durability::Durable).expect("write");
    blocking::write(&mut disk, 2 * BLOCK, full_of(2, 1).into(), Durability::Cached).expect("write");
    device.restore(&image);
    let wanted = [vec![1; 2 * BLOCK_BYTES], vec![0; BLOCK_BYTES]].concat();
    assert_eq!(device.peek(0, 3 * BLOCK_BYTES), wanted);
    let mut disk = device.open();
    blocking::write(&mut disk, 0, full_of(3, 1).into(), Durability::Durable).expect("write");
    device.crash();
    assert_eq!(device.peek(0, 2 * BLOCK_BYTES), [vec![3; BLOCK_BYTES], vec![1; BLOCK_BYTES]].concat());
}

#[test]
fn a_discarded_block_is_anything_until_it_is_written_again() {
    let (mut same, mut zeros, mut others) = (0, 0, 0);
    for seed in 0..20 {
        let device = device(seed);
        let mut disk = device.open();
        blocking::write(&mut disk, 0, full_of(1, 8).into(), Durability::Durable).expect("write");
        blocking::discard(&mut disk, BLOCK, 6 * BLOCK).expect("discard");
        blocking::write(&mut disk, BLOCK, full_of(2, 1).into(), Durability::Durable).expect("write");
        device.crash();
        let left = device.peek(0, 8 * BLOCK_BYTES);
        let block = |nth: usize| &left[nth * BLOCK_BYTES..(nth + 1) * BLOCK_BYTES];
        assert!(block(0) == &full_of(1, 1)[..] && block(7) == &full_of(1, 1)[..], "beside it");
        assert!(block(1) == &full_of(2, 1)[..], "written again, durably");
        for nth in 2..7 {
            match block(nth) {
                kept if kept == &full_of(1, 1)[..] => same += 1,
                gone if gone == &full_of(0, 1)[..] => zeros += 1,
                _ => others += 1,
            }
        }
        assert_eq!((device.counters().discards, device.counters().discarded_bytes), (1, 6 * BLOCK));
        let mut disk = device.open();
        device.fail_after(0, Failing::Once);
        assert!(blocking::discard(&mut disk, 0, BLOCK).is_err());
    }
    assert!(same > 0 && zeros > 0 && others > 0, "{same} {zeros} {others}");
}

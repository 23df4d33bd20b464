use super::file::DeviceFile;
use super::{DriverChoice, HeldDevice, OpenError, RealDisk};
use crate::File;
use crate::disk::{
    BLOCK_BYTES, Disk, DiskError, DiskRequest, DiskTag, Durability, Window, conformance, probe,
};
use crate::net::Net;
use crate::real::RealNet;
use crate::{Clock, RealClock, disk::blocking};
use nacre_buf::{AlignedBuf, Bytes};
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A file that goes away with the test.
pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    pub(super) fn new(name: &str) -> Self {
        // Beside the build, which is on a disk; the system's folder for temporary files often is not.
        let folder = std::env::current_exe().expect("a path").parent().expect("a folder").to_owned();
        let path = folder.join(format!("disk-{name}-{}", std::process::id()));
        let _absent = std::fs::remove_file(&path);
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _absent = std::fs::remove_file(&self.0);
    }
}

/// The drivers that this machine has.
fn drivers() -> Vec<DriverChoice> {
    let scratch = Scratch::new("drivers");
    match RealDisk::create(&scratch.0, 1 << 20, DriverChoice::Ring) {
        Ok(_) => vec![DriverChoice::Ring, DriverChoice::Threads],
        Err(_) => vec![DriverChoice::Threads],
    }
}

fn block(byte: u8) -> Bytes {
    let mut buf = AlignedBuf::with_len(BLOCK_BYTES);
    buf.fill(byte);
    buf.freeze()
}

#[test]
fn conforms_over_each_driver() {
    for choice in drivers() {
        let scratch = Scratch::new(&format!("conforms-{choice:?}"));
        drop(RealDisk::create(&scratch.0, conformance::SIZE_BYTES, choice).expect("create"));
        conformance::run(|| RealDisk::open(&scratch.0, choice).expect("open"));
    }
}

#[test]
fn completions_end_the_wait_of_the_net() {
    for choice in drivers() {
        let scratch = Scratch::new(&format!("wakes-{choice:?}"));
        let mut disk = RealDisk::create(&scratch.0, 1 << 20, choice).expect("create");
        let mut net = RealNet::new().expect("epoll");
        net.watch(disk.wake_fd()).expect("watch");
        let (mut out, mut events) = (Vec::new(), Vec::new());
        for round in 0..200 {
            disk.write(0, block(1).into(), Durability::Durable, DiskTag(round));
            disk.submit();
            out.clear();
            while out.is_empty() {
                net.poll(Some(Duration::from_secs(30)), &mut events).expect("poll");
                disk.drain(&mut out);
            }
            assert_eq!(out[0].tag, DiskTag(round));
        }
        assert!(events.is_empty());
    }
}

/// Blocks that a file takes of its file system.
fn blocks_of(path: &Path) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(path).expect("a file"))
}

#[test]
fn a_discard_of_a_file_gives_its_blocks_back_and_wakes_the_net() {
    for choice in drivers() {
        let scratch = Scratch::new(&format!("discards-{choice:?}"));
        let mut disk = RealDisk::create(&scratch.0, 4 << 20, choice).expect("create");
        assert!(disk.info().is_file && !disk.is_block_device());
        let (mut net, before) = (RealNet::new().expect("epoll"), blocks_of(&scratch.0));
        net.watch(disk.wake_fd()).expect("watch");
        let (mut out, mut events) = (Vec::new(), Vec::new());
        for nth in 0..2 {
            disk.discard(nth << 20, 1 << 20, DiskTag(nth));
        }
        disk.submit();
        while out.len() < 2 {
            net.poll(Some(Duration::from_secs(30)), &mut events).expect("poll");
            disk.drain(&mut out);
        }
        let refused = |errno| {
            Err(DiskError::Failed { request: DiskRequest::Discard, offset: 0, length: 1 << 20, errno })
        };
        if out.iter().any(|done| done.result == refused(nacre_types::Errno::EOPNOTSUPP)) {
            // The file system makes no holes.
            return;
        }
        assert!(out.iter().all(|done| done.result.is_ok()), "{out:?}");
        assert!(before - blocks_of(&scratch.0) >= (2 << 20) / 512, "{before} blocks before");
        assert_eq!(std::fs::metadata(&scratch.0).expect("a file").len(), 4 << 20);
        blocking::write(&mut disk, 0, block(3).into(), Durability::Durable).expect("written again");
        assert!(*blocking::read(&mut disk, 0, BLOCK_BYTES).expect("read") == *block(3));
    }
}

/// Both kinds of requests are waited for, whichever ends first.
#[test]
fn discards_beside_writes_all_come_back() {
    for choice in drivers() {
        let scratch = Scratch::new(&format!("discards-beside-{choice:?}"));
        let mut disk = RealDisk::create(&scratch.0, 8 << 20, choice).expect("create");
        let mut tags = Vec::new();
        for round in 0..20 {
            disk.write(0, block(1).into(), Durability::Durable, DiskTag(2 * round));
            disk.discard(4 << 20, 1 << 20, DiskTag(2 * round + 1));
            disk.submit();
            let mut out = Vec::new();
            while out.len() < 2 {
                disk.wait();
                disk.drain(&mut out);
            }
            tags.extend(out.iter().map(|done| done.tag.0));
        }
        tags.sort_unstable();
        assert!(tags.into_iter().eq(0..40));
        disk.discard(0, 1 << 20, DiskTag(0));
        disk.submit();
        drop(disk);
        drop(RealDisk::open(&scratch.0, choice).expect("nothing holds it any more"));
    }
}

/// On a thread that did not open the disk, as in an OSD: there the ring is the thread's own.
#[test]
fn a_disk_wakes_again_when_wakeups_are_on_again() {
    for choice in drivers() {
        let scratch = Scratch::new(&format!("wakeups-{choice:?}"));
        let mut disk = RealDisk::create(&scratch.0, 1 << 20, choice).expect("create");
        let rounds = move || {
            let mut net = RealNet::new().expect("epoll");
            net.watch(disk.wake_fd()).expect("watch");
            let (mut out, mut events) = (Vec::new(), Vec::new());
            for round in 0..300 {
                // On again while it is at work, when it is long done, and always on.
                disk.set_wakeups(round % 3 == 2);
                disk.write(0, block(1).into(), Durability::Durable, DiskTag(round));
                disk.submit();
                if round % 3 == 1 {
                    std::thread::sleep(Duration::from_millis(2));
                }
                disk.set_wakeups(true);
                out.clear();
                while out.is_empty() {
                    let clock = RealClock::start();
                    let before = clock.now();
                    net.poll(Some(Duration::from_secs(30)), &mut events).expect("poll");
                    assert!(clock.now().since(before) < Duration::from_secs(20), "nobody woke us");
                    disk.drain(&mut out);
                }
                assert_eq!(out[0].tag, DiskTag(round));
            }
        };
        std::thread::spawn(rounds).join().expect("the thread");
    }
}

#[test]
fn a_disk_moves_to_another_thread() {
    for choice in drivers() {
        let scratch = Scratch::new(&format!("moves-{choice:?}"));
        let mut disk = RealDisk::create(&scratch.0, 1 << 20, choice).expect("create");
        blocking::write(&mut disk, 0, block(1).into(), Durability::Durable).expect("write");
        let thread = std::thread::spawn(move || {
            assert!(*blocking::read(&mut disk, 0, BLOCK_BYTES).expect("read") == *block(1));
        });
        thread.join().expect("the other thread");
    }
}

#[test]
fn dropping_finishes_what_was_submitted() {
    for choice in drivers() {
        let scratch = Scratch::new(&format!("drops-{choice:?}"));
        let mut disk = RealDisk::create(&scratch.0, 4 << 20, choice).expect("create");
        for index in 0..600 {
            disk.write(index * BLOCK_BYTES as u64, block(7).into(), Durability::Cached, DiskTag(index));
        }
        disk.submit();
        drop(disk);
        let mut disk = RealDisk::open(&scratch.0, choice).expect("free again");
        assert!(*blocking::read(&mut disk, 0, BLOCK_BYTES).expect("read") == *block(7));
    }
}

#[test]
fn a_file_that_shrank_is_an_error_not_a_panic() {
    for choice in drivers() {
        let scratch = Scratch::new(&format!("shrinks-{choice:?}"));
        let mut disk = RealDisk::create(&scratch.0, 1 << 20, choice).expect("create");
        let file = std::fs::OpenOptions::new().write(true).open(&scratch.0).expect("open");
        file.set_len(BLOCK_BYTES as u64).expect("shrink");
        let short = DiskError::Short {
            request: DiskRequest::Read,
            offset: 0,
            length: 2 * BLOCK_BYTES as u64,
            done: BLOCK_BYTES as u64,
        };
        assert_eq!(blocking::read(&mut disk, 0, 2 * BLOCK_BYTES).map(drop), Err(short));
    }
}

#[test]
fn only_one_may_have_it_open() {
    let scratch = Scratch::new("locks");
    let _disk = RealDisk::create(&scratch.0, 1 << 20, DriverChoice::Auto).expect("create");
    assert!(matches!(RealDisk::open(&scratch.0, DriverChoice::Auto), Err(OpenError::InUse { .. })));
    let again = RealDisk::create(&scratch.0, 1 << 20, DriverChoice::Auto);
    assert!(matches!(again, Err(OpenError::System { .. })), "an existing file is not made anew");
}

/// Threads that share a device have a disk each, and keep others away together.
#[test]
fn a_device_is_held_more_than_once_by_who_holds_it() {
    let scratch = Scratch::new("again");
    drop(RealDisk::create(&scratch.0, 1 << 20, DriverChoice::Auto).expect("create"));
    for choice in [DriverChoice::Auto, DriverChoice::Threads] {
        let held = HeldDevice::open(&scratch.0).expect("free");
        let disk = |held: HeldDevice| held.into_disk(choice).expect("a disk");
        let (mut first, mut second) = (disk(held.again().expect("a hold")), disk(held));
        let block = |byte: u8| {
            let mut block = AlignedBuf::with_len(BLOCK_BYTES);
            block.fill(byte);
            block.freeze().into()
        };
        std::thread::scope(|scope| {
            let disks = [(&mut first, 1_u8, 0), (&mut second, 2, 4096)];
            for (disk, byte, offset) in disks {
                scope.spawn(move || {
                    let written = blocking::write(disk, offset, block(byte), Durability::Durable);
                    written.expect("a healthy device");
                });
            }
        });
        let found = blocking::read(&mut first, 0, 2 * BLOCK_BYTES).expect("read");
        assert_eq!((found[0], found[4095], found[4096], found[8191]), (1, 1, 2, 2));
        drop(first);
        assert!(matches!(HeldDevice::open(&scratch.0), Err(OpenError::InUse { .. })), "one is left");
        drop(second);
    }
    HeldDevice::open(&scratch.0).expect("free again");
}

/// As on a file system without `O_DIRECT`: the system tells each open file once that a page could not be written back.
#[test]
fn holds_through_the_page_cache_are_opened_one_by_one_under_one_lock() {
    let scratch = Scratch::new("opened-again");
    let mut first = DeviceFile::create(&scratch.0, 1 << 20).expect("create");
    first.direct = false;
    let second = first.opened_again().expect("opened again");
    let third = second.opened_again().expect("opened again");
    // Handles of one open file have one position.
    let files = [&first.file, &second.file, &third.file];
    for (at, mut file) in (7..).zip(files) {
        file.seek(SeekFrom::Start(at)).expect("a file");
    }
    assert_eq!(files.map(|mut file| file.stream_position().expect("a file")), [7, 8, 9]);
    let is_taken = || matches!(DeviceFile::open(&scratch.0), Err(OpenError::InUse { .. }));
    drop(first);
    drop(second);
    let disk = RealDisk::over(third, &scratch.0, DriverChoice::Threads).expect("a disk");
    assert!(is_taken(), "the last one has the lock");
    drop(disk);
    assert!(!is_taken());
}

/// As requests of a killed process do, which end a moment after it.
#[test]
fn a_lock_that_goes_away_is_waited_for() {
    let scratch = Scratch::new("waits");
    let disk = RealDisk::create(&scratch.0, 1 << 20, DriverChoice::Auto).expect("create");
    std::thread::scope(|scope| {
        let opened = scope.spawn(|| RealDisk::open(&scratch.0, DriverChoice::Auto).map(drop));
        std::thread::sleep(Duration::from_millis(50));
        drop(disk);
        opened.join().expect("no panic").expect("free again");
    });
}

#[test]
fn what_is_no_disk_is_refused() {
    let folder = RealDisk::open(Path::new("/"), DriverChoice::Auto);
    assert!(matches!(folder, Err(OpenError::NoDisk { .. })));
    let scratch = Scratch::new("small");
    std::fs::write(&scratch.0, b"no block").expect("write");
    assert!(matches!(RealDisk::open(&scratch.0, DriverChoice::Auto), Err(OpenError::TooSmall { .. })));
}

#[test]
fn the_probe_reports_what_it_measured() {
    let scratch = Scratch::new("probe");
    let mut disk = RealDisk::create(&scratch.0, 1 << 20, DriverChoice::Auto).expect("create");
    let report = probe(&mut disk, &RealClock::start(), 0).expect("probe");
    assert!(report.durable_write.best > Duration::ZERO && report.read.best > Duration::ZERO);
    assert!(report.to_string().contains(disk.info().driver));
}

/// A fault for tests: nobody waits in a call, and whoever watches the disk is woken when a completion is due.
#[test]
fn a_delayed_completion_comes_later_and_wakes_its_owner() {
    const DELAY: Duration = Duration::from_millis(30);
    for choice in drivers() {
        let scratch = Scratch::new(&format!("delay-{choice:?}"));
        let mut disk = RealDisk::create(&scratch.0, 1 << 20, choice).expect("create");
        blocking::write(&mut disk, 0, block(1).into(), Durability::Durable).expect("write");
        disk.delay(DELAY).expect("a thread");
        let began = std::time::Instant::now();
        blocking::write(&mut disk, 0, block(2).into(), Durability::Durable).expect("write");
        assert!(began.elapsed() >= DELAY);

        let mut net = RealNet::new().expect("net");
        net.watch(disk.wake_fd()).expect("watch");
        let (began, mut out) = (std::time::Instant::now(), Vec::new());
        for tag in 0..3 {
            disk.read(0, AlignedBuf::with_len(BLOCK_BYTES), DiskTag(tag));
        }
        disk.submit();
        disk.drain(&mut out);
        assert!(out.is_empty() && began.elapsed() < DELAY, "no call waits");
        while out.len() < 3 {
            net.poll(Some(Duration::from_secs(5)), &mut Vec::new()).expect("poll");
            disk.drain(&mut out);
            assert!(began.elapsed() < Duration::from_secs(5), "woken");
        }
        assert!(began.elapsed() >= DELAY && began.elapsed() < Duration::from_secs(2));

        disk.delay(Duration::ZERO).expect("nothing to start");
        let began = std::time::Instant::now();
        for _ in 0..5 {
            blocking::read(&mut disk, 0, BLOCK_BYTES).expect("read");
        }
        assert!(began.elapsed() < 4 * DELAY);
    }
}

#[test]
fn a_window_of_a_disk_is_a_disk_and_leaves_the_rest_alone() {
    let scratch = Scratch::new("window");
    let block_bytes = BLOCK_BYTES as u64;
    let size_bytes = conformance::SIZE_BYTES + 2 * block_bytes;
    let mut disk = RealDisk::create(&scratch.0, size_bytes, DriverChoice::Auto).expect("create");
    for offset in [0, size_bytes - block_bytes] {
        blocking::write(&mut disk, offset, block(9).into(), Durability::Durable).expect("write");
    }
    drop(disk);
    let open = || RealDisk::open(&scratch.0, DriverChoice::Auto).expect("open");
    conformance::run(|| Window::new(open(), block_bytes, conformance::SIZE_BYTES));
    let mut disk = open();
    for offset in [0, size_bytes - block_bytes] {
        assert!(*blocking::read(&mut disk, offset, BLOCK_BYTES).expect("read") == *block(9));
    }
}

#[test]
fn a_view_shows_the_same_device_and_keeps_others_away() {
    let scratch = Scratch::new("view");
    drop(RealDisk::create(&scratch.0, 1 << 20, DriverChoice::Auto).expect("create"));
    let held = HeldDevice::open(&scratch.0).expect("free");
    let view = held.view().expect("a view");
    view.write(5000, b"here").expect("there is room");
    view.sync().expect("a healthy device");
    assert!(view.write((1 << 20) - 1, b"ab").is_err(), "a device does not grow");
    let mut disk = held.into_disk(DriverChoice::Auto).expect("a disk");
    let found = blocking::read(&mut disk, 4096, BLOCK_BYTES).expect("read");
    assert_eq!(&found[904..908], b"here");
    drop(disk);
    assert!(matches!(HeldDevice::open(&scratch.0), Err(OpenError::InUse { .. })));
    drop(view);
    HeldDevice::open(&scratch.0).expect("free again");
}

//! Reads of files through the page cache that know whether they waited for the device. How long a read took does not say it: where more
//! threads want to run than there are processors, one of a hundred is interrupted as well.

use super::sys::read_cached;
use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Where the system does not tell, a read that takes longer has waited.
const QUICK: Duration = Duration::from_micros(50);

thread_local! {
    static WAITED: Cell<u64> = const { Cell::new(0) };
}

/// Reads of this thread by [`read_cached_first`] that waited for a device.
#[must_use]
pub fn waited_reads() -> u64 {
    WAITED.get()
}

/// Fills `out` with what a file has at `offset`: by `read`, which does the same, where the page cache does not have all of it.
///
/// # Errors
/// Those of `read`.
pub fn read_cached_first(
    file: BorrowedFd<'_>,
    offset: u64,
    out: &mut [u8],
    read: impl FnOnce(&mut [u8]) -> io::Result<()>,
) -> io::Result<()> {
    let has_waited = match read_cached(file, offset, out) {
        Ok(bytes) if bytes == out.len() => return Ok(()),
        // A part: the rest is on the device, or behind the file's end, where it is asked for again.
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::WouldBlock => true,
        Err(_) => false,
    };
    let begun = Instant::now();
    read(out)?;
    if has_waited || begun.elapsed() > QUICK {
        WAITED.set(WAITED.get() + 1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::Scratch;
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;
    use std::path::Path;
    use std::process::Command;

    /// Has the system forget what it keeps of a file.
    fn forget(path: &Path) {
        let of = format!("if={}", path.display());
        let status = Command::new("dd").args([&of, "iflag=nocache", "count=0", "status=none"]).status();
        assert!(status.expect("coreutils").success());
    }

    #[test]
    fn a_read_that_waits_for_the_device_counts_and_one_out_of_memory_does_not() {
        let scratch = Scratch::new("page-cache");
        std::fs::write(&scratch.0, [7; 8192]).expect("room");
        let file = File::open(&scratch.0).expect("it is there");
        file.sync_all().expect("a healthy device");
        let read = |offset| {
            let mut page = [0; 4096];
            let by_cache = |page: &mut [u8]| {
                read_cached_first(file.as_fd(), offset, page, |page| file.read_exact_at(page, offset))
            };
            let (before, outcome) = (waited_reads(), by_cache(&mut page));
            outcome.map(|()| (page[0], waited_reads() - before))
        };
        let is_told = !matches!(read_cached(file.as_fd(), 0, &mut [0; 1]),
            Err(error) if error.kind() != ErrorKind::WouldBlock);
        let (mut kept, mut forgotten) = (0, 0);
        for _ in 0..100 {
            let waited_for = |expected| {
                let (byte, waited) = read(4096).expect("there");
                assert_eq!(byte, 7);
                u32::from(waited == expected)
            };
            kept += waited_for(0);
            forget(&scratch.0);
            forgotten += waited_for(1);
        }
        let behind = read(8000).map_err(|error| error.kind());
        assert_eq!(behind, Err(ErrorKind::UnexpectedEof));
        if !is_told {
            return;
        }
        // Memory may run short between any two reads, and somebody else may read the file.
        assert!(kept >= 90 && forgotten >= 90, "{kept} and {forgotten} of 100");
    }
}

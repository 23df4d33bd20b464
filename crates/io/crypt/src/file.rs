//! [`CryptFile`]: a file over another that is encrypted.

use crate::xts::Xts;
use nacre_env::disk::SECTOR_BYTES;
use nacre_env::{File, FileRoom};
use std::io::{self, ErrorKind};
use std::sync::Arc;

const SECTOR: u64 = SECTOR_BYTES as u64;

/// See the module's documentation. What has not been written reads as zeros, as in the file below. Writes and lengths are in whole sectors:
/// part of one could not be written without the rest, which a loss of power would then spoil.
#[derive(Debug)]
pub struct CryptFile {
    file: Arc<dyn File>,
    cipher: Arc<Xts>,
}

impl CryptFile {
    /// Over `file`, where the cipher's places count from its first byte.
    #[must_use]
    pub fn new(file: Arc<dyn File>, cipher: Arc<Xts>) -> Self {
        Self { file, cipher }
    }
}

fn whole_sectors(offset: u64, bytes: u64) -> io::Result<()> {
    if offset.is_multiple_of(SECTOR) && bytes.is_multiple_of(SECTOR) {
        return Ok(());
    }
    let what = format!("{offset}~{bytes} of an encrypted file is not in whole sectors of {SECTOR} bytes");
    Err(io::Error::new(ErrorKind::InvalidInput, what))
}

impl File for CryptFile {
    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = offset.saturating_add(out.len() as u64);
        if whole_sectors(offset, out.len() as u64).is_ok() {
            self.file.read(offset, out)?;
            self.cipher.decrypt(offset, out);
            return Ok(());
        }
        let from = offset - offset % SECTOR;
        let whole = usize::try_from(end.next_multiple_of(SECTOR) - from).map_err(io::Error::other)?;
        let mut sectors = vec![0; whole];
        self.file.read(from, &mut sectors)?;
        self.cipher.decrypt(from, &mut sectors);
        let skipped = usize::try_from(offset - from).map_err(io::Error::other)?;
        let wanted = sectors.get(skipped..).and_then(|rest| rest.get(..out.len()));
        out.copy_from_slice(wanted.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    /// [`ErrorKind::InvalidInput`] for what is not in whole sectors.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        whole_sectors(offset, data.len() as u64)?;
        let mut sectors = data.to_vec();
        self.cipher.encrypt(offset, &mut sectors);
        self.file.write(offset, &sectors)
    }

    /// [`ErrorKind::InvalidInput`] for what is not in whole sectors.
    fn set_length(&self, length: u64) -> io::Result<()> {
        whole_sectors(length, 0)?;
        self.file.set_length(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn write_back(&self) -> io::Result<()> {
        self.file.write_back()
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.file.reserve(bytes)
    }

    fn room(&self) -> io::Result<FileRoom> {
        self.file.room()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataKey, Part};
    use nacre_simdisk::SimFile;
    use nacre_types::entropy::SeededEntropy;

    fn through(below: Arc<dyn File>) -> CryptFile {
        CryptFile::new(below, DataKey::generate(&mut SeededEntropy(7)).cipher(Part::Metadata))
    }

    fn over(below: &SimFile) -> CryptFile {
        through(Arc::new(below.open()))
    }

    fn read(file: &dyn File, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![9; length];
        file.read(offset, &mut bytes).expect("healthy");
        bytes
    }

    #[test]
    fn it_reads_what_was_written_at_any_place_and_zeros_where_nothing_was() {
        let below: Arc<dyn File> = Arc::new(SimFile::new(1).open());
        let file = through(Arc::clone(&below));
        file.set_length(16384).expect("room");
        let data: Vec<u8> = (0..1024).map(|at| (at % 251) as u8).collect();
        file.write(4096 + 512, &data).expect("healthy");
        assert_eq!(read(&file, 4608, 1024), data);
        assert_eq!(Some(read(&file, 4700, 300).as_slice()), data.get(92..392));
        assert_eq!(read(&file, 0, 4608), vec![0; 4608]);
        assert!(
            !read(below.as_ref(), 0, 16384)
                .windows(16)
                .any(|bytes| data.windows(16).any(|part| part == bytes))
        );
        // A file that is cut and grows again has zeros there.
        file.set_length(4096).expect("room");
        file.set_length(16384).expect("room");
        assert_eq!(read(&file, 4096, 12288), vec![0; 12288]);
        let mut beyond = [0; 512];
        assert_eq!(
            file.read(16384, &mut beyond).expect_err("behind the end").kind(),
            ErrorKind::UnexpectedEof
        );
    }

    #[test]
    fn part_of_a_sector_is_not_written() {
        let file = over(&SimFile::new(1));
        file.set_length(4096).expect("room");
        for (offset, length) in [(0, 100), (100, 512), (512, 513)] {
            let error = file.write(offset, &vec![1; length]).expect_err("not in whole sectors");
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{offset}~{length}");
        }
        assert_eq!(file.set_length(100).expect_err("not whole").kind(), ErrorKind::InvalidInput);
        assert_eq!(read(&file, 0, 4096), vec![0; 4096]);
    }

    #[test]
    fn a_loss_of_power_leaves_each_sector_old_or_new() {
        for seed in 0..100 {
            let below = SimFile::new(seed);
            let file = over(&below);
            file.set_length(8192).expect("room");
            file.write(0, &[1; 8192]).expect("healthy");
            file.sync().expect("healthy");
            file.write(0, &[2; 8192]).expect("healthy");
            below.crash();
            for sector in read(&over(&below), 0, 8192).chunks(SECTOR_BYTES) {
                let first = sector.first().copied();
                assert!(matches!(first, Some(1 | 2)), "seed {seed}");
                assert!(sector.iter().all(|byte| Some(*byte) == first), "seed {seed}");
            }
        }
    }
}

//! [`DevicePart`]: a part of a device as a file whose length never changes, for what keeps no file system's books.

use nacre_env::{File, FileRoom};
use std::io::{self, ErrorKind};
use std::sync::Arc;

/// See the module's documentation. What was in the part before is in the file.
#[derive(Debug)]
pub struct DevicePart {
    device: Arc<dyn File>,
    offset: u64,
    length: u64,
}

impl DevicePart {
    /// The `length` bytes of the device from `offset` on.
    #[must_use]
    pub fn new(device: Arc<dyn File>, offset: u64, length: u64) -> Self {
        Self { device, offset, length }
    }

    fn check(&self, offset: u64, bytes: usize, error: ErrorKind) -> io::Result<()> {
        let end = offset.checked_add(bytes as u64);
        if end.is_some_and(|end| end <= self.length) { Ok(()) } else { Err(error.into()) }
    }
}

impl File for DevicePart {
    fn length(&self) -> io::Result<u64> {
        Ok(self.length)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.check(offset, out.len(), ErrorKind::UnexpectedEof)?;
        self.device.read(self.offset + offset, out)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len(), ErrorKind::StorageFull)?;
        self.device.write(self.offset + offset, data)
    }

    /// Any length that the part has room for will do.
    fn set_length(&self, length: u64) -> io::Result<()> {
        if length <= self.length { Ok(()) } else { Err(ErrorKind::StorageFull.into()) }
    }

    fn sync(&self) -> io::Result<()> {
        self.device.sync()
    }

    fn write_back(&self) -> io::Result<()> {
        self.device.write_back()
    }

    fn reserve(&self, _bytes: u64) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn room(&self) -> io::Result<FileRoom> {
        Ok(FileRoom { used_bytes: self.length, available_bytes: 0, total_bytes: self.length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_simdisk::SimFile;

    #[test]
    fn it_reaches_its_own_bytes_only() {
        let device = Arc::new(SimFile::new(1).open());
        device.set_length(4 * 4096).expect("healthy");
        let part = DevicePart::new(Arc::clone(&device) as Arc<dyn File>, 4096, 8192);
        part.write(4096, &[7; 4096]).expect("within the part");
        assert_eq!(part.write(4097, &[7; 4096]).expect_err("behind it").kind(), ErrorKind::StorageFull);
        assert_eq!(part.read(8192, &mut [0]).expect_err("behind it").kind(), ErrorKind::UnexpectedEof);
        assert!(part.set_length(8192).is_ok() && part.set_length(8193).is_err());
        let mut all = vec![0; 4 * 4096];
        device.read(0, &mut all).expect("healthy");
        let written: Vec<usize> = (0..4).filter(|block| all[block * 4096] == 7).collect();
        assert_eq!(written, [2]);
    }
}

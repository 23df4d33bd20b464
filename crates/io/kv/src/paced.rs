//! [`PacedFile`]: the file of a database, written back a little at a time ([`WriteBack`]).

use crate::place::Place;
use crate::progress::Progress;
use crate::real_file::RealFile;
use crate::space::Space;
use crate::sums::{Kind, Summed, kind_of};
use crate::turn::Turn;
use crate::write_back::WriteBack;
use nacre_env::File;
use redb::backends::FileBackend;
use redb::{BackendError, DatabaseError, StorageBackend};
use std::io;
use std::ops::Bound;
use std::sync::Arc;

/// A file's pages, with checksums or, in a file of an older program, without.
#[derive(Debug)]
enum Pages {
    Plain(Arc<dyn File>),
    Summed(Arc<Summed>),
}

#[derive(Debug)]
pub(crate) struct PacedFile {
    pages: Pages,
    /// Locks the file, if it is a real one.
    real: Option<Arc<RealFile>>,
    space: Arc<Space>,
    turn: Turn,
    write_back: Arc<WriteBack>,
}

impl PacedFile {
    /// Over an open file, with a reserve of so many bytes. What is written to it counts as `progress`.
    pub(crate) fn new(
        place: &Place,
        reserve_bytes: u64,
        progress: Arc<Progress>,
    ) -> Result<Self, DatabaseError> {
        let (file, real) = place.open()?;
        let pages = match kind_of(file.as_ref())? {
            Kind::Plain => Pages::Plain(Arc::clone(&file)),
            Kind::Empty => Pages::Summed(Arc::new(Summed::create(Arc::clone(&file))?)),
            Kind::Summed => Pages::Summed(Arc::new(Summed::open(Arc::clone(&file))?)),
        };
        let space = Arc::new(Space::new(Arc::clone(&file), reserve_bytes));
        let write_back = Arc::new(WriteBack::new(file, progress));
        Ok(Self { pages, real, space, turn: Turn::default(), write_back })
    }

    /// The pages' checksums, if the file has any.
    pub(crate) fn summed(&self) -> Option<Arc<Summed>> {
        match &self.pages {
            Pages::Plain(_) => None,
            Pages::Summed(summed) => Some(Arc::clone(summed)),
        }
    }

    /// Its room in the file system.
    pub(crate) fn space(&self) -> Arc<Space> {
        Arc::clone(&self.space)
    }

    /// What has its pages go to the device.
    pub(crate) fn write_back(&self) -> Arc<WriteBack> {
        Arc::clone(&self.write_back)
    }

    /// A lock of the real file; nobody else knows of another one.
    fn lock<T>(
        &self,
        of_real: impl FnOnce(&FileBackend) -> Result<T, BackendError>,
        otherwise: T,
    ) -> Result<T, BackendError> {
        self.real.as_ref().map_or(Ok(otherwise), |real| of_real(real.backend()))
    }
}

impl Pages {
    fn len(&self) -> io::Result<u64> {
        match self {
            Self::Plain(file) => file.length(),
            Self::Summed(summed) => summed.len(),
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.read(offset, out),
            Self::Summed(summed) => summed.read(offset, out),
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.write(offset, data),
            Self::Summed(summed) => summed.write(offset, data),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.set_length(len),
            Self::Summed(summed) => summed.set_len(len),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.sync(),
            Self::Summed(summed) => summed.sync_data(),
        }
    }
}

impl StorageBackend for PacedFile {
    fn len(&self) -> io::Result<u64> {
        self.pages.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.pages.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.space.with_room(|| self.pages.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.write_back.synced();
        self.pages.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.turn.spend(data.len());
        self.space.with_room(|| self.pages.write(offset, data))?;
        self.write_back.wrote(data.len())
    }

    fn close(&self) -> io::Result<()> {
        self.real.as_ref().map_or(Ok(()), |real| real.backend().close())
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.lock(|real| real.try_lock_range(start, end), true)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.lock(|real| real.try_lock_shared_range(start, end), true)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.lock(|real| real.lock_range(start, end), ())
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.lock(|real| real.lock_shared_range(start, end), ())
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.lock(|real| real.unlock_range(start, end), ())
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.lock(|real| real.query_lock_range(start, end), false)
    }
}

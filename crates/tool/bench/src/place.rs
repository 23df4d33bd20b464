//! [`Place`]: the images or objects that a cell's operations go to.

use crate::cell::{Cell, size_name};
use crate::driver::Driver;
use crate::pace::Pace;
use crate::shape::OBJECT_BYTES;
use anyhow::{Result, bail};

/// What operations go to: images, or objects with a common name. All of it is written before anything is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Of each image; of objects what their names begin with.
    pub(crate) names: Vec<String>,
    /// Of each name.
    pub(crate) bytes: u64,
    pub(crate) object_bytes: u64,
    /// Many writers would pass an exclusive lock from hand to hand.
    pub(crate) is_unlocked: bool,
}

impl Place {
    /// Where `cell` works, of all that is named after `id`; `bytes` are those of all images together.
    pub(crate) fn of(cell: Cell, id: &str, bytes: u64, driver: Driver) -> Result<Self> {
        let (shape, mut names) = (cell.shape, vec![format!("bench-{id}")]);
        if let Some(objects) = shape.objects {
            let names = vec![format!("bench-{id}-{objects}x{}", size_name(cell.bytes))];
            let bytes = objects * cell.bytes;
            return Ok(Self { names, bytes, object_bytes: cell.bytes, is_unlocked: true });
        }
        // Plain objects know no locks.
        let is_unlocked = matches!(cell.pace, Pace::Clients(_)) && driver == Driver::Fio;
        if is_unlocked {
            names = vec![format!("bench-{id}-unlocked")];
        }
        let images = shape.images() as u64;
        if images > 1 {
            names = (0..images).map(|nth| format!("bench-{id}-{images}.{nth}")).collect();
        }
        let bytes = bytes / images / OBJECT_BYTES * OBJECT_BYTES;
        if bytes == 0 {
            bail!("{}: --size-mib is for all images; each wants 4 at least", cell.name());
        }
        Ok(Self { names, bytes, object_bytes: OBJECT_BYTES, is_unlocked })
    }

    /// Objects of all names.
    pub(crate) fn objects(&self) -> u64 {
        self.bytes / self.object_bytes * self.names.len() as u64
    }

    /// The object's name; with several images neighbours lie in different ones.
    pub(crate) fn object_name(&self, object: u64) -> String {
        let images = self.names.len().max(1) as u64;
        let image = self.names.get((object % images) as usize).map_or("", String::as_str);
        format!("{image}.{:016x}", object / images)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn place(name: &str, bytes: u64) -> Result<Place> {
        Place::of(Cell::parse(name).expect("a cell"), "7", bytes, Driver::Fio)
    }

    #[test]
    fn places_hold_what_was_asked_for() {
        let images = place("read-4k-qd32-images16", 1 << 30).expect("room");
        assert_eq!((images.names.len(), images.bytes, images.objects()), (16, 64 << 20, 256));
        let names: BTreeSet<String> =
            (0..images.objects()).map(|object| images.object_name(object)).collect();
        assert_eq!(names.len(), 256);
        let objects = place("read-4k-qd32-objects1000", 1 << 30).expect("room");
        assert_eq!((objects.objects(), objects.object_bytes), (1000, 4096));
        assert_eq!(objects.object_name(16), "bench-7-1000x4k.0000000000000010");
        assert_ne!(place("read-4k-qd1", 1 << 30).ok(), place("read-4k-clients2", 1 << 30).ok());
        assert!(place("read-4k-qd128-images64", 128 << 20).is_err());
    }
}

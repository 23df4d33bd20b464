//! [`Shape`]: how many images, objects and connections a cell has.

use crate::driver::Driver;
use crate::pace::Pace;
use anyhow::{Context, Result, bail};

/// Bytes of an image's objects.
pub(crate) const OBJECT_BYTES: u64 = 4 << 20;
/// fio has a thread for each.
const IMAGES_MAX: u64 = 1024;
/// More take longer to make than anybody waits.
const OBJECTS_MAX: u64 = 100_000_000;
/// Each is a thread of ours.
const CONNECTIONS_MAX: u64 = 1024;

/// What a cell's name or a side says beyond operation, size and pace; `None` of what it does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// So many images share the bytes and the depth.
    pub(crate) images: Option<u64>,
    /// So many objects of the cell's size instead of an image.
    pub(crate) objects: Option<u64>,
    /// So many connected clients share the depth, or the rate.
    pub(crate) connections: Option<u64>,
}

impl Shape {
    fn fields(&mut self) -> [(&'static str, u64, &mut Option<u64>); 3] {
        [
            ("images", IMAGES_MAX, &mut self.images),
            ("objects", OBJECTS_MAX, &mut self.objects),
            ("connections", CONNECTIONS_MAX, &mut self.connections),
        ]
    }

    /// Takes in a suffix of a cell's name, such as `images16`.
    pub(crate) fn add_suffix(&mut self, suffix: &str) -> Result<()> {
        let digits = suffix.find(|c: char| c.is_ascii_digit()).unwrap_or(suffix.len());
        let (name, count) = suffix.split_at(digits);
        self.add(name, count)
    }

    /// Takes in one count by its name.
    pub(crate) fn add(&mut self, name: &str, count: &str) -> Result<()> {
        let field = self.fields().into_iter().find(|(known, ..)| *known == name);
        let (name, max, value) = field.with_context(|| {
            format!("'{name}{count}' is none of images16, objects1000 and connections200")
        })?;
        let count = count.parse().ok().filter(|count| (1..=max).contains(count));
        let count = count.with_context(|| format!("{name} are from 1 to {max}"))?;
        if value.replace(count).is_some() {
            bail!("{name} are said twice");
        }
        Ok(())
    }

    /// Both of them; neither says again what the other has said.
    pub(crate) fn with(mut self, mut other: Self) -> Result<Self> {
        for ((name, _, value), (_, _, more)) in self.fields().into_iter().zip(other.fields()) {
            if value.is_some() && more.is_some() {
                bail!("{name} are said twice: by the cell, and by the side");
            }
            *value = value.or(*more);
        }
        Ok(self)
    }

    /// As suffixes of a cell's name.
    pub(crate) fn suffixes(mut self) -> String {
        let said = self.fields().into_iter().filter_map(|(name, _, value)| Some((name, (*value)?)));
        said.map(|(name, count)| format!("-{name}{count}")).collect()
    }

    /// # Errors
    /// When an operation of this pace cannot have this shape.
    pub(crate) fn check(self, pace: Pace) -> Result<()> {
        let is_shared = matches!(pace, Pace::Depth(_) | Pace::Rate(_));
        if !is_shared && (self.images.is_some() || self.connections.is_some()) {
            bail!("images and connections share what is in flight: they want a depth (qd) or a rate");
        }
        if self.images.is_some() && self.objects.is_some() {
            bail!("images have their own objects: either images or objects");
        }
        Ok(())
    }

    /// # Errors
    /// When this driver cannot do it.
    pub(crate) fn check_driver(self, pace: Pace, driver: Driver) -> Result<()> {
        if driver == Driver::Own {
            return Ok(());
        }
        if self.objects.is_some() || self.connections.is_some() || matches!(pace, Pace::Rate(_)) {
            bail!("fio has no objects, connections or rates of this kind: give --client own");
        }
        match pace {
            Pace::Depth(depth) if self.images() > depth => {
                bail!("each image wants one in flight at least: the depth is smaller than {}", self.images())
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn images(self) -> usize {
        self.images.map_or(1, |count| count as usize)
    }

    pub(crate) fn connections(self) -> usize {
        self.connections.map_or(1, |count| count as usize)
    }
}

/// The part of `whole` that falls to the one of `count` with number `nth`: all parts together are the whole, and the
/// first have one more where it does not divide.
pub(crate) fn share(whole: usize, count: usize, nth: usize) -> usize {
    whole / count + usize::from(nth < whole % count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Cell;

    #[test]
    fn parts_are_the_whole() {
        for (whole, count) in [(128, 200), (128, 64), (128, 3), (1, 1), (7, 7)] {
            let parts: Vec<usize> = (0..count).map(|nth| share(whole, count, nth)).collect();
            assert_eq!(parts.iter().sum::<usize>(), whole);
            let (most, least) = (parts.first().expect("one"), parts.last().expect("one"));
            assert!(most - least <= 1, "{parts:?}");
        }
    }

    #[test]
    fn what_a_side_says_comes_to_what_a_cell_says() {
        let shape = |name: &str| Cell::parse(name).expect("a cell").shape;
        let both = shape("read-4k-qd4-images2").with(shape("read-4k-qd4-connections3")).expect("other words");
        assert_eq!(both.suffixes(), "-images2-connections3");
        assert!(both.with(shape("read-4k-qd4-images3")).is_err());
        let plain = Shape::default();
        assert_eq!((plain.images(), plain.connections(), plain.suffixes()), (1, 1, String::new()));
    }

    #[test]
    fn fio_knows_images_and_depths() {
        let check = |name: &str, driver| {
            let cell = Cell::parse(name).expect("a cell");
            cell.shape.check_driver(cell.pace, driver)
        };
        for name in
            ["read-4k-qd4-objects7", "read-4k-qd4-connections2", "read-4k-rate9", "read-4k-qd4-images5"]
        {
            assert!(check(name, Driver::Fio).is_err(), "{name}");
            assert!(check(name, Driver::Own).is_ok(), "{name}");
        }
        assert!(check("read-4k-qd4-images4", Driver::Fio).is_ok());
    }
}

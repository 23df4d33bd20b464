//! [`Cell`]: one kind of load, with a name that says all of it, such as `randwrite-4k-qd32`.
//!
//! ```text
//!   randwrite-4k-qd32      operations of 4 KiB at random places, 32 in flight
//!   mix70-128k-qd1         70 % random reads, 30 % random writes
//!   write-4k-sync          one after the other, each with a flush behind it (O_SYNC)
//!   write-4k-dsync         one after the other, each durable when it is acknowledged (O_DSYNC)
//!   randread-4k-clients16  16 clients, each one operation per second
//!   randwrite-4k-rate9000  9000 per second in all, by chance, whether or not earlier ones are answered
//!
//!   randwrite-4k-qd128-images16      the depth is shared by 16 images
//!   randread-4k-qd1-objects1000000   on so many objects of 4 KiB instead of an image
//!   randwrite-4k-qd128-connections9  the depth is shared by 9 clients with connections of their own
//! ```

use crate::pace::Pace;
use crate::shape::Shape;
use anyhow::{Context, Result, bail};

const KIB: u64 = 1 << 10;
const BYTES_MAX: u64 = 4 << 20;
const DEPTH_MAX: usize = 1024;
/// Each is a process of fio's.
const CLIENTS_MAX: usize = 1024;
/// Per second; no client of ours can do that.
const RATE_MAX: usize = 10_000_000;

/// What an operation does, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Read,
    Write,
    RandomRead,
    RandomWrite,
    /// 70 % random reads, the rest random writes.
    Mix,
}

impl Operation {
    pub(crate) const ALL: [Self; 5] =
        [Self::Read, Self::Write, Self::RandomRead, Self::RandomWrite, Self::Mix];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::RandomRead => "randread",
            Self::RandomWrite => "randwrite",
            Self::Mix => "mix70",
        }
    }
}

/// See the module's documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) operation: Operation,
    pub(crate) bytes: u64,
    pub(crate) pace: Pace,
    pub(crate) shape: Shape,
}

impl Cell {
    pub(crate) fn name(&self) -> String {
        let size = size_name(self.bytes);
        format!("{}-{size}-{}{}", self.operation.name(), self.pace.name(), self.shape.suffixes())
    }

    pub(crate) fn parse(text: &str) -> Result<Self> {
        let parts: Vec<&str> = text.split('-').collect();
        let [operation, size, pace, suffixes @ ..] = parts.as_slice() else {
            bail!("'{text}' is no cell: operation, size and pace, as in randwrite-4k-qd32");
        };
        let operation = Operation::ALL.into_iter().find(|known| known.name() == *operation);
        let mut cell = Self {
            operation: operation.with_context(|| {
                format!("'{text}': operations are read, write, randread, randwrite and mix70")
            })?,
            bytes: parse_size(size)
                .with_context(|| format!("'{text}': sizes are powers of two from 512 to 4m, as in 4k"))?,
            pace: parse_pace(pace).with_context(|| {
                format!(
                    "'{text}': paces are qd1 to qd{DEPTH_MAX}, sync, dsync, clients1 to clients{CLIENTS_MAX}, rate1 to \
                     rate{RATE_MAX}"
                )
            })?,
            shape: Shape::default(),
        };
        for suffix in suffixes {
            cell.shape.add_suffix(suffix).with_context(|| format!("'{text}'"))?;
        }
        if matches!(cell.pace, Pace::Sync | Pace::DataSync) && cell.operation != Operation::Write {
            bail!("'{text}': sync and dsync are paces of write");
        }
        if matches!(cell.pace, Pace::Clients(_)) && cell.operation == Operation::Mix {
            bail!("'{text}': many clients read, or write");
        }
        cell.shape.check(cell.pace).with_context(|| format!("'{text}'"))?;
        Ok(cell)
    }

    /// The same, of the shape that a side has as well.
    pub(crate) fn shaped(mut self, shape: Shape) -> Result<Self> {
        self.shape = self.shape.with(shape).with_context(|| self.name())?;
        self.shape.check(self.pace).with_context(|| self.name())?;
        Ok(self)
    }
}

pub(crate) fn size_name(bytes: u64) -> String {
    match bytes {
        _ if bytes.is_multiple_of(KIB * KIB) => format!("{}m", bytes / KIB / KIB),
        _ if bytes.is_multiple_of(KIB) => format!("{}k", bytes / KIB),
        _ => bytes.to_string(),
    }
}

fn parse_size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.strip_suffix('m') {
        Some(digits) => (digits, KIB * KIB),
        None => text.strip_suffix('k').map_or((text, 1), |digits| (digits, KIB)),
    };
    let bytes = digits.parse::<u64>().ok()?.checked_mul(unit)?;
    (bytes.is_power_of_two() && (512..=BYTES_MAX).contains(&bytes)).then_some(bytes)
}

fn parse_pace(text: &str) -> Option<Pace> {
    let count =
        |digits: &str, max: usize| digits.parse::<usize>().ok().filter(|count| (1..=max).contains(count));
    match text {
        "sync" => Some(Pace::Sync),
        "dsync" => Some(Pace::DataSync),
        _ => {
            let (word, digits) = text.split_at(text.find(|c: char| c.is_ascii_digit())?);
            match word {
                "qd" => count(digits, DEPTH_MAX).map(Pace::Depth),
                "clients" => count(digits, CLIENTS_MAX).map(Pace::Clients),
                "rate" => count(digits, RATE_MAX).map(Pace::Rate),
                _ => None,
            }
        }
    }
}

/// Cells by their names, and by names of sets.
///
/// # Errors
/// When a word names neither.
pub(crate) fn parse_cells(words: &[String]) -> Result<Vec<Cell>> {
    let mut cells: Vec<Cell> = Vec::new();
    for word in words {
        let named = match word.as_str() {
            "matrix" => matrix(),
            "sync" => parse_all(&["write-4k-sync", "write-4k-dsync"])?,
            "clients" => parse_all(&["randread-4k-clients16", "randwrite-4k-clients16"])?,
            "quick" => parse_all(&QUICK)?,
            "full" => [
                matrix(),
                parse_all(&["write-4k-sync", "write-4k-dsync"])?,
                parse_all(&["randread-4k-clients16", "randwrite-4k-clients16"])?,
            ]
            .concat(),
            cell => vec![Cell::parse(cell)?],
        };
        for cell in named {
            if !cells.contains(&cell) {
                cells.push(cell);
            }
        }
    }
    if cells.is_empty() {
        bail!("no cells to measure");
    }
    Ok(cells)
}

/// What most comparisons look at first.
const QUICK: [&str; 8] = [
    "randwrite-4k-qd1",
    "randwrite-4k-qd32",
    "randwrite-4k-qd128",
    "randread-4k-qd1",
    "randread-4k-qd32",
    "randread-4k-qd128",
    "write-4m-qd1",
    "read-4m-qd1",
];

fn parse_all(names: &[&str]) -> Result<Vec<Cell>> {
    names.iter().map(|name| Cell::parse(name)).collect()
}

fn matrix() -> Vec<Cell> {
    let mut cells = Vec::new();
    for operation in Operation::ALL {
        for bytes in [4 * KIB, 128 * KIB, 4096 * KIB] {
            let depths = [1, 32, 128].into_iter();
            let cell = |depth| Cell { operation, bytes, pace: Pace::Depth(depth), shape: Shape::default() };
            cells.extend(depths.map(cell));
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_everything() {
        for name in [
            "randwrite-4k-qd32",
            "mix70-128k-qd1",
            "write-4k-sync",
            "write-4k-dsync",
            "read-4m-clients7",
            "mix70-4k-rate40000",
            "randwrite-4k-qd128-images16",
            "randread-4k-qd1-objects1000000",
            "randread-4k-clients7-objects1000",
            "randwrite-4k-qd128-objects1000-connections200",
            "randread-4k-rate500-images1-connections8",
        ] {
            assert_eq!(Cell::parse(name).expect("a cell").name(), name);
        }
        assert_eq!(Cell::parse("read-4096-qd1").expect("a cell").name(), "read-4k-qd1");
        let cell = Cell::parse("randread-4k-qd8-connections2-images4").expect("any order");
        assert_eq!(cell.name(), "randread-4k-qd8-images4-connections2");
        for wrong in [
            "",
            "read",
            "read-4k",
            "erase-4k-qd1",
            "read-5-qd1",
            "read-8m-qd1",
            "read-4k-qd0",
            "mix70-4k-clients2",
            "read-12k-qd1",
            "read-4k-sync",
            "read-4k-rate0",
            "read-4k-rate1k",
            "read-4k-qd",
            "read-4k-qd1-",
            "read-4k-qd1-images",
            "read-4k-qd1-images0",
            "read-4k-qd1-images2-images2",
            "read-4k-qd1-pgs64",
            "read-4k-qd8-images2-objects9",
            "write-4k-sync-images2",
            "read-4k-clients2-connections2",
            "read-4k-qd1-objects1000000000",
        ] {
            assert!(Cell::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sets_are_lists_without_repetition() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(parse_cells(&words(&["matrix"])).expect("a set").len(), 45);
        assert_eq!(parse_cells(&words(&["matrix", "quick", "full"])).expect("sets").len(), 49);
        assert!(parse_cells(&words(&["everything"])).is_err());
        assert!(parse_cells(&[]).is_err());
    }
}

//! [`Driver`]: the program that puts load on a cluster.

use clap::ValueEnum;

/// The program that puts the load on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Driver {
    /// Stock fio with its rbd engine, that is librbd.
    Fio,
    /// A client of our own, on objects laid out as an image's.
    Own,
}

impl Driver {
    /// Name of the driver in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fio => "fio-rbd",
            Self::Own => "own",
        }
    }
}

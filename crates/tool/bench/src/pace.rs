//! [`Pace`]: how the operations of a cell follow each other.

/// How operations follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// So many in flight at any time.
    Depth(usize),
    /// One after the other; a flush after each.
    Sync,
    /// One after the other; each is durable when it is acknowledged.
    DataSync,
    /// So many clients, each with one operation per second.
    Clients(usize),
    /// So many operations per second in all, at random moments, whether or not earlier ones are answered.
    Rate(usize),
}

impl Pace {
    /// As in the name of a cell.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Depth(depth) => format!("qd{depth}"),
            Self::Sync => "sync".to_owned(),
            Self::DataSync => "dsync".to_owned(),
            Self::Clients(count) => format!("clients{count}"),
            Self::Rate(rate) => format!("rate{rate}"),
        }
    }
}

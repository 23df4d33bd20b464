//! What shards say to each other of PGs that change their partition: see `relocation`.

use nacre_txn::Op;
use nacre_types::Epoch;

/// Names one copy on its way: what comes late of an earlier one of the same PG finds nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    /// The shard that it comes from.
    pub(crate) from: usize,
    pub(crate) number: u64,
}

/// What two shards say to each other of a PG that changes its partition, or a shard to itself.
#[derive(Debug)]
pub(crate) enum RelocationMsg {
    /// To the new one: its copy has come to the map of `seen`; `epoch` is the map of the sender.
    Begin { run: Run, to: usize, seen: Epoch, epoch: Epoch },
    /// To the new one: there is no copy that could come; by the map of `epoch`.
    Absent { epoch: Epoch },
    /// To the new one: changes, perhaps the last ones.
    Piece { run: Run, ops: Vec<Op>, is_last: bool },
    /// To the new one: the copy is where it was no more.
    Gone { run: Run },
    /// To the old one: one piece more.
    More { run: Run },
    /// To the old one: all is there.
    Complete { run: Run },
}

//! Is there an order in which all answers make sense, and each client's writes stay in theirs? The search of Wing and Gong with the memory of Lowe: one
//! message after the other takes effect between its sending and its answer, and a state that was seen with the
//! same messages done is not tried twice.

use crate::model::{Action, Object, Seen, Snaps};
use std::collections::BTreeSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

/// States looked at before the search gives up: far more than any history of ours has needed.
const STATES_MAX: usize = 2_000_000;

/// One message and its answer.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// Who.
    pub(crate) client: usize,
    /// When it was first sent, on a count of everything sent and answered.
    pub(crate) sent: u64,
    /// When it was answered; `None` if it never was: it may take effect at any time, or never.
    pub(crate) answered: Option<u64>,
    /// What.
    pub(crate) action: Action,
    /// Under these snapshots.
    pub(crate) snaps: Snaps,
    /// The answer.
    pub(crate) seen: Option<Seen>,
}

/// Why there is none.
#[derive(Debug)]
pub(crate) struct Impossible {
    /// As many messages of the history, by their sending, as fit together in some order.
    pub(crate) fit: usize,
    /// What the object was like then.
    pub(crate) state: Object,
    /// The messages that could have been next.
    pub(crate) next: Vec<Call>,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, sent, answered, action, snaps, seen } = self;
        let answered = answered.map_or_else(|| "never".to_owned(), |at| at.to_string());
        write!(f, "client {client} {sent}..{answered} {action:?} under {snaps:?}: {seen:?}")
    }
}

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "after {} messages that fit together the object is {:?}; next could be",
            self.fit, self.state
        )?;
        self.next.iter().try_for_each(|call| writeln!(f, "  {call}"))
    }
}

struct Search<'a> {
    calls: &'a [Call],
    done: Vec<u64>,
    count: usize,
    tried: BTreeSet<(Vec<u64>, u64)>,
    best: Option<Impossible>,
}

/// Looks for an order; `calls` in the order of their sending.
///
/// # Errors
/// [`Impossible`].
///
/// # Panics
/// When the search becomes too large: the workload must bound what is under way on one object.
pub(crate) fn check(calls: &[Call]) -> Result<(), Box<Impossible>> {
    let mut search = Search {
        calls,
        done: vec![0; calls.len().div_ceil(64)],
        count: 0,
        tried: BTreeSet::new(),
        best: None,
    };
    if search.explore(&Object::default()) {
        return Ok(());
    }
    Err(Box::new(search.best.expect("a search that fails was somewhere")))
}

impl Search<'_> {
    fn is_done(&self, at: usize) -> bool {
        self.done[at / 64] >> (at % 64) & 1 == 1
    }

    /// Messages that may take effect next: none that was sent after the answer of another that is not done, and no write before an
    /// earlier one of its client.
    fn next(&self) -> Vec<usize> {
        let mut earliest_answer = u64::MAX;
        let mut out = Vec::new();
        for (at, call) in self.calls.iter().enumerate() {
            if call.sent > earliest_answer {
                break;
            }
            if !self.is_done(at) {
                out.push(at);
                earliest_answer = earliest_answer.min(call.answered.unwrap_or(u64::MAX));
            }
        }
        out.retain(|at| self.calls[*at].sent < earliest_answer);
        let is_write = |at: &usize| !self.calls[*at].action.is_read() && self.calls[*at].answered.is_some();
        let writes: Vec<usize> = out.iter().copied().filter(is_write).collect();
        let client = |at: usize| self.calls[at].client;
        let waits = |at: usize| writes.iter().any(|other| *other < at && client(*other) == client(at));
        out.retain(|at| self.calls[*at].action.is_read() || !waits(*at));
        out
    }

    fn explore(&mut self, state: &Object) -> bool {
        let next = self.next();
        if next.iter().all(|at| self.calls[*at].answered.is_none()) {
            return true; // whatever was not answered need not have happened
        }
        if self.best.as_ref().is_none_or(|best| best.fit < self.count) {
            let calls = next.iter().map(|at| self.calls[*at].clone()).collect();
            self.best = Some(Impossible { fit: self.count, state: state.clone(), next: calls });
        }
        for at in next {
            let call = &self.calls[at];
            let (after, seen) = state.after(&call.action, &call.snaps);
            if call.seen.as_ref().is_some_and(|answer| *answer != seen) {
                continue;
            }
            self.done[at / 64] |= 1 << (at % 64);
            self.count += 1;
            let mut hasher = DefaultHasher::new();
            after.hash(&mut hasher);
            if self.tried.insert((self.done.clone(), hasher.finish())) {
                assert!(self.tried.len() < STATES_MAX, "too many orders to try");
                if self.explore(&after) {
                    return true;
                }
            }
            self.done[at / 64] &= !(1 << (at % 64));
            self.count -= 1;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Content;

    fn call(sent: u64, answered: u64, action: Action, seen: Seen) -> Call {
        Call { client: 0, sent, answered: Some(answered), action, snaps: Snaps::default(), seen: Some(seen) }
    }

    fn append(sent: u64, answered: u64, text: &str) -> Call {
        call(sent, answered, Action::Append(text.to_owned()), Seen::Result(0))
    }

    fn read(sent: u64, answered: u64, text: &str) -> Call {
        let data = text.as_bytes().to_vec();
        call(sent, answered, Action::Read(None), Seen::Content(Content { data, ..Content::default() }))
    }

    #[test]
    fn overlapping_messages_may_take_either_order() {
        let other = |call: Call| Call { client: 1, ..call };
        assert!(check(&[append(1, 4, "a"), other(append(2, 3, "b")), read(5, 6, "ba")]).is_ok());
        assert!(check(&[append(1, 4, "a"), other(append(2, 3, "b")), read(5, 6, "ab")]).is_ok());
        assert!(check(&[append(1, 2, "a"), append(3, 4, "b"), read(5, 6, "ba")]).is_err());
    }

    #[test]
    fn a_clients_writes_keep_their_order() {
        let other = |call: Call| Call { client: 1, ..call };
        let history = |second: Call| [append(1, 6, "a"), second, read(7, 8, "ba")];
        assert!(check(&history(append(2, 3, "b"))).is_err());
        assert!(check(&history(other(append(2, 3, "b")))).is_ok(), "of two clients");
        let never = Call { answered: None, seen: None, ..append(1, 0, "a") };
        assert!(check(&[never, append(2, 3, "b"), read(4, 5, "b")]).is_ok());
    }

    #[test]
    fn lost_repeated_and_stale_answers_are_found() {
        assert!(check(&[append(1, 2, "a"), append(3, 4, "b"), read(5, 6, "a")]).is_err(), "lost");
        assert!(check(&[append(1, 2, "a"), read(3, 4, "aa")]).is_err(), "twice");
        let stale = [append(1, 8, "a"), read(2, 3, "a"), call(4, 5, Action::Read(None), Seen::Result(-2))];
        assert!(check(&stale).is_err(), "back in time");
    }

    #[test]
    fn what_was_never_answered_may_have_happened() {
        let open = Call { answered: None, seen: None, ..append(1, 0, "a") };
        assert!(check(&[open.clone(), append(2, 3, "b"), read(4, 5, "ab")]).is_ok());
        assert!(check(&[open, append(2, 3, "b"), read(4, 5, "b")]).is_ok());
    }

    #[test]
    fn snapshots_keep_what_was() {
        let under =
            |call: Call, ids: &[u64]| Call { snaps: Snaps { seq: ids[0], ids: ids.to_vec() }, ..call };
        let at = |call: Call, snap| Call { action: Action::Read(Some(snap)), ..call };
        let good =
            [append(1, 2, "a"), under(append(3, 4, "b"), &[7]), at(read(5, 6, "a"), 7), read(7, 8, "ab")];
        assert!(check(&good).is_ok());
        let bad = [append(1, 2, "a"), under(append(3, 4, "b"), &[7]), at(read(5, 6, "ab"), 7)];
        assert!(check(&bad).is_err());
    }
}

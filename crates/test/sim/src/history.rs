//! The checker: is there an order in which all answers make sense (linearizability), and each client's writes stay in theirs? The search
//! of Wing and Gong with the memory of Lowe: one
//! message after the other takes effect between its sending and its answer, and a state that was seen with the
//! same messages done is not tried twice.
//!
//! Where the only copy of the newest writes is gone for good and was given up, the object may go back: to what it was at any time
//! since the last write that others had, too. What was acknowledged since is lost then; what was not, its client sends again.

use crate::model::{Action, Object, Seen, Snaps};
use nacre_types::{Epoch, Eversion, UTime};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

/// States looked at before the search gives up: far more than any history of ours has needed.
const STATES_MAX: usize = 2_000_000;

/// Messages on one object without an answer at a time that a loss is tried with in all ways.
const OPEN_MAX: usize = 12;

/// One message and its answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Call {
    /// Number of the client.
    pub(crate) client: usize,
    /// When it was first sent, on a count of everything sent and answered.
    pub(crate) sent: u64,
    /// When it was answered; `None` if it never was: it may take effect at any time, or never.
    pub(crate) answered: Option<u64>,
    /// The newest map that its client knew when it was sent.
    pub(crate) epoch: Epoch,
    /// What the client asked for.
    pub(crate) action: Action,
    /// Under these snapshots.
    pub(crate) snaps: Snaps,
    /// What the answer said; `None` without one.
    pub(crate) seen: Option<Seen>,
    /// The version that a write was given, as its answer says.
    pub(crate) version: Eversion,
    /// The calendar at its answer.
    pub(crate) ended: UTime,
    /// Since when a copy is known to have it that is never lost.
    pub(crate) kept: Option<u64>,
}

/// The epoch from which on each client that was shut out is. Nothing of it takes effect behind what somebody sent who knew of that.
pub(crate) type Fences = BTreeMap<usize, Epoch>;

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
        let Self { client, sent, answered, epoch, action, snaps, seen, version, ended: _, kept } = self;
        let answered = answered.map_or_else(|| "never".to_owned(), |at| at.to_string());
        write!(f, "client {client} {sent}..{answered} in {epoch} {action:?} under {snaps:?}: {seen:?}")?;
        kept.map_or(Ok(()), |kept| write!(f, ", as {version}, kept since {kept}"))
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

/// What may have gone wrong by right.
#[derive(Debug, Clone, Default)]
pub(crate) struct Excuses {
    /// Clients that were shut out.
    pub(crate) fences: Fences,
    /// When a copy that may have been the only one was gone for good, on the count of everything sent and answered.
    pub(crate) losses: Vec<u64>,
}

/// A write that has taken effect, and what the object was before it.
type Made = (usize, Object);

struct Search<'a> {
    calls: &'a [Call],
    excuses: &'a Excuses,
    /// Losses that are behind us.
    lost: usize,
    /// Writes since the last one that no loss to come can take, in order.
    made: Vec<Made>,
    done: Vec<u64>,
    count: usize,
    /// Answered messages that are not done.
    left: usize,
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
pub(crate) fn check(calls: &[Call], excuses: &Excuses) -> Result<(), Box<Impossible>> {
    let mut search = Search {
        calls,
        excuses,
        lost: 0,
        made: Vec::new(),
        done: vec![0; calls.len().div_ceil(64)],
        count: 0,
        left: calls.iter().filter(|call| call.answered.is_some()).count(),
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

    /// Whether the message comes too late: its client was shut out, and it or something that has taken effect was sent by somebody
    /// who knew.
    fn is_fenced(&self, at: usize) -> bool {
        let Some(fence) = self.excuses.fences.get(&self.calls[at].client) else { return false };
        let knew = |other: usize| self.calls[other].epoch >= *fence;
        knew(at) || (0..self.calls.len()).any(|other| self.is_done(other) && knew(other))
    }

    /// Messages that may take effect next: none that was sent after the answer of another that is not done, no write before an
    /// earlier one of its client, and nothing of a client that is shut out.
    fn next(&self) -> Vec<usize> {
        // What was sent behind a loss finds what it left.
        let mut earliest_answer = self.next_loss().unwrap_or(u64::MAX);
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
        out.retain(|at| !self.is_fenced(*at));
        out
    }

    fn next_loss(&self) -> Option<u64> {
        self.excuses.losses.get(self.lost).copied()
    }

    /// Whether all that was answered before the next loss is done.
    fn is_loss_due(&self) -> bool {
        let due = |loss: u64| {
            let before = |at: &usize| self.calls[*at].answered.is_some_and(|answered| answered < loss);
            (0..self.calls.len()).filter(before).all(|at| self.is_done(at))
        };
        self.next_loss().is_some_and(due)
    }

    /// A copy is gone, and with it as many of the newest writes as none of others is known to have had. Whether what follows makes
    /// sense behind any of that.
    fn lose(&mut self, state: &Object) -> bool {
        let Some(loss) = self.next_loss() else { return false };
        let (first, made) = (self.first_loseable(loss), self.made.clone());
        self.lost += 1;
        let found = (first..=made.len()).rev().any(|left| {
            let state = made.get(left).map_or(state, |(_, before)| before);
            self.made = made[..left].to_vec();
            // What was answered is never sent again. Of the rest any may be, as if it were for the first time: those whose entries in
            // the log are lost as well. And a copy that was away since before the lost writes were made may have got what was under way
            // then: what was sent before the first of them was answered.
            let away_since = made[left..].iter().filter_map(|(at, _)| self.calls[*at].answered).min();
            let open = |at: &usize| {
                let call = &self.calls[*at];
                let is_elsewhere = away_since.is_some_and(|since| call.sent < since);
                call.answered.is_none_or(|answered| answered > loss) || is_elsewhere
            };
            let open: Vec<usize> = made[left..].iter().map(|(at, _)| *at).filter(open).collect();
            (0..1_u64 << open.len().min(OPEN_MAX)).rev().any(|which| {
                let again = open.iter().enumerate().filter(|(nth, _)| which >> nth & 1 == 1);
                let again: Vec<usize> = again.map(|(_, at)| *at).collect();
                again.iter().for_each(|at| self.undo(*at));
                if self.is_new(state) && self.explore(state) {
                    return true; // and all is left as it was found
                }
                again.iter().for_each(|at| self.mark(*at));
                false
            })
        });
        self.lost -= 1;
        self.made = made;
        found
    }

    /// How many of the writes made so far the loss cannot take.
    fn first_loseable(&self, loss: u64) -> usize {
        let is_kept = |made: &Made| self.calls[made.0].kept.is_some_and(|kept| kept < loss);
        self.made.iter().rposition(is_kept).map_or(0, |kept| kept + 1)
    }

    fn mark(&mut self, at: usize) {
        self.done[at / 64] |= 1 << (at % 64);
        self.count += 1;
        self.left -= usize::from(self.calls[at].answered.is_some());
    }

    fn undo(&mut self, at: usize) {
        self.done[at / 64] &= !(1 << (at % 64));
        self.count -= 1;
        self.left += usize::from(self.calls[at].answered.is_some());
    }

    /// Whether the search was not here before: the same messages done, the same object, and the same to go back to.
    fn is_new(&mut self, state: &Object) -> bool {
        let mut hasher = DefaultHasher::new();
        (state, self.lost).hash(&mut hasher);
        if let Some(loss) = self.next_loss() {
            self.made[self.first_loseable(loss)..].hash(&mut hasher);
        }
        let is_new = self.tried.insert((self.done.clone(), hasher.finish()));
        assert!(self.tried.len() < STATES_MAX, "too many orders to try");
        is_new
    }

    fn explore(&mut self, state: &Object) -> bool {
        if self.left == 0 {
            return true; // whatever was not answered need not have happened
        }
        if self.is_loss_due() && self.lose(state) {
            return true;
        }
        let next = self.next();
        if self.best.as_ref().is_none_or(|best| best.fit < self.count) {
            let calls = next.iter().map(|at| self.calls[*at].clone()).collect();
            self.best = Some(Impossible { fit: self.count, state: state.clone(), next: calls });
        }
        for at in next {
            let call = &self.calls[at];
            let (after, seen) = match call.seen {
                Some(Seen::Refused) => (state.clone(), Seen::Refused),
                _ => state.after(&call.action, &call.snaps),
            };
            if call.seen.as_ref().is_some_and(|answer| *answer != seen) {
                continue;
            }
            // What nothing can take back any more need not be remembered.
            let remembers = !call.action.is_read() && self.next_loss().is_some();
            self.mark(at);
            self.made.extend(remembers.then(|| (at, state.clone())));
            if self.is_new(&after) && self.explore(&after) {
                return true;
            }
            self.made.truncate(self.made.len() - usize::from(remembers));
            self.undo(at);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Content;

    fn check(calls: &[Call]) -> Result<(), Box<Impossible>> {
        super::check(calls, &Excuses::default())
    }

    fn call(sent: u64, answered: u64, action: Action, seen: Seen) -> Call {
        let (answered, seen) = (Some(answered), Some(seen));
        Call { sent, answered, epoch: 1, action, seen, ..Call::default() }
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

    #[test]
    fn nothing_of_a_fenced_client_follows_what_somebody_sent_who_knew() {
        let fenced = |answered| Call {
            client: 1,
            answered,
            seen: answered.map(|_| Seen::Result(0)),
            ..append(1, 0, "a")
        };
        let after = |call: Call| Call { epoch: 7, ..call };
        let (fences, none) = (Excuses { fences: [(1, 7)].into(), ..Excuses::default() }, Excuses::default());
        let history = |late, last: &str| [fenced(late), after(append(2, 3, "b")), after(read(5, 6, last))];
        assert!(super::check(&history(Some(4), "ab"), &fences).is_ok());
        assert!(super::check(&history(Some(4), "ba"), &fences).is_err());
        assert!(super::check(&history(Some(4), "ba"), &none).is_ok());
        assert!(super::check(&history(None, "ab"), &fences).is_ok());
        assert!(super::check(&history(None, "b"), &fences).is_ok());
        assert!(super::check(&history(None, "ba"), &fences).is_err());
        let knew = [after(fenced(Some(4))), read(5, 6, "a")];
        assert!(super::check(&knew, &fences).is_err(), "it was sent under the very map that shuts it out");
    }

    fn losing(calls: &[Call], losses: &[u64]) -> bool {
        super::check(calls, &Excuses { losses: losses.to_vec(), ..Excuses::default() }).is_ok()
    }

    /// One that was under way when the copy that is left was cut off may be on that one, behind fewer writes than on the lost one.
    #[test]
    fn of_lost_writes_one_that_was_under_way_may_be_on_a_copy_that_was_away() {
        let other = |call: Call| Call { client: 1, ..call };
        let history = |second_sent: u64, text: &str| {
            let (first, second) = (other(append(3, 6, "b")), append(second_sent, 9, "c"));
            let seen = Call { client: 2, ..read(second_sent.max(5), 8, "ab") };
            let (kept, after) = (append(1, 2, "a"), read(11, 12, text));
            if second_sent < 5 {
                [kept, first, second, seen, after]
            } else {
                [kept, first, seen, second, after]
            }
        };
        assert!(losing(&history(4, "ac"), &[10]), "sent while the first was under way");
        assert!(
            !losing(&history(7, "ac"), &[10]),
            "sent when the first was answered: by the lost copy alone"
        );
        assert!(losing(&history(7, "ab"), &[10]) && losing(&history(4, "a"), &[10]));
        assert!(!losing(&history(4, "ac"), &[]));
    }

    #[test]
    fn only_a_loss_takes_writes_back_and_only_the_newest() {
        let history =
            |text: &str| [append(1, 2, "a"), append(3, 4, "b"), append(5, 6, "c"), read(9, 10, text)];
        for (text, is_right) in [("abc", true), ("ab", true), ("a", true), ("ac", false), ("bc", false)] {
            assert_eq!(losing(&history(text), &[7]), is_right, "{text}");
        }
        assert!(!losing(&history("ab"), &[]));
        assert!(!losing(&history("ab"), &[11]), "it came later");
        let nothing = [append(1, 2, "a"), call(9, 10, Action::Read(None), Seen::Result(-2))];
        assert!(losing(&nothing, &[7]));
        let seen_before = [append(1, 2, "a"), read(3, 4, ""), read(9, 10, "a")];
        assert!(!losing(&seen_before, &[7]), "what was read before was there");
    }

    #[test]
    fn what_another_copy_has_no_loss_takes() {
        let kept = |call: Call, kept| Call { kept: Some(kept), ..call };
        let history = |at, text: &str| {
            [append(1, 2, "a"), kept(append(3, 4, "b"), at), append(5, 6, "c"), read(9, 10, text)]
        };
        for (text, is_right) in [("abc", true), ("ab", true), ("a", false), ("", false)] {
            assert_eq!(losing(&history(6, text), &[7]), is_right, "{text}");
        }
        assert!(losing(&history(8, "a"), &[7]), "it came to the other one too late");
    }

    #[test]
    fn what_was_lost_before_its_answer_may_be_made_again() {
        let (open, then) = (append(1, 9, "a"), append(10, 11, "b"));
        let history = |text: &str| [open.clone(), read(2, 3, "a"), then.clone(), read(12, 13, text)];
        assert!(losing(&history("ab"), &[5]), "kept, or made again");
        assert!(losing(&history("b"), &[5]), "known to be made, and lost");
        assert!(!losing(&history("aab"), &[5]));
        let between = [
            open.clone(),
            read(2, 3, "a"),
            call(6, 7, Action::Read(None), Seen::Result(-2)),
            read(12, 13, "a"),
        ];
        assert!(losing(&between, &[5]));
        assert!(!losing(&between, &[]));
    }

    #[test]
    fn each_loss_takes_its_own() {
        let calls =
            [append(1, 2, "a"), append(3, 4, "b"), read(6, 7, "a"), append(8, 9, "c"), read(12, 13, "a")];
        assert!(losing(&calls, &[5, 11]));
        assert!(!losing(&calls, &[5]) && !losing(&calls, &[11]));
    }
}

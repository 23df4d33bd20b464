//! [`AwaitingMetadata`]: messages whose object's metadata are being read, and those that keep their place behind them.
//!
//! Messages for one object stand in a line, and so does all that another OSD sends for one PG, since that is applied in its order. The first of
//! a line has asked the store ([`nacre_store::ObjectStore::warm`]); to the PG none of them has come.

use nacre_msg::peer::PeerMessage;
use nacre_pg::{ClientOp, SessionId};
use nacre_store::WarmToken;
use nacre_types::{HObject, OsdId, SpgId};
use std::collections::{BTreeMap, VecDeque};

/// What keeps its order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Line {
    /// Clients' messages for an object.
    Object(SpgId, HObject),
    /// What an OSD sends for a PG.
    Peer(SpgId, OsdId),
}

impl Line {
    pub(crate) const fn spg(&self) -> &SpgId {
        match self {
            Self::Object(spg, _) | Self::Peer(spg, _) => spg,
        }
    }
}

/// A message that waits.
#[derive(Debug)]
pub(crate) enum Held {
    /// A client's message, with its permit.
    Op(ClientOp),
    /// What this other OSD has sent for a PG.
    Peer(OsdId, PeerMessage),
}

#[derive(Debug, Default)]
struct Queue {
    /// With the numbers in which they came.
    held: VecDeque<(u64, Held)>,
    /// What the first of them waits for.
    reads: usize,
}

/// A client's word that it holds its messages for a PG: what it sent before must come before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeldAck {
    /// The PG that the backoff is of.
    pub(crate) spg: SpgId,
    /// Whose it is.
    pub(crate) session: SessionId,
    /// Number of the backoff within the session.
    pub(crate) id: u64,
}

/// The messages of one shard.
#[derive(Debug, Default)]
pub(crate) struct AwaitingMetadata {
    lines: BTreeMap<Line, Queue>,
    of_tokens: BTreeMap<WarmToken, Line>,
    /// Each with the number of what comes next, when it came.
    acks: Vec<(u64, HeldAck)>,
    token: u64,
    came: u64,
}

impl AwaitingMetadata {
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Messages that had to wait, since the start.
    pub(crate) const fn waits(&self) -> u64 {
        self.came
    }

    /// Names what is to be read next.
    pub(crate) fn new_token(&mut self) -> WarmToken {
        self.token += 1;
        WarmToken(self.token)
    }

    /// Whether a message has to wait because others of its line do.
    pub(crate) fn has(&self, line: &Line) -> bool {
        self.lines.contains_key(line)
    }

    /// A message waits behind others of its line, or as the first of it for what these tokens name.
    pub(crate) fn push(&mut self, line: Line, held: Held, tokens: &[WarmToken]) {
        let number = self.came;
        self.came += 1;
        self.wait(line, tokens).push_back((number, held));
    }

    /// The first of a line that went on in vain: it is the first again.
    pub(crate) fn push_front(&mut self, line: Line, held: (u64, Held), tokens: &[WarmToken]) {
        self.wait(line, tokens).push_front(held);
    }

    /// Has a line wait for what these tokens name as well; what stands in it.
    fn wait(&mut self, line: Line, tokens: &[WarmToken]) -> &mut VecDeque<(u64, Held)> {
        self.of_tokens.extend(tokens.iter().map(|token| (*token, line.clone())));
        let queue = self.lines.entry(line).or_default();
        queue.reads += tokens.len();
        &mut queue.held
    }

    /// The line that waits for nothing any more, now that this was read.
    pub(crate) fn read(&mut self, token: WarmToken) -> Option<Line> {
        let line = self.of_tokens.remove(&token)?;
        let queue = self.lines.get_mut(&line)?;
        queue.reads = queue.reads.saturating_sub(1);
        (queue.reads == 0).then_some(line)
    }

    /// The next of a line, which is there no more behind the last.
    pub(crate) fn pop(&mut self, line: &Line) -> Option<(u64, Held)> {
        let queue = self.lines.get_mut(line)?;
        let next = queue.held.pop_front();
        if next.is_none() {
            self.lines.remove(line);
        }
        next
    }

    /// An acknowledgement waits behind its client's messages for the PG; false where there are none, and it does not wait.
    pub(crate) fn push_ack(&mut self, ack: HeldAck) -> bool {
        let waits = self.is_behind(self.came, &ack);
        self.acks.extend(waits.then_some((self.came, ack)));
        waits
    }

    /// Acknowledgements with nothing before them.
    pub(crate) fn take_acks(&mut self) -> Vec<HeldAck> {
        if self.acks.is_empty() {
            return Vec::new();
        }
        let acks = std::mem::take(&mut self.acks);
        let (waiting, free): (Vec<_>, Vec<_>) =
            acks.into_iter().partition(|(came, ack)| self.is_behind(*came, ack));
        self.acks = waiting;
        free.into_iter().map(|(_, ack)| ack).collect()
    }

    fn is_behind(&self, came: u64, ack: &HeldAck) -> bool {
        let lines = self.lines.iter().filter(|(line, _)| *line.spg() == ack.spg);
        lines.flat_map(|(_, queue)| &queue.held).any(|(number, held)| match held {
            Held::Op(op) => *number < came && op.session.id == ack.session,
            Held::Peer(..) => false,
        })
    }

    /// A client is gone.
    pub(crate) fn forget_session(&mut self, session: SessionId) {
        for queue in self.lines.values_mut() {
            queue.held.retain(|(_, held)| !matches!(held, Held::Op(op) if op.session.id == session));
        }
        self.acks.retain(|(_, ack)| ack.session != session);
    }

    /// Everything that an OSD has sent, in the order in which it came: it waits no longer.
    pub(crate) fn take_peer(&mut self, osd: OsdId) -> Vec<Held> {
        self.take_lines(|line| matches!(line, Line::Peer(_, of) if *of == osd))
    }

    /// Likewise everything for a PG, which is another shard's from now on.
    pub(crate) fn take_pg(&mut self, spg: &SpgId) -> Vec<Held> {
        self.acks.retain(|(_, ack)| ack.spg != *spg);
        self.take_lines(|line| line.spg() == spg)
    }

    fn take_lines(&mut self, is_taken: impl Fn(&Line) -> bool) -> Vec<Held> {
        self.of_tokens.retain(|_, line| !is_taken(line));
        let lines = self.lines.extract_if(.., |line, _| is_taken(line));
        let mut taken: Vec<(u64, Held)> = lines.flat_map(|(_, queue)| queue.held).collect();
        taken.sort_by_key(|(number, _)| *number);
        taken.into_iter().map(|(_, held)| held).collect()
    }

    /// Clients' messages that wait.
    pub(crate) fn ops(&self) -> impl Iterator<Item = &ClientOp> {
        self.lines.values().flat_map(|queue| &queue.held).filter_map(|(_, held)| match held {
            Held::Op(op) => Some(op),
            Held::Peer(..) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::awaiting_memory::tests::client_op_on;
    use nacre_types::PgId;

    fn spg(seed: u32) -> SpgId {
        SpgId::replicated(PgId::new(1, seed))
    }

    fn line(name: &'static str) -> Line {
        Line::Object(spg(0), HObject::head(1, "".into(), "".into(), name.into()))
    }

    /// Messages of sessions with numbers: the first of each line waits for as many tokens as are given.
    fn push(
        awaiting: &mut AwaitingMetadata,
        name: &'static str,
        (session, tid): (u64, u64),
        tokens: &[WarmToken],
    ) {
        awaiting.push(line(name), Held::Op(client_op_on(name, session, tid)), tokens);
    }

    /// The whole line, in order; it is gone then.
    fn all(awaiting: &mut AwaitingMetadata, line: &Line) -> Vec<u64> {
        tids(std::iter::from_fn(|| awaiting.pop(line)).map(|(_, held)| held).collect())
    }

    fn tids(held: Vec<Held>) -> Vec<u64> {
        let tid = held.into_iter().map(|held| match held {
            Held::Op(op) => op.tid,
            Held::Peer(..) => 0,
        });
        tid.collect()
    }

    fn ack(session: u64) -> HeldAck {
        HeldAck { spg: spg(0), session: SessionId(session), id: 9 }
    }

    #[test]
    fn lines_wait_by_themselves_and_keep_their_order() {
        let mut awaiting = AwaitingMetadata::default();
        let [a, b, c] = [(); 3].map(|()| awaiting.new_token());
        push(&mut awaiting, "a", (1, 1), &[a, b]);
        push(&mut awaiting, "a", (2, 2), &[]);
        push(&mut awaiting, "b", (1, 3), &[c]);
        push(&mut awaiting, "a", (1, 4), &[]);
        assert!(awaiting.has(&line("a")) && !awaiting.has(&line("c")));
        assert_eq!((awaiting.ops().count(), awaiting.waits()), (4, 4));
        assert_eq!(awaiting.read(a), None, "it waits for another");
        assert_eq!(awaiting.read(c), Some(line("b")));
        assert_eq!(all(&mut awaiting, &line("b")), [3]);
        assert_eq!(awaiting.read(b), Some(line("a")));
        assert_eq!(awaiting.read(b), None, "once");
        // The second one has to wait itself, before those behind it.
        let d = awaiting.new_token();
        assert_eq!(awaiting.pop(&line("a")).map(|(number, _)| number), Some(0));
        let second = awaiting.pop(&line("a")).expect("it is there");
        awaiting.push_front(line("a"), second, &[d]);
        push(&mut awaiting, "a", (3, 5), &[]);
        assert_eq!(awaiting.read(d), Some(line("a")));
        assert_eq!(all(&mut awaiting, &line("a")), [2, 4, 5]);
        assert!(awaiting.is_empty());
    }

    #[test]
    fn an_acknowledgement_waits_for_what_its_client_sent_before_it() {
        let mut awaiting = AwaitingMetadata::default();
        assert!(!awaiting.push_ack(ack(1)), "nothing is before it");
        let token = awaiting.new_token();
        push(&mut awaiting, "a", (1, 1), &[token]);
        assert!(awaiting.push_ack(ack(1)));
        assert!(!awaiting.push_ack(ack(2)), "another client's");
        assert!(!awaiting.push_ack(HeldAck { spg: spg(1), ..ack(1) }), "of another PG");
        push(&mut awaiting, "a", (1, 2), &[]);
        assert_eq!(awaiting.take_acks(), []);
        assert!(awaiting.pop(&line("a")).is_some());
        assert_eq!(awaiting.take_acks(), [ack(1)], "not for what came behind it");
    }

    #[test]
    fn what_is_of_nobody_any_more_goes() {
        let mut awaiting = AwaitingMetadata::default();
        let [a, b] = [(); 2].map(|()| awaiting.new_token());
        push(&mut awaiting, "a", (1, 1), &[a]);
        push(&mut awaiting, "a", (2, 2), &[]);
        assert!(awaiting.push_ack(ack(1)));
        awaiting.forget_session(SessionId(1));
        assert_eq!(awaiting.take_acks(), []);
        assert_eq!(awaiting.read(a), Some(line("a")));
        assert_eq!(all(&mut awaiting, &line("a")), [2]);

        let from = |osd| Line::Peer(spg(0), osd);
        let op = |tid| Held::Op(client_op_on("a", 1, tid));
        awaiting.push(from(3), op(3), &[b]);
        awaiting.push(from(4), op(4), &[]);
        assert_eq!(tids(awaiting.take_peer(3)), [3]);
        assert_eq!(awaiting.read(b), None);
        assert!(!awaiting.has(&from(3)) && awaiting.has(&from(4)));
        push(&mut awaiting, "a", (1, 8), &[]);
        assert_eq!(tids(awaiting.take_pg(&spg(0))), [4, 8]);
        assert!(awaiting.is_empty());
    }
}

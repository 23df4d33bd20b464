//! Reading: chunks are collected from members, and decoded where a data shard cannot give its own.
//!
//! A message that reads is executed with what was gathered so far; what it lacks is gathered, and it runs again from
//! its start, as one that waits for the device does. Its object's queue keeps writes away meanwhile.

use crate::coding::{Coding, Piece};
use crate::state::PgState;
use crate::tokens::OnFetched;
use crate::{Cx, Effect};
use nacre_buf::{BufList, Bytes};
use nacre_ec::Shards;
use nacre_msg::peer::{ChunkRead, ChunkReply};
use nacre_txn::{FetchFrom, ObjectView, ReadError, Token};
use nacre_types::{Eversion, HObject, OsdId};
use std::collections::{BTreeMap, BTreeSet};

/// Data that is read, and what waits for it.
#[derive(Debug)]
pub(crate) struct GatherRequest {
    /// Under which the reader waits.
    pub(crate) token: Token,
    /// It is a message that changes the object.
    pub(crate) writes: bool,
    pub(crate) object: HObject,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// Chunks of a range of an object on their way.
#[derive(Debug)]
struct Gather {
    object: HObject,
    version: Eversion,
    /// What waits changes the object.
    writes: bool,
    /// All members are asked, and whoever is slowest is not waited for (`fast_read`).
    fast: bool,
    /// What is read.
    range: (u64, u64),
    /// Whole stripes around it.
    offset: u64,
    length: u64,
    /// Data shards that the range is on.
    wanted: BTreeSet<u8>,
    asked: BTreeMap<u8, OsdId>,
    chunks: BTreeMap<u8, BufList>,
    /// Members that cannot give a chunk.
    absent: BTreeSet<OsdId>,
}

/// What to do next for a gather.
enum Next {
    Wait,
    Ask(Vec<(u8, OsdId)>),
    Done,
    Fail,
}

impl Gather {
    /// Data shards that the range is on where they can be had; else, or to be fast, any `k`.
    fn next(&self, sources: &BTreeMap<u8, OsdId>, k: usize) -> Next {
        let here = |shard: &u8| self.chunks.contains_key(shard);
        if self.wanted.iter().all(here) || self.chunks.len() >= k {
            return Next::Done;
        }
        let under_way = |shard: &u8| here(shard) || self.asked.contains_key(shard);
        let can_be_had = |shard: &u8| under_way(shard) || sources.contains_key(shard);
        let direct = !self.fast && self.wanted.iter().all(can_be_had);
        let needed = if direct { self.wanted.len() } else { k };
        let needed = if self.fast { usize::MAX } else { needed };
        let fits = |shard: &u8| !direct || self.wanted.contains(shard);
        let known = self.chunks.keys().chain(self.asked.keys()).filter(|shard| fits(shard)).count();
        let fresh = sources.iter().filter(|(shard, _)| fits(shard) && !under_way(shard));
        let ask: Vec<(u8, OsdId)> =
            fresh.map(|(shard, osd)| (*shard, *osd)).take(needed.saturating_sub(known)).collect();
        match () {
            () if !ask.is_empty() => Next::Ask(ask),
            () if !self.asked.is_empty() => Next::Wait,
            () => Next::Fail,
        }
    }

    /// The data, once there are enough chunks.
    fn decode(&self, coding: &Coding) -> Option<Piece> {
        let length = usize::try_from(coding.layout.in_chunk(self.length)).ok()?;
        let filled: BTreeMap<u8, Bytes> =
            self.chunks.iter().map(|(shard, data)| (*shard, filled_up(data, length))).collect();
        let have: Shards<'_> = filled.iter().map(|(shard, bytes)| (*shard, &bytes[..])).collect();
        let lost: Vec<u8> = self.wanted.iter().copied().filter(|shard| !filled.contains_key(shard)).collect();
        let made = if lost.is_empty() { Vec::new() } else { coding.codec.recover(&have, &lost).ok()? };
        let mut made: BTreeMap<u8, Bytes> = lost.into_iter().zip(made.into_iter().map(Bytes::from)).collect();
        // What is not wanted is of another part of the stripes than what is read.
        let zeros = || Bytes::from(vec![0; length]);
        let chunk =
            |shard: u8| filled.get(&shard).cloned().or_else(|| made.remove(&shard)).unwrap_or_else(zeros);
        let chunks: Vec<BufList> = (0..coding.layout.k).map(chunk).map(BufList::from).collect();
        let (offset, length) = self.range;
        let start = usize::try_from(offset - self.offset).ok()?;
        let data = coding.layout.join(&chunks).slice(start, usize::try_from(length).ok()?);
        Some(Piece { object: self.object.clone(), offset, data })
    }
}

/// A chunk is as long as it was asked for, or ends with the object; what is behind reads as zeros.
fn filled_up(data: &BufList, length: usize) -> Bytes {
    if data.len() == length {
        return data.to_bytes();
    }
    let mut bytes = data.to_bytes().to_vec();
    bytes.resize(length, 0);
    bytes.into()
}

impl PgState {
    /// Whether this copy has the chunk of an object in this version, all of it.
    fn has_chunk(&self, view: &dyn ObjectView, object: &HObject, version: Eversion) -> bool {
        self.copy_version(view, object) == Some(version) && self.missing.need(object).is_none()
    }

    /// Gives the primary a part of this copy's chunk.
    pub(crate) fn answer_chunk(&mut self, cx: &mut Cx<'_>, from: OsdId, read: ChunkRead) {
        let there = self.has_chunk(cx.view, &read.object, read.version);
        let (header, tid) = (self.header(), read.tid);
        let reply = |absent, damaged, data| ChunkReply { header, tid, absent, damaged, data };
        if !there {
            return self.send(cx, from, reply(true, false, BufList::new()));
        }
        match cx.view.read(&self.spg, &read.object, read.offset, read.length) {
            Ok(data) => self.send(cx, from, reply(false, false, data)),
            Err(ReadError::Damaged { .. }) => self.send(cx, from, reply(true, true, BufList::new())),
            Err(ReadError::Pending { object, offset, length }) => {
                let token = self.tokens.issue_fetch(OnFetched::Chunk { from, read: Box::new(read) });
                cx.effects.push(Effect::Fetch { object, offset, length, from: FetchFrom::Anywhere, token });
            }
        }
    }
}

/// Reads that collect chunks, by the token of what waits for them.
#[derive(Debug, Default)]
pub(crate) struct Gathers(BTreeMap<Token, Gather>);

/// What came of a step of collecting chunks, for others to go on with.
#[must_use]
#[derive(Debug)]
pub(crate) enum GatherOutcome {
    /// All that waits under the token reads is here.
    Done(Token, Piece),
    /// Too few chunks can be read.
    Failed(Token),
    /// This copy's chunk of the object cannot be read: [`Gathers::chunk_is_damaged`] when that is noted.
    DamagedHere(Token, HObject),
    /// A member's chunk of the object in this version cannot be read: likewise.
    DamagedThere(Token, OsdId, HObject, Eversion),
}

impl Gathers {
    /// The interval is over.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Collects the chunks of what is read.
    pub(crate) fn gather(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        request: GatherRequest,
    ) -> Option<GatherOutcome> {
        let GatherRequest { token, writes, object, offset, length } = request;
        let version = state.copy_version(cx.view, &object).unwrap_or_default();
        let layout = state.ec.as_ref()?.coding.layout;
        let (range, wanted) = ((offset, length), layout.shards_of(offset, length).collect());
        let (offset, length) = layout.around(offset, length);
        let (asked, chunks, absent) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        let fast = state.pool.fast_read && !writes;
        let gather =
            Gather { object, version, writes, fast, range, offset, length, wanted, asked, chunks, absent };
        self.0.insert(token, gather);
        self.gather_on(state, cx, token)
    }

    fn gather_on(&mut self, state: &mut PgState, cx: &mut Cx<'_>, token: Token) -> Option<GatherOutcome> {
        let ec = state.ec.as_ref()?;
        let gather = self.0.get(&token)?;
        let sources = state.chunk_sources(&gather.object, gather.version, &gather.absent, false);
        match gather.next(&sources, ec.k()) {
            Next::Wait => None,
            Next::Done => {
                let gather = self.0.remove(&token)?;
                Some(
                    gather
                        .decode(&ec.coding)
                        .map_or(GatherOutcome::Failed(token), |piece| GatherOutcome::Done(token, piece)),
                )
            }
            Next::Fail => Some(self.cannot_gather(token)),
            Next::Ask(shards) => self.ask_chunks(state, cx, token, shards),
        }
    }

    fn ask_chunks(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        token: Token,
        shards: Vec<(u8, OsdId)>,
    ) -> Option<GatherOutcome> {
        let (header, me) = (state.header(), state.whoami);
        let layout = state.ec.as_ref()?.coding.layout;
        let gather = self.0.get_mut(&token)?;
        gather.asked.extend(shards.iter().copied());
        let (object, version) = (gather.object.clone(), gather.version);
        let (offset, length) = (layout.in_chunk(gather.offset), layout.in_chunk(gather.length));
        let own = shards.iter().any(|(_, osd)| *osd == me);
        for osd in shards.into_iter().map(|(_, osd)| osd).filter(|osd| *osd != me) {
            let object = object.clone();
            state.send(cx, osd, ChunkRead { header, tid: token.0, object, version, offset, length });
        }
        if own { self.read_own_chunk(state, cx, token) } else { None }
    }

    /// Reads this copy's chunk for a gather of its own.
    pub(crate) fn read_own_chunk(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        token: Token,
    ) -> Option<GatherOutcome> {
        let layout = state.ec.as_ref()?.coding.layout;
        let gather = self.0.get(&token)?;
        let (offset, length) = (layout.in_chunk(gather.offset), layout.in_chunk(gather.length));
        // While its data were fetched it may have turned out to be damaged: what is here then is half of a new copy, or will be.
        if !state.has_chunk(cx.view, &gather.object, gather.version) {
            return self.chunk_is_absent(state, cx, state.whoami, token);
        }
        match cx.view.read(&state.spg, &gather.object, offset, length) {
            Ok(data) => self.chunk_came(state, cx, state.whoami, token, data),
            Err(ReadError::Pending { object, offset, length }) => {
                let own = state.tokens.issue_fetch(OnFetched::OwnChunk(token));
                let from = FetchFrom::Anywhere;
                cx.effects.push(Effect::Fetch { object, offset, length, from, token: own });
                None
            }
            Err(ReadError::Damaged { .. }) => Some(GatherOutcome::DamagedHere(token, gather.object.clone())),
        }
    }

    fn chunk_came(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        from: OsdId,
        token: Token,
        data: BufList,
    ) -> Option<GatherOutcome> {
        let gather = self.0.get_mut(&token)?;
        let shard = gather.asked.iter().find(|(_, osd)| **osd == from).map(|(shard, _)| *shard)?;
        gather.asked.remove(&shard);
        gather.chunks.insert(shard, data);
        self.gather_on(state, cx, token)
    }

    fn chunk_is_absent(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        from: OsdId,
        token: Token,
    ) -> Option<GatherOutcome> {
        let gather = self.0.get_mut(&token)?;
        gather.asked.retain(|_, osd| *osd != from);
        gather.absent.insert(from);
        self.gather_on(state, cx, token)
    }

    /// The chunk is missing there from now on. A message that writes must not go on while it is; one that reads does
    /// with the chunks of others.
    pub(crate) fn chunk_is_damaged(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        from: OsdId,
        token: Token,
    ) -> Option<GatherOutcome> {
        if self.0.get(&token).is_some_and(|gather| gather.writes) {
            Some(self.cannot_gather(token))
        } else {
            self.chunk_is_absent(state, cx, from, token)
        }
    }

    /// A member's answer.
    pub(crate) fn on_chunk(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        from: OsdId,
        reply: ChunkReply,
    ) -> Option<GatherOutcome> {
        let token = Token(reply.tid);
        let gather = self.0.get(&token)?;
        if reply.damaged {
            return Some(GatherOutcome::DamagedThere(token, from, gather.object.clone(), gather.version));
        }
        if reply.absent {
            self.chunk_is_absent(state, cx, from, token)
        } else {
            self.chunk_came(state, cx, from, token, reply.data)
        }
    }

    fn cannot_gather(&mut self, token: Token) -> GatherOutcome {
        self.0.remove(&token);
        GatherOutcome::Failed(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gather(wanted: &[u8]) -> Gather {
        Gather {
            object: HObject::MIN,
            version: Eversion::ZERO,
            writes: false,
            fast: false,
            range: (0, 0),
            offset: 0,
            length: 0,
            wanted: wanted.iter().copied().collect(),
            asked: BTreeMap::new(),
            chunks: BTreeMap::new(),
            absent: BTreeSet::new(),
        }
    }

    fn asks(gather: &Gather, sources: &[u8]) -> Option<Vec<u8>> {
        let sources = sources.iter().map(|shard| (*shard, OsdId::from(*shard))).collect();
        match gather.next(&sources, 3) {
            Next::Ask(shards) => Some(shards.into_iter().map(|(shard, _)| shard).collect()),
            Next::Fail => None,
            Next::Wait | Next::Done => Some(Vec::new()),
        }
    }

    #[test]
    fn only_what_is_needed_is_asked_for() {
        let mut gather = gather(&[1]);
        assert_eq!(asks(&gather, &[0, 1, 2, 3, 4]), Some(vec![1]));
        assert_eq!(asks(&gather, &[0, 2, 3, 4]), Some(vec![0, 2, 3]), "decoded");
        assert_eq!(asks(&gather, &[0, 2]), Some(vec![0, 2]), "others may turn up");
        gather.asked.insert(1, 1);
        assert_eq!(asks(&gather, &[0, 2, 3, 4]), Some(vec![]), "on its way");
        gather.asked.clear();
        gather.chunks.insert(0, BufList::new());
        assert_eq!(asks(&gather, &[2, 4]), Some(vec![2, 4]));
        assert_eq!(asks(&gather, &[]), None);
        gather.fast = true;
        assert_eq!(asks(&gather, &[0, 1, 2, 3, 4]), Some(vec![1, 2, 3, 4]), "who answers first");
        gather.chunks.insert(1, BufList::new());
        assert!(matches!(gather.next(&BTreeMap::new(), 3), Next::Done));
    }
}

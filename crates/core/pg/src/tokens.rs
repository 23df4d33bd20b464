//! [`Tokens`]: what follows when a transaction is durable or data has been read, by the token that the store gives back.

use crate::coding::Piece;
use crate::digest::Digests;
use nacre_msg::peer::{ChunkRead, CopyGet, PartCursor, PeerMessage, Pull, PushReply, ScrubRequest};
use nacre_txn::Token;
use nacre_types::{Entropy, HObject, OsdId};
use std::collections::{BTreeMap, VecDeque};

/// What to do when a transaction is durable.
#[derive(Debug)]
pub(crate) enum OnDurable {
    /// Nothing, or its interval is over.
    Nothing,
    /// This OSD's part of the write with this number.
    Write(u64),
    /// Tell the primary that its write is durable here.
    RepOp {
        /// The OSD that leads the PG.
        to: OsdId,
        /// Its number of the write.
        tid: u64,
    },
    /// The primary's own activation.
    Activation,
    /// Tell the primary that its activation is durable here.
    Activated,
    /// Tell the primary that its push is durable here.
    Pushed {
        /// The OSD that leads the PG.
        to: OsdId,
        /// What to tell.
        reply: Box<PushReply>,
    },
    /// An object that was pulled, or dropped, is durable here.
    Recovered(Box<HObject>),
    /// The part that begins here of an object that was computed from other chunks is durable here.
    Rebuilt(Box<(HObject, PartCursor)>),
    /// A part of a copy is durable here, in a temporary object; the copy waits under the token.
    Staged(Token),
}

/// What must not happen before all that this copy has submitted is durable: a copy that tells others of
/// log entries and then loses them in a crash leaves objects behind that no copy has.
#[derive(Debug)]
pub(crate) enum AfterFlush {
    /// A message is to be sent.
    Send {
        /// Number of the OSD.
        to: OsdId,
        /// The message to send.
        message: Box<PeerMessage>,
    },
    /// This copy's own log counts in the round of peering with this number.
    Peering(u64),
}

/// What to do when data is there to be read.
#[derive(Debug)]
pub(crate) enum OnFetched {
    /// Go on pushing the object.
    Push(HObject),
    /// Answer the pull.
    Pull {
        /// The OSD that wants the object.
        from: OsdId,
        /// What it wants.
        pull: Box<Pull>,
    },
    /// Give a part of an object that another PG copies.
    Copy {
        /// The OSD that wants it.
        from: OsdId,
        /// What the primary of the copy asked for.
        get: Box<CopyGet>,
        /// What was collected of it.
        gathered: Vec<Piece>,
    },
    /// Go on with this copy's chunk of what waits under the token.
    OwnChunk(Token),
    /// Give a part of this copy's chunk.
    Chunk {
        /// The OSD that wants it.
        from: OsdId,
        /// What the primary of the PG asked for.
        read: Box<ChunkRead>,
    },
    /// Answer the scrub.
    Scrub {
        /// The OSD that asked; this one for its own copy.
        from: OsdId,
        /// What it wants.
        request: Box<ScrubRequest>,
        /// What was read already.
        so_far: Digests,
    },
}

/// Tokens given out and not yet come back.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    last: u64,
    durable: VecDeque<(Token, OnDurable)>,
    /// What waits for the transaction with the token, and so for all before it.
    flushes: VecDeque<(Token, AfterFlush)>,
    fetches: BTreeMap<Token, OnFetched>,
}

impl Tokens {
    /// A token for a client's message that waits (`Pipeline::park`).
    pub(crate) fn issue(&mut self) -> Token {
        self.last += 1;
        Token(self.last)
    }

    /// A token for a transaction.
    pub(crate) fn issue_durable(&mut self, then: OnDurable) -> Token {
        let token = self.issue();
        self.durable.push_back((token, then));
        token
    }

    /// A token for a read.
    pub(crate) fn issue_fetch(&mut self, then: OnFetched) -> Token {
        let token = self.issue();
        self.fetches.insert(token, then);
        token
    }

    /// Notes what is to be done once everything submitted so far is durable; gives it back if it is.
    pub(crate) fn after_flush(&mut self, then: AfterFlush) -> Option<AfterFlush> {
        let Some((newest, _)) = self.durable.back() else { return Some(then) };
        self.flushes.push_back((*newest, then));
        None
    }

    /// The next thing to do now that `token` is durable.
    pub(crate) fn take_flushed(&mut self, token: Token) -> Option<AfterFlush> {
        let due = self.flushes.front().is_some_and(|(awaited, _)| *awaited == token);
        due.then(|| self.flushes.pop_front()).flatten().map(|(_, then)| then)
    }

    /// Begins to count at a random place: transactions of an earlier copy of the PG, which was removed, may
    /// still be under way, and their completions must find nothing.
    pub(crate) fn begin_anywhere(&mut self, entropy: &mut dyn Entropy) {
        self.last = entropy.u64() >> 1;
    }

    /// Begins to count behind `last`, for the same reason, where something tells of a place that no earlier copy was at.
    pub(crate) fn begin_behind(&mut self, last: u64) {
        assert!(
            self.durable.is_empty() && self.fetches.is_empty(),
            "nothing is under way under other tokens"
        );
        self.last = last;
    }

    /// What the durable transaction was for; nothing for one of an earlier copy.
    ///
    /// # Panics
    /// When the store completes another transaction than the oldest one: acknowledging out of order would
    /// tell clients of writes that a crash can still take back.
    pub(crate) fn take_durable(&mut self, token: Token) -> OnDurable {
        match self.durable.front() {
            Some((oldest, _)) if *oldest == token => {
                self.durable.pop_front().map_or(OnDurable::Nothing, |(_, then)| then)
            }
            _ => {
                let ours = self.durable.iter().any(|(waiting, _)| *waiting == token);
                assert!(!ours, "{token:?} became durable before an older transaction");
                OnDurable::Nothing
            }
        }
    }

    /// The write that is all this copy has under way in the store.
    pub(crate) fn only_write(&self) -> Option<u64> {
        match self.durable.front() {
            Some((_, OnDurable::Write(tid)))
                if self.durable.len() == 1 && self.flushes.is_empty() && self.fetches.is_empty() =>
            {
                Some(*tid)
            }
            _ => None,
        }
    }

    /// What the read was for; `None` when its interval is over.
    pub(crate) fn take_fetch(&mut self, token: Token) -> Option<OnFetched> {
        self.fetches.remove(&token)
    }

    /// Forgets what everything was for, since the interval is over.
    pub(crate) fn cancel(&mut self) {
        self.durable.iter_mut().for_each(|(_, then)| *then = OnDurable::Nothing);
        self.flushes.clear();
        self.fetches.clear();
    }

    /// Asserts what always holds.
    pub(crate) fn check(&self) {
        let mut before = Token(0);
        for (token, _) in &self.durable {
            assert!(before < *token, "tokens ascend");
            before = *token;
        }
    }
}

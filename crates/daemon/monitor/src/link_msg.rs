//! [`LinkMsg`]: what one monitor tells another over their links. Layout: `docs/formats/mon-link.md`.

use nacre_buf::{BufList, Bytes};
use nacre_denc::{DecodeError, Reader, Writer};
use nacre_kv::Pair;
use nacre_mon::{Endpoint, MONITOR_VERSION, MONITOR_VERSION_MIN, Peer, Served};
use nacre_msg::{Message, RawMessage, priority};
use nacre_quorum::{NodeId, PeerMessage};
use nacre_types::{AuthName, EntityKind, Stamp, UTime, Uuid};
use std::ops::Range;

/// Its number among messages: ours, far from Ceph's, and from those between OSDs (0x7000 to 0x70ff).
pub(crate) const KIND: u16 = 0x7100;
/// The newest layout that we speak, and the oldest that reads what we write.
const VERSION: u16 = 1;
/// Version of the envelope; 2 added what a monitor says of itself to Hello and Ping, 3 what a message serves to Send, 4 the leader's position to
/// Leads. A reader of an earlier version skips that.
const LAYOUT: u8 = 4;

/// How a monitor is, as it says once per second.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Vitals {
    /// Free room of the file system with its store, in per cent, if that could be measured.
    pub(crate) disk_avail_percent: Option<u8>,
    /// Members of the quorum, where the sender leads; else none.
    pub(crate) quorum: Vec<NodeId>,
}

/// Facts about a monitor and its machine, by name, such as `hostname`.
pub(crate) type Facts = nacre_mon::MonitorFacts;

/// A message between two monitors.
#[derive(Debug)]
pub(crate) enum LinkMsg {
    /// The first on every connection, from the one that dialled.
    Hello(Greeting, Facts),
    /// Of the log's algorithm.
    Raft(PeerMessage),
    /// A part of all tables, which a monitor gets that is too far behind for the log.
    Tables(TablesPart),
    /// To the leader: about a session at the sender's front.
    ToLeader {
        /// The leader's term.
        term: u64,
        /// What of it.
        what: ToLeader,
    },
    /// The sender leads in this term and takes [`LinkMsg::ToLeader`].
    Leads {
        /// The term in which it does.
        term: u64,
        /// The last entry of the log that its tables have. A monitor whose tables have less may hold keys that were revoked since.
        applied: u64,
    },
    /// From the leader, to the front of the receiver.
    ToFront {
        /// The leader's term.
        term: u64,
        /// What is to be done.
        what: ToFront,
    },
    /// A sign of life; answered by [`LinkMsg::Pong`].
    Ping {
        /// When it was sent, by the sender's own steady clock.
        sent: Stamp,
        /// How the sender is; nothing from an older program.
        vitals: Vitals,
    },
    /// Answers [`LinkMsg::Ping`].
    Pong {
        /// As it was in the ping.
        sent: Stamp,
        /// What the clock of the one that answers showed.
        wall: UTime,
    },
    /// The receiver was replaced or removed, and has left the log: it may end.
    Gone,
}

/// What a monitor says of itself first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Greeting {
    /// Id of the cluster that it is of.
    pub(crate) fsid: Uuid,
    /// How often that was made anew from the store of one monitor.
    pub(crate) incarnation: u64,
    /// [`nacre_mon::MONITOR_VERSION`] of its program.
    pub(crate) version: u16,
    /// The oldest with which that gets on.
    pub(crate) version_min: u16,
}

impl Greeting {
    /// That of this program.
    pub(crate) fn new(fsid: Uuid, incarnation: u64) -> Self {
        Self { fsid, incarnation, version: MONITOR_VERSION, version_min: MONITOR_VERSION_MIN }
    }

    fn encode(self, w: &mut Writer) {
        w.u64(self.incarnation);
        w.u16(self.version);
        w.u16(self.version_min);
    }

    /// Programs of version 1 say no more than of which cluster they are.
    fn decode(fsid: Uuid, r: &mut Reader) -> Result<Self, DecodeError> {
        if r.is_empty() {
            return Ok(Self { fsid, incarnation: 0, version: 1, version_min: 1 });
        }
        Ok(Self { fsid, incarnation: r.u64()?, version: r.u16()?, version_min: r.u16()? })
    }
}

/// A part of all tables.
#[derive(Debug)]
pub(crate) struct TablesPart {
    /// The first part: forget those of an earlier transfer.
    pub(crate) is_first: bool,
    /// Keys and values of the store, ascending.
    pub(crate) pairs: Vec<Pair>,
    /// With the last part: the message of the log's algorithm that says what the tables are the state of.
    pub(crate) message: Option<PeerMessage>,
}

/// About a session at a monitor's front. Sessions are numbered by that front.
#[derive(Debug)]
pub(crate) enum ToLeader {
    /// It is open.
    Open { session: u64, peer: Box<Peer> },
    /// Its peer says something.
    Message { session: u64, tid: u64, message: Box<Message> },
    /// It is gone.
    Closed { session: u64 },
    /// The front needs global ids.
    WantGlobalIds,
}

/// What a front is to do.
#[derive(Debug)]
pub(crate) enum ToFront {
    /// Tell the peer of a session, which may serve a subscription of it.
    Send { session: u64, raw: RawMessage, served: Option<Served> },
    /// End a session.
    Close { session: u64 },
    /// Hand out these global ids.
    GlobalIds(Range<u64>),
}

impl LinkMsg {
    /// As a message of a messenger.
    pub(crate) fn encode(self) -> RawMessage {
        let mut w = Writer::gathering(256);
        w.envelope(LAYOUT, 1, |w| self.encode_body(w));
        RawMessage {
            tid: 0,
            kind: KIND,
            version: VERSION,
            compat: VERSION,
            priority: priority::HIGH,
            front: Bytes::new(),
            middle: Bytes::new(),
            data: w.finish_list(),
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// When it is none, or of a newer program that does not mean it for us.
    pub(crate) fn decode(raw: RawMessage) -> Result<Self, DecodeError> {
        if raw.kind != KIND || raw.compat > VERSION {
            return Err(DecodeError::Invalid { what: "message between monitors", value: raw.kind.into() });
        }
        let mut r = Reader::new(raw.data.to_bytes());
        r.envelope("LinkMsg", LAYOUT, Self::decode_body)
    }

    fn encode_body(self, w: &mut Writer) {
        match self {
            Self::Hello(greeting, facts) => {
                w.u8(0);
                w.put(&greeting.fsid);
                w.put(&facts);
                greeting.encode(w);
            }
            Self::Raft(message) => {
                w.u8(1);
                w.put(&message);
            }
            Self::Tables(part) => {
                w.u8(2);
                w.bool(part.is_first);
                w.count(part.pairs.len());
                for (key, value) in &part.pairs {
                    w.blob_of(key);
                    w.blob_of(value);
                }
                w.bool(part.message.is_some());
                part.message.iter().for_each(|message| w.put(message));
            }
            Self::ToLeader { term, what } => {
                w.u8(3);
                w.u64(term);
                what.encode(w);
            }
            Self::ToFront { term, what } => {
                w.u8(4);
                w.u64(term);
                what.encode(w);
            }
            Self::Ping { sent, vitals } => {
                w.u8(5);
                w.u64(sent.0);
                w.u8(vitals.disk_avail_percent.unwrap_or(u8::MAX));
                w.count(vitals.quorum.len());
                vitals.quorum.iter().for_each(|member| w.u64(member.0));
            }
            Self::Leads { term, applied } => {
                w.u8(7);
                w.u64(term);
                w.u64(applied);
            }
            Self::Pong { sent, wall } => {
                w.u8(6);
                w.u64(sent.0);
                w.put(&wall);
            }
            Self::Gone => w.u8(8),
        }
    }

    fn decode_body(version: u8, r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(match r.u8()? {
            0 => {
                let fsid = r.get()?;
                let facts = if version >= 2 { r.get()? } else { Facts::new() };
                Self::Hello(Greeting::decode(fsid, r)?, facts)
            }
            1 => Self::Raft(r.get()?),
            2 => {
                let is_first = r.bool()?;
                let count = r.count(8)?;
                let pairs = (0..count).map(|_| Ok((r.blob()?, r.blob()?)));
                let pairs = pairs.collect::<Result<_, DecodeError>>()?;
                let message = if r.bool()? { Some(r.get()?) } else { None };
                Self::Tables(TablesPart { is_first, pairs, message })
            }
            3 => Self::ToLeader { term: r.u64()?, what: ToLeader::decode(r)? },
            4 => Self::ToFront { term: r.u64()?, what: ToFront::decode(version, r)? },
            5 => {
                let sent = Stamp(r.u64()?);
                Self::Ping { sent, vitals: if version >= 2 { Vitals::decode(r)? } else { Vitals::default() } }
            }
            6 => Self::Pong { sent: Stamp(r.u64()?), wall: r.get()? },
            7 => Self::Leads { term: r.u64()?, applied: if version >= 4 { r.u64()? } else { 0 } },
            8 => Self::Gone,
            other => return Err(unknown(other)),
        })
    }
}

impl Vitals {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let disk_avail_percent = Some(r.u8()?).filter(|percent| *percent <= 100);
        let count = r.count(8)?;
        let quorum = (0..count).map(|_| r.u64().map(NodeId)).collect::<Result<_, _>>()?;
        Ok(Self { disk_avail_percent, quorum })
    }
}

fn unknown(kind: u8) -> DecodeError {
    DecodeError::Invalid { what: "kind of a message between monitors", value: kind.into() }
}

impl ToLeader {
    fn encode(self, w: &mut Writer) {
        match self {
            Self::Open { session, peer } => {
                w.u8(0);
                w.u64(session);
                put_peer(w, &peer);
            }
            Self::Message { session, tid, message } => {
                w.u8(1);
                w.u64(session);
                put_raw(w, &message.encode(tid));
            }
            Self::Closed { session } => {
                w.u8(2);
                w.u64(session);
            }
            Self::WantGlobalIds => w.u8(3),
        }
    }

    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(match r.u8()? {
            0 => Self::Open { session: r.u64()?, peer: Box::new(take_peer(r)?) },
            1 => {
                let (session, raw) = (r.u64()?, take_raw(r)?);
                let tid = raw.tid;
                Self::Message { session, tid, message: Box::new(Message::decode(raw)?) }
            }
            2 => Self::Closed { session: r.u64()? },
            3 => Self::WantGlobalIds,
            other => return Err(unknown(other)),
        })
    }
}

impl ToFront {
    fn encode(self, w: &mut Writer) {
        match self {
            Self::Send { session, raw, served } => {
                w.u8(0);
                w.u64(session);
                put_raw(w, &raw);
                let served = served.map(|served| (served.what, served.version));
                w.put(&served);
            }
            Self::Close { session } => {
                w.u8(1);
                w.u64(session);
            }
            Self::GlobalIds(ids) => {
                w.u8(2);
                w.put(&(ids.start, ids.end));
            }
        }
    }

    fn decode(version: u8, r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(match r.u8()? {
            0 => {
                let (session, raw) = (r.u64()?, take_raw(r)?);
                let served: Option<(String, u64)> = if version >= 3 { r.get()? } else { None };
                Self::Send { session, raw, served: served.map(|(what, version)| Served { what, version }) }
            }
            1 => Self::Close { session: r.u64()? },
            2 => Self::GlobalIds(r.u64()?..r.u64()?),
            other => return Err(unknown(other)),
        })
    }
}

fn put_raw(w: &mut Writer, raw: &RawMessage) {
    w.u64(raw.tid);
    [raw.kind, raw.version, raw.compat, raw.priority].iter().for_each(|number| w.u16(*number));
    w.blob_of(&raw.front);
    w.blob_of(&raw.middle);
    w.blob_of(&raw.data.to_bytes());
}

fn take_raw(r: &mut Reader) -> Result<RawMessage, DecodeError> {
    let tid = r.u64()?;
    let (kind, version, compat, priority) = (r.u16()?, r.u16()?, r.u16()?, r.u16()?);
    let (front, middle, data) = (r.blob()?, r.blob()?, BufList::from(r.blob()?));
    Ok(RawMessage { tid, kind, version, compat, priority, front, middle, data })
}

fn put_peer(w: &mut Writer, peer: &Peer) {
    w.bool(peer.endpoint == Endpoint::Mgr);
    w.put(&peer.auth_name);
    w.u64(peer.global_id);
    w.bool(peer.allows_all);
    w.u8(peer.kind.0);
    w.put(&peer.addrs);
    w.str(&peer.seen_at.map(|ip| ip.to_string()).unwrap_or_default());
}

fn take_peer(r: &mut Reader) -> Result<Peer, DecodeError> {
    let endpoint = if r.bool()? { Endpoint::Mgr } else { Endpoint::Mon };
    let (auth_name, global_id): (AuthName, u64) = (r.get()?, r.u64()?);
    let (allows_all, kind, addrs) = (r.bool()?, EntityKind(r.u8()?), r.get()?);
    let seen_at = r.text()?.parse().ok();
    Ok(Peer { endpoint, auth_name, global_id, allows_all, kind, addrs, seen_at })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{raw, samples};

    #[test]
    fn messages_arrive_as_they_were_and_never_cut_short() {
        for message in samples() {
            let meant = format!("{message:?}");
            let raw = message.encode();
            let said = format!("{:?}", LinkMsg::decode(raw.clone()).expect("its own encoding"));
            assert_eq!(said, meant);
            let bytes = raw.data.to_bytes();
            for length in 0..bytes.len() {
                let data = BufList::from(bytes.slice(..length));
                assert!(LinkMsg::decode(RawMessage { data, ..raw.clone() }).is_err(), "{length} of {said}");
            }
        }
    }

    /// Envelope version 1: Hello without facts, Ping without vitals.
    #[test]
    fn what_a_program_before_the_facts_says_is_understood() {
        let read = |kind: u8, write: &dyn Fn(&mut Writer)| {
            let mut w = Writer::gathering(64);
            w.envelope(1, 1, |w| {
                w.u8(kind);
                write(w);
            });
            LinkMsg::decode(RawMessage { kind: KIND, version: 1, compat: 1, data: w.finish_list(), ..raw() })
        };
        let fsid = Uuid::from_random([7; 16]);
        let hello = read(0, &|w| w.put(&fsid)).expect("of version 1");
        let Greeting { incarnation, version, .. } =
            Greeting { fsid, incarnation: 0, version: 1, version_min: 1 };
        assert!(matches!(hello, LinkMsg::Hello(of, facts)
            if of.fsid == fsid && (of.incarnation, of.version) == (incarnation, version) && facts.is_empty()));
        let ping = read(5, &|w| w.u64(9)).expect("of version 1");
        assert!(matches!(ping, LinkMsg::Ping { sent: Stamp(9), vitals } if vitals == Vitals::default()));
    }
}

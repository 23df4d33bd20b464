//! Messages between monitors, one of each kind, and what another program's come to: for tests here and the fuzzer.

use crate::link_msg::{Facts, Greeting, KIND, LinkMsg, TablesPart, ToFront, ToLeader, Vitals};
use nacre_buf::{BufList, Bytes};
use nacre_denc::{Decode, DecodeError, Writer};
use nacre_mon::{Endpoint, Peer, Served};
use nacre_msg::{Message, RawMessage};
use nacre_quorum::{NodeId, PeerMessage};
use nacre_types::{AddrVec, AuthName, EntityKind, Stamp, UTime, Uuid};

/// Decodes the data of a message between monitors, and encodes what it says.
///
/// # Errors
/// Those of decoding.
pub fn reencode(data: Bytes) -> Result<Bytes, DecodeError> {
    let raw = RawMessage { kind: KIND, version: 1, compat: 1, data: data.into(), ..raw() };
    Ok(LinkMsg::decode(raw)?.encode().data.to_bytes())
}

/// The data of one message of each kind.
#[must_use]
pub fn encoded_samples() -> Vec<Bytes> {
    samples().into_iter().map(|message| message.encode().data.to_bytes()).collect()
}

/// A message of a session that passes through.
pub(crate) fn raw() -> RawMessage {
    RawMessage {
        tid: 7,
        kind: 0x6fff,
        version: 3,
        compat: 2,
        priority: 9,
        front: Bytes::from_static(b"front"),
        middle: Bytes::new(),
        data: BufList::from(Bytes::from_static(b"data")),
    }
}

fn peer() -> Box<Peer> {
    Box::new(Peer {
        endpoint: Endpoint::Mgr,
        auth_name: AuthName::new(EntityKind::OSD, "3"),
        global_id: 4107,
        allows_all: true,
        kind: EntityKind::OSD,
        addrs: AddrVec::default(),
        seen_at: "192.0.2.7".parse().ok(),
    })
}

/// A message of the log's algorithm, of kind 0 (an append) or 4 (a snapshot), written by hand: only the algorithm makes them.
fn raft(kind: u8) -> PeerMessage {
    let mut w = Writer::new();
    w.envelope(1, 1, |w| {
        w.u8(kind);
        (1..=10).for_each(|number| w.u64(number));
        w.bool(false);
        w.blob_of(&Bytes::from_static(b"context"));
        w.count(1);
        w.envelope(1, 1, |w| {
            (1..=2).for_each(|number| w.u64(number));
            w.bool(kind == 4);
            w.blob_of(&Bytes::from_static(b"change"));
            w.blob_of(&Bytes::new());
        });
        (3..=4).for_each(|number| w.u64(number));
        w.envelope(1, 1, |w| {
            [vec![1_u64, 2], vec![3], vec![], vec![]].iter().for_each(|members| w.put(members));
            w.bool(true);
        });
    });
    PeerMessage::from_bytes(w.finish()).expect("as the algorithm's are laid out")
}

pub(crate) fn samples() -> Vec<LinkMsg> {
    let stamp = Stamp(17);
    let message = Box::new(Message::Unknown(raw()));
    let pairs = || vec![(Bytes::from_static(b"osd\x001"), Bytes::from_static(b"map"))];
    let tables = |is_first, message| LinkMsg::Tables(TablesPart { is_first, pairs: pairs(), message });
    let served = Served { what: "osdmap".to_owned(), version: 9 };
    let facts = Facts::from([("hostname".to_owned(), "there".to_owned())]);
    vec![
        LinkMsg::Hello(Greeting::new(Uuid::from_random([7; 16]), 3), facts),
        LinkMsg::Gone,
        LinkMsg::Raft(raft(0)),
        tables(true, None),
        tables(false, Some(raft(4))),
        LinkMsg::ToLeader { term: 3, what: ToLeader::Open { session: 1, peer: peer() } },
        LinkMsg::ToLeader { term: 3, what: ToLeader::Message { session: 1, tid: 7, message } },
        LinkMsg::ToLeader { term: 3, what: ToLeader::Closed { session: 1 } },
        LinkMsg::ToLeader { term: 3, what: ToLeader::WantGlobalIds },
        LinkMsg::ToFront { term: 3, what: ToFront::Send { session: 1, raw: raw(), served: None } },
        LinkMsg::ToFront { term: 3, what: ToFront::Send { session: 1, raw: raw(), served: Some(served) } },
        LinkMsg::ToFront { term: 3, what: ToFront::Close { session: 1 } },
        LinkMsg::ToFront { term: 3, what: ToFront::GlobalIds(5..9) },
        LinkMsg::Leads { term: 4, applied: 9 },
        LinkMsg::Ping { sent: stamp, vitals: Vitals::default() },
        LinkMsg::Ping {
            sent: stamp,
            vitals: Vitals { disk_avail_percent: Some(7), quorum: vec![NodeId(1), NodeId(3)] },
        },
        LinkMsg::Pong { sent: stamp, wall: UTime { sec: 5, nsec: 6 } },
    ]
}

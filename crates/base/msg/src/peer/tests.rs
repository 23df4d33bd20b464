use super::*;
use crate::Message;
use nacre_denc::Encode;
use nacre_txn::{Op, Transaction};
use nacre_types::{Eversion, HObject, PgId, ReqId, SnapId, UTime};

fn object(name: &str) -> HObject {
    HObject::head(3, "ns".into(), "".into(), name.into())
}

fn header() -> PeerHeader {
    PeerHeader { spg: SpgId::replicated(PgId::new(3, 9)), epoch: 17 }
}

fn entry() -> LogEntry {
    LogEntry {
        kind: LogKind::Clone,
        object: object("a").with_snap(SnapId(4)),
        version: Eversion::new(17, 5),
        prior_version: Eversion::new(16, 4),
        user_version: 4,
        reqid: ReqId { tid: 8, ..ReqId::default() },
        mtime: UTime { sec: 1, nsec: 2 },
        result: -2,
        outputs: vec![OpOutput { rval: -2, data: Bytes::from_static(b"out") }],
        snaps: vec![SnapId(3), SnapId(4)],
        delta: Counters { objects: 1, bytes: -9, write_bytes: i64::MAX, ..Counters::default() },
    }
}

fn info() -> PgInfo {
    let mut info = PgInfo::empty(PgHistory { epoch_created: 3, last_epoch_clean: 5, ..PgHistory::default() });
    info.last_update = Eversion::new(17, 5);
    info.last_backfill = HObject::MIN;
    info.purged_snaps.insert(3, 2);
    info
}

fn past() -> PastIntervals {
    let (up, acting) = (vec![0, 1], vec![1]);
    PastIntervals {
        intervals: vec![PastInterval { first: 2, last: 9, up, acting, primary: 1, maybe_went_rw: true }],
        former: vec![4, 7],
    }
}

fn interval() -> IntervalId {
    IntervalId { since: 4, primary_since: 3, up: vec![1, 0], acting: vec![0, 1], primary: 0 }
}

fn txn() -> Transaction {
    let mut txn = Transaction::new(header().spg);
    txn.push(Op::Write { object: object("a"), offset: 9, data: Bytes::from_static(b"payload").into() });
    txn
}

fn notify(info: PgInfo) -> PeerMessage {
    Notify { header: header(), nonce: 1, interval: interval(), info, past: past() }.into()
}

fn all() -> Vec<PeerMessage> {
    let (header, zero) = (header(), Eversion::ZERO);
    let missing = vec![MissingItem { object: object("m"), need: Eversion::new(1, 2) }];
    let scrubbed = ScrubObject {
        object: object("a"),
        version: zero,
        meta_crc: 1,
        attrs_crc: 2,
        data_crc: 3,
        size: 4,
        damaged: true,
    };
    let scanned = ScannedObject { object: object("a"), version: Eversion::new(1, 2) };
    vec![
        RepOp {
            header,
            tid: 1,
            previous: zero,
            entries: vec![entry()],
            trim_to: zero,
            committed_to: zero,
            txn: txn(),
        }
        .into(),
        RepOpReply { header, tid: 1, last_complete: zero, is_short: true }.into(),
        Query { header, kind: QueryKind::Log, nonce: 4 }.into(),
        Notify { header, nonce: 0, interval: interval(), info: info(), past: past() }.into(),
        LogReply { header, info: info(), entries: vec![entry()], missing: missing.clone() }.into(),
        Activate {
            header,
            interval: interval(),
            info: info(),
            since: zero,
            entries: vec![entry()],
            rebuild: true,
            past: past(),
        }
        .into(),
        Activated { header, info: info(), missing }.into(),
        Scan { header, from: HObject::MIN }.into(),
        ScanReply { header, from: HObject::MIN, objects: vec![scanned], next: HObject::max_value() }.into(),
        Pull { header, object: object("a"), need: zero, at: PartCursor::Data(7) }.into(),
        Pull { header, object: object("a"), need: zero, at: PartCursor::Omap("k".into()) }.into(),
        Push {
            header,
            object: object("a"),
            version: zero,
            at: PartCursor::Start,
            next: Some(PartCursor::Data(4)),
            pulled: true,
            txn: txn(),
        }
        .into(),
        Push {
            header,
            object: object("a"),
            version: zero,
            at: PartCursor::Attrs("n".into()),
            next: Some(PartCursor::Data(0)),
            pulled: false,
            txn: txn(),
        }
        .into(),
        PushReply { header, object: object("a"), version: zero, at: PartCursor::Start, absent: true }.into(),
        PushReply { header, object: object("a"), version: zero, at: PartCursor::Data(0), absent: false }
            .into(),
        Progress { header, info: info(), complete: true, last_backfill: HObject::MIN }.into(),
        Release { header }.into(),
        ScrubRequest { header, tid: 1, from: HObject::MIN, to: object("z"), deep: true }.into(),
        ScrubReply { header, tid: 1, objects: vec![scrubbed] }.into(),
        CopyGet {
            header,
            reply_to: header.spg,
            tid: 2,
            object: object("a"),
            cursor: Bytes::from_static(b"c"),
        }
        .into(),
        CopyReply {
            header,
            tid: 2,
            result: 0,
            part: Bytes::from_static(b"p"),
            data: Bytes::from_static(b"data").into(),
        }
        .into(),
        Reserve { header, number: 3, step: ReserveStep::Request, priority: 180 }.into(),
        notify(PgInfo { shard: Some(2), ..info() }),
        notify(PgInfo { lost_through: 16, ..info() }),
        notify(PgInfo { shard: Some(2), safe_to: Eversion::new(17, 4), ..info() }),
        ChunkRead {
            header,
            tid: 6,
            object: object("a"),
            version: Eversion::new(1, 2),
            offset: 4096,
            length: 8192,
        }
        .into(),
        ChunkReply {
            header,
            tid: 6,
            absent: false,
            damaged: true,
            data: Bytes::from_static(b"chunk").into(),
        }
        .into(),
    ]
}

#[test]
fn every_message_survives_the_wire() {
    for message in all() {
        let raw = message.encode(5);
        assert!(PeerMessage::is_kind(raw.kind));
        assert_eq!(Message::decode(raw), Ok(Message::Peer(message)));
    }
}

#[test]
fn a_cut_message_is_refused() {
    for message in all() {
        let raw = message.encode(5);
        for length in 0..raw.front.len() {
            let cut = RawMessage { front: raw.front.slice(..length), ..raw.clone() };
            assert!(PeerMessage::decode(cut).is_err(), "{} cut to {length}", message.name());
        }
    }
}

/// A write of 300 omap values of 64 KiB: 19 MiB, which no front takes.
#[test]
fn what_no_front_takes_travels_with_the_data() {
    let entries =
        (0..300).map(|n| (format!("{n}").as_str().into(), Bytes::from(vec![7; 64 << 10]))).collect();
    let mut txn = txn();
    txn.push(Op::OmapSet { object: object("a"), entries });
    let zero = Eversion::ZERO;
    let message: PeerMessage = RepOp {
        header: header(),
        tid: 1,
        previous: zero,
        entries: vec![],
        trim_to: zero,
        committed_to: zero,
        txn,
    }
    .into();
    let raw = message.encode(5);
    assert!(raw.front.len() <= FRONT_BYTES_MAX as usize, "a front of {} bytes", raw.front.len());
    assert!(raw.data.len() > 300 * (64 << 10));
    let cut = RawMessage { data: raw.data.slice(0, raw.data.len() - 1), ..raw.clone() };
    assert!(PeerMessage::decode(cut).is_err());
    let short = RawMessage { data: raw.data.slice(0, 9), ..raw.clone() };
    assert!(PeerMessage::decode(short).is_err());
    let unknown = RawMessage { version: 3, ..raw.clone() };
    assert!(PeerMessage::decode(unknown).is_err());
    assert_eq!(PeerMessage::decode(raw), Ok(message));
}

/// What a version 1 can say is said in it, so that OSDs of either version recover from each other.
#[test]
fn parts_of_data_are_told_as_ever() {
    let version = |at| Pull { header: header(), object: object("a"), need: Eversion::ZERO, at }.to_bytes()[0];
    assert_eq!((version(PartCursor::Start), version(PartCursor::Data(4096))), (1, 1));
    assert_eq!((version(PartCursor::Attrs("a".into())), version(PartCursor::Omap("".into()))), (2, 2));
    assert_eq!(version(PartCursor::Data(0)), 2, "behind keys, not the beginning");
    assert!(
        PartCursor::Start < PartCursor::Attrs("".into())
            && PartCursor::Omap("z".into()) < PartCursor::Data(0)
    );
}

#[test]
fn unknown_kinds_of_ours_are_errors() {
    let raw = RawMessage { kind: KIND_LAST, ..all()[0].encode(1) };
    assert!(PeerMessage::decode(raw).is_err());
}

#[test]
fn old_intervals_are_folded_and_never_lost() {
    let mut past = PastIntervals::default();
    for epoch in 1..=u32::try_from(INTERVALS_MAX).expect("small") + 5 {
        let osd = i32::try_from(epoch % 7).expect("small");
        let (up, acting) = (vec![osd], vec![osd]);
        past.push(PastInterval {
            first: epoch,
            last: epoch,
            up,
            acting,
            primary: osd,
            maybe_went_rw: epoch == 2,
        });
    }
    assert_eq!(past.intervals.len(), INTERVALS_MAX);
    assert_eq!(past.intervals[0].first, 1);
    assert!(past.writers().contains(&2));
}

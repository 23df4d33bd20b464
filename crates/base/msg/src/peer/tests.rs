use super::*;
use crate::Message;
use nacre_denc::{Decode, Encode, Reader, Writer};
use nacre_txn::{Op, Transaction};
use nacre_types::entropy::SeededEntropy;
use nacre_types::{Entropy, Eversion, HObject, PgId, ReqId, SnapId, UTime};

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
        committed_to: Eversion::ZERO,
        modified: None,
    }
}

/// One that says what it changed in part.
fn partial_entry() -> LogEntry {
    LogEntry { modified: Some([(4096, 4096), (1 << 20, 8192)].into_iter().collect()), ..safe_entry() }
}

/// One that says how far all members had everything.
fn safe_entry() -> LogEntry {
    LogEntry { committed_to: Eversion::new(17, 4), ..entry() }
}

fn info() -> PgInfo {
    let mut info = PgInfo::empty(PgHistory { epoch_created: 3, last_epoch_clean: 5, ..PgHistory::default() });
    info.last_update = Eversion::new(17, 5);
    info.last_backfill = HObject::MIN;
    info.purged_snaps.insert(3, 2);
    info
}

#[test]
fn a_history_tells_of_large_omaps_and_who_does_not_know_them_passes_over_it() {
    let history = PgHistory { epoch_created: 3, large_omap_objects: 7, ..PgHistory::default() };
    let mut w = Writer::default();
    w.put(&history);
    w.u8(9);
    let bytes = w.finish();
    let mut r = Reader::new(bytes.clone());
    assert_eq!((r.get(), r.u8()), (Ok(history), Ok(9)));
    assert_eq!(bytes[..2], [2, 1], "version 2, which is understood by whoever knows 1");
    let mut of_one_scrub = PgHistory { large_omap_objects: 0, ..history };
    assert!(of_one_scrub.merge(&history) && of_one_scrub == history, "another program has lost it");
}

fn past() -> PastIntervals {
    let (up, acting) = (vec![0, 1], vec![1]);
    PastIntervals {
        intervals: vec![PastInterval { first: 2, last: 9, up, acting, primary: 1, maybe_went_rw: true }],
        former: vec![4, 7],
        each: [(3, 8)].into(),
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
    [of_writes_and_peering(), of_recovery(), of_scrub_and_copy(), of_erasure_coded_pools()].concat()
}

fn of_writes_and_peering() -> Vec<PeerMessage> {
    let (header, zero) = (header(), Eversion::ZERO);
    let missing = vec![MissingItem { object: object("m"), need: Eversion::new(1, 2) }];
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
        RepOpReply { header, tid: 1, last_complete: zero, is_failsafe_full: true }.into(),
        Query { header, kind: QueryKind::Log, nonce: 4 }.into(),
        Notify { header, nonce: 0, interval: interval(), info: info(), past: past() }.into(),
        LogReply { header, info: info(), entries: vec![entry()], missing: missing.clone() }.into(),
        Activate {
            header,
            interval: interval(),
            info: info(),
            since: zero,
            entries: vec![entry()],
            backfill: true,
            past: past(),
        }
        .into(),
        Activated { header, info: info(), missing }.into(),
    ]
}

fn of_recovery() -> Vec<PeerMessage> {
    let (header, zero) = (header(), Eversion::ZERO);
    let scanned = ScannedObject { object: object("a"), version: Eversion::new(1, 2) };
    vec![
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
    ]
}

fn of_scrub_and_copy() -> Vec<PeerMessage> {
    let (header, zero) = (header(), Eversion::ZERO);
    let scrubbed = ScrubObject {
        object: object("a"),
        version: zero,
        meta_crc: 1,
        attrs_crc: 2,
        data_crc: 3,
        size: 4,
        damaged: true,
    };
    vec![
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
    ]
}

fn log_reply(entry: LogEntry) -> PeerMessage {
    LogReply { header: header(), info: info(), entries: vec![entry], missing: Vec::new() }.into()
}

fn of_erasure_coded_pools() -> Vec<PeerMessage> {
    let header = header();
    vec![
        notify(PgInfo { shard: Some(2), ..info() }),
        notify(PgInfo { lost_through: 16, ..info() }),
        notify(PgInfo { shard: Some(2), safe_to: Eversion::new(17, 4), ..info() }),
        log_reply(safe_entry()),
        log_reply(partial_entry()),
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

/// A long value is sent from where it came.
#[test]
fn long_values_are_not_copied_into_a_message() {
    let value = Bytes::from(vec![7; 64 << 10]);
    let entries = vec![("k".into(), value.clone()), ("short".into(), Bytes::from_static(b"v"))];
    let (collection, zero) = (txn().collection, Eversion::ZERO);
    let txn = Transaction { collection, ops: vec![Op::OmapSet { object: object("a"), entries }] };
    let (header, entries) = (header(), vec![]);
    let message = RepOp { header, tid: 1, previous: zero, entries, trim_to: zero, committed_to: zero, txn };
    let raw = PeerMessage::from(message.clone()).encode(5);
    assert!(raw.data.slices().iter().any(|slice| slice.as_ptr() == value.as_ptr()));
    assert!(raw.front.len() + raw.data.len() - value.len() < 4096);
    assert_eq!(PeerMessage::decode(raw), Ok(message.into()));
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

/// Programs that know version 1 read an entry that says more, and pass over that.
#[test]
fn what_an_entry_says_beside_its_change_comes_behind_what_older_programs_read() {
    let (plain, more) = (entry().to_bytes(), safe_entry().to_bytes());
    assert_eq!((&plain[..2], &more[..2]), (&[1, 1][..], &[2, 1][..]));
    assert_eq!(more.len(), plain.len() + Eversion::ZERO.to_bytes().len());
    assert_eq!(more[6..plain.len()], plain[6..]);
    let most = partial_entry().to_bytes();
    assert_eq!((&most[..2], most.len()), (&[3, 1][..], more.len() + 4 + 2 * 16));
    assert_eq!(most[6..more.len()], more[6..]);
}

#[test]
fn unknown_kinds_of_ours_are_errors() {
    let raw = RawMessage { kind: KIND_LAST, ..all()[0].encode(1) };
    assert!(PeerMessage::decode(raw).is_err());
}

fn served(epoch: u32, acting: &[i32], maybe_went_rw: bool) -> PastInterval {
    let acting = acting.to_vec();
    PastInterval { first: epoch, last: epoch, up: acting.clone(), primary: acting[0], acting, maybe_went_rw }
}

/// Whether the OSDs that are `up` may go on without the others, as peering judges.
fn suffice(past: &PastIntervals, up: u32, needed: usize) -> bool {
    let is_up = |osd: &&i32| up & (1 << **osd) != 0;
    let went_rw = past.intervals.iter().filter(|interval| interval.maybe_went_rw);
    { went_rw }.all(|interval| interval.acting.iter().filter(is_up).count() >= needed)
        && past.each.keys().all(|osd| is_up(&osd))
}

#[test]
fn folded_intervals_block_whom_they_blocked_before() {
    let mut entropy = SeededEntropy(5);
    let mut below = |bound: u64| entropy.u64() % bound;
    for (round, (size, needed)) in [(1, 1), (2, 1), (3, 1), (3, 2), (4, 3), (1, 1)].into_iter().enumerate() {
        let (mut folded, mut all) = (PastIntervals::default(), PastIntervals::default());
        for epoch in 1..=u32::try_from(INTERVALS_MAX).expect("small") + 40 {
            let mut osds: Vec<i32> = (0..9).collect();
            let acting: Vec<i32> = (0..size)
                .map(|_| osds.swap_remove(usize::try_from(below(osds.len() as u64)).expect("small")))
                .collect();
            let interval = served(epoch, &acting, round == 0 || below(8) > 0);
            all.intervals.push(interval.clone());
            folded.push(interval, needed);
        }
        assert_eq!(folded.intervals.len(), INTERVALS_MAX);
        assert_eq!(folded.intervals.last().map(|it| it.last), all.intervals.last().map(|it| it.last));
        assert!(folded.intervals.windows(2).all(|pair| pair[0].last < pair[1].first), "in order");
        for up in 0..1 << 9 {
            assert!(!suffice(&folded, up, needed) || suffice(&all, up, needed), "{size} {needed} {up:b}");
        }
        assert!(suffice(&folded, (1 << 9) - 1, needed), "all of them suffice");
        assert!(folded.writers().is_superset(&folded.each.keys().copied().collect()));
        assert_eq!(folded.holders(), all.holders(), "all are asked");
        assert_eq!(PastIntervals::from_bytes(folded.to_bytes()), Ok(folded.clone()));
    }
}

/// A primary that lives alone from time to time does not make the other one's word enough.
#[test]
fn who_wrote_alone_long_ago_is_not_forgotten() {
    let mut past = PastIntervals::default();
    past.push(served(1, &[1, 2], true), 1);
    past.push(served(2, &[2], true), 1);
    for epoch in 3..3 * u32::try_from(INTERVALS_MAX).expect("small") {
        past.push(served(epoch, if epoch % 2 == 0 { &[1, 2] } else { &[1, 3] }, epoch % 2 == 0), 1);
    }
    assert_eq!(past.intervals.len(), INTERVALS_MAX);
    assert!(!suffice(&past, 0b1010, 1), "osd.2 alone has what it wrote");
    assert!(suffice(&past, 0b0110, 1));
    past.trim_before(4 * u32::try_from(INTERVALS_MAX).expect("small"));
    assert!(past.intervals.is_empty() && past.each.is_empty());
    assert_eq!(past.former, [1, 2, 3]);
}

#[test]
fn intervals_without_a_common_member_are_all_needed() {
    let mut past = PastIntervals::default();
    for epoch in 1..=u32::try_from(INTERVALS_MAX).expect("small") + 3 {
        let osd = i32::try_from(epoch).expect("small");
        past.push(served(epoch, &[osd], true), 1);
    }
    assert_eq!(past.each.into_iter().collect::<Vec<_>>(), [(1, 1), (2, 2), (3, 3)]);
    assert_eq!(past.intervals[0], served(4, &[4], true));
}

#[test]
fn two_speak_the_newest_version_that_both_know() {
    let span = |text: &str| PeerVersions::parse(text).expect("a span");
    let cases = [
        ("4-4", "4-4", Some(4)),
        ("3-4", "4-6", Some(4)),
        ("2-9", "5-7", Some(7)),
        ("3-3", "4-4", None),
        ("5-9", "1-4", None),
    ];
    for (one, other, agreed) in cases {
        assert_eq!(span(one).agree(&span(other)), agreed, "{one} {other}");
        assert_eq!(span(other).agree(&span(one)), agreed, "{other} {one}");
    }
    // One OSD after the other, each program with the one before it: each that is up talks to all.
    let programs = ["3-4", "4-5", "5-5", "5-7"].map(span);
    assert!(programs.windows(2).all(|pair| pair[0].agree(&pair[1]).is_some()));
    assert_eq!(programs[0].agree(&programs[2]), None, "but none may be passed over");
    assert_eq!(PeerVersions::parse("5-4"), None);
    assert_eq!(PeerVersions::parse(&PeerVersions::OURS.to_string()), Some(PeerVersions::OURS));
}

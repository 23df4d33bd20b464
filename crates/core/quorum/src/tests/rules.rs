//! Rules of the log, one test each.

use crate::{
    Effect, LogEntry, LogPosition, LogWrite, Members, NodeId, Proposal, ProposeError, Quorum, Settings,
    Stored, StoredError,
};
use nacre_buf::Bytes;

fn settings() -> Settings {
    Settings { id: NodeId(1), rank: 0, proposal_bytes_max: 100, kept_entries_max: 4, kept_bytes_max: 1 << 20 }
}

fn alone() -> Stored {
    Stored::bootstrap(Members::voting([NodeId(1)]))
}

/// Does all that a member asks for at once; yields what it had applied and who was told, and all writes.
fn run(quorum: &mut Quorum) -> (Vec<(Bytes, Option<Proposal>)>, Vec<LogWrite>) {
    let (mut applied, mut writes, mut effects) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        quorum.drain(&mut effects);
        if effects.is_empty() {
            return (applied, writes);
        }
        for effect in effects.drain(..) {
            match effect {
                Effect::Persist(write) => {
                    quorum.persisted(write.number);
                    writes.push(write);
                }
                Effect::Apply { position, data, proposal, .. } => {
                    quorum.applied(position);
                    applied.push((data, proposal));
                }
                _ => (),
            }
        }
    }
}

#[test]
fn the_only_member_leads_at_once_and_writes_once_per_change() {
    let mut quorum = Quorum::open(settings(), alone()).expect("a log");
    assert!(!quorum.leads());
    run(&mut quorum);
    assert!(quorum.leads());
    quorum.propose(Proposal(7), Bytes::from_static(b"x")).expect("it leads");
    let (applied, writes) = run(&mut quorum);
    assert_eq!(applied, [(Bytes::from_static(b"x"), Some(Proposal(7)))]);
    assert_eq!(writes.iter().filter(|write| write.must_sync).count(), 1, "{writes:?}");
}

#[test]
fn nothing_is_applied_before_it_is_durable() {
    let mut quorum = Quorum::open(settings(), alone()).expect("a log");
    run(&mut quorum);
    quorum.propose(Proposal(1), Bytes::from_static(b"x")).expect("it leads");
    quorum.tick();
    let mut effects = Vec::new();
    quorum.drain(&mut effects);
    let number = effects.iter().find_map(|effect| match effect {
        Effect::Persist(write) => Some(write.number),
        _ => None,
    });
    let applies = |effects: &[Effect]| effects.iter().any(|effect| matches!(effect, Effect::Apply { .. }));
    assert!(!applies(&effects));
    effects.clear();
    quorum.persisted(number.expect("a write"));
    quorum.drain(&mut effects);
    assert!(applies(&effects));
}

#[test]
fn what_does_not_fit_or_has_no_leader_is_refused() {
    let mut quorum = Quorum::open(settings(), alone()).expect("a log");
    assert_eq!(quorum.propose(Proposal(1), Bytes::new()), Err(ProposeError::NotLeader));
    run(&mut quorum);
    let long = Bytes::from(vec![0; 101]);
    assert_eq!(quorum.propose(Proposal(1), long), Err(ProposeError::TooLarge { bytes: 101, max: 100 }));
    let mut follower = Stored::bootstrap(Members::voting([NodeId(1), NodeId(2)]));
    follower.hard_state.term = 3;
    let mut quorum = Quorum::open(settings(), follower).expect("a log");
    (0..200).for_each(|_| quorum.tick());
    assert!(!quorum.leads());
    assert_eq!(quorum.read(Proposal(1)), Err(ProposeError::NotLeader));
}

/// The library's bound of what is not committed is for several changes: one alone may be longer, as far as an entry goes.
#[test]
fn a_change_longer_than_all_that_may_be_under_way_is_taken_alone() {
    let long = Bytes::from(vec![0; 65 << 20]);
    let roomy = Settings { proposal_bytes_max: long.len(), ..settings() };
    let mut quorum = Quorum::open(roomy, alone()).expect("a log");
    run(&mut quorum);
    quorum.propose(Proposal(1), long.clone()).expect("nothing else is under way");
    assert_eq!(quorum.propose(Proposal(2), Bytes::from_static(b"x")), Err(ProposeError::Busy));
    assert_eq!(run(&mut quorum).0, [(long, Some(Proposal(1)))]);
    quorum.propose(Proposal(3), Bytes::from_static(b"x")).expect("it is committed");
}

#[test]
fn the_log_is_trimmed_behind_what_is_applied() {
    let mut quorum = Quorum::open(settings(), alone()).expect("a log");
    run(&mut quorum);
    let mut trimmed = Vec::new();
    for number in 0..10 {
        quorum.propose(Proposal(number), Bytes::from_static(b"x")).expect("it leads");
        trimmed.extend(run(&mut quorum).1.into_iter().map(|write| write.trimmed));
    }
    assert!(trimmed.is_sorted());
    assert!(trimmed.last().is_some_and(|last| last.index >= 6), "{trimmed:?}");
}

fn entry(index: u64) -> LogEntry {
    let position = LogPosition { index, term: 1 };
    LogEntry { position, kind: crate::EntryKind::Change, data: Bytes::new(), context: Bytes::new() }
}

#[test]
fn a_store_that_contradicts_itself_is_refused() {
    let open = |stored| Quorum::open(settings(), stored).map(|_| ());
    assert_eq!(open(Stored { entries: vec![entry(2), entry(4)], ..alone() }), Err(StoredError::Gap(3)));
    let applied = LogPosition { index: 5, term: 1 };
    let short = Stored { applied, entries: vec![entry(2)], ..alone() };
    assert_eq!(open(short), Err(StoredError::LogTooShort { applied: 5, last: 2 }));
    let hard_state = crate::HardState { commit: 5, ..alone().hard_state };
    let end_lost = Stored { hard_state, entries: vec![entry(2), entry(3)], ..alone() };
    assert_eq!(open(end_lost), Err(StoredError::EndLost { commit: 5, last: 3 }));
    let old = Stored { trimmed: applied, ..alone() };
    assert_eq!(open(old), Err(StoredError::TablesTooOld { applied: 1, trimmed: 5 }));
    assert_eq!(open(Stored { members: Members::default(), ..alone() }), Err(StoredError::NoVoters));
}

#[test]
fn entries_that_were_not_applied_before_a_crash_are_applied_again() {
    let stored = Stored { entries: vec![entry(2), entry(3)], ..alone() };
    let mut quorum = Quorum::open(settings(), stored).expect("a log");
    let (applied, _) = run(&mut quorum);
    assert_eq!(applied.len(), 3, "both, and the new term's own");
    assert!(applied.iter().all(|(_, told)| told.is_none()), "who asked for them is gone");
}

/// Ranks follow the monitors' map while a member runs.
#[test]
fn a_member_of_a_lower_rank_stands_for_election_earlier() {
    let patience = |rank| {
        let mut quorum = Quorum::open(settings(), Stored::bootstrap(Members::voting([1, 2].map(NodeId))));
        let quorum = quorum.as_mut().expect("a log");
        quorum.set_rank(rank);
        run(quorum);
        let mut effects = Vec::new();
        (1..).find(|_| {
            quorum.tick();
            quorum.drain(&mut effects);
            effects.iter().any(|effect| matches!(effect, Effect::Send { .. }))
        })
    };
    assert_eq!([0, 1, 5].map(patience), [Some(20), Some(22), Some(30)]);
    assert_eq!(patience(1000), patience(63), "there is an end to it");
}

//! Snapshots: a session as recorded on a real OSD, step by step, and what it leaves open.

use super::*;
use crate::ops::Change;
use crate::ops::testing::Client;
use crate::snap::SnapContext;
use nacre_denc::{Reader, Writer};
use nacre_msg::osd_op::flag;
use nacre_msg::peer::LogKind;
use nacre_types::{Errno, HObject, SnapId};

impl Client {
    fn snapshot(&mut self, id: u64) {
        self.snap_seq = SnapId(id);
        self.snaps.insert(0, SnapId(id));
    }

    fn at(&mut self, snap: u64) -> Result<String, i32> {
        let outcome = self.send_at(SnapId(snap), vec![read()]);
        let text = String::from_utf8(answers(&outcome).pop().expect("one").1).expect("text");
        if outcome.result < 0 { Err(outcome.result) } else { Ok(text) }
    }

    /// `LIST_SNAPS` as text: `id[snaps]size{overlaps}`, the head without id.
    fn listed(&mut self) -> String {
        let outcome = self.send_at(SnapId::SNAPDIR, vec![op(code::LIST_SNAPS)]);
        if outcome.result < 0 {
            return outcome.result.to_string();
        }
        let mut r = Reader::new(outcome.ops[0].out.to_bytes());
        let clones = r.envelope("response", 2, |_, r| {
            let count = r.count(1)?;
            (0..count)
                .map(|_| {
                    r.envelope("clone", 1, |_, r| {
                        let (id, snaps, overlap, size) = (r.get()?, r.get()?, r.get()?, r.u64()?);
                        Ok(show(id, snaps, overlap, size))
                    })
                })
                .collect::<Result<Vec<String>, _>>()
        });
        clones.expect("a well-formed answer").join(" ")
    }
}

fn show(id: SnapId, snaps: Vec<SnapId>, overlap: Vec<(u64, u64)>, size: u64) -> String {
    let join = |parts: Vec<String>| parts.join(",");
    let snaps = join(snaps.iter().map(|snap| snap.0.to_string()).collect());
    let overlap = join(overlap.iter().map(|(start, length)| format!("{start}~{length}")).collect());
    let id = if id.is_head() { "head".to_owned() } else { id.0.to_string() };
    format!("{id}[{snaps}]{size}{{{overlap}}}")
}

#[test]
fn a_recorded_session() {
    let mut c = Client::default();
    let step = |c: &mut Client, op: SubOp, want: &str| {
        assert_eq!(c.send(vec![op]).result, 0);
        assert_eq!(c.listed(), want);
    };
    step(&mut c, full("0123456789"), "head[]10{}");
    c.snapshot(2);
    step(&mut c, write(2, "AB"), "2[2]10{0~2,4~6} head[]10{}");
    step(&mut c, write(0, "C"), "2[2]10{1~1,4~6} head[]10{}");
    c.snapshot(3);
    c.snapshot(4);
    step(&mut c, append("xyz"), "2[2]10{1~1,4~6} 4[3,4]10{0~10} head[]13{}");
    let seen: Vec<_> = (1..=5).map(|snap| c.at(snap)).collect();
    let text = |text: &str| Ok(text.to_owned());
    let then = || text("C1AB456789");
    assert_eq!(seen, [Err(-2), text("0123456789"), then(), then(), text("C1AB456789xyz")]);
    let rolled = "2[2]10{1~1,4~6} 4[3,4]10{1~1,4~6} head[]10{}";
    step(&mut c, SubOp::rollback(SnapId(2)), rolled);
    assert_eq!(c.at(SnapId::HEAD.0), text("0123456789"));
    step(&mut c, SubOp::rollback(SnapId::HEAD), rolled);
    step(&mut c, SubOp::rollback(SnapId(9)), rolled);
    step(&mut c, delete(), "2[2]10{1~1,4~6} 4[3,4]10{}");
    assert_eq!(c.send(vec![delete()]).result, Errno::ENOENT.negated());
    assert_eq!((c.at(4), c.at(5), c.at(SnapId::HEAD.0)), (then(), Err(-2), Err(-2)));
    step(&mut c, full("new"), "2[2]10{1~1,4~6} 4[3,4]10{} head[]3{}");
    c.snapshot(5);
    step(&mut c, delete(), "2[2]10{1~1,4~6} 4[3,4]10{} 5[5]3{}");
    step(&mut c, SubOp::rollback(SnapId(3)), "2[2]10{1~1,4~6} 4[3,4]10{} 5[5]3{} head[]10{}");
    assert_eq!(c.at(SnapId::HEAD.0), then());
    (c.snap_seq, c.snaps) = (SnapId(2), vec![SnapId(2)]);
    step(&mut c, append("!"), "2[2]10{1~1,4~6} 4[3,4]10{} 5[5]3{} head[]11{}");
    step(&mut c, SubOp::rollback(SnapId(1)), "2[2]10{1~1,4~6} 4[3,4]10{} 5[5]3{}");
    step(&mut c, create(), "2[2]10{1~1,4~6} 4[3,4]10{} 5[5]3{} head[]0{}");
}

#[test]
fn a_clone_takes_a_version_and_a_log_entry_of_its_own() {
    let mut c = Client::with_old();
    c.snapshot(7);
    let outcome = c.send(vec![append("x")]);
    assert_eq!((c.version, outcome.user_version), (3, 3)); // measured: the head's version, behind the clone's
    let Change::Write(write) = outcome.change else { panic!("a write") };
    let [clone, head] = &write.entries[..] else { panic!("two entries") };
    assert_eq!((clone.kind, clone.version.version, clone.prior_version.version), (LogKind::Clone, 2, 1));
    assert_eq!((clone.object.snap, &clone.snaps[..]), (SnapId(7), &[SnapId(7)][..]));
    assert_eq!((head.kind, head.version.version, head.prior_version.version), (LogKind::Modify, 3, 1));
    let clone = &c.store.objects[&c.head.with_snap(SnapId(7))];
    assert_eq!((&clone.data[..], clone.attrs.len(), clone.omap.len()), (&b"old"[..], 1, 1));
}

#[test]
fn an_object_born_after_a_snapshot_is_not_seen_by_it() {
    let mut c = Client::default();
    c.snapshot(4);
    c.send(vec![full("x")]);
    assert_eq!((c.at(4), c.at(5)), (Err(-2), Ok("x".to_owned())));
    assert_eq!(c.send(vec![SubOp::rollback(SnapId(4))]).result, 0);
    assert!(c.store.objects.is_empty()); // nothing to keep a record for
    assert_eq!(c.listed(), "-2");
}

#[test]
fn old_snapshot_contexts_make_no_clones_and_can_be_refused() {
    let mut c = Client::default();
    c.snapshot(4);
    c.send(vec![full("x")]);
    (c.snap_seq, c.snaps) = (SnapId(3), vec![SnapId(3)]);
    assert_eq!(c.send(vec![append("y")]).result, 0);
    assert_eq!(c.listed(), "head[]2{}");
    c.flags = flag::ORDERSNAP;
    assert_eq!(c.send(vec![append("z")]).result, Errno::EOLDSNAPC.negated());
}

#[test]
fn removed_snapshots_are_trimmed_as_measured() {
    let mut c = Client::default();
    c.send(vec![full("q")]);
    c.snapshot(7);
    c.snapshot(8);
    c.send(vec![full("Q")]);
    assert_eq!(c.listed(), "8[7,8]1{} head[]1{}");
    c.trim(SnapId(8));
    assert_eq!(c.listed(), "8[7]1{} head[]1{}");
    assert_eq!((c.at(8), c.at(7), c.at(9)), (Err(-2), Ok("q".to_owned()), Ok("Q".to_owned())));
    c.trim(SnapId(7));
    assert_eq!(c.listed(), "head[]1{}");
    assert_eq!((c.at(7), c.at(8)), (Err(-2), Err(-2)));
}

#[test]
fn a_whiteout_goes_with_its_last_clone() {
    let mut c = Client::default();
    c.send(vec![full("q")]);
    c.snapshot(7);
    c.send(vec![delete()]);
    assert_eq!(c.store.objects.len(), 2);
    c.trim(SnapId(7));
    assert!(c.store.objects.is_empty());
    let last = c.entries.last().expect("entries");
    assert_eq!((last.kind, last.delta.whiteouts, last.delta.objects), (LogKind::Delete, -1, -2));
}

/// It was given up for lost: the snapshot set of the head still has it.
#[test]
fn a_clone_without_a_record_goes_with_its_last_snapshot() {
    let mut c = Client::default();
    c.send(vec![full("q")]);
    c.snapshot(7);
    c.send(vec![full("Q")]);
    c.store.objects.retain(|object, _| *object == c.head);
    c.trim(SnapId(7));
    assert_eq!(c.listed(), "head[]1{}");
}

#[test]
fn trimming_hands_overlaps_on_to_the_older_clone() {
    let mut c = Client::default();
    c.send(vec![full("0123456789")]);
    for (snap, at) in [(1, 0), (2, 3), (3, 6)] {
        c.snapshot(snap);
        c.send(vec![write(at, "X")]);
    }
    assert_eq!(c.listed(), "1[1]10{1~9} 2[2]10{0~3,4~6} 3[3]10{0~6,7~3} head[]10{}");
    c.trim(SnapId(2));
    assert_eq!(c.listed(), "1[1]10{1~2,4~6} 3[3]10{0~6,7~3} head[]10{}");
}

#[test]
fn removed_snapshots_do_not_make_clones() {
    let mut c = Client::default();
    c.send(vec![full("q")]);
    c.snapshot(7);
    c.pool.removed_snaps = crate::ops::testing::removed(&[7]);
    c.send(vec![full("Q")]);
    assert_eq!(c.listed(), "head[]1{}");
}

#[test]
fn a_pool_with_snapshots_of_its_own_uses_them() {
    let mut c = Client::default();
    c.send(vec![full("q")]);
    c.pool.snaps = Some(SnapContext { seq: SnapId(3), snaps: vec![SnapId(3), SnapId(1)] });
    c.send(vec![full("Q")]);
    assert_eq!(c.listed(), "3[1,3]1{} head[]1{}");
    c.pool.snaps = Some(SnapContext { seq: SnapId(4), snaps: vec![SnapId(4), SnapId(3), SnapId(1)] });
    c.flags = flag::ENFORCE_SNAPC;
    c.send(vec![full("R")]);
    assert_eq!(c.listed(), "3[1,3]1{} head[]1{}");
}

#[test]
fn listing_needs_the_snapshot_directory() {
    let mut c = Client::with_old();
    assert_eq!(c.send(vec![op(code::LIST_SNAPS)]).result, Errno::EINVAL.negated());
}

#[test]
fn rolling_back_to_nothing_spares_a_watched_object() {
    let mut c = Client::default();
    c.snapshot(4);
    c.send(vec![full("x")]);
    let watch = nacre_msg::osd_op::WatchArgs { cookie: 1, op: 3, ..Default::default() };
    c.send(vec![SubOp::with_watch(watch)]);
    assert_eq!(c.send(vec![SubOp::rollback(SnapId(4))]).result, Errno::EBUSY.negated());
}

#[test]
fn the_listing_has_the_bytes_of_the_wire() {
    let mut c = Client::default();
    c.send(vec![full("ab")]);
    c.snapshot(3);
    c.send(vec![write(0, "x")]);
    let outcome = c.send_at(SnapId::SNAPDIR, vec![op(code::LIST_SNAPS)]);
    let mut want = Writer::new();
    want.envelope(2, 1, |w| {
        w.u32(2);
        for (id, snaps, overlap) in [(3, vec![3_u64], vec![(1_u64, 1_u64)]), (SnapId::HEAD.0, vec![], vec![])]
        {
            w.envelope(1, 1, |w| {
                w.u64(id);
                w.put(&snaps);
                w.put(&overlap);
                w.u64(2);
            });
        }
        w.u64(3);
    });
    assert_eq!(outcome.ops[0].out.to_bytes(), want.finish());
    assert!(c.store.objects.keys().all(|object| HObject::to_head(object) == c.head));
}

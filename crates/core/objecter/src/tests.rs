//! Events in, effects out.

use crate::{Effect, Objecter, Request};
use nacre_denc::Encode;
use nacre_maps::{OsdMap, Pool, flags};
use nacre_msg::{OsdBackoff, OsdOpReply, SubOp, backoff_op};
use nacre_types::{
    AddrVec, EntityAddr, Epoch, Errno, Eversion, HObject, ObjectLocator, OsdId, PgId, SpgId, Stamp,
};
use std::time::Duration;

const NOW: Stamp = Stamp(1_000_000_000);

/// Two OSDs, one of which serves the only PG of pool 1.
fn map(epoch: Epoch, primary: OsdId) -> OsdMap {
    let mut map = OsdMap { epoch, ..OsdMap::default() };
    map.set_max_osd(2);
    map.osd_state.fill(flags::osd::EXISTS | flags::osd::UP);
    map.osd_weight.fill(nacre_maps::WEIGHT_ONE);
    for (osd, addrs) in map.client_addrs.iter_mut().enumerate() {
        *addrs = AddrVec::of(EntityAddr::parse(&format!("v2:10.0.0.{osd}:6800/1")).expect("an address"));
    }
    map.pools.insert(1, Pool { size: 2, min_size: 1, pg_num: 1, pgp_num: 1, ..Pool::default() });
    map.pool_names.insert(1, "p".to_owned());
    map.pg_upmap.insert(PgId::new(1, 0), vec![primary, 1 - primary]);
    map
}

struct Rig(Objecter);

impl Rig {
    fn learn(&mut self, map: &OsdMap) {
        let message = nacre_msg::MOsdMap { full: [(map.epoch, map.to_bytes())].into(), ..Default::default() };
        self.0.maps(NOW, &message).expect("a good map");
    }

    /// What is to be done, in short.
    fn effects(&mut self) -> Vec<String> {
        let mut effects = Vec::new();
        self.0.drain(&mut effects);
        let short = |effect: Effect| match effect {
            Effect::Open { osd, .. } => format!("open {osd}"),
            Effect::Close { osd } => format!("close {osd}"),
            Effect::Send { osd, tid, message } => format!("send {osd} {tid} try {}", message.retry_attempt),
            Effect::Acknowledge { osd, message } => format!("ack {osd} {} op {}", message.id, message.op),
            Effect::Done { tid, outcome } => format!("done {tid} {:?}", outcome.map(|reply| reply.result)),
            Effect::AskNewest { tid } => format!("newest for {tid}"),
            Effect::WantMap { from } => format!("map {from}"),
        };
        effects.into_iter().map(short).collect()
    }

    fn submit(&mut self, pool: i64) -> u64 {
        let ops = vec![SubOp::append(b"x".to_vec().into())];
        self.0.submit(NOW, Request::new(ObjectLocator::in_pool(pool), "object", ops)).expect("room")
    }

    fn reply(&mut self, osd: OsdId, tid: u64, retry_attempt: i32) {
        let reply = OsdOpReply {
            name: "object".into(),
            pg: PgId::new(1, 0),
            flags: 0,
            result: 0,
            bad_replay_version: Eversion::ZERO,
            epoch: 1,
            ops: Vec::new(),
            retry_attempt,
            replay_version: Eversion::ZERO,
            user_version: 1,
        };
        self.0.reply(NOW, osd, tid, reply);
    }
}

/// An operation that is on its way to OSD 0 under map 5.
fn sent() -> Rig {
    let mut rig = Rig(Objecter::default());
    assert_eq!(rig.submit(1), 1);
    assert_eq!(rig.effects(), ["map 0"]);
    rig.learn(&map(5, 0));
    assert_eq!(rig.effects(), ["open 0"]);
    rig.0.opened(NOW, 0);
    assert_eq!(rig.effects(), ["send 0 1 try 0"]);
    rig
}

#[test]
fn an_operation_waits_for_a_map_and_a_connection_and_is_answered() {
    let mut rig = sent();
    rig.reply(0, 1, 0);
    assert_eq!(rig.effects(), ["done 1 Ok(0)"]);
    assert_eq!((rig.0.in_flight(), rig.0.next_deadline()), (0, None));
}

#[test]
fn a_new_primary_gets_it_again_and_only_its_answer_counts() {
    let mut rig = sent();
    rig.learn(&map(6, 1));
    assert_eq!(rig.effects(), ["open 1"]);
    rig.reply(0, 1, 0);
    rig.0.opened(NOW, 1);
    assert_eq!(rig.effects(), ["send 1 1 try 1"]);
    rig.reply(1, 1, 0);
    assert!(rig.effects().is_empty(), "an answer to an earlier attempt");
    rig.reply(1, 1, 1);
    assert_eq!(rig.effects(), ["done 1 Ok(0)"]);
}

#[test]
fn a_map_that_changes_nothing_sends_nothing_unless_maps_were_skipped() {
    let mut rig = sent();
    rig.learn(&map(6, 0));
    assert!(rig.effects().is_empty());
    rig.learn(&map(9, 0));
    assert_eq!(rig.effects(), ["send 0 1 try 1"], "7 or 8 may have had another primary");
}

#[test]
fn what_a_pool_does_not_take_from_before_an_epoch_is_sent_again() {
    let mut rig = sent();
    let mut forced = map(6, 0);
    forced.pools.get_mut(&1).expect("the pool").last_force_op_resend = 6;
    rig.learn(&forced);
    assert_eq!(rig.effects(), ["send 0 1 try 1"]);
    forced.epoch = 7;
    rig.learn(&forced);
    assert!(rig.effects().is_empty(), "once");
}

#[test]
fn an_increment_that_leads_elsewhere_is_replaced_by_the_whole_map() {
    let mut rig = sent();
    let mut inc = nacre_maps::Incremental::new(map(5, 0).fsid, 6);
    inc.new_flags = 0;
    inc.full_crc = 7;
    let incrementals = [(6, inc.to_bytes())].into();
    rig.0.maps(NOW, &nacre_msg::MOsdMap { incrementals, ..Default::default() }).expect("nobody's end");
    assert_eq!(rig.effects(), ["map 0"]);
    rig.learn(&map(7, 0));
    assert_eq!(rig.effects(), ["send 0 1 try 1"]);
}

#[test]
fn a_lost_connection_is_dialled_after_a_pause() {
    let mut rig = sent();
    rig.0.lost(NOW, 0);
    assert_eq!(rig.effects(), ["map 6"]);
    rig.0.tick(NOW);
    assert!(rig.effects().is_empty());
    let later = NOW + Duration::from_millis(200);
    assert_eq!(rig.0.next_deadline(), Some(later));
    rig.0.tick(later);
    assert_eq!(rig.effects(), ["open 0"]);
    rig.0.opened(later, 0);
    assert_eq!(rig.effects(), ["send 0 1 try 1"]);
}

#[test]
fn nothing_goes_out_before_the_barrier() {
    let mut rig = sent();
    rig.0.set_barrier(7);
    assert_eq!(rig.effects(), ["map 6"]);
    rig.submit(1);
    assert_eq!(rig.effects(), ["map 6"]);
    rig.learn(&map(7, 0));
    assert_eq!(rig.effects(), ["send 0 1 try 1", "send 0 2 try 0"]);
}

#[test]
fn a_pool_is_missing_only_in_the_newest_map() {
    let mut rig = sent();
    let tid = rig.submit(2);
    assert_eq!(rig.effects(), ["newest for 2"]);
    rig.0.newest(NOW, tid, 6);
    assert_eq!(rig.effects(), ["map 6"]);
    rig.learn(&map(6, 0));
    assert_eq!(rig.effects(), ["newest for 2"]);
    rig.0.newest(NOW, tid, 6);
    assert_eq!(rig.effects(), [format!("done 2 {:?}", Err::<i32, _>(Errno::ENOENT))]);
}

fn backoff(rig: &mut Rig, op: u8, id: u64) {
    let spg = SpgId::replicated(PgId::new(1, 0));
    let (begin, end) = (HObject { pool: 1, ..HObject::MIN }, HObject::max_value());
    rig.0.backoff(NOW, 0, OsdBackoff { spg, map_epoch: 5, op, id, begin, end });
}

#[test]
fn what_an_osd_wants_held_is_sent_when_it_wants_it_again() {
    let mut rig = sent();
    backoff(&mut rig, backoff_op::BLOCK, 77);
    assert_eq!(rig.effects(), ["ack 0 77 op 2"]);
    assert_eq!(rig.submit(1), 2);
    assert!(rig.effects().is_empty(), "it is held");
    rig.learn(&map(6, 0));
    assert!(rig.effects().is_empty(), "a map that changes nothing does not release it");
    backoff(&mut rig, backoff_op::UNBLOCK, 77);
    assert_eq!(rig.effects(), ["send 0 1 try 1", "send 0 2 try 0"], "in the order in which they were begun");
    rig.reply(0, 1, 0);
    assert!(rig.effects().is_empty(), "an answer to the first attempt, which may have been dropped");
    rig.reply(0, 1, 1);
    assert_eq!(rig.effects(), ["done 1 Ok(0)"]);
}

#[test]
fn a_backoff_ends_with_its_connection_and_is_of_one_osd() {
    let mut rig = sent();
    backoff(&mut rig, backoff_op::BLOCK, 77);
    rig.effects();
    rig.learn(&map(6, 1));
    rig.0.opened(NOW, 1);
    assert_eq!(rig.effects(), ["open 1", "send 1 1 try 1"], "another OSD asked for nothing");
    rig.learn(&map(7, 0));
    assert!(rig.effects().is_empty(), "the connection with the first still stands");
    rig.0.lost(NOW, 0);
    rig.0.tick(NOW + Duration::from_secs(1));
    rig.0.opened(NOW, 0);
    assert_eq!(rig.effects().last().map(String::as_str), Some("send 0 1 try 2"));
}

#[test]
fn a_full_pool_holds_back_what_does_not_ask_to_be_tried() {
    let mut rig = Rig(Objecter::default());
    let mut full = map(5, 0);
    full.pools.get_mut(&1).expect("the pool").flags |= flags::pool::FULL;
    rig.learn(&full);
    rig.submit(1);
    assert_eq!(rig.effects(), ["map 6"]);
    let delete = vec![SubOp::new(nacre_msg::osd_op::code::DELETE)];
    let mut request = Request::new(ObjectLocator::in_pool(1), "object", delete);
    request.flags = nacre_msg::osd_op::flag::FULL_TRY;
    assert_eq!(rig.0.submit(NOW, request), Ok(2));
    assert_eq!(rig.effects(), ["open 0"]);
    rig.0.opened(NOW, 0);
    assert_eq!(rig.effects(), ["send 0 2 try 0"]);
    rig.learn(&map(6, 0));
    assert_eq!(rig.effects(), ["send 0 1 try 0"]);
}

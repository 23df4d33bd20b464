//! Leaders die at every turn of a long and mixed day: what was acknowledged is there, nothing happened twice, no epoch went back.
//!
//! Some of what a leader holds is ordered by time and not by the log: answers that wait for a commit, orders to OSDs, delayed changes, boots that
//! wait. All of it dies with the leader, and the clients ask again.

use super::osds::report as failure;
use super::{ADMIN, World, name};
use crate::event::{Event, SessionId};
use nacre_auth::{ClientAuth, Offer};
use nacre_denc::Decode;
use nacre_maps::{MgrMap, MonMap};
use nacre_msg::{Message, MonCommand, OsdBeacon, PoolOp, failure_flag, pool_op_code};
use nacre_types::entropy::SeededEntropy;
use nacre_types::{EntityKind, Entropy, OsdId, UTime};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What a client wants next, until it has the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ask {
    /// A number for a new OSD.
    Osd,
    /// A greater value under a key.
    Key,
    /// A number for a snapshot.
    Snap,
    /// An entity, with its key.
    Entity,
    /// A new pool.
    Pool,
}

const ASKS: [Ask; 5] = [Ask::Osd, Ask::Key, Ask::Snap, Ask::Entity, Ask::Pool];

/// Has one request under way at a time, and sends it again to the next leader.
struct Client {
    auth: ClientAuth,
    session: SessionId,
    ask: Ask,
    tid: u64,
    /// Sent, without an answer.
    waits: bool,
    /// What came of each request.
    answers: Vec<Vec<u8>>,
}

impl Client {
    fn message(&self, world: &World) -> Message {
        let n = self.tid;
        let json = match self.ask {
            Ask::Osd => r#"{"prefix":"osd create"}"#.to_owned(),
            Ask::Key => format!(r#"{{"prefix":"config-key set","key":"k","val":"{n}"}}"#),
            Ask::Entity => {
                format!(
                    r#"{{"prefix":"auth get-or-create","entity":"client.e{n}","caps":["mon","allow r"]}}"#
                )
            }
            Ask::Pool => format!(r#"{{"prefix":"osd pool create","pool":"p{n}","pg_num":1}}"#),
            Ask::Snap => {
                let fsid = world.mon.fsid();
                let op = pool_op_code::CREATE_UNMANAGED_SNAP;
                return PoolOp { fsid, pool: 1, op, crush_rule: -1, ..PoolOp::default() }.into();
            }
        };
        MonCommand { cmd: vec![json], ..MonCommand::default() }.into()
    }

    /// Takes in what came.
    fn hear(&mut self, message: Message) {
        let answer = match message {
            Message::MonCommandAck(ack) => {
                assert_eq!(ack.result, 0, "{:?}: {}", self.ask, ack.status);
                ack.data.to_bytes().to_vec()
            }
            Message::PoolOpReply(reply) => {
                assert_eq!(reply.result, 0);
                reply.response.expect("a number").to_vec()
            }
            _ => return,
        };
        assert!(self.waits, "one answer to each request");
        self.waits = false;
        self.answers.push(answer);
    }
}

/// What becomes of the batch that a turn makes.
#[derive(Debug, Clone, Copy)]
enum Fate {
    /// It is committed, and all that waits for it leaves.
    Served,
    /// The leader dies before.
    Lost,
    /// The leader dies when it is committed and nobody knows.
    Silent,
}

struct Day {
    world: World,
    dice: SeededEntropy,
    clients: Vec<Client>,
    osds: Vec<SessionId>,
    watcher: SessionId,
    /// Newest epoch of each map that the watcher was told.
    told: BTreeMap<&'static str, u64>,
    leaders: u32,
}

impl Day {
    fn new(seed: u64) -> Self {
        let mut world = World::new(3);
        world.boot_all(3);
        let admin = world.connect(ADMIN);
        let create = r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#;
        assert_eq!(world.ask(admin, create).map(|ack| ack.result), Some(0));
        let client = |ask| {
            let key = world.keys.get(&name(ADMIN)).cloned();
            let auth = ClientAuth::new(name(ADMIN), key, Offer::secure_first(), &[EntityKind::OSD]);
            Client { auth, session: SessionId(0), ask, tid: 0, waits: false, answers: Vec::new() }
        };
        let clients = ASKS.map(client).into_iter().collect();
        let mut day = Self {
            world,
            dice: SeededEntropy(seed),
            clients,
            osds: Vec::new(),
            watcher: SessionId(0),
            told: BTreeMap::new(),
            leaders: 1,
        };
        day.connect();
        day
    }

    /// Everybody finds the leader, and asks again.
    fn connect(&mut self) {
        let world = &mut self.world;
        world.commits_complete = true;
        self.osds = (0..3).map(|osd| world.connect(&format!("osd.{osd}"))).collect();
        self.watcher = world.connect(ADMIN);
        for what in ["osdmap", "mgrmap", "monmap", "servicemap", "fsmap"] {
            let next = self.told.get(what).map_or(0, |told| told + 1);
            let state = world.mon.state();
            let held = match what {
                "osdmap" => state.osd.published().epoch,
                "mgrmap" => state.mgr.map().epoch,
                "monmap" => state.mon.map().epoch,
                "servicemap" => state.services.map().epoch,
                _ => state.fs.map().epoch,
            };
            assert!(u64::from(held) + 1 >= next, "{what} went back from {next} to {held}");
            world.subscribe(self.watcher, what, next, false);
        }
        for client in &mut self.clients {
            let before = client.auth.global_id();
            client.session = world.connect_as(&mut client.auth).expect("the right key");
            assert!(before == 0 || before == client.auth.global_id(), "it is the same client");
            if client.waits {
                let message = client.message(world);
                world.message(client.session, client.tid, message);
            }
        }
        self.hear();
    }

    fn hear(&mut self) {
        for client in &mut self.clients {
            self.world.take(client.session).into_iter().for_each(|message| client.hear(message));
        }
        for message in self.world.take(self.watcher) {
            let (what, epoch) = match message {
                Message::MOsdMap(maps) => ("osdmap", maps.newest),
                Message::MMgrMap(map) => ("mgrmap", MgrMap::from_bytes(map.map).expect("a map").epoch),
                Message::MMonMap(map) => ("monmap", MonMap::from_bytes(map.map).expect("a map").epoch),
                Message::ServiceMap(map) => ("servicemap", map.epoch),
                Message::MFsMap(map) => ("fsmap", map.epoch),
                _ => continue,
            };
            let before = self.told.insert(what, epoch.into());
            assert!(before.is_none_or(|before| before < epoch.into()), "{what} {epoch} after {before:?}");
        }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.dice.u64() % end
    }

    fn turn(&mut self) {
        let fate = match self.below(3) {
            0 => Fate::Lost,
            1 => Fate::Silent,
            _ => Fate::Served,
        };
        self.world.commits_complete = matches!(fate, Fate::Served);
        for _ in 0..=self.below(3) {
            self.something_happens();
        }
        let batch = self.world.waiting_batch.take();
        self.hear(); // what left before the leader died was told
        match fate {
            Fate::Served => return,
            Fate::Silent => batch.iter().for_each(|batch| self.world.kv.apply(batch)),
            Fate::Lost => (),
        }
        self.leaders += 1;
        self.world.waiting = None;
        self.world.commits_complete = true;
        self.world.restart();
        self.connect();
    }

    fn something_happens(&mut self) {
        let osd = usize::try_from(self.below(3)).expect("small");
        let (id, session) = (OsdId::try_from(osd).expect("small"), self.osds[osd]);
        match self.below(12) {
            0 => {
                let target = failure(&self.world, (id + 1) % 3, failure_flag::FAILED);
                self.world.message(session, 0, target);
            }
            1 => {
                let generation = u16::try_from(self.leaders % 1000).expect("small");
                let boot_epoch = self.world.map().epoch;
                self.world.boot_again(session, id, generation, boot_epoch);
            }
            2 => self.world.message(session, 0, OsdBeacon::default()),
            3 => self.world.pass(Duration::from_secs(1)),
            4 => {
                let state = &mut self.world.mon.state;
                state.services.update(|_| ());
                state.fs.update(UTime::default(), |_| ());
                self.world.event(Event::Tick);
            }
            _ => {
                let at = usize::try_from(self.below(ASKS.len() as u64)).expect("small");
                if !self.clients[at].waits {
                    self.clients[at].tid += 1;
                    self.clients[at].waits = true;
                    let (client, world) = (&self.clients[at], &mut self.world);
                    let message = client.message(world);
                    world.message(client.session, client.tid, message);
                }
            }
        }
    }

    /// All that was asked for has happened, once.
    fn check(&self) {
        for client in &self.clients {
            assert!(!client.waits, "{:?}", client.ask);
            assert_eq!(client.answers.len() as u64, client.tid, "{:?}", client.ask);
            let asked = client.answers.len();
            let state = self.world.mon.state();
            match client.ask {
                Ask::Osd => {
                    let ids: BTreeSet<&[u8]> = client.answers.iter().map(Vec::as_slice).collect();
                    assert_eq!(ids.len(), asked, "no number twice");
                    assert_eq!(self.world.map().osds().count(), 3 + asked, "no OSD that nobody knows of");
                }
                Ask::Key => {
                    let value = state.config_keys.value("k").map(|value| value.to_vec());
                    assert_eq!(value, (asked > 0).then(|| client.tid.to_string().into_bytes()));
                }
                Ask::Snap => {
                    let ids: BTreeSet<&[u8]> = client.answers.iter().map(Vec::as_slice).collect();
                    assert_eq!(ids.len(), asked, "no number twice");
                    let newest = self.world.map().pools[&1].snap_seq.0;
                    assert_eq!(newest, if asked == 0 { 0 } else { asked as u64 + 1 }, "none is skipped");
                }
                Ask::Entity => {
                    for (answer, n) in client.answers.iter().zip(1..) {
                        let entity = name(&format!("client.e{n}"));
                        let held = state.auth.keys().entity(&entity).expect("it was made").key.to_text();
                        let shown = String::from_utf8_lossy(answer);
                        assert!(shown.contains(&held), "{entity}: the key that it has, not another");
                    }
                }
                Ask::Pool => {
                    let all =
                        (1..=client.tid).all(|n| self.world.map().pool_by_name(&format!("p{n}")).is_some());
                    assert!(all && self.world.map().pools.len() == 1 + asked);
                }
            }
        }
        self.world.check();
    }
}

#[test]
fn a_leader_may_die_at_any_turn() {
    let mut leaders = 0;
    for seed in 1..=8 {
        let mut day = Day::new(seed);
        (0..120).for_each(|_| day.turn());
        day.connect();
        day.world.pass(Duration::from_secs(30));
        day.hear();
        day.check();
        leaders += day.leaders;
    }
    assert!(leaders > 500, "they did die: {leaders}");
}

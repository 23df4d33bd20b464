//! The monitor from outside: events in, effects out, over a store in memory that can be lost at will.

mod answers;
mod auth;
mod autoscaler;
mod caps_table;
mod compression;
mod device_health;
mod drops;
mod durability;
mod erasure_code;
mod file_systems;
mod file_systems_watch;
mod front;
mod fullness;
mod health;
mod health_document;
mod limits;
mod managers;
mod measured;
mod members;
mod metrics;
mod options;
mod orders;
mod osd_options;
mod osd_versions;
mod osds;
mod overview;
mod pools;
mod primaries;
mod probing;
mod quorum;
mod recovery_snapshots;
mod resume;
mod security;
mod slow_devices;
mod slow_links;
mod subscriptions;
mod takeover;
mod tell;

use crate::batch::{Batch, MemorySnapshot};
use crate::event::{Effect, Endpoint, Event, SessionId, Token};
use crate::front::{Front, FrontEffect, FrontEvent};
use crate::mkfs::{MkfsOptions, MkfsOsd, mkfs};
use crate::mon::Mon;
use crate::own_view::{MonitorPhase, OwnView};
use crate::recovery::{self, LogPlace, SealedSnapshot, SnapshotError};
use nacre_auth::{AuthChange, ClientAuth, CryptoKey, EntityAuth, Offer, Step};
use nacre_denc::Decode;
use nacre_maps::{Incremental, OsdMap, WEIGHT_ONE};
use nacre_msg::peer::PeerVersions;
use nacre_msg::stats::{PgStat, pg_state};
use nacre_msg::{
    Answer, Message, MonCommand, MonCommandAck, MonSubscribe, OsdBoot, Subscription, Superblock,
};
use nacre_types::entropy::SeededEntropy;
use nacre_types::{AddrVec, AuthName, EntityAddr, EntityKind, Epoch, OsdId, PgId, Stamp, UTime, Uuid};
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) const ADMIN: &str = "client.admin";

/// A monitor that leads and has no others beside it, with its store and its clocks.
pub(super) struct World {
    pub(super) mon: Mon,
    pub(super) front: Front,
    pub(super) kv: MemorySnapshot,
    pub(super) now: Stamp,
    pub(super) wall: UTime,
    pub(super) entropy: SeededEntropy,
    next_session: u64,
    next_tid: u64,
    /// What left for each session since the last look.
    sent: BTreeMap<SessionId, Vec<(u64, Message)>>,
    pub(super) closed: Vec<SessionId>,
    /// Answers to handshakes that nobody has looked at.
    steps: BTreeMap<SessionId, Step>,
    /// Commits are reported as soon as they are made, and reads confirmed.
    pub(super) commits_complete: bool,
    /// The front is told that the leader is here.
    pub(super) leads: bool,
    /// What the log was asked last and has not answered.
    pub(super) waiting: Option<Token>,
    /// The batch of it, if it is one.
    pub(super) waiting_batch: Option<Batch>,
    pub(super) keys: BTreeMap<AuthName, CryptoKey>,
    /// What the monitor knows of itself.
    pub(super) own: OwnView,
    /// Recovery snapshots that were taken.
    pub(super) snapshots: u64,
}

pub(super) fn addr(port: u16) -> AddrVec {
    AddrVec::of(EntityAddr::parse(&format!("v2:127.0.0.1:{port}/7")).expect("a valid address"))
}

pub(super) fn store(osd: OsdId) -> Uuid {
    let mut bytes = [7; 16];
    let number = osd.to_le_bytes();
    (bytes[0], bytes[15]) = (number[0], number[1]);
    Uuid::from_random(bytes)
}

/// What the OSD that leads a PG reports of it when it is active and clean where the map has it.
pub(super) fn clean_pg(map: &OsdMap, pg: PgId) -> PgStat {
    let placed = map.pg_to_up_acting(pg);
    PgStat {
        state: pg_state::ACTIVE | pg_state::CLEAN,
        reported_epoch: map.epoch,
        up: placed.up,
        up_primary: placed.up_primary,
        acting: placed.acting,
        acting_primary: placed.acting_primary,
        ..PgStat::default()
    }
}

/// What a command says that succeeds, as JSON.
fn json(world: &mut World, session: SessionId, command: &str) -> serde_json::Value {
    let ack = world.ask(session, command).expect("an answer");
    assert_eq!(ack.result, 0, "{command}: {}", ack.status);
    serde_json::from_slice(&ack.data.to_bytes()).expect("JSON")
}

impl World {
    /// A cluster of `osds` OSDs on hosts of their own, none of them up.
    pub(super) fn new(osds: OsdId) -> Self {
        let mut entropy = SeededEntropy(42);
        let wall = UTime { sec: 1_700_000_000, nsec: 0 };
        let fsid = Uuid::from_random([1; 16]);
        let mut options = MkfsOptions::new(fsid, vec![("a".to_owned(), addr(3300))], wall, &mut entropy);
        options.osds = (0..osds)
            .map(|id| MkfsOsd {
                id,
                store: None,
                key: CryptoKey::generate(&mut entropy, wall),
                host: format!("host{id}"),
                weight: WEIGHT_ONE,
                class: Some("ssd".to_owned()),
            })
            .collect();
        // Pools keep the numbers of PGs that a test gives them.
        let (option, off) = ("osd_pool_default_pg_autoscale_mode", "off");
        options.config.push(("global".to_owned(), option.to_owned(), off.to_owned()));
        let mut keys = BTreeMap::from([(name(ADMIN), options.admin_key.clone())]);
        keys.extend(options.osds.iter().map(|osd| (name(&format!("osd.{}", osd.id)), osd.key.clone())));
        let mut kv = MemorySnapshot::default();
        kv.apply(&mkfs(&options, wall).expect("valid options"));
        let mon = Mon::open(&kv, "a", wall).expect("a fresh store");
        let front = Front::open(&kv, "a").expect("a fresh store");
        let own = OwnView {
            name: "a".to_owned(),
            phase: MonitorPhase::Leader,
            term: 1,
            term_had_leader: true,
            leader: Some("a".to_owned()),
            quorum: vec!["a".to_owned()],
            since: Duration::from_secs(9),
            map: mon.state().mon.map().clone(),
        };
        let mut world = Self {
            mon,
            front,
            kv,
            now: Stamp(1_000_000_000_000),
            wall,
            entropy,
            next_session: 0,
            next_tid: 0,
            sent: BTreeMap::new(),
            closed: Vec::new(),
            steps: BTreeMap::new(),
            commits_complete: true,
            leads: true,
            waiting: None,
            waiting_batch: None,
            keys,
            own,
            snapshots: 0,
        };
        world.listen();
        world
    }

    fn listen(&mut self) {
        self.mon.lead(addr(3300), addr(6800), self.now, self.wall, &mut self.entropy);
        self.front.serve(true);
        self.settle();
    }

    /// The process dies and starts again with what the store holds.
    pub(super) fn restart(&mut self) {
        self.mon = Mon::open(&self.kv, "a", self.wall).expect("a usable store");
        self.front = Front::open(&self.kv, "a").expect("a usable store");
        self.sent.clear();
        self.listen();
    }

    /// The leader dies, and another takes over what the store holds; the front, which is another monitor's, goes on.
    pub(super) fn change_leader(&mut self) {
        (self.waiting, self.waiting_batch, self.commits_complete) = (None, None, true);
        self.mon = Mon::open(&self.kv, "a", self.wall).expect("a usable store");
        self.mon.lead(addr(3300), addr(6800), self.now, self.wall, &mut self.entropy);
        self.front.resume_sessions();
        self.settle();
    }

    pub(super) fn event(&mut self, event: Event) {
        self.mon.handle(self.now, self.wall, &mut self.entropy, event);
        self.settle();
    }

    pub(super) fn front_event(&mut self, event: FrontEvent) {
        self.front.handle(self.now, self.wall, &mut self.entropy, event);
        self.settle();
    }

    /// Carries effects out until there are none.
    pub(super) fn settle(&mut self) {
        loop {
            let (mut of_front, mut effects) = (Vec::new(), Vec::new());
            self.front.set_active_mgr(self.leads && self.mon.state().mgr.own_is_active());
            self.front.drain(self.now, self.wall, &mut self.entropy, &mut of_front);
            self.mon.drain(&mut effects);
            if of_front.is_empty() && effects.is_empty() {
                return;
            }
            of_front.into_iter().for_each(|effect| self.front_effect(effect));
            effects.into_iter().for_each(|effect| self.effect(effect));
        }
    }

    fn front_effect(&mut self, effect: FrontEffect) {
        let event = match effect {
            FrontEffect::Auth { session, step } => return drop(self.steps.insert(session, step)),
            FrontEffect::Close { session } => return self.closed.push(session),
            FrontEffect::Send { session, tid, message } => {
                return self.sent.entry(session).or_default().push((tid, *message));
            }
            FrontEffect::Tell { session, tid, command } => {
                return self.front.tell(&self.own, session, tid, *command);
            }
            FrontEffect::Open { session, peer } => Event::Open { session, peer },
            FrontEffect::Message { session, tid, message } => Event::Message { session, tid, message },
            FrontEffect::Closed { session } => Event::Closed { session },
            FrontEffect::WantGlobalIds => Event::WantGlobalIds { front: 1 },
        };
        self.mon.handle(self.now, self.wall, &mut self.entropy, event);
    }

    fn effect(&mut self, effect: Effect) {
        let event = match effect {
            Effect::Send { session, tid, message, served } => {
                let answer = Answer { kind: message.kind(), tid };
                self.front.sent(session, answer, served.as_ref());
                return self.sent.entry(session).or_default().push((tid, *message));
            }
            Effect::Close { session } => {
                self.closed.push(session);
                let event = FrontEvent::Closed { session };
                return self.front.handle(self.now, self.wall, &mut self.entropy, event);
            }
            Effect::GlobalIds { ids, .. } => return self.front.granted(ids),
            Effect::Commit { batch, token } if self.commits_complete => {
                let unknown = batch.ops().iter().find(|op| !recovery::is_known(&op.prefix));
                assert!(unknown.is_none(), "what becomes of this table in a recovery snapshot? {unknown:?}");
                self.kv.apply(&batch);
                self.front.applied(&batch).expect("our own batch");
                Event::Committed(token)
            }
            Effect::Confirm { token } if self.commits_complete => Event::Confirmed(token),
            Effect::TakeSnapshot => {
                Event::SnapshotTaken(self.take_snapshot().map(|taken| taken.map(Box::new)))
            }
            Effect::Commit { token, batch } => {
                (self.waiting, self.waiting_batch) = (Some(token), Some(batch));
                return;
            }
            Effect::Confirm { token } => {
                (self.waiting, self.waiting_batch) = (Some(token), None);
                return;
            }
        };
        self.mon.handle(self.now, self.wall, &mut self.entropy, event);
    }

    /// What a driver makes of the tables.
    pub(super) fn take_snapshot(&mut self) -> Result<Option<SealedSnapshot>, SnapshotError> {
        self.snapshots += 1;
        let place = LogPlace { incarnation: 0, index: self.snapshots, term: 1 };
        recovery::take_snapshot(&self.kv, place, self.wall, &mut self.entropy)
    }

    /// Lets `by` pass, a second at a time.
    pub(super) fn pass(&mut self, by: Duration) {
        for _ in 0..by.as_secs() {
            self.now = self.now + Duration::from_secs(1);
            self.wall = self.wall.after(Duration::from_secs(1));
            self.front_event(FrontEvent::Tick);
            self.event(Event::Tick);
        }
    }

    /// The answer that a handshake event brings.
    pub(super) fn auth_event(&mut self, event: FrontEvent) -> Step {
        let (FrontEvent::AuthRequest { session, .. } | FrontEvent::AuthMore { session, .. }) = &event else {
            panic!("not of a handshake: {event:?}")
        };
        let session = *session;
        self.front_event(event);
        self.steps.remove(&session).expect("an answer")
    }

    pub(super) fn new_session(&mut self) -> SessionId {
        self.next_session += 1;
        SessionId(self.next_session)
    }

    /// The number of a request that nobody has sent.
    pub(super) fn new_tid(&mut self) -> u64 {
        self.next_tid += 1;
        self.next_tid
    }

    /// Proves to be `who` and completes the handshake.
    pub(super) fn connect(&mut self, who: &str) -> SessionId {
        let key = self.keys.get(&name(who)).cloned();
        let mut client =
            ClientAuth::new(name(who), key, Offer::secure_first(), &[EntityKind::OSD, EntityKind::MGR]);
        self.connect_as(&mut client).expect("the right key")
    }

    pub(super) fn connect_as(&mut self, client: &mut ClientAuth) -> Option<SessionId> {
        let kind = client.name().kind;
        self.connect_as_kind(client, kind)
    }

    /// Proves to be one entity and says to be of some kind.
    pub(super) fn connect_as_kind(&mut self, client: &mut ClientAuth, kind: EntityKind) -> Option<SessionId> {
        let session = self.new_session();
        let start = client.start();
        let step = self.auth_event(FrontEvent::AuthRequest {
            session,
            endpoint: Endpoint::Mon,
            kind,
            method: start.method,
            modes: start.modes,
            payload: start.payload,
        });
        let Step::More(challenge) = step else { return None };
        let payload = client.more(challenge, &mut self.entropy).expect("a valid challenge");
        let Step::Done(done) = self.auth_event(FrontEvent::AuthMore { session, payload }) else {
            return None;
        };
        client.done(done.global_id, done.mode.code(), done.payload, self.wall).expect("a valid reply");
        let osd: Option<u16> = client.name().id.parse().ok().filter(|_| kind == EntityKind::OSD);
        let of_server = u16::try_from(session.0).ok().filter(|_| kind == EntityKind::MDS);
        let port = osd.map(|osd| 7000 + osd).or(of_server.map(|session| 7500 + session));
        let addrs = addr(port.unwrap_or(0));
        self.front_event(FrontEvent::Established { session, kind, addrs, seen_at: None });
        Some(session)
    }

    /// Opens a connection with the manager, by a ticket of the monitor's.
    pub(super) fn connect_manager(&mut self, who: &str) -> SessionId {
        let (key, kind) = (self.keys.get(&name(who)).cloned(), name(who).kind);
        let mut client = ClientAuth::new(name(who), key, Offer::secure_first(), &[EntityKind::MGR]);
        self.connect_as(&mut client).expect("the right key");
        let mut authorizer = client
            .authorizer(EntityKind::MGR, &Offer::crc_first(), self.wall, &mut SeededEntropy(5))
            .expect("a ticket for the manager");
        let (session, start) = (self.new_session(), authorizer.start());
        let step = self.auth_event(FrontEvent::AuthRequest {
            session,
            endpoint: Endpoint::Mgr,
            kind,
            method: start.method,
            modes: start.modes,
            payload: start.payload,
        });
        let Step::More(challenge) = step else { panic!("a challenge, not {step:?}") };
        let payload = authorizer.more(&challenge).expect("a valid challenge");
        let step = self.auth_event(FrontEvent::AuthMore { session, payload });
        let Step::Done(done) = step else { panic!("accepted, not {step:?}") };
        assert!(authorizer.done(done.mode.code(), done.payload).is_ok());
        self.front_event(FrontEvent::Established { session, kind, addrs: addr(0), seen_at: None });
        session
    }

    pub(super) fn message(&mut self, session: SessionId, tid: u64, message: impl Into<Message>) {
        self.front_event(FrontEvent::Message { session, tid, message: Box::new(message.into()) });
    }

    /// Takes what was sent to a session.
    pub(super) fn take(&mut self, session: SessionId) -> Vec<Message> {
        self.sent.remove(&session).unwrap_or_default().into_iter().map(|(_, message)| message).collect()
    }

    pub(super) fn command(&mut self, session: SessionId, json: &str) {
        let command = MonCommand { cmd: vec![json.to_owned()], ..MonCommand::default() };
        let tid = self.new_tid();
        self.message(session, tid, command);
    }

    /// The health checks that are on, with their lines, by their codes.
    pub(super) fn checks(&mut self, session: SessionId) -> serde_json::Value {
        json(self, session, r#"{"prefix":"health","detail":"detail","format":"json"}"#)["checks"].take()
    }

    /// Severity, summary and lines of a health check, if it is on.
    pub(super) fn health_check(
        &mut self,
        session: SessionId,
        code: &str,
    ) -> Option<(String, String, Vec<String>)> {
        let checks = self.checks(session);
        let check = checks.get(code)?;
        let text = |value: &serde_json::Value| value["message"].as_str().expect("text").to_owned();
        let lines = check["detail"].as_array().expect("lines").iter().map(text).collect();
        Some((check["severity"].as_str().expect("text").to_owned(), text(&check["summary"]), lines))
    }

    /// Runs a command and returns its answer, if that has left.
    pub(super) fn ask(&mut self, session: SessionId, json: &str) -> Option<MonCommandAck> {
        self.command(session, json);
        self.take(session).into_iter().find_map(|message| match message {
            Message::MonCommandAck(ack) => Some(ack),
            _ => None,
        })
    }

    pub(super) fn subscribe(&mut self, session: SessionId, what: &str, start: u64, onetime: bool) {
        let subscription = Subscription { start, flags: u8::from(onetime) };
        let what = BTreeMap::from([(what.to_owned(), subscription)]);
        self.message(session, 0, MonSubscribe { what, hostname: String::new() });
    }

    pub(super) fn boot(&mut self, session: SessionId, osd: OsdId, generation: u16) {
        self.boot_again(session, osd, generation, 0);
    }

    /// A boot of an OSD that was up before, since `boot_epoch`, in the same process.
    pub(super) fn boot_again(&mut self, session: SessionId, osd: OsdId, generation: u16, boot_epoch: Epoch) {
        self.boot_as(session, osd, generation, |boot| OsdBoot { boot_epoch, ..boot });
    }

    /// A boot that says something else than usual.
    pub(super) fn boot_as(
        &mut self,
        session: SessionId,
        osd: OsdId,
        generation: u16,
        edit: impl FnOnce(OsdBoot) -> OsdBoot,
    ) {
        let port = u16::try_from(osd).expect("a small number") * 10 + 8000 + generation;
        let boot = OsdBoot {
            superblock: Superblock {
                cluster_fsid: self.mon.fsid(),
                whoami: osd,
                osd_fsid: store(osd),
                ..Superblock::default()
            },
            hb_back_addrs: addr(port + 1),
            hb_front_addrs: addr(port + 2),
            cluster_addrs: addr(port + 3),
            metadata: BTreeMap::from([
                ("hostname".to_owned(), format!("host{osd}")),
                (PeerVersions::METADATA_KEY.to_owned(), PeerVersions::OURS.to_string()),
            ]),
            features: nacre_types::features::SUPPORTED,
            ..OsdBoot::default()
        };
        self.message(session, 0, edit(boot));
    }

    /// Boots OSDs 0 to `count`, each on a session of its own.
    pub(super) fn boot_all(&mut self, count: OsdId) -> Vec<SessionId> {
        let boot = |osd: OsdId| {
            let session = self.connect(&format!("osd.{osd}"));
            self.boot(session, osd, 0);
            session
        };
        (0..count).map(boot).collect()
    }

    pub(super) fn map(&self) -> &OsdMap {
        self.mon.state().osd.published()
    }

    /// Whether the cluster log says so.
    pub(super) fn logged(&self, text: &str) -> bool {
        self.mon.state().log.entries().any(|entry| entry.message.contains(text))
    }

    pub(super) fn add_client(&mut self, who: &str, mon_caps: &str, osd_caps: &str) {
        self.add_entity(who, &[("mon", mon_caps), ("osd", osd_caps)]);
    }

    fn add_entity(&mut self, who: &str, caps: &[(&str, &str)]) {
        let key = CryptoKey::generate(&mut self.entropy, self.wall);
        let caps = caps.iter().map(|(service, text)| ((*service).to_owned(), (*text).to_owned()));
        let auth = EntityAuth { key: key.clone(), caps: caps.collect() };
        self.mon.state.auth.apply(AuthChange::Put(name(who), auth));
        self.keys.insert(name(who), key);
        self.settle();
    }

    /// A stock daemon comes, which gets its key with the profile of its kind when it comes first.
    pub(super) fn connect_stock(&mut self, kind: &str, id: &str) -> (SessionId, ClientAuth) {
        let who = format!("{kind}.{id}");
        if !self.keys.contains_key(&name(&who)) {
            let profile = format!("allow profile {kind}");
            self.add_entity(&who, &[("mon", &profile), ("osd", "allow *"), ("mds", "allow *")]);
        }
        let key = self.keys.get(&name(&who)).cloned();
        let mut auth = ClientAuth::new(name(&who), key, Offer::secure_first(), &[]);
        (self.connect_as(&mut auth).expect("its key"), auth)
    }

    /// What must hold after everything: epochs without gaps, each full map the one before plus its change.
    pub(super) fn check(&self) {
        let osd = &self.mon.state().osd;
        let newest = osd.published().epoch;
        let full = |epoch| osd.full_map(epoch).expect("a kept epoch");
        let mut map = OsdMap::from_bytes(full(osd.oldest())).expect("our own map");
        for epoch in osd.oldest() + 1..=newest {
            let change = osd.incremental(epoch).expect("a kept epoch").clone();
            let change = Incremental::from_bytes(change).expect("our own change");
            let bytes = map.apply_verified(&change).expect("a change that follows");
            assert_eq!(bytes, full(epoch), "full({epoch}) is full({}) and its change", epoch - 1);
        }
    }
}

pub(super) fn name(text: &str) -> AuthName {
    AuthName::parse(text).expect("a valid name")
}

/// Three OSDs and a pool with so many PGs; sessions of the admin and of OSD 0.
fn with_pool(pg_num: u32) -> (World, SessionId, SessionId) {
    let mut world = World::new(3);
    world.boot_all(3);
    let admin = world.connect(ADMIN);
    let create = format!(r#"{{"prefix":"osd pool create","pool":"p","pg_num":{pg_num}}}"#);
    assert_eq!(world.ask(admin, &create).map(|ack| ack.result), Some(0));
    let osd = world.connect("osd.0");
    (world, admin, osd)
}

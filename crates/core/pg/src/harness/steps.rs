//! What happens to a [`World`]: steps, crashes, maps that the monitor publishes; and what is so at its end.

use super::client::object;
use super::world::{End, MEMBERS, Wish, World, pg, spg};
use crate::{Event, Lineage, Pg, PgCreateInfo, Reserver};
use nacre_maps::flags;
use nacre_msg::{OsdOpReply, SubOp};
use nacre_txn::{Token, Transaction};
use nacre_types::{Epoch, HObject, OsdId};
use std::time::Duration;

/// What may happen next.
enum Choice {
    Deliver((End, End)),
    Sync(OsdId),
    Fetch(OsdId),
    Advance(OsdId),
    Due(OsdId),
    Inform(usize),
    Grant,
}

impl World {
    /// An OSD's process dies, and everybody learns of it.
    pub(crate) fn lose(&mut self, osd: OsdId) {
        self.crash(osd);
        self.mark_down(osd);
        self.run_until_idle();
    }

    /// osd.`alone` of the first three serves what `writes` brings all by itself, and is gone then. The one below it has the log of
    /// that, and not the objects; the third is away.
    pub(crate) fn leave_alone(&mut self, alone: OsdId, writes: impl FnOnce(&mut Self)) {
        let (next, third) = ((alone + 2) % 3, (alone + 1) % 3);
        self.publish(|map| map.pools.values_mut().for_each(|pool| pool.min_size = 1));
        self.run_until_idle();
        self.lose(next);
        self.lose(third);
        writes(self);
        self.restart(next);
        (0..3).for_each(|osd| self.take_places(osd, true));
        self.run_until_idle();
        self.take_places(next, true);
        self.run_until_idle();
        self.lose(alone);
    }

    /// An operator gives up all that the PG held; its primary makes it anew.
    pub(crate) fn recreate(&mut self) {
        self.publish(|_| ());
        self.run_until_idle();
        let (primary, epoch) = (self.primary(), self.map().epoch);
        self.event(primary, Event::GiveUp);
        self.create_info(primary, PgCreateInfo::ordered(epoch));
    }

    /// The monitor takes a running OSD for dead; it says otherwise.
    pub(crate) fn defame(&mut self, osd: OsdId) {
        if self.osds[&osd].running && self.map().is_up(osd) {
            self.mark_down(osd);
            self.wishes.push(Wish::Boot(osd));
        }
    }

    pub(crate) fn has_wishes(&self) -> bool {
        !self.wishes.is_empty()
    }

    /// An OSD's process dies.
    pub(crate) fn crash(&mut self, osd: OsdId) {
        self.note(|| format!("osd.{osd} crashes"));
        let this = self.osds.get_mut(&osd).expect("an OSD");
        if !this.running {
            return;
        }
        this.running = false;
        this.pg = None;
        this.reserver = Reserver::new(1);
        this.disk.crash();
        this.fetches.clear();
        (this.early, this.held) = (Vec::new(), Vec::new());
        self.wires.retain(|(from, to), _| *from != End::Osd(osd) && *to != End::Osd(osd));
        for at in 0..self.clients.len() {
            self.clients[at].sessions.remove(&osd);
            self.clients[at].held.retain(|(of, _), _| *of != osd);
            for sent in self.clients[at].sent.values_mut().filter(|sent| sent.target == Some(osd)) {
                sent.target = None;
            }
        }
    }

    /// It comes back: tells the monitor, which marks it down and up again.
    pub(crate) fn restart(&mut self, osd: OsdId) {
        self.note(|| format!("osd.{osd} restarts"));
        let this = self.osds.get_mut(&osd).expect("an OSD");
        if this.running {
            return;
        }
        this.running = true;
        self.wishes.push(Wish::Boot(osd));
        if Pg::stored_epoch(&self.osds[&osd].disk, &spg()).is_none() {
            let this = self.osds.get_mut(&osd).expect("an OSD");
            let (through, note) = Pg::note_damage(&this.disk, spg(), this.epoch);
            this.epoch = self.maps.last().expect("a first map").epoch;
            if this.disk.has_collection() {
                this.disk.submit(note.unwrap_or_else(|| Transaction::new(spg())), Token(u64::MAX));
                self.begin_in_rubble(osd, through);
            }
            return;
        }
        let disk = &self.osds[&osd].disk;
        let epoch = Pg::stored_epoch(disk, &spg()).expect("readable records");
        let mut pg = Pg::load(disk, osd, spg(), &self.map_at(epoch)).expect("readable records");
        pg.tune(&self.tuning());
        let this = self.osds.get_mut(&osd).expect("an OSD");
        (this.pg, this.epoch) = (Some(pg), epoch);
    }

    /// What lies there cannot be read: the copy begins with what the maps tell, as the shard does it.
    pub(super) fn begin_in_rubble(&mut self, osd: OsdId, through: Epoch) {
        let (first, rest) = self.maps.split_first().expect("a first map");
        let mut lineage = Lineage::begin(spg(), first, false);
        rest.iter().for_each(|map| lineage.advance(map));
        self.create_info(osd, lineage.into_lost(through));
    }

    /// The monitor marks a dead OSD down.
    pub(crate) fn mark_down(&mut self, osd: OsdId) {
        let at = usize::try_from(osd).expect("small");
        self.publish(|map| {
            map.osd_state[at] &= !flags::osd::UP;
            map.osd_info[at].down_at = map.epoch;
        });
    }

    pub(super) fn grant(&mut self, wish: Wish) {
        match wish {
            Wish::UpThru(osd, epoch) => {
                let at = usize::try_from(osd).expect("small");
                if self.map().is_up(osd) && self.map().osd_info[at].up_thru < epoch {
                    let thru = self.map().epoch;
                    self.publish(|map| map.osd_info[at].up_thru = thru);
                }
            }
            Wish::PgTemp(acting) => {
                if acting.is_empty() && self.map().pg_temp.contains_key(&pg()) {
                    self.publish(|map| drop(map.pg_temp.remove(&pg())));
                } else if !acting.is_empty() && acting.iter().all(|osd| self.map().is_up(*osd)) {
                    self.publish(|map| drop(map.pg_temp.insert(pg(), acting)));
                }
            }
            Wish::Boot(osd) => {
                let at = usize::try_from(osd).expect("small");
                if self.map().is_up(osd) {
                    self.mark_down(osd);
                }
                self.publish(|map| {
                    map.osd_state[at] |= flags::osd::UP;
                    map.osd_info[at].up_from = map.epoch;
                });
            }
        }
    }

    /// One thing that can happen happens; false when nothing can.
    pub(crate) fn step(&mut self) -> bool {
        self.now = self.now + Duration::from_micros(100);
        let mut choices: Vec<Choice> = Vec::new();
        let busy = self.wires.iter().filter(|(_, packets)| !packets.is_empty());
        choices.extend(busy.map(|(wire, _)| Choice::Deliver(*wire)));
        let newest = self.map().epoch;
        for (id, osd) in self.osds.iter().filter(|(_, osd)| osd.running) {
            choices.extend(osd.disk.has_pending().then_some(Choice::Sync(*id)));
            choices.extend((!osd.fetches.is_empty() && !osd.disk.is_stuck).then_some(Choice::Fetch(*id)));
            choices.extend((osd.epoch < newest).then_some(Choice::Advance(*id)));
            let due = osd.pg.as_ref().and_then(Pg::next_deadline).filter(|due| *due <= self.now);
            choices.extend(due.map(|_| Choice::Due(*id)));
        }
        let behind = self.clients.iter().enumerate().filter(|(_, client)| client.epoch < newest);
        choices.extend(behind.map(|(at, _)| Choice::Inform(at)));
        choices.extend((!self.wishes.is_empty()).then_some(Choice::Grant));
        if choices.is_empty() {
            return false;
        }
        let at = self.pick(choices.len());
        match choices.swap_remove(at) {
            Choice::Deliver(wire) => self.deliver(wire),
            Choice::Sync(osd) => {
                if let Some(token) = self.disk(osd).sync_one() {
                    self.event(osd, Event::Durable(token));
                }
            }
            Choice::Fetch(osd) => {
                self.fetch(osd);
            }
            Choice::Advance(osd) => self.advance(osd),
            Choice::Due(osd) => self.event(osd, Event::Tick),
            Choice::Inform(at) => self.inform(at),
            Choice::Grant => {
                let wish = self.wishes.remove(0);
                self.grant(wish);
            }
        }
        true
    }

    /// Time passes for everybody.
    pub(crate) fn tick(&mut self, passed: Duration) {
        self.now = self.now + passed;
        for osd in 0..MEMBERS {
            if self.osds[&osd].running {
                self.event(osd, Event::Tick);
            }
        }
    }

    /// Goes on until nothing more happens.
    pub(crate) fn run_until_idle(&mut self) {
        for _ in 0..200_000 {
            if !self.step() {
                return;
            }
        }
        panic!("no end: {}", self.describe());
    }

    /// Everybody comes back; time passes until the PG is clean.
    pub(crate) fn heal(&mut self) {
        for osd in 0..MEMBERS {
            self.restart(osd);
            self.take_places(osd, false);
        }
        for _ in 0..20 {
            self.run_until_idle();
            self.tick(Duration::from_secs(1));
        }
        self.run_until_idle();
    }

    /// Sends and waits for the answer.
    pub(crate) fn call(&mut self, at: usize, object: &str, ops: Vec<SubOp>) -> OsdOpReply {
        let tid = self.request(at, object, ops);
        self.run_until_idle();
        self.clients[at].replies.remove(&tid).unwrap_or_else(|| panic!("no reply: {}", self.describe()))
    }

    /// For people who look at a failure.
    pub(crate) fn describe(&self) -> String {
        let up: Vec<OsdId> = self.map().up_osds().collect();
        let mut out = format!("map {} up {up:?} {:?}", self.map().epoch, self.map().pg_to_up_acting(pg()));
        for (id, osd) in &self.osds {
            let copy = osd.pg.as_ref().map(|pg| {
                let info = pg.info();
                format!(
                    "{} at {} knows {:?} update {} complete {} tail {} les {} incomplete {} missing {:?} {:?}",
                    pg.phase_name(),
                    pg.epoch(),
                    pg.state.peers.iter().map(|(osd, peer)| (osd, peer.activated, peer.missing.len())).collect::<Vec<_>>(),
                    info.last_update,
                    info.last_complete,
                    info.log_tail,
                    info.last_epoch_started,
                    info.is_incomplete(),
                    pg.state.missing,
                    pg.waiting().collect::<Vec<_>>(),
                )
            });
            out += &format!("\n osd.{id} running {} epoch {}: {copy:?}", osd.running, osd.epoch);
        }
        for client in &self.clients {
            out += &format!("\n client {} epoch {} waits for {:?}", client.gid, client.epoch, client.sent);
        }
        out
    }

    /// Members hold the same objects.
    pub(crate) fn assert_equal_copies(&mut self) {
        if self.is_coded() {
            return self.assert_related_chunks();
        }
        let members = self.map().pg_to_up_acting(pg()).acting;
        let first = self.osds[&members[0]].disk.objects().clone();
        for osd in members {
            assert_eq!(self.osds[&osd].disk.objects(), &first, "osd.{osd} differs");
        }
    }

    /// An object, or a clone, on the primary's disk.
    pub(crate) fn stored_as(&self, object: &HObject) -> Option<&crate::ops::testing::Stored> {
        self.osds[&self.primary()].disk.objects().get(object)
    }

    /// The object on the primary's disk.
    pub(crate) fn stored(&self, name: &str) -> Option<&crate::ops::testing::Stored> {
        self.osds[&self.primary()].disk.objects().get(&object(name))
    }
}

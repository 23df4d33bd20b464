//! Other pools: they are made, and deleted while clients write to them.

use super::Story;
use crate::workload::Workload;
use crate::world::World;
use nacre_types::PoolId;
use std::time::Duration;

/// Other pools at a time, at most.
const OTHERS_MAX: usize = 2;
/// Other pools of one story, at most: each has a client of its own.
const MADE_MAX: u32 = 6;
/// What is in each.
const OBJECTS: u64 = 3;
/// Between two messages.
const PAUSE: Duration = Duration::from_millis(400);

/// A pool beside the one that the story is about.
#[derive(Debug)]
pub(super) struct Other {
    name: String,
    /// What is done there, once there is such a pool.
    pub(super) work: Option<Workload>,
    is_doomed: bool,
}

impl Story {
    /// One more pool, or one less.
    pub(super) fn change_pools(&mut self) -> &'static str {
        if self.others.len() < OTHERS_MAX && self.made < MADE_MAX && self.below(3) > 0 {
            self.made += 1;
            let (name, pg_num) = (format!("x{}", self.made), 1 + self.below(3));
            self.order(&format!(r#"{{"prefix": "osd pool create", "pool": "{name}", "pg_num": {pg_num}}}"#));
            self.others.push(Other { name, work: None, is_doomed: false });
            return "pool created";
        }
        let count = self.others.len() as u64;
        let at = usize::try_from(self.below(count)).unwrap_or(0);
        let Some(other) = self.others.get_mut(at) else { return "no other pools" };
        other.is_doomed = true;
        other.work.iter_mut().for_each(Workload::expect_end);
        let name = other.name.clone();
        self.order(&format!(
            r#"{{"prefix": "osd pool delete", "pool": "{name}", "pool2": "{name}", "yes_i_really_really_mean_it": true}}"#
        ));
        "pool deleted"
    }

    /// Work begins where a pool has come, and must make sense where one has gone.
    pub(super) fn follow_pools(&mut self) {
        for mut other in std::mem::take(&mut self.others) {
            let Some(mon) = self.world.mon() else {
                self.others.push(other);
                continue;
            };
            let names = &mon.state().osd.map().pool_names;
            let id = names.iter().find(|(_, name)| **name == other.name).map(|(id, _)| *id);
            let is_over = other.work.as_ref().is_none_or(|work| work.open() == 0);
            match id {
                Some(id) if other.work.is_none() && !other.is_doomed => other.work = Some(self.work_in(id)),
                None if other.is_doomed && is_over => {
                    self.check_history(other.work.as_ref());
                    continue;
                }
                _ => {}
            }
            self.others.push(other);
        }
    }

    fn work_in(&mut self, pool: PoolId) -> Workload {
        let client = self.world.add_client();
        self.note(|| format!("client {client} works in pool {pool}"));
        let mut work = Workload::new(pool, OBJECTS, [client], PAUSE, None);
        work.call_and_copy();
        work
    }

    /// All that is done, everywhere.
    pub(super) fn works(&self) -> impl Iterator<Item = &Workload> {
        [&self.work].into_iter().chain(self.others.iter().filter_map(|other| other.work.as_ref()))
    }

    /// Has all of it do something, one after the other.
    pub(super) fn with_works(&mut self, mut act: impl FnMut(&mut Workload, &mut World)) {
        let others = self.others.iter_mut().filter_map(|other| other.work.as_mut());
        [&mut self.work].into_iter().chain(others).for_each(|work| act(work, &mut self.world));
    }
}

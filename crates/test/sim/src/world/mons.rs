//! Monitors that come and go: places without a store, stores that are lost, and what a monitor that joins begins with.

use super::{MonNode, Proc, World, mon_addr, mon_name};
use crate::kv::SimKv;
use nacre_buf::Bytes;
use nacre_denc::Decode;
use nacre_kv::KvStore;
use nacre_monitor::Seed;

impl World {
    /// One more place for a monitor, which has no store. Gives its number.
    pub fn add_mon(&mut self) -> usize {
        self.mons.push(MonNode { kv: SimKv::default(), driver: None, incoming: Vec::new() });
        self.mons.len() - 1
    }

    /// The name and the address of the monitor of a place, as commands take them.
    #[must_use]
    pub fn mon_place(&self, n: usize) -> (String, String) {
        (mon_name(n), mon_addr(n).to_string())
    }

    /// True when a monitor has a store, whatever is in it.
    ///
    /// # Panics
    /// When there is none of that number.
    #[must_use]
    pub fn has_mon_store(&self, n: usize) -> bool {
        !self.mons[n].kv.scan_prefix(b"").expect("memory can be read").is_empty()
    }

    /// A monitor, which ends if it runs, loses its store.
    ///
    /// # Panics
    /// When there is none of that number.
    pub fn wipe_mon(&mut self, n: usize) {
        if self.runs(Proc::Mon(n)) {
            self.stop_mon(n, false);
        }
        self.mons[n].kv = SimKv::default();
    }

    /// Makes the store of a monitor that joins, from the answer to `mon join`.
    ///
    /// # Panics
    /// When it has a store, or that is no such answer.
    pub fn seed_mon(&mut self, n: usize, seed: Bytes) {
        assert!(!self.has_mon_store(n), "nacre mon join refuses that");
        let seed = Seed::from_bytes(seed).expect("an answer to mon join");
        let key = self.mon_key.clone();
        nacre_monitor::join(&mut self.mons[n].kv, &seed, key, &mon_name(n)).expect("an empty store");
    }
}

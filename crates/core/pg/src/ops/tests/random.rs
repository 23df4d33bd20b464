//! Random messages and snapshots against a naive model that keeps a copy of the data per snapshot. What
//! always holds (sums, overlaps, mapper) the client checks after each message by itself.

use super::*;
use crate::ops::testing::Client;
use nacre_types::entropy::SeededEntropy;
use nacre_types::{Entropy, SnapId};
use std::collections::BTreeMap;

type Data = Option<Vec<u8>>;

struct World {
    client: Client,
    head: Data,
    snaps: BTreeMap<u64, Data>,
    dice: SeededEntropy,
}

impl World {
    fn new(seed: u64) -> Self {
        Self { client: Client::default(), head: None, snaps: BTreeMap::new(), dice: SeededEntropy(seed) }
    }

    fn dice(&mut self, sides: u64) -> usize {
        usize::try_from(self.dice.u64() % sides).expect("small")
    }

    fn text(&mut self) -> String {
        let length = self.dice(12);
        let letter = char::from(b'a' + u8::try_from(self.dice(26)).expect("a letter"));
        std::iter::repeat_n(letter, length).collect()
    }

    /// One operation, carried out on the model, and whether it must succeed.
    fn random_op(&mut self) -> (SubOp, bool) {
        let (at, length, text) = (self.dice(30), self.dice(20) + 1, self.text());
        match self.dice(8) {
            0 => self.on_write(at, &text),
            1 => {
                let at = self.head.as_ref().map_or(0, Vec::len);
                self.on_write(at, &text);
                (append(&text), true)
            }
            2 => {
                self.head = Some(text.clone().into_bytes());
                (full(&text), true)
            }
            3 => {
                if let Some(data) = &mut self.head {
                    data.resize(at, 0);
                }
                (extent(code::TRUNCATE, at as u64, 0), true)
            }
            4 => {
                self.on_zero(at, length);
                (extent(code::ZERO, at as u64, length as u64), true)
            }
            5 => (delete(), self.head.take().is_some()),
            6 => {
                self.head.get_or_insert_default();
                (create(), true)
            }
            _ => {
                self.head.get_or_insert_default();
                (crate::ops::testing::omap_set("k", &text), true)
            }
        }
    }

    fn on_write(&mut self, at: usize, text: &str) -> (SubOp, bool) {
        let data = self.head.get_or_insert_default();
        data.resize(data.len().max(at + text.len()), 0);
        data[at..at + text.len()].copy_from_slice(text.as_bytes());
        (write(at as u64, text), true)
    }

    fn on_zero(&mut self, at: usize, length: usize) {
        let Some(data) = &mut self.head else { return };
        if at + length >= data.len() {
            data.truncate(at);
        } else {
            data[at..at + length].fill(0);
        }
    }

    /// A rollback goes alone: it takes the state before the message for "now", unlike the model.
    fn roll_back(&mut self) {
        let ids: Vec<u64> = self.snaps.keys().copied().collect();
        let Some(id) = ids.get(self.dice(ids.len().max(1) as u64)) else { return };
        self.head.clone_from(&self.snaps[id]);
        assert_eq!(self.client.send(vec![SubOp::rollback(SnapId(*id))]).result, 0);
    }

    fn snapshot(&mut self) {
        let id = self.client.snap_seq.0 + 1 + self.dice(3) as u64;
        self.client.snap_seq = SnapId(id);
        self.client.snaps.insert(0, SnapId(id));
        self.snaps.insert(id, self.head.clone());
    }

    fn remove_snapshot(&mut self) {
        let ids: Vec<u64> = self.snaps.keys().copied().collect();
        let Some(id) = ids.get(self.dice(ids.len().max(1) as u64)).copied() else { return };
        self.snaps.remove(&id);
        // Clients learn of the removal late: their context may still name it.
        if self.dice(2) == 0 {
            self.client.snaps.retain(|snap| snap.0 != id);
        }
        self.client.trim(SnapId(id));
    }

    /// Sends up to three operations in one message.
    fn message(&mut self) {
        let (before, mut ops, mut works) = (self.head.clone(), Vec::new(), true);
        for _ in 0..=self.dice(3) {
            let (op, ok) = self.random_op();
            works &= ok;
            ops.push(op);
            if !ok {
                break;
            }
        }
        let result = self.client.send(ops.clone()).result;
        assert_eq!(result == 0, works, "{ops:?}");
        if !works {
            self.head = before;
        }
    }

    fn check(&mut self) {
        let expected: Vec<(SnapId, Data)> = self
            .snaps
            .iter()
            .map(|(id, data)| (SnapId(*id), data.clone()))
            .chain([(SnapId::HEAD, self.head.clone())])
            .collect();
        for (snap, want) in expected {
            let outcome = self.client.send_at(snap, vec![read()]);
            let found = (outcome.result == 0).then(|| outcome.ops[0].out.to_bytes().to_vec());
            assert_eq!(found, want, "at {snap:?}, snapshots {:?}", self.client.context().snaps);
        }
    }
}

#[test]
fn snapshots_agree_with_a_naive_model() {
    for seed in 0..60 {
        let mut world = World::new(seed);
        for _ in 0..120 {
            match world.dice(10) {
                0 | 1 => world.snapshot(),
                2 => world.remove_snapshot(),
                3 => world.roll_back(),
                _ => world.message(),
            }
            world.check();
        }
    }
}

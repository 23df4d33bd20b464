//! What clients send does not stay in memory because a little of it does, and what does is counted.

use super::faults::wait;
use super::model::{object, pg};
use super::rig::Rig;
use crate::{BLOCK, Options};
use nacre_buf::{AlignedBuf, BufList, Bytes};
use nacre_store::ObjectStore;
use nacre_txn::{Op, StoreToken, Transaction};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory of a message, which says when it goes.
struct Message {
    bytes: AlignedBuf,
    alive: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        self.alive.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

fn message(length: usize, alive: &Arc<AtomicUsize>) -> BufList {
    alive.fetch_add(length, Ordering::Relaxed);
    let mut bytes = AlignedBuf::with_len(length);
    bytes.fill(7);
    BufList::from(Bytes::from_owner(Message { bytes, alive: Arc::clone(alive) }))
}

fn write(nth: u64, offset: u64, data: BufList) -> Transaction {
    Transaction { collection: pg(), ops: vec![Op::Write { object: object(nth), offset, data }] }
}

#[test]
fn heads_and_tails_of_large_writes_do_not_keep_their_messages() {
    let alive = Arc::default();
    let mut store = Rig::new(1, 128 << 20, Options::default()).open();
    for nth in 0..40 {
        // Unaligned: a head of 2 KiB and a tail of as much are inline.
        let data = message(1 << 20, &alive);
        store.submit(write(nth, 2048, data), StoreToken::without_pg(nth)).expect("room");
        wait(&mut store);
    }
    assert_eq!((store.checkpoints(), alive.load(Ordering::Relaxed)), (0, 0));
    assert!(store.memory_bytes() < 4 << 20, "{} bytes", store.memory_bytes());
}

/// In a message with much else, also whole blocks are copied.
#[test]
fn small_writes_in_a_large_message_do_not_keep_it() {
    let alive = Arc::default();
    let mut store = Rig::new(2, 128 << 20, Options::default()).open();
    let data = message(2 << 20, &alive);
    let mut txn = Transaction::new(pg());
    for nth in 0..128 {
        let data = data.slice(nth * (16 << 10), 16 << 10);
        txn.push(Op::Write { object: object(nth as u64), offset: 0, data });
    }
    drop(data);
    store.submit(txn, StoreToken::without_pg(1)).expect("room");
    wait(&mut store);
    assert_eq!((store.checkpoints(), alive.load(Ordering::Relaxed)), (0, 0));
    assert_eq!(store.fill().dirty_bytes, 2 << 20);
}

/// One dirty block of eight keeps all eight.
#[test]
fn what_dirty_blocks_keep_alive_counts_and_makes_checkpoints() {
    let alive = Arc::default();
    let options = Options { overlay_bytes_max: 1 << 20, marks_max: 1 << 20, ..Options::default() };
    let mut store = Rig::new(3, 128 << 20, options).open();
    let block = BLOCK as u64;
    let mut most = 0;
    for nth in 0..400 {
        store.submit(write(nth, 0, message(32 << 10, &alive)), StoreToken::without_pg(nth)).expect("room");
        store.submit(write(nth, 0, message(BLOCK, &alive)), StoreToken::without_pg(nth)).expect("room");
        let ops = vec![Op::Truncate { object: object(nth), size: block * 2 }];
        store.submit(Transaction { collection: pg(), ops }, StoreToken::without_pg(nth)).expect("room");
        wait(&mut store);
        let held = alive.load(Ordering::Relaxed);
        most = most.max(held);
        if store.checkpoint_stage().is_none() {
            assert!(
                store.fill().dirty_bytes >= held as u64,
                "{} counted, {held} held",
                store.fill().dirty_bytes
            );
        }
    }
    assert!(store.checkpoints() > 5, "{} checkpoints", store.checkpoints());
    assert!(most <= 3 << 20, "{most} bytes held");
    store.finish_checkpoint();
    assert_eq!((alive.load(Ordering::Relaxed), store.fill().dirty_bytes), (0, 0));
}

/// A log that is replayed is read in large pieces.
#[test]
fn replay_keeps_nothing_of_the_log() {
    let mut rig = Rig::new(4, 128 << 20, Options::default());
    let mut store = rig.open();
    let alive = Arc::default();
    for nth in 0..40 {
        store.submit(write(nth, 0, message(20 << 10, &alive)), StoreToken::without_pg(nth)).expect("room");
        store.submit(write(nth, 0, message(4 * BLOCK, &alive)), StoreToken::without_pg(nth)).expect("room");
        wait(&mut store);
    }
    drop(store);
    let store = rig.open();
    assert_eq!(store.fill().dirty_bytes, 40 * 5 * BLOCK as u64);
}

/// Many pieces of one object: little changes in the metadata but the free space.
#[test]
fn released_runs_make_checkpoints() {
    const HOLES: u64 = 3000;
    let options = Options { marks_max: 2000, ..Options::default() };
    let mut store = Rig::new(5, 128 << 20, options).open();
    let size = HOLES * 2 * BLOCK as u64;
    store
        .submit(write(1, 0, message(size as usize, &Arc::default())), StoreToken::without_pg(1))
        .expect("room");
    wait(&mut store);
    store.finish_checkpoint();
    // Not all of the store's memory: what is known of the object's blocks takes more or less of it as it is changed.
    let runs = |store: &crate::BlockStore| store.table.space.alloc.bytes();
    let (before, memory) = (store.checkpoints(), runs(&store));
    for nth in 0..HOLES {
        let (object, offset) = (object(1), nth * 2 * BLOCK as u64);
        let ops = vec![Op::Zero { object, offset, length: BLOCK as u64 }];
        store.submit(Transaction { collection: pg(), ops }, StoreToken::without_pg(nth)).expect("room");
    }
    assert!(runs(&store) > memory + HOLES as usize * 16, "released runs are counted");
    wait(&mut store);
    assert!(store.checkpoint_stage().is_some() || store.checkpoints() > before, "a checkpoint begins");
}

//! A transaction that names data, dealt out to the shards.

use super::Coding;
use nacre_buf::{BufList, Bytes};
use nacre_txn::Op;

impl Coding {
    /// What each shard must apply. Data is that of whole stripes from the beginning of one, or reaches the object's
    /// end: what is left of its last stripe is filled up. Zeros are whole stripes.
    pub(crate) fn encode_shards(&self, ops: Vec<Op>) -> Vec<Vec<Op>> {
        let mut by_shard: Vec<Vec<Op>> = vec![Vec::with_capacity(ops.len() + 2); self.codec.shards()];
        for op in ops {
            match op {
                Op::Write { object, offset, data } => {
                    let offset = self.layout.in_chunk(offset);
                    for (shard, data) in by_shard.iter_mut().zip(self.chunks(&data)) {
                        shard.push(Op::Write { object: object.clone(), offset, data });
                    }
                }
                op => {
                    let op = self.of_each_chunk(op);
                    by_shard.iter_mut().for_each(|shard| shard.push(op.clone()));
                }
            }
        }
        by_shard
    }

    /// What all shards do alike.
    fn of_each_chunk(&self, op: Op) -> Op {
        let layout = &self.layout;
        match op {
            Op::Truncate { object, size } => Op::Truncate { object, size: layout.chunk_bytes(size) },
            // The parity of zeros is zeros.
            Op::Zero { object, offset, length } => {
                Op::Zero { object, offset: layout.in_chunk(offset), length: layout.in_chunk(length) }
            }
            op => op,
        }
    }

    /// The chunks of all shards.
    fn chunks(&self, data: &BufList) -> Vec<BufList> {
        let mut chunks: Vec<Bytes> = self.layout.split(data).iter().map(BufList::to_bytes).collect();
        let slices: Vec<&[u8]> = chunks.iter().map(|chunk| &chunk[..]).collect();
        let parity = self.codec.encode(&slices);
        chunks.extend(parity.into_iter().map(Bytes::from));
        chunks.into_iter().map(BufList::from).collect()
    }
}

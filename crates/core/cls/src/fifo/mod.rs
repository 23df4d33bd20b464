//! Class `fifo`: a queue in many objects, as radosgw logs for other zones which buckets changed. Clients make the parts, and
//! decide with the record's version which of them was first.
//!
//! Formats: Ceph `src/cls/fifo/cls_fifo_types.h` and `cls_fifo_ops.h`; behaviour measured at v16.2.15.

mod meta;
mod part;

use crate::method::{Method, read, write};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};

pub(crate) static METHODS: &[Method] = &[
    write("create_meta", meta::create),
    read("get_meta", meta::get),
    write("update_meta", meta::update),
    write("init_part", part::init),
    write("push_part", part::push).taking_data(),
    write("trim_part", part::trim),
    read("part_list", part::list),
    read("get_part_info", part::info),
];

/// Room for the header of a part.
const HEADER_BYTES: u64 = 512;
/// What an entry takes beside its data.
const ENTRY_OVERHEAD_BYTES: u64 = 58;

/// `rados::cls::fifo::data_params`
#[derive(Clone, Copy, PartialEq, Eq)]
struct Params {
    part_bytes_max: u64,
    entry_bytes_max: u64,
    /// Behind this offset a part takes no entries.
    full_bytes: u64,
}

impl Encode for Params {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u64(self.part_bytes_max);
            w.u64(self.entry_bytes_max);
            w.u64(self.full_bytes);
        });
    }
}

impl Decode for Params {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("fifo::data_params", 1, |_, r| {
            Ok(Self { part_bytes_max: r.u64()?, entry_bytes_max: r.u64()?, full_bytes: r.u64()? })
        })
    }
}

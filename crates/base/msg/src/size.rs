//! The one size rule: how long a message may be, and what follows from it for what travels in messages.
//!
//! ```text
//!  a client's message   front, middle: FRONT_BYTES_MAX, MIDDLE_BYTES_MAX     data: DATA_BYTES_MAX
//!    its input          CLIENT_INPUT_BYTES_MAX, refused with EMSGSIZE before it is executed
//!    what comes of it   TRANSACTION_BYTES_MAX, refused with EMSGSIZE (copies: EFBIG) before anything is changed
//!  a peer's message     front and data together: PEER_BYTES_MAX
//!    RepOp              a transaction, its log entries and PEER_REST_BYTES_MAX
//!    LogReply, Activate a log: LOG_BYTES_MAX, and PEER_REST_BYTES_MAX
//!    Push, CopyReply    a part of an object: PART_BYTES_MAX, or a single value that is longer
//!    copies             what of their source is more than one write should carry goes to a temporary object before
//!  a store              takes every transaction that keeps to TRANSACTION_BYTES_MAX, whatever the length of its log
//! ```
//!
//! What is accepted at one line is carried by all below it; the assertions hold the numbers to that.

/// Longest front of a message; the largest real ones are full cluster maps. What a peer says beyond it travels in the
/// data segment.
pub const FRONT_BYTES_MAX: u32 = 16 << 20;
/// Longest middle of a message.
pub const MIDDLE_BYTES_MAX: u32 = 16 << 20;
/// Longest payload of a client's message that is kept.
pub const DATA_BYTES_MAX: u32 = 96 << 20;
/// Longest payload of a message between two OSDs.
pub const PEER_BYTES_MAX: u32 = 192 << 20;

/// Longest range end that an object may reach, in bytes (`osd_max_object_size`).
pub const OBJECT_BYTES_MAX: u64 = 128 << 20;
/// Largest input of one client's message in bytes (`osd_max_write_size`).
pub const CLIENT_INPUT_BYTES_MAX: usize = 90 << 20;
/// Most that the changes of one transaction may be long, with names, attributes and omap, as [`nacre_txn::Op::size_bytes`]
/// counts: an object's data at once, as a copy or a class method may make it, and what goes with it.
pub const TRANSACTION_BYTES_MAX: usize = 136 << 20;
/// Most that the entries of a PG's log may be long together.
pub const LOG_BYTES_MAX: usize = 64 << 20;
/// Keys, values and data, each, in one part of an object that is copied to another OSD. A value that is longer is a part of its
/// own.
pub const PART_BYTES_MAX: usize = 512 << 10;
/// Room for all else in a message between OSDs: header, info, log entries of one write, past intervals.
pub const PEER_REST_BYTES_MAX: usize = 4 << 20;

// What a client may send, the transaction that it becomes can hold: keys and values are not longer there.
const _: () = assert!(CLIENT_INPUT_BYTES_MAX < DATA_BYTES_MAX as usize);
const _: () = assert!(CLIENT_INPUT_BYTES_MAX + PEER_REST_BYTES_MAX <= TRANSACTION_BYTES_MAX);
const _: () = assert!(OBJECT_BYTES_MAX + PEER_REST_BYTES_MAX as u64 <= TRANSACTION_BYTES_MAX as u64);
// Otherwise an accepted write would be lost on its way to the replicas, and its object be stuck.
const _: () = assert!(TRANSACTION_BYTES_MAX + PEER_REST_BYTES_MAX <= PEER_BYTES_MAX as usize);
// A log that does not fit a message would end all peering of its PG.
const _: () = assert!(LOG_BYTES_MAX + PEER_REST_BYTES_MAX <= PEER_BYTES_MAX as usize);
// A single value is never longer than what a client may send at once, and so fits a part.
const _: () =
    assert!(CLIENT_INPUT_BYTES_MAX + 2 * PART_BYTES_MAX + PEER_REST_BYTES_MAX <= PEER_BYTES_MAX as usize);

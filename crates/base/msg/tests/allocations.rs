//! The path of every request: decoding one allocates for its list of operations and nothing else.

mod counting;

use counting::measure;
use nacre_buf::{AlignedBuf, BufList, Bytes};
use nacre_msg::osd_op::{AllocHint, flag};
use nacre_msg::{Message, OsdOp, RawMessage, SubOp};
use nacre_types::{ObjectLocator, PgId, ReqId, SnapId, SpgId, UTime};

/// As the messenger delivers it: in memory that is shared from the start.
fn delivered(bytes: &[u8]) -> Bytes {
    let mut buf = AlignedBuf::with_len(bytes.len());
    buf.copy_from_slice(bytes);
    buf.freeze()
}

fn request(ops: Vec<SubOp>) -> RawMessage {
    let op = OsdOp {
        spg: SpgId::replicated(PgId::new(1, 2)),
        hash: 3,
        epoch: 4,
        flags: flag::WRITE,
        reqid: ReqId::default(),
        client_inc: 0,
        mtime: UTime::ZERO,
        locator: ObjectLocator { namespace: "space".into(), ..ObjectLocator::in_pool(1) },
        name: "rbd_data.1234.0000000000000000".into(),
        ops,
        snap: SnapId::HEAD,
        snap_seq: SnapId(0),
        snaps: Vec::new(),
        retry_attempt: 0,
        features: 0,
    };
    let raw = Message::OsdOp(op).encode(1);
    let data = raw.data.to_bytes();
    let data = if data.is_empty() { BufList::new() } else { delivered(&data).into() };
    RawMessage { front: delivered(&raw.front), data, ..raw }
}

#[test]
fn a_read_or_write_costs_one_allocation() {
    let payload = || vec![7; 4096].into();
    let hint = SubOp::with_alloc_hint(AllocHint::default());
    let requests = [
        vec![SubOp::read(0, 4096)],
        vec![SubOp::write(0, payload())],
        vec![hint, SubOp::write(0, payload())],
    ];
    for ops in requests {
        let (raw, mut decoded) = (request(ops), None);
        let cost = measure(|| decoded = Some(Message::decode(raw)));
        assert!(matches!(decoded, Some(Ok(Message::OsdOp(_)))));
        assert_eq!(cost.allocations, 1, "the list of operations");
        assert!(cost.peak_bytes < 512, "no copy of the payload");
    }
}

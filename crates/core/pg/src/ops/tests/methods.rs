//! What methods of object classes return beside their outputs, and what they say when they fail.

use super::*;
use crate::ops::testing::Client;
use nacre_buf::Bytes;
use nacre_denc::Writer;
use nacre_msg::osd_op::flag;
use nacre_types::Errno;

fn call(class: &str, method: &str, version: u8, write: impl FnOnce(&mut Writer)) -> SubOp {
    let mut w = Writer::new();
    w.envelope(version, 1, write);
    SubOp::call(class, method, &w.finish())
}

/// Class `fifo` pushes as many entries as fit, and returns how many; only clients that ask for it see that.
#[test]
fn a_method_returns_a_count_beside_its_output() {
    let init = call("fifo", "init_part", 1, |w| {
        w.str("");
        w.envelope(1, 1, |w| [1000, 200, 742].iter().for_each(|number| w.u64(*number)));
    });
    let push = || {
        call("fifo", "push_part", 1, |w| {
            w.str("");
            w.put(&vec![Bytes::from_static(b"one"), Bytes::from_static(b"two")]);
            w.u64(6);
        })
    };
    let mut client = Client::default();
    assert_eq!(client.send(vec![init]).result, 0);
    assert_eq!(client.send(vec![push()]).result, 0);
    client.flags = flag::RETURNVEC;
    let outcome = client.send(vec![push()]);
    assert_eq!((outcome.result, outcome.ops[0].rval), (2, 2));
}

/// `rgw_bucket_dir_entry` of a delete marker.
pub(super) fn put_marker(w: &mut Writer, name: &str) {
    w.envelope(8, 3, |w| {
        w.str(name);
        w.u64(0);
        w.bool(false);
        w.envelope(7, 3, |w| w.zeros(1 + 8 + 8 + 4 * 4 + 8 + 2 * 4 + 1));
        w.count(0);
        w.str("");
        w.envelope(1, 1, |w| w.zeros(2));
        w.u8(0);
        w.str("");
        w.str("");
        w.u16(7);
        w.u64(2);
    });
}

/// A listing of a bucket with nothing but delete markers fails with `EFBIG` and says where to go on.
#[test]
fn a_method_that_fails_may_have_an_output() {
    let mut client = Client::default();
    for name in (0..20).map(|number| format!("deleted{number:02}")) {
        let put = call("rgw", "bi_put", 1, |w| {
            w.envelope(1, 1, |w| {
                w.u8(1);
                w.str(&name);
                w.nested(|w| put_marker(w, &name));
            });
        });
        assert_eq!(client.send(vec![put]).result, 0);
    }
    let list = call("rgw", "bucket_list", 6, |w| {
        w.u32(1);
        w.str("");
        w.envelope(1, 1, |w| w.zeros(8));
        w.bool(false);
        w.str("");
    });
    let outcome = client.send(vec![list]);
    assert_eq!(outcome.result, Errno::EFBIG.negated());
    let told = outcome.ops[0].out.to_bytes();
    let looked_at = b"deleted07"; // eight pages of one entry each
    assert!(told.windows(looked_at.len()).any(|text| text == looked_at), "{told:?}");
}

//! Class `sdk`: Ceph's test of the public class interface; writes through every call and reads it all back.

use crate::method::{Method, done, fail, write};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_types::Errno;

pub(crate) static METHODS: &[Method] =
    &[write("test_coverage_write", test_coverage_write), write("test_coverage_replay", test_coverage_replay)];

const KEY: &str = "foo";
const CONTENT: &[u8] = b"test";

fn test_coverage_write(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    cx.create();
    cx.write(0, Bytes::from_static(CONTENT).into());
    cx.set_attr(ByteStr::from_static(KEY), Bytes::from_static(CONTENT));
    cx.omap_set(vec![(ByteStr::from_static(KEY), Bytes::from_static(CONTENT))]);
    done()
}

/// Checks that data, attribute and omap value are equally long, then removes the object.
fn test_coverage_replay(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    let size = cx.size();
    let attr = cx.attr(KEY.as_bytes()).ok_or(Fault::Errno(Errno::ENODATA));
    let data = cx.read(0, size)?;
    let value = cx.omap_value(KEY.as_bytes()).ok_or(Fault::Errno(Errno::ENOENT));
    if [data, attr?, value?].iter().any(|part| part.len() as u64 != size) {
        return fail(Errno::EIO);
    }
    cx.remove();
    done()
}

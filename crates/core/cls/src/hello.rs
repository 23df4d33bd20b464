//! Class `hello`: Ceph's example class; clients' tests use it to see how calls behave.

use crate::method::{Method, done, fail, read, write, write_only};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_types::Errno;

pub(crate) static METHODS: &[Method] = &[
    read("say_hello", say_hello),
    write_only("record_hello", record_hello),
    write_only("write_return_data", write_return_data),
    write_only("writes_dont_return_data", writes_dont_return_data),
    write_only("write_too_much_return_data", write_too_much_return_data),
    read("replay", replay),
    write("turn_it_to_11", turn_it_to_11),
    write_only("bad_reader", bad),
    read("bad_writer", bad),
];

/// Longest name that is greeted, in bytes.
const NAME_BYTES_MAX: usize = 100;
/// What is read back, in bytes.
const REPLAY_BYTES_MAX: u64 = 1100;

fn greeting(name: &Bytes) -> Result<Bytes, Fault> {
    match name.len() {
        0 => Ok(Bytes::from_static(b"Hello, world!")),
        1..=NAME_BYTES_MAX => Ok([b"Hello, ", &name[..], b"!"].concat().into()),
        _ => fail(Errno::EINVAL),
    }
}

fn say_hello(_: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    greeting(&bytes)
}

fn sign(cx: &mut dyn ClassCx, attr: &'static str) {
    let caller = cx.caller();
    let text = format!("{} {}", caller.name, caller.addr);
    cx.set_attr(ByteStr::from_static(attr), text.into());
}

fn record_hello(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let greeting = greeting(&bytes)?;
    if cx.exists() {
        return fail(Errno::EEXIST);
    }
    cx.write_full(greeting.into());
    sign(cx, "said_by");
    done()
}

fn mark(cx: &mut dyn ClassCx) {
    cx.set_attr(ByteStr::from_static("foo"), Bytes::from_static(b"bar"));
}

/// Shows that a write's output reaches only clients that ask for it.
fn write_return_data(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    mark(cx);
    if !bytes.is_empty() {
        return fail(Errno::EINVAL);
    }
    Ok(Bytes::from_static(b"you might see this"))
}

fn writes_dont_return_data(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    mark(cx);
    if !bytes.is_empty() {
        return fail(Errno::EINVAL);
    }
    Ok(Bytes::from_static(b"you will never see this"))
}

fn write_too_much_return_data(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    mark(cx);
    if !bytes.is_empty() {
        return fail(Errno::EINVAL);
    }
    Ok(Bytes::from_static(&[b'x'; 1024]))
}

fn replay(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    cx.read(0, REPLAY_BYTES_MAX)
}

/// Makes the greeting louder.
fn turn_it_to_11(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    if !bytes.is_empty() {
        return fail(Errno::EINVAL);
    }
    let old = if cx.exists() { cx.read(0, REPLAY_BYTES_MAX)? } else { Bytes::new() };
    cx.write_full(Bytes::from(old.to_ascii_uppercase()).into());
    sign(cx, "amplified_by");
    done()
}

/// Methods that do what their flags do not allow: an OSD refuses that with `EIO`.
fn bad(_: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    fail(Errno::EIO)
}

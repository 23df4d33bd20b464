//! Class `otp`: secrets of devices that show one-time passwords, and checks of those passwords, for radosgw's deletes that
//! need one. Formats: Ceph `src/cls/otp/cls_otp_types.h` and `cls_otp_ops.h`; behaviour measured at v16.2.15. The passwords
//! are those of RFC 6238 with HMAC-SHA-1.

use crate::keys::{input, output, stored};
use crate::method::{Method, done, fail, read, write};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{Errno, UTime};
use ring::hmac;
use std::collections::{BTreeSet, VecDeque};

pub(crate) static METHODS: &[Method] = &[
    write("otp_set", set),
    read("otp_get", get),
    write("otp_check", check),
    read("otp_get_result", result_of_check),
    write("otp_remove", remove),
    read("get_current_time", current_time),
];

const HEADER_KEY: &[u8] = b"header";
const DEVICE_PREFIX: &[u8] = b"otp/";
/// Checks of one device within a step of its clock; further ones are not made.
const CHECKS_MAX: usize = 5;
/// Steps beside the present one that a device's clock may be off; more would cost an HMAC each.
const WINDOW_MAX: u64 = 1000;
/// Digits that a password may have.
const DIGITS: std::ops::RangeInclusive<usize> = 6..=8;

/// `SeedType`
const SEED_BASE32: u8 = 2;

/// `OTPCheckResult`
mod verdict {
    pub(super) const UNKNOWN: u8 = 0;
    pub(super) const SUCCESS: u8 = 1;
    pub(super) const FAIL: u8 = 2;
}

/// `rados::cls::otp::otp_info_t`
#[derive(Clone)]
struct Device {
    kind: u8,
    id: ByteStr,
    /// The secret as text.
    seed: ByteStr,
    seed_type: u8,
    secret: Bytes,
    /// Seconds since 1970 at which its counter was 0.
    start: i32,
    step_s: u32,
    window: u32,
}

impl Encode for Device {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u8(self.kind);
            w.put(&self.id);
            w.put(&self.seed);
            w.u8(self.seed_type);
            w.put(&self.secret);
            w.i32(self.start);
            w.u32(self.step_s);
            w.u32(self.window);
        });
    }
}

impl Decode for Device {
    const MIN_BYTES: usize = 32;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("otp_info_t", 1, |_, r| {
            Ok(Self {
                kind: r.u8()?,
                id: r.get()?,
                seed: r.get()?,
                seed_type: r.u8()?,
                secret: r.get()?,
                start: r.i32()?,
                step_s: r.u32()?,
                window: r.u32()?,
            })
        })
    }
}

impl Device {
    /// The secret of its text.
    fn parse_seed(&self) -> Option<Bytes> {
        let secret = if self.seed_type == SEED_BASE32 { base32(&self.seed) } else { hex(&self.seed) };
        secret.map(Bytes::from)
    }

    /// The counter at which it shows a password, as near to now as there is one.
    fn counter_of(&self, now: UTime, password: &[u8]) -> Option<u64> {
        if !DIGITS.contains(&password.len()) || self.step_s == 0 {
            return None;
        }
        let present = u64::from(now.sec.wrapping_sub(self.start.cast_unsigned()) / self.step_s);
        let shows = |counter: u64| self.password(counter, password.len()).as_bytes() == password;
        let distance = (0..=u64::from(self.window).min(WINDOW_MAX)).find(|distance| {
            shows(present.wrapping_add(*distance)) || shows(present.wrapping_sub(*distance))
        })?;
        Some(present.wrapping_add(distance)) // also when it was before: so Ceph counts
    }

    /// What it shows at a counter: RFC 4226, section 5.3.
    fn password(&self, counter: u64, digits: usize) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &self.secret);
        let tag = hmac::sign(&key, &counter.to_be_bytes());
        let at = usize::from(tag.as_ref().last().map_or(0, |last| last & 0xf));
        let word =
            tag.as_ref().iter().skip(at).take(4).fold(0_u32, |word, byte| word << 8 | u32::from(*byte));
        let shown = (word & 0x7fff_ffff) % [1_000_000, 10_000_000, 100_000_000][digits - DIGITS.start()];
        format!("{shown:0digits$}")
    }
}

fn hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pair = |pair: &[u8]| match *pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    text.chunks(2).map(pair).collect()
}

/// RFC 4648, with blanks, in any case, and with or without padding.
fn base32(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let (mut count, mut bits, mut held) = (0_usize, 0_u32, 0_u32);
    let shown = text.iter().filter(|byte| !byte.is_ascii_whitespace());
    for byte in shown.take_while(|byte| **byte != b'=') {
        let value = match byte.to_ascii_uppercase() {
            letter @ b'A'..=b'Z' => letter - b'A',
            digit @ b'2'..=b'7' => digit - b'2' + 26,
            _ => return None,
        };
        (count, held, bits) = (count + 1, held << 5 | u32::from(value), bits + 5);
        if bits >= 8 {
            bits -= 8;
            out.push((held >> bits & 0xff) as u8);
        }
    }
    // Other lengths end within a byte.
    [0, 2, 4, 5, 7].contains(&(count % 8)).then_some(out)
}

/// `rados::cls::otp::otp_check_t`
struct Check {
    token: ByteStr,
    time: UTime,
    verdict: u8,
}

impl Encode for Check {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.token);
            w.put(&self.time);
            w.u8(self.verdict);
        });
    }
}

impl Decode for Check {
    const MIN_BYTES: usize = 19;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("otp_check_t", 1, |_, r| Ok(Self { token: r.get()?, time: r.get()?, verdict: r.u8()? }))
    }
}

/// `otp_instance`: a device and the last checks of it.
struct Instance {
    device: Device,
    checks: VecDeque<Check>,
    /// The counter of the last password that was right: no other up to it is again.
    last_counter: u64,
}

impl Encode for Instance {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.device);
            w.put(&self.checks);
            w.u64(self.last_counter);
        });
    }
}

impl Decode for Instance {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("otp_instance", 1, |_, r| {
            Ok(Self { device: r.get()?, checks: r.get()?, last_counter: r.u64()? })
        })
    }
}

fn device_key(id: &[u8]) -> ByteStr {
    ByteStr::from([DEVICE_PREFIX, id].concat())
}

impl Instance {
    fn find(cx: &dyn ClassCx, id: &[u8]) -> Result<Option<Self>, Fault> {
        cx.omap_value(&device_key(id)).map(stored).transpose()
    }

    fn get(cx: &dyn ClassCx, id: &[u8]) -> Result<Self, Fault> {
        Self::find(cx, id)?.ok_or(Fault::Errno(Errno::ENOENT))
    }

    fn save(&self, cx: &mut dyn ClassCx) {
        cx.omap_set(vec![(device_key(&self.device.id), self.to_bytes())]);
    }

    /// Forgets checks from before the present step.
    fn trim(&mut self, now: UTime) {
        let oldest = now.to_unix().saturating_sub(std::time::Duration::from_secs(self.device.step_s.into()));
        while self.checks.front().is_some_and(|check| check.time.to_unix() < oldest) {
            self.checks.pop_front();
        }
    }

    /// Whether a password is right, and not used.
    fn verify(&mut self, now: UTime, password: &[u8]) -> bool {
        match self.device.counter_of(now, password) {
            Some(counter) if counter > self.last_counter => {
                self.last_counter = counter;
                true
            }
            _ => false,
        }
    }
}

/// The devices that there are: `otp_header`.
fn ids(cx: &dyn ClassCx) -> Result<BTreeSet<ByteStr>, Fault> {
    let Some(value) = cx.omap_value(HEADER_KEY).filter(|value| !value.is_empty()) else {
        return Ok(BTreeSet::new());
    };
    let ids = Reader::new(value).envelope("otp_header", 1, |_, r| r.get());
    ids.map_err(|_| Fault::Errno(Errno::EIO))
}

fn save_ids(cx: &mut dyn ClassCx, ids: &BTreeSet<ByteStr>) {
    let mut w = Writer::new();
    w.envelope(1, 1, |w| w.put(ids));
    cx.omap_set(vec![(ByteStr::from(HEADER_KEY), w.finish())]);
}

/// `list<device>`
fn set(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let devices: Vec<Device> = Reader::new(bytes).envelope("cls_otp_set_otp_op", 1, |_, r| r.get())?;
    let mut ids = ids(cx)?;
    for mut device in devices {
        let Some(secret) = device.parse_seed() else { return fail(Errno::EINVAL) };
        device.secret = secret;
        ids.insert(device.id.clone());
        let (checks, last_counter) = Instance::find(cx, &device.id)?
            .map_or_else(Default::default, |old| (old.checks, old.last_counter));
        Instance { device, checks, last_counter }.save(cx);
    }
    save_ids(cx, &ids);
    done()
}

/// `list<str id>`
fn remove(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let gone: Vec<ByteStr> = Reader::new(bytes).envelope("cls_otp_remove_otp_op", 1, |_, r| r.get())?;
    let mut ids = ids(cx)?;
    let mut changed = false;
    for id in gone {
        if ids.remove(&id) {
            cx.omap_remove(vec![device_key(&id)]);
            changed = true;
        }
    }
    if changed {
        save_ids(cx, &ids);
    }
    done()
}

/// `bool all, list<str id>`
fn get(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (all, asked) = Reader::new(bytes)
        .envelope("cls_otp_get_otp_op", 1, |_, r| Ok((r.bool()?, r.get::<Vec<ByteStr>>()?)))?;
    let ids = ids(cx)?;
    let wanted = if all { ids.iter().cloned().collect() } else { asked };
    let mut devices = Vec::new();
    for id in wanted.iter().filter(|id| ids.contains(*id)) {
        devices.push(Instance::get(cx, id)?.device);
    }
    output(|w| w.envelope(1, 1, |w| w.put(&devices)))
}

/// `cls_otp_check_otp_op`
struct CheckOp {
    id: ByteStr,
    password: ByteStr,
    /// Names the check.
    token: ByteStr,
}

impl Decode for CheckOp {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("cls_otp_check_otp_op", 1, |_, r| {
            Ok(Self { id: r.get()?, password: r.get()?, token: r.get()? })
        })
    }
}

/// Checks a password. What came of it is asked for afterwards: a method that fails could not keep it.
fn check(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let op: CheckOp = input(bytes)?;
    let mut instance = Instance::get(cx, &op.id)?;
    let now = cx.now();
    instance.trim(now);
    if instance.checks.len() < CHECKS_MAX {
        let is_right = instance.verify(now, &op.password);
        let verdict = if is_right { verdict::SUCCESS } else { verdict::FAIL };
        instance.checks.push_back(Check { token: op.token, time: now, verdict });
        instance.save(cx);
    }
    done()
}

fn result_of_check(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let op: CheckOp = input(bytes)?;
    let mut instance = Instance::get(cx, &op.id)?;
    let now = cx.now();
    instance.trim(now);
    let found = instance.checks.into_iter().rev().find(|check| check.token == op.token);
    let check = found.unwrap_or(Check { token: op.token, time: now, verdict: verdict::UNKNOWN });
    output(|w| w.envelope(1, 1, |w| w.put(&check)))
}

fn current_time(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    Reader::new(bytes).envelope("cls_otp_get_current_time_op", 1, |_, _| Ok(()))?;
    let now = cx.now();
    output(|w| w.envelope(1, 1, |w| w.put(&now)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(step_s: u32, window: u32) -> Device {
        let secret = Bytes::from_static(b"12345678901234567890");
        let (id, seed) = (ByteStr::EMPTY, ByteStr::EMPTY);
        Device { kind: 2, id, seed, seed_type: 0, secret, start: 0, step_s, window }
    }

    /// RFC 6238, appendix B.
    #[test]
    fn passwords_are_those_of_the_rfc() {
        let shown = [(59, "94287082"), (1_111_111_109, "07081804"), (2_000_000_000, "69279037")];
        for (sec, password) in shown {
            let now = UTime { sec, nsec: 0 };
            assert_eq!(device(30, 0).counter_of(now, password.as_bytes()), Some(u64::from(sec) / 30));
            assert_eq!(device(30, 0).counter_of(now, &password.as_bytes()[2..]), Some(u64::from(sec) / 30));
        }
    }

    #[test]
    fn a_password_is_right_once_and_within_the_window() {
        let (earlier, now) = (UTime { sec: 1_111_111_109, nsec: 0 }, UTime { sec: 1_111_111_169, nsec: 0 });
        let mut instance = Instance { device: device(30, 2), checks: VecDeque::new(), last_counter: 0 };
        assert!(!instance.verify(UTime { sec: now.sec + 30, nsec: 0 }, b"07081804"), "three steps later");
        assert!(!instance.verify(now, b"07081805") && !instance.verify(now, b"7081804x"));
        assert!(instance.verify(now, b"07081804"));
        assert!(!instance.verify(earlier, b"07081804"), "used");
        assert!(
            !Instance { device: device(0, 2), checks: VecDeque::new(), last_counter: 0 }
                .verify(now, b"07081804")
        );
    }

    #[test]
    fn seeds_are_hexadecimal_or_of_base_32() {
        assert_eq!(hex(b"00fFa0"), Some(vec![0, 0xff, 0xa0]));
        assert_eq!((hex(b"abc"), hex(b"xy")), (None, None));
        assert_eq!(base32(b"mzxw 6yTB oi======"), Some(b"foobar".to_vec()));
        assert_eq!(base32(b"1"), None);
    }
}

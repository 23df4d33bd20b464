//! [`DeviceReport`]: an OSD of ours tells our monitor how long its device takes, and pings of other OSDs. Ceph has nothing like it, and its
//! monitors are not told.
//!
//! The front of version 2 (compat 1) is the envelope of [`DeviceLatencies`], which is all of version 1, and behind it a `u32` count, at most
//! [`LEAST_PINGS_COUNT_MAX`], of rows: an envelope (version 1, compat 1) with `osd` i32, `back_us` u32 and `front_us` u32. A monitor of
//! version 1 leaves what is behind the latencies unread, one of version 2 takes version 1 as a report without pings.

use crate::body::{Body, fields};
use nacre_buf::BufList;
use nacre_denc::{Decode, DecodeError, Reader, Writer};
use nacre_types::{DeviceLatencies, OsdId};

/// Peers whose pings one report has. An OSD pings those that share PGs with it, and is on some hundred PGs.
pub const LEAST_PINGS_COUNT_MAX: usize = 4096;

/// How long the quickest ping of a peer took in the last half minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LeastPing {
    /// The peer that was pinged.
    pub osd: OsdId,
    /// Microseconds over the cluster network; 0 where too little is known.
    pub back_us: u32,
    /// Microseconds over the public network; 0 where too little is known.
    pub front_us: u32,
}
fields!(LeastPing, "quickest ping of a peer", 1, 1; osd, back_us, front_us);

/// What the OSD that sends it has measured. A monitor that does not know the message ignores it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct DeviceReport {
    /// How long requests to its device took, since the report before.
    pub latencies: DeviceLatencies,
    /// How long pings of its heartbeat peers take, at most [`LEAST_PINGS_COUNT_MAX`] of them. Since version 2.
    pub pings: Vec<LeastPing>,
}

fn read_pings(r: &mut Reader) -> Result<Vec<LeastPing>, DecodeError> {
    let count = r.count(LeastPing::MIN_BYTES)?;
    if count > LEAST_PINGS_COUNT_MAX {
        return Err(DecodeError::Invalid { what: "peers of a device report", value: count as u64 });
    }
    (0..count).map(|_| r.get()).collect()
}

impl Body for DeviceReport {
    const NAME: &'static str = "DeviceReport";
    const KIND: u16 = 0x7104;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 1;

    fn read(version: u16, r: &mut Reader, _data: BufList) -> Result<Self, DecodeError> {
        let latencies = r.get()?;
        let pings = if version >= 2 { read_pings(r)? } else { Vec::new() };
        Ok(Self { latencies, pings })
    }

    fn write(self, w: &mut Writer) -> BufList {
        debug_assert!(self.pings.len() <= LEAST_PINGS_COUNT_MAX, "nobody reads more");
        w.put(&self.latencies);
        w.put(&self.pings);
        BufList::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Message, RawMessage};
    use nacre_types::{DeviceWork, RequestClass};

    /// One read that took 1.5 us.
    const LATENCIES: [u8; 17] = [1, 1, 11, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 1, 0, 0, 0];
    /// Pings of osd.4: 258 us over the cluster network, and none over the public one.
    const PINGS: [u8; 22] = [1, 0, 0, 0, 1, 1, 12, 0, 0, 0, 4, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0];

    fn latencies() -> DeviceLatencies {
        let mut latencies = DeviceLatencies::default();
        latencies.class_mut(RequestClass::of(DeviceWork::Read, 0, 4096)).note(1500);
        latencies
    }

    /// What `front` says as a message of `version`.
    fn read(version: u16, front: &[u8]) -> Result<Message, DecodeError> {
        let written = Message::from(DeviceReport::default()).encode(0);
        Message::decode(RawMessage { version, front: front.to_vec().into(), ..written })
    }

    #[test]
    fn what_is_written_is_read() {
        let pings = vec![LeastPing { osd: 4, back_us: 258, front_us: 0 }];
        let report = DeviceReport { latencies: latencies(), pings };
        let raw = Message::from(report.clone()).encode(3);
        assert_eq!((raw.kind, raw.version, raw.compat), (0x7104, 2, 1));
        assert_eq!(&raw.front[..], [&LATENCIES[..], &PINGS[..]].concat());
        assert_eq!(Message::decode(raw), Ok(Message::from(report)));
        let ping = |osd| LeastPing { osd, back_us: u32::MAX, front_us: 1 };
        let longest = DeviceReport { pings: (0..4096).map(ping).collect(), ..DeviceReport::default() };
        assert_eq!(Message::decode(Message::from(longest.clone()).encode(3)), Ok(Message::from(longest)));
    }

    #[test]
    fn version_1_has_no_pings_and_its_readers_leave_them_unread() {
        let old = Message::from(DeviceReport { latencies: latencies(), pings: Vec::new() });
        assert_eq!(read(1, &LATENCIES), Ok(old.clone()));
        // Whatever is behind the latencies is not looked at, as by a monitor of version 1.
        assert_eq!(read(1, &[&LATENCIES[..], &PINGS[..]].concat()), Ok(old));
        // And what a newer sender puts behind the pings.
        let known = [&LATENCIES[..], &PINGS[..]].concat();
        assert_eq!(read(3, &[&known[..], &[0xff; 9]].concat()), read(2, &known));
    }

    #[test]
    fn what_is_cut_off_or_too_much_is_refused() {
        let whole = [&LATENCIES[..], &PINGS[..]].concat();
        for length in 0..whole.len() {
            assert!(read(2, &whole[..length]).is_err(), "{length} bytes of {}", whole.len());
        }
        let with_count = |count: u32, rows: usize| {
            let rows = PINGS[4..].repeat(rows);
            read(2, &[&LATENCIES[..], &count.to_le_bytes()[..], &rows[..]].concat())
        };
        assert!(with_count(1, 1).is_ok());
        assert!(matches!(with_count(u32::MAX, 1), Err(DecodeError::Count { .. })));
        assert!(matches!(with_count(4097, 4097), Err(DecodeError::Invalid { value: 4097, .. })));
    }
}

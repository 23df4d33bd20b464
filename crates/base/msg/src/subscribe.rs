//! Subscriptions to maps, and questions for their versions.
//!
//! Source: Ceph `MMonSubscribe.h`, `MMonSubscribeAck.h`, `MMonGetVersion.h`, `MMonGetVersionReply.h`,
//! v16.2.15.

use crate::body::{Body, body};
use nacre_buf::BufList;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::Uuid;
use std::collections::BTreeMap;

/// One wish within [`MonSubscribe`]. Ceph `ceph_mon_subscribe_item`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Subscription {
    /// First version wanted; 0 for the newest, whatever it is.
    pub start: u64,
    /// See [`Subscription::ONETIME`].
    pub flags: u8,
}

impl Subscription {
    /// Flag: one answer, then forget.
    pub const ONETIME: u8 = 1;

    /// True when one answer suffices.
    #[must_use]
    pub fn is_onetime(self) -> bool {
        self.flags & Self::ONETIME != 0
    }

    /// True when `version` is what the subscriber waits for.
    #[must_use]
    pub fn is_met_by(self, version: u64) -> bool {
        version >= self.start
    }
}

impl Encode for Subscription {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.start);
        w.u8(self.flags);
    }
}

impl Decode for Subscription {
    const MIN_BYTES: usize = 9;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { start: r.u64()?, flags: r.u8()? })
    }
}

/// `MMonSubscribe`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MonSubscribe {
    /// What is wanted, such as `osdmap`.
    pub what: BTreeMap<String, Subscription>,
    /// Where the subscriber runs; empty before version 3.
    pub hostname: String,
}

impl Body for MonSubscribe {
    const NAME: &'static str = "MonSubscribe";
    const KIND: u16 = 15;
    const VERSION: u16 = 3;
    const COMPAT: u16 = 1;
    const OLDEST: u16 = 2;

    fn read(version: u16, r: &mut Reader, _data: BufList) -> Result<Self, DecodeError> {
        let what = r.get()?;
        let hostname = if version >= 3 { r.text()? } else { String::new() };
        Ok(Self { what, hostname })
    }

    fn write(self, w: &mut Writer) -> BufList {
        w.put(&self.what);
        w.str(&self.hostname);
        BufList::new()
    }
}

/// `MMonSubscribeAck`: only for clients without stateful subscriptions.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MonSubscribeAck {
    /// Seconds until the subscription must be renewed.
    pub interval_s: u32,
    /// Id of the cluster that the sender belongs to.
    pub fsid: Uuid,
}
body!(MonSubscribeAck = 16, 1 / 1; interval_s, fsid);

/// `MMonGetVersion`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MonGetVersion {
    /// The client's handle, echoed.
    pub handle: u64,
    /// Name of the map: `osdmap`, `monmap`, ...
    pub what: String,
}
body!(MonGetVersion = 19, 1 / 1; handle, what);

/// `MMonGetVersionReply`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MonGetVersionReply {
    /// Number of the request that is answered.
    pub handle: u64,
    /// Newest version that the monitors have.
    pub newest: u64,
    /// Oldest version kept; 0 before version 2.
    pub oldest: u64,
}

impl Body for MonGetVersionReply {
    const NAME: &'static str = "MonGetVersionReply";
    const KIND: u16 = 20;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 2;
    const PRIORITY: u16 = crate::priority::HIGH;

    fn read(version: u16, r: &mut Reader, _data: BufList) -> Result<Self, DecodeError> {
        let (handle, newest) = (r.u64()?, r.u64()?);
        let oldest = if version >= 2 { r.u64()? } else { 0 };
        Ok(Self { handle, newest, oldest })
    }

    fn write(self, w: &mut Writer) -> BufList {
        w.u64(self.handle);
        w.u64(self.newest);
        w.u64(self.oldest);
        BufList::new()
    }
}

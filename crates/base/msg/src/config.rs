//! Options pushed to a client, keys of the config-key store pushed to a manager, and the ping.
//!
//! Source: Ceph `MConfig.h`, `MKVData.h`, `MPing.h`, v16.2.15.

use crate::body::{Body, body};
use nacre_buf::{BufList, Bytes};
use nacre_denc::{DecodeError, Reader, Writer};
use std::collections::BTreeMap;

/// `MConfig`: the options that concern the receiver, sections and masks applied.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Config {
    /// Values of options, by name.
    pub config: BTreeMap<String, String>,
}
body!(Config = 62, 1 / 1 [high]; config);

/// `MKVData`: to a subscriber of `kv:PREFIX`, what stands under keys that begin so.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct KvData {
    /// Version of the store.
    pub version: u64,
    /// What the keys begin with.
    pub prefix: String,
    /// Only what has changed; else all of it, and what is not here is not there.
    pub incremental: bool,
    /// Values by key; none for a key that is gone.
    pub data: BTreeMap<String, Option<Bytes>>,
}
body!(KvData = 54, 1 / 1; version, prefix, incremental, data);

impl KvData {
    /// What a subscription is called, in front of the prefix.
    pub const TOPIC: &'static str = "kv:";
}

/// `MPing`: clients send an empty one to OSDs on which they watch, and to a monitor that they want to hear from.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Ping {
    /// What a monitor says of itself, as JSON; empty in a question.
    pub answer: String,
}

impl Body for Ping {
    const NAME: &'static str = "Ping";
    const KIND: u16 = 2;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn read(_version: u16, r: &mut Reader, _data: BufList) -> Result<Self, DecodeError> {
        let answer = if r.left() == 0 { String::new() } else { r.get()? };
        Ok(Self { answer })
    }

    fn write(self, w: &mut Writer) -> BufList {
        if !self.answer.is_empty() {
            w.put(&self.answer);
        }
        BufList::new()
    }
}

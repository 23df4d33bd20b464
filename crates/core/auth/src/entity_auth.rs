//! [`EntityAuth`]: the key and the caps of one entity, as the monitor stores them.

use crate::CryptoKey;
use nacre_buf::Bytes;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::BTreeMap;

/// Caps text by service name (`mon`, `osd`, `mgr`, `mds`).
pub type Caps = BTreeMap<String, String>;

/// Key and caps of one entity. Ceph `EntityAuth`, struct_v 2 written, 1 and 2 read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntityAuth {
    /// The entity's own key.
    pub key: CryptoKey,
    /// What it may do.
    pub caps: Caps,
}

/// `CEPH_AUTH_UID_DEFAULT`: a field that lost its meaning.
pub(crate) const AUID_DEFAULT: u64 = u64::MAX;

impl Encode for EntityAuth {
    fn encode(&self, w: &mut Writer) {
        w.u8(2);
        w.u64(AUID_DEFAULT);
        w.put(&self.key);
        w.count(self.caps.len());
        for (service, text) in &self.caps {
            w.str(service);
            w.nested(|w| w.str(text));
        }
    }
}

impl Decode for EntityAuth {
    const MIN_BYTES: usize = 5 + CryptoKey::MIN_BYTES;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        if r.u8()? >= 2 {
            r.u64()?;
        }
        let key = r.get()?;
        let sealed: BTreeMap<String, Bytes> = r.get()?;
        let caps = sealed.into_iter().map(|(service, text)| Ok((service, Reader::new(text).text()?)));
        Ok(Self { key, caps: caps.collect::<Result<_, DecodeError>>()? })
    }
}

//! One copy's part of a chunk: versions and checksums.

use super::ANSWER_OBJECTS_MAX;
use crate::object::ObjectContext;
use crate::tokens::OnFetched;
use crate::{Cx, Effect, Pg};
use nacre_buf::crc::crc32c;
use nacre_msg::peer::{ScrubObject, ScrubReply, ScrubRequest};
use nacre_txn::{ObjectView, ReadError};
use nacre_types::{HObject, OsdId, SpgId};

/// Ceph's seed of a CRC-32C that is not continued from another.
const SEED: u32 = u32::MAX;
/// Data read at a time.
const STEP_BYTES: u64 = 1 << 20;
/// Omap entries read at a time.
const STEP_ENTRIES: usize = 1024;

impl Pg {
    /// Lists this copy's part of a chunk for whoever compares.
    pub(crate) fn answer_scrub(&mut self, cx: &mut Cx<'_>, from: OsdId, request: &ScrubRequest) {
        let objects = cx.view.list(&self.spg, &request.from, ANSWER_OBJECTS_MAX);
        let inside = objects.into_iter().take_while(|object| *object < request.to);
        let digests: Result<Vec<ScrubObject>, ReadError> =
            inside.map(|object| digest(cx.view, self.spg, object, request.deep)).collect();
        match digests {
            Ok(objects) => {
                let reply = ScrubReply { header: self.header(), tid: request.tid, objects };
                if from == self.whoami {
                    self.heard_scrub(cx, from, reply)
                } else {
                    self.send(cx, from, reply)
                }
            }
            Err(ReadError::Pending { object, offset, length }) => {
                let request = Box::new(request.clone());
                let token = self.tokens.issue_fetch(OnFetched::Scrub { from, request });
                cx.effects.push(Effect::Fetch { object, offset, length, token });
            }
            Err(ReadError::Damaged { .. }) => unreachable!("damage is part of a digest"),
        }
    }
}

fn digest(view: &dyn ObjectView, spg: SpgId, object: HObject, deep: bool) -> Result<ScrubObject, ReadError> {
    let record = view.meta(&spg, &object).unwrap_or_default();
    let meta_crc = crc32c(SEED, &record);
    let context = ObjectContext::from_record(record).unwrap_or_default();
    let attrs = view.attrs(&spg, &object);
    let attrs_crc = attrs.iter().fold(SEED, |crc, (name, value)| crc32c(crc32c(crc, name), value));
    let data = if deep { data_crc(view, spg, &object, context.info.size) } else { Ok(0) };
    let (data_crc, damaged) = match data {
        Ok(crc) => (crc, false),
        Err(ReadError::Damaged { .. }) => (0, true),
        Err(pending) => return Err(pending),
    };
    let (version, size) = (context.info.version, context.info.size);
    Ok(ScrubObject { object, version, meta_crc, attrs_crc, data_crc, size, damaged })
}

fn data_crc(view: &dyn ObjectView, spg: SpgId, object: &HObject, size: u64) -> Result<u32, ReadError> {
    let (mut crc, mut offset) = (SEED, 0);
    while offset < size {
        let data = view.read(&spg, object, offset, STEP_BYTES.min(size - offset))?;
        if data.is_empty() {
            return Err(ReadError::Damaged {
                object: object.clone(),
                offset,
                reason: "data ends early".into(),
            });
        }
        crc = data.crc32c(crc);
        offset += data.len() as u64;
    }
    crc = crc32c(crc, &view.omap_header(&spg, object));
    let mut from = Vec::new();
    loop {
        let page = view.omap_page(&spg, object, &from, STEP_ENTRIES, STEP_BYTES as usize);
        crc = page.entries.iter().fold(crc, |crc, (key, value)| crc32c(crc32c(crc, key), value));
        match page.entries.last() {
            Some((last, _)) if page.more => from = [&last[..], &[0]].concat(),
            _ => return Ok(crc),
        }
    }
}

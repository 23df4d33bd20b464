//! [`Transfers`]: all tables on their way to a monitor that is too far behind for the log, and from the leader to us.

use crate::link_msg::{LinkMsg, TablesPart};
use crate::links::Links;
use crate::replica::TablesReader;
use nacre_kv::{KvError, Pair};
use nacre_quorum::{NodeId, PeerMessage};
use nacre_service::Messenger;
use std::collections::BTreeMap;

/// About as many bytes go in one message.
const PART_BYTES: usize = 256 << 10;
/// No more is added to a link where so many bytes wait: what is read, encoded and encrypted in one turn keeps others waiting.
const QUEUED_BYTES_MAX: usize = 1 << 20;
/// Tables that are taken in from a leader.
const TABLES_BYTES_MAX: usize = 1 << 30;

/// Tables that are being sent.
struct Outgoing {
    tables: TablesReader,
    message: PeerMessage,
    is_first: bool,
}

/// Tables that are being received.
#[derive(Default)]
struct Incoming {
    pairs: Vec<Pair>,
    bytes: usize,
}

/// All tables that are on their way, in both directions.
#[derive(Default)]
pub(crate) struct Transfers {
    outgoing: BTreeMap<NodeId, Outgoing>,
    incoming: BTreeMap<NodeId, Incoming>,
}

impl Transfers {
    /// Begins to send tables, in place of those that were on their way to the same monitor. `message` goes with the last part.
    pub(crate) fn begin(&mut self, to: NodeId, tables: TablesReader, message: PeerMessage) {
        self.outgoing.insert(to, Outgoing { tables, message, is_first: true });
    }

    /// Sends what finds room. Yields those that are complete.
    pub(crate) fn pump(
        &mut self,
        links: &mut Links,
        messenger: &mut Messenger,
    ) -> Result<Vec<NodeId>, KvError> {
        let mut complete = Vec::new();
        for (to, outgoing) in &mut self.outgoing {
            while links.is_up(*to) && links.queued_bytes(*to, messenger) < QUEUED_BYTES_MAX {
                let part = outgoing.next_part()?;
                let is_last = part.message.is_some();
                if !links.send(*to, LinkMsg::Tables(part), messenger) {
                    break;
                }
                if is_last {
                    complete.push(*to);
                    break;
                }
            }
        }
        complete.iter().for_each(|to| drop(self.outgoing.remove(to)));
        Ok(complete)
    }

    /// True while tables are being sent.
    pub(crate) fn are_under_way(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// True while tables are coming in.
    pub(crate) fn has_incoming(&self) -> bool {
        !self.incoming.is_empty()
    }

    /// Takes in a part; yields all when it is the last.
    pub(crate) fn received(&mut self, from: NodeId, part: TablesPart) -> Option<(PeerMessage, Vec<Pair>)> {
        if part.is_first {
            self.incoming.insert(from, Incoming::default());
        }
        let incoming = self.incoming.get_mut(&from)?;
        incoming.bytes += part.pairs.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        if incoming.bytes > TABLES_BYTES_MAX {
            tracing::error!(
                bytes = incoming.bytes,
                "the leader's tables are larger than a monitor can take in"
            );
            self.incoming.remove(&from);
            return None;
        }
        incoming.pairs.extend(part.pairs);
        let message = part.message?;
        Some((message, self.incoming.remove(&from)?.pairs))
    }

    /// The link with a monitor was lost, and parts with it. True when tables were on their way to it.
    pub(crate) fn lost(&mut self, with: NodeId) -> bool {
        self.incoming.remove(&with);
        self.outgoing.remove(&with).is_some()
    }

    /// This monitor leads no more.
    pub(crate) fn stop(&mut self) {
        self.outgoing.clear();
    }
}

impl Outgoing {
    /// The last part has no pairs.
    fn next_part(&mut self) -> Result<TablesPart, KvError> {
        let pairs = self.tables.read(PART_BYTES)?;
        let message = pairs.is_empty().then(|| self.message.clone());
        Ok(TablesPart { is_first: std::mem::take(&mut self.is_first), pairs, message })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_buf::Bytes;
    use nacre_denc::Decode;

    /// A message of no meaning.
    fn message() -> PeerMessage {
        let numbers = [1_u8; 10].iter().flat_map(|number| u64::from(*number).to_le_bytes());
        let mut body = vec![4];
        body.extend(numbers);
        body.extend([0; 1 + 4 + 4 + 16]);
        let members = [1, 1, 17, 0, 0, 0].into_iter().chain([0; 17]);
        body.extend(members);
        let length = u32::try_from(body.len()).expect("short").to_le_bytes();
        let bytes = [&[1, 1][..], &length, &body].concat();
        PeerMessage::from_bytes(Bytes::from(bytes)).expect("its encoding")
    }

    #[test]
    fn tables_come_in_parts_and_whole() {
        let value = |n: u8| Bytes::from(vec![n; 3 << 20]);
        let pairs: Vec<Pair> = (0..5).map(|n| (Bytes::from(vec![n]), value(n))).collect();
        let tables =
            TablesReader { parts: [pairs.clone(), Vec::new()].map(|part| Box::new(part.into_iter()) as _) };
        let mut outgoing = Outgoing { tables, message: message(), is_first: true };
        let mut target = Transfers::default();
        let from = NodeId(1);
        let mut parts = Vec::new();
        while parts.last().is_none_or(|part: &TablesPart| part.message.is_none()) {
            parts.push(outgoing.next_part().expect("in memory"));
        }
        assert_eq!(parts.len(), 6, "each value is longer than a part");
        // What is lost in the middle is no table.
        assert!(target.received(from, outgoing_part(&parts[0])).is_none());
        target.lost(from);
        assert!(target.received(from, outgoing_part(&parts[5])).is_none());
        let mut whole = None;
        for part in &parts {
            whole = target.received(from, outgoing_part(part));
        }
        let (_, received) = whole.expect("all parts");
        assert_eq!(received, pairs);
    }

    fn outgoing_part(part: &TablesPart) -> TablesPart {
        TablesPart { is_first: part.is_first, pairs: part.pairs.clone(), message: part.message.clone() }
    }
}

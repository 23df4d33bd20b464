//! [`BillReport`]: an OSD of ours tells our monitor which clients and images it has worked for. Ceph has nothing like it, and its monitors are not told.

use crate::body::{body, fields};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{EntityName, PoolId};

/// Rows of one report; what more a report has is an error of its sender, and left out by who gets it.
pub const BILL_ROWS_MAX: usize = 1024;

/// Work of an OSD that is for no client in particular.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BillClass {
    /// What other OSDs say of PGs, where that names no client: peering, trimmed logs, chunks of coded objects.
    Replication,
    /// Copies brought to where they belong.
    Recovery,
    /// Copies compared with each other.
    Scrub,
    /// Clients beyond the number that is told apart.
    OtherClients,
    /// Ticks, maps, heartbeats, reports, commands.
    Housekeeping,
    /// Turns of the loop that brought nothing: polls, and steps of the store's own work that nobody waits for.
    Background,
}

impl BillClass {
    /// All of them, in order of their places in [`BillReport::classes_ns`].
    pub const ALL: [Self; 6] = [
        Self::Replication,
        Self::Recovery,
        Self::Scrub,
        Self::OtherClients,
        Self::Housekeeping,
        Self::Background,
    ];

    /// As a label of metrics: `other_clients`.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Replication => "replication",
            Self::Recovery => "recovery",
            Self::Scrub => "scrub",
            Self::OtherClients => "other_clients",
            Self::Housekeeping => "housekeeping",
            Self::Background => "background",
        }
    }
}

/// What was done for one client in one pool and image.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct BillRow {
    /// The client instance, `client.<global id>`.
    pub client: EntityName,
    /// The image's own pool, or that of the objects.
    pub pool: PoolId,
    /// Namespace of the image; empty where there is no image.
    pub namespace: String,
    /// Id of the image; empty for objects that are no image's.
    pub image: String,
    /// Processor time of the OSD's threads in nanoseconds: as primary, and for the copies of others' writes.
    pub cpu_ns: u64,
    /// Messages that this OSD answered as primary.
    pub ops: u64,
    /// Bytes that these brought and took away.
    pub bytes: u64,
}
fields!(BillRow, "row of a bill", 1, 1; client, pool, namespace, image, cpu_ns, ops, bytes);

/// How it is known what a machine draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PowerSource {
    /// The machine has measured it.
    Measured,
    /// It follows from how busy its processors were.
    Model,
    /// In a way that only a newer OSD knows.
    Unknown,
}

/// What a machine draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Power {
    /// On average, since the report before.
    pub milliwatts: u64,
    /// How that is known.
    pub source: PowerSource,
}

/// 1 is [`PowerSource::Measured`], 2 [`PowerSource::Model`]; anything else is read as [`PowerSource::Unknown`]: what cannot be read ends
/// the session of the OSD that says it.
impl Encode for Power {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u64(self.milliwatts);
            w.u8(match self.source {
                PowerSource::Measured => 1,
                PowerSource::Model => 2,
                PowerSource::Unknown => 0,
            });
        });
    }
}

impl Decode for Power {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("power of a machine", 1, |_, r| {
            let (milliwatts, source) = (r.u64()?, r.u8()?);
            let source = match source {
                1 => PowerSource::Measured,
                2 => PowerSource::Model,
                _ => PowerSource::Unknown,
            };
            Ok(Self { milliwatts, source })
        })
    }
}

/// What the threads of an OSD have worked for since its report before. `rows` and `classes_ns` add up to what these threads used.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct BillReport {
    /// Names the process: its host, its number and a random part. OSDs of one process say the same. At most 256 bytes.
    pub process: String,
    /// Processor time of the process since its start, in nanoseconds, all of its OSDs and other threads included.
    pub process_ns: u64,
    /// The part of it that came since this OSD's report before.
    pub process_delta_ns: u64,
    /// Nanoseconds by [`BillClass`]; a newer OSD may know more of them.
    pub classes_ns: Vec<u64>,
    /// The costliest clients and images.
    pub rows: Vec<BillRow>,
    /// What the machine draws, if that is known.
    pub power: Option<Power>,
}
body!(BillReport = 0x7121, 1 / 1; process, process_ns, process_delta_ns, classes_ns, rows, power);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_nobody_knows_is_read() {
        for (code, source) in
            [(1, PowerSource::Measured), (2, PowerSource::Model), (77, PowerSource::Unknown)]
        {
            let mut w = Writer::new();
            w.envelope(1, 1, |w| {
                w.u64(1234);
                w.u8(code);
            });
            let power = Power::from_bytes(w.finish()).expect("a power");
            assert_eq!(power, Power { milliwatts: 1234, source });
            assert_eq!(Power::from_bytes(power.to_bytes()).expect("as written"), power);
        }
    }
}

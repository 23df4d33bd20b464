//! What of the monitors' tables goes into a recovery snapshot, and which of it makes an older one outdated.

use crate::batch::{Batch, BatchOp, Snapshot};
use crate::osd::{NewestMap, OsdMapsError};

/// What becomes of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// It is kept, and a change of it is to reach the OSDs.
    Kept,
    /// It is kept as it happens to be: it changes with the maps, or comes again by itself.
    KeptQuietly,
    /// A cluster that begins anew has no use for it, must not have it, or gets it otherwise.
    LeftOut,
}

/// All tables. One that is not here would be left out, and tests that write to it fail.
pub(super) const TABLES: &[(&str, Use)] = &[
    ("monmap", Use::Kept),
    ("mon-members", Use::Kept),
    ("auth", Use::Kept),
    ("auth-entity", Use::Kept),
    ("config", Use::Kept),
    ("config-key", Use::Kept),
    ("mgrmap", Use::Kept),
    ("fsmap", Use::Kept),
    ("health-mute", Use::Kept),
    ("health-history", Use::KeptQuietly),
    ("slow-devices", Use::Kept),
    ("even-primaries", Use::Kept),
    ("osd-creating", Use::Kept),
    ("osd-removed-snaps", Use::KeptQuietly),
    ("osd-metadata", Use::KeptQuietly),
    ("mds-metadata", Use::KeptQuietly),
    ("servicemap", Use::KeptQuietly),
    // The newest map goes along by itself; OSDs keep newer ones than a snapshot has.
    ("osdmap", Use::LeftOut),
    ("osdmap-full", Use::LeftOut),
    ("osdmap-inc", Use::LeftOut),
    // An order that was carried out since would destroy what a PG got since.
    ("osd-recreating", Use::LeftOut),
    // Whoever opens a snapshot has it.
    (super::TABLE, Use::LeftOut),
    ("answers", Use::LeftOut),
    ("config-history", Use::LeftOut),
    ("digest", Use::LeftOut),
    // Devices say it anew.
    ("device-health", Use::LeftOut),
    ("log", Use::LeftOut),
    ("mgr-metadata", Use::LeftOut),
];

/// Grows with each handshake; a restored cluster goes on far behind it.
const QUIET_KEY: (&str, &str) = ("auth", crate::auth::GLOBAL_ID_KEY);

/// Whether a batch has a change that a snapshot of before lacks, beside maps and what comes again by itself.
pub(crate) fn concerns(batch: &Batch) -> bool {
    let is_kept =
        |op: &BatchOp| TABLES.iter().any(|(table, usage)| *table == op.prefix && *usage == Use::Kept);
    batch.ops().iter().any(|op| is_kept(op) && (op.prefix.as_ref(), op.key.as_str()) != QUIET_KEY)
}

/// What of these tables goes into a snapshot.
///
/// # Errors
/// [`OsdMapsError`] where the newest OSD map is missing.
pub(super) fn pick(tables: &dyn Snapshot) -> Result<Batch, OsdMapsError> {
    let mut batch = Batch::default();
    for (table, _) in TABLES.iter().filter(|(_, usage)| *usage != Use::LeftOut) {
        for (key, value) in tables.scan(table) {
            batch.put(table, key, value);
        }
    }
    NewestMap::read(tables)?.store(&mut batch);
    Ok(batch)
}

/// Whether a table has an entry above.
#[cfg(test)]
pub(crate) fn is_known(table: &str) -> bool {
    TABLES.iter().any(|(known, _)| *known == table)
}

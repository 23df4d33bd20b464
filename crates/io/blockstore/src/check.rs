//! Checking everything: the table against the allocator, and on demand every block against its checksum.

use crate::BLOCK;
use crate::onode::{DeviceBlock, Slot};
use crate::store::BlockStore;
use crate::table::Table;
use nacre_buf::crc;
use nacre_env::disk::blocking;
use nacre_types::{HObject, SpgId};
use std::collections::BTreeMap;

/// What a walk over the store found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckReport {
    /// Objects looked at.
    pub objects: u64,
    /// Blocks read from the device and compared with their checksums.
    pub blocks: u64,
    /// Contradictions within the metadata; always mistakes of the program.
    pub inconsistencies: Vec<String>,
    /// Damaged data: collection, object, byte offset in it, and what is wrong.
    pub damaged: Vec<(SpgId, HObject, u64, String)>,
}

impl BlockStore {
    /// Compares the store's parts with each other; with `read_data`, reads every block that is at home as well. For
    /// tools and tests: blocks until the device has answered, and wants no request in flight when it reads.
    #[must_use]
    pub fn check(&mut self, read_data: bool) -> CheckReport {
        self.wal.check();
        let mut report = CheckReport::default();
        check_table(&self.table, &mut report);
        if read_data {
            self.check_data(&mut report);
        }
        report
    }

    fn check_data(&mut self, report: &mut CheckReport) {
        for (at, collection) in &self.table.collections {
            for (name, onode) in &collection.objects {
                for (index, slot) in onode.blocks.iter() {
                    let Some(device) = slot.device() else { continue };
                    // A block whose write is in flight is only in the cache.
                    if self.cache.find(device.block).is_some() {
                        continue;
                    }
                    report.blocks += 1;
                    if let Err(reason) = read_block(self.disk.as_mut(), device) {
                        let offset = u64::from(*index) * BLOCK as u64;
                        report.damaged.push((*at, name.clone(), offset, reason));
                    }
                }
            }
        }
    }
}

fn read_block(disk: &mut dyn nacre_env::Disk, device: DeviceBlock) -> Result<(), String> {
    let block =
        blocking::read(disk, BlockStore::offset(device.block), BLOCK).map_err(|error| error.to_string())?;
    let found = crc::crc32c(u32::MAX, &block);
    if found == device.crc {
        Ok(())
    } else {
        Err(format!("checksum {found:08x} instead of {:08x}", device.crc))
    }
}

/// References of the objects to device blocks, counted, against the allocator's; and the sums.
fn check_table(table: &Table, report: &mut CheckReport) {
    let mut references: BTreeMap<u32, u32> = BTreeMap::new();
    let (mut slots, mut dirty) = (0, 0);
    for (name, onode) in table.collections.values().flat_map(|collection| &collection.objects) {
        report.objects += 1;
        let last =
            onode.blocks.last_key_value().map_or(0, |(index, _)| (u64::from(*index)) * BLOCK as u64 + 1);
        if last > onode.size.max(1) || (onode.size == 0 && !onode.blocks.is_empty()) {
            report.inconsistencies.push(format!("{name} has a block behind its {} bytes", onode.size));
        }
        for slot in onode.blocks.values() {
            slots += 1;
            dirty += u64::from(matches!(slot, Slot::Memory(_)));
            if let Some(device) = slot.device() {
                *references.entry(device.block).or_default() += 1;
            }
        }
    }
    let counts = (table.space.slots, table.space.dirty_slots);
    if counts != (slots, dirty) {
        report
            .inconsistencies
            .push(format!("slots, dirty slots: counted {counts:?}, found {:?}", (slots, dirty)));
    }
    let area = table.space.alloc.area();
    for (block, believed) in area.blocks().zip(table.space.alloc.references()) {
        let found = references.remove(&block).unwrap_or(0);
        // A block that is allocated without a reference belongs to a running checkpoint.
        let sound =
            believed.map_or(found == 0, |believed| found == believed || (found == 0 && believed == 1));
        if !sound {
            report.inconsistencies.push(format!("block {block}: {found} references, believed {believed:?}"));
        }
    }
    report
        .inconsistencies
        .extend(references.keys().map(|block| format!("block {block} is outside the area")));
}

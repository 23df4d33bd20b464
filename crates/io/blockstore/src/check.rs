//! Checking everything: the table against the allocator, and on demand every block against its checksum.

use crate::BLOCK;
use crate::device::DeviceBlock;
use crate::packed_sums::PackedSums;
use crate::references::References;
use crate::slot::Slot;
use crate::store::BlockStore;
use crate::table::Table;
use crate::unpacking::unpack;
use nacre_buf::{Bytes, crc};
use nacre_env::disk::blocking;
use nacre_types::{HObject, SpgId};

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
            self.end_discards();
            self.check_data(&mut report);
        }
        report
    }

    fn check_data(&mut self, report: &mut CheckReport) {
        let collections: Vec<SpgId> = self.table.collections.keys().copied().collect();
        for at in collections {
            for (id, name) in self.table.names(&at) {
                let Some(onode) = self.table.load_onode(id) else { continue };
                let (mut blocks, mut blobs) = (Vec::new(), Vec::new());
                self.table.pages_of(id).each_whole(&onode.blocks, |number, page| {
                    let devices = page.iter(number).map(|(index, slot)| (index, slot.device()));
                    blocks.extend(devices.filter_map(|(index, device)| Some((index, device?))));
                    blobs.extend(page.blobs_with_places(number));
                });
                let mut damaged = |index: u32, reason| {
                    report.damaged.push((at, name.clone(), u64::from(index) * BLOCK as u64, reason));
                };
                for (index, device) in blocks {
                    match self.read_checked(device, &mut report.blocks) {
                        Ok(_content) => (),
                        Err(reason) => damaged(index, reason),
                    }
                }
                for (index, blob) in blobs {
                    let stored = blob.stored().iter();
                    let stored = stored.map(|device| self.read_checked(*device, &mut report.blocks));
                    let held = stored.collect::<Result<Vec<Bytes>, String>>().and_then(|stored| {
                        unpack(&mut self.codec, &blob, stored).map_err(|error| error.to_string())
                    });
                    if let Err(reason) = held {
                        damaged(index, reason);
                    }
                }
            }
        }
    }

    /// A block whose checksum is right. One whose write is in flight is only in the cache.
    fn read_checked(&mut self, device: DeviceBlock, count: &mut u64) -> Result<Bytes, String> {
        if let Some(bytes) = self.cache.block(device.block) {
            return Ok(bytes);
        }
        *count += 1;
        read_block(self.disk.as_mut(), device)
    }
}

fn read_block(disk: &mut dyn nacre_env::Disk, device: DeviceBlock) -> Result<Bytes, String> {
    let block = blocking::read_patiently(disk, BlockStore::offset(device.block), BLOCK)
        .map_err(|error| error.to_string())?;
    let found = crc::crc32c(u32::MAX, &block);
    if found == device.crc {
        Ok(block.freeze())
    } else {
        Err(format!("checksum {found:08x} instead of {:08x}", device.crc))
    }
}

/// References of the objects to device blocks, counted, against the allocator's; and the sums.
fn check_table(table: &Table, report: &mut CheckReport) {
    let mut references = References::new(table.space.alloc.area());
    let (mut slots, mut dirty) = (0, 0);
    let (mut omap_bytes, mut packed) = (0, PackedSums::default());
    let dead = table.dead_keyspaces().flat_map(|keyspace| table.names_in(keyspace));
    for (id, name) in table.collections.keys().flat_map(|at| table.names(at)).chain(dead) {
        report.objects += 1;
        let Some(onode) = table.load_onode(id) else { continue };
        let entries = table.omap_entries(onode.omap, b"", usize::MAX);
        let found: usize = entries.iter().map(|(key, value)| key.len() + value.len()).sum();
        if found as u64 != onode.omap_bytes {
            report.inconsistencies.push(format!("{name}: omap of {found} bytes, not {}", onode.omap_bytes));
        }
        omap_bytes += onode.omap_bytes + onode.omap_header.len() as u64;
        let mut end = 0;
        table.pages_of(id).each(&onode.blocks, |index, slot| {
            slots += 1;
            dirty += u64::from(matches!(slot, Slot::Memory(_)));
            end = u64::from(index) * BLOCK as u64 + 1;
            if let Some(device) = slot.device() {
                references.add(device.block);
            }
        });
        table.pages_of(id).each_whole(&onode.blocks, |number, page| {
            for (_, slot) in page.iter(number) {
                if let Slot::Blob(blob, _) = slot {
                    packed.add_block(blob);
                }
            }
            for blob in page.blobs() {
                packed.add(&blob);
                blob.stored().iter().for_each(|device| references.add(device.block));
            }
        });
        if end > onode.size {
            report.inconsistencies.push(format!("{name} has a block behind its {} bytes", onode.size));
        }
    }
    let counted = (table.space.slots, table.space.dirty_slots, table.objects, table.omap_bytes);
    let found = (slots, dirty, report.objects, omap_bytes);
    if counted != found {
        report
            .inconsistencies
            .push(format!("slots, dirty slots, objects, omap bytes: counted {counted:?}, found {found:?}"));
    }
    if table.space.packed != packed {
        let counted = &table.space.packed;
        report.inconsistencies.push(format!("blobs: counted {counted:?}, found {packed:?}"));
    }
    report.inconsistencies.extend(table.wrong_clean_pages());
    report.inconsistencies.extend(table.wrong_clean_records());
    report.inconsistencies.extend(table.failure());
    report.inconsistencies.extend(references.contradictions(&table.space.alloc));
}

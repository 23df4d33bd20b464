//! What stands on a raw device: its labels, and the head of the metadata's region.

use crate::input::Input;
use nacre_buf::crc::crc32c;
use nacre_device::{Label, Owner, Region, RegionKind, Role, content, read_label, write_label};
use nacre_env::File;
use nacre_kv::{RegionFile, RegionPlace};
use nacre_simdisk::SimFile;
use nacre_types::Uuid;
use std::sync::Arc;

const DEVICE_BYTES: u64 = 8 << 20;
const BLOCK_BYTES: usize = 4096;
const PLACE: RegionPlace = RegionPlace { offset: 1 << 20, length: 4 << 20, owner: [5; 16] };

fn device() -> Arc<dyn File> {
    let device = SimFile::new(1).open();
    device.set_length(DEVICE_BYTES).expect("memory has room");
    Arc::new(device)
}

fn block(device: &dyn File, offset: u64) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    device.read(offset, &mut block).expect("memory does not fail");
    block
}

/// Seeds of [`device_label`]: a label, and a head with something written.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let device = device();
    let id = Uuid([5; 16]);
    let region = |kind, offset, length| Region { kind, offset, length };
    let label = Label {
        owner: Owner { cluster: id, osd: 3, osd_uuid: id, store: id },
        role: Role::Data,
        device_bytes: DEVICE_BYTES,
        regions: vec![
            region(RegionKind::Metadata, PLACE.offset, PLACE.length),
            region(RegionKind::Store, 5 << 20, 1 << 20),
        ],
        is_encrypted: false,
        partitions: 1,
    };
    write_label(device.as_ref(), &label).expect("memory does not fail");
    let file = RegionFile::create(Arc::clone(&device), PLACE).expect("room");
    file.write(10_000, &[7; 5000]).expect("room");
    file.sync().expect("memory does not fail");
    vec![
        [&[0][..], &block(device.as_ref(), 0)].concat(),
        [&[1][..], &block(device.as_ref(), PLACE.offset)].concat(),
    ]
}

/// First byte 0: the rest is a label, else a head. Each gets the checksum that would have been right, which would hide everything behind it.
pub fn device_label(input: &[u8]) {
    let mut input = Input::new(input);
    let is_label = input.u8() == 0;
    let mut block = input.rest().to_vec();
    block.resize(BLOCK_BYTES, 0);
    let device = device();
    if is_label {
        let (checked, sum) = block.split_at_mut(BLOCK_BYTES - 4);
        sum.copy_from_slice(&crc32c(u32::MAX, checked).to_le_bytes());
        device.write(0, &block).expect("memory does not fail");
        drop(content(device.as_ref(), DEVICE_BYTES));
        let Ok(found) = read_label(device.as_ref(), DEVICE_BYTES) else { return };
        write_label(device.as_ref(), &found.label).expect("within the device");
        let again = read_label(device.as_ref(), DEVICE_BYTES).expect("what was written");
        assert_eq!((again.label, again.damaged), (found.label, None));
    } else {
        block[12..16].fill(0);
        let sum = crc32c(0, &block);
        block[12..16].copy_from_slice(&sum.to_le_bytes());
        device.write(PLACE.offset, &block).expect("memory does not fail");
        let Ok(file) = RegionFile::open(device, PLACE) else { return };
        let length = file.length().expect("it is known");
        let mut bytes = [0; 100];
        drop(file.read(length.saturating_sub(100), &mut bytes));
        drop(file.write(length / 2, &bytes));
        drop(file.set_length(length / 3));
        drop(file.room());
        drop(file.sync());
    }
}

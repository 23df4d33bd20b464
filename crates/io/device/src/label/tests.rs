use super::*;
use nacre_simdisk::SimFile;

const DEVICE_BYTES: u64 = 4 << 20;

fn label() -> Label {
    let id = |byte| Uuid([byte; 16]);
    Label {
        owner: Owner { cluster: id(1), osd: 7, osd_uuid: id(2), store: id(3) },
        role: Role::Data,
        device_bytes: DEVICE_BYTES,
        regions: vec![
            Region { kind: RegionKind::Metadata, offset: 1 << 20, length: 1 << 20 },
            Region { kind: RegionKind::Store, offset: 2 << 20, length: (2 << 20) - LABEL_BYTES },
        ],
        is_encrypted: false,
        is_divided: false,
    }
}

fn device(bytes: u64) -> impl File {
    let file = SimFile::new(1).open();
    file.set_length(bytes).expect("room");
    file
}

fn labelled() -> impl File {
    let file = device(DEVICE_BYTES);
    write_label(&file, &label()).expect("a healthy device");
    file
}

#[test]
fn a_label_is_read_back_also_by_one_copy() {
    let file = labelled();
    assert_eq!(
        read_label(&file, DEVICE_BYTES).expect("whole"),
        Found { label: label(), damaged: None, is_overwritten: false }
    );
    for (offset, copy) in [(0, LabelCopy::First), (DEVICE_BYTES - LABEL_BYTES, LabelCopy::Last)] {
        let file = labelled();
        file.write(offset + 600, &[1]).expect("there");
        let found = read_label(&file, DEVICE_BYTES).expect("the other copy");
        assert_eq!((found.damaged.as_ref().map(|(copy, _)| *copy), &found.label), (Some(copy), &label()));
        repair_label(&file, &found).expect("a healthy device");
        assert_eq!(read_label(&file, DEVICE_BYTES).expect("whole").damaged, None);
        // And with all of the copy gone.
        file.write(offset, &[0; BLOCK]).expect("there");
        assert!(read_label(&file, DEVICE_BYTES).expect("the other copy").damaged.is_some());
    }
}

#[test]
fn what_is_no_label_is_told_apart() {
    let read = |file: &dyn File, bytes| read_label(file, bytes).expect_err("no label");
    assert!(matches!(read(&device(DEVICE_BYTES), DEVICE_BYTES), LabelError::Absent));
    assert!(matches!(read(&device(4096), 100), LabelError::Absent));
    let both = labelled();
    both.write(700, &[1]).expect("there");
    both.write(DEVICE_BYTES - 4, &[0; 4]).expect("there");
    assert!(matches!(read(&both, DEVICE_BYTES), LabelError::Damaged { .. }));
    let differ = labelled();
    let other = Label { role: Role::Data, owner: Owner { osd: 8, ..label().owner }, ..label() };
    differ.write(0, &other.encode()).expect("there");
    assert!(matches!(read(&differ, DEVICE_BYTES), LabelError::Differ { .. }));
    assert!(matches!(read(&labelled(), DEVICE_BYTES / 2), LabelError::Shrunk { .. }));
    let newer = labelled();
    let mut block = label().encode();
    block[8] = 6;
    let sum = crc32c(u32::MAX, &block[..CRC_AT]);
    block[CRC_AT..].copy_from_slice(&sum.to_le_bytes());
    newer.write(0, &block).expect("there");
    assert!(matches!(read(&newer, DEVICE_BYTES), LabelError::Newer { found: 6 }));
}

#[test]
fn a_device_that_has_grown_keeps_its_label() {
    let file = device(2 * DEVICE_BYTES);
    write_label(&file, &label()).expect("a healthy device");
    assert_eq!(read_label(&file, 2 * DEVICE_BYTES).expect("whole").damaged, None);
}

/// With a checksum that fits, as a mistake of ours or an attacker would have it.
#[test]
fn decoding_is_bounded_and_never_panics() {
    let good = label().encode();
    for at in 0..CRC_AT {
        for value in [0, 1, 0x7f, 0xff] {
            let mut block = good.clone();
            block[at] = value;
            let sum = crc32c(u32::MAX, &block[..CRC_AT]);
            block[CRC_AT..].copy_from_slice(&sum.to_le_bytes());
            if let Ok(label) = Label::decode(&block) {
                assert_eq!(label.check(), Ok(()));
                assert!(label.regions.len() <= 2);
            }
        }
    }
    for length in 0..BLOCK {
        assert!(Label::decode(&good[..length]).is_err());
    }
}

#[test]
fn regions_outside_the_device_or_of_another_role_are_refused() {
    let with = |role, regions: &[(RegionKind, u64, u64)]| {
        let regions = regions.iter().map(|(kind, offset, length)| Region {
            kind: *kind,
            offset: *offset,
            length: *length,
        });
        let label = Label { role, regions: regions.collect(), ..label() };
        label.check().is_ok()
    };
    let (store, log, metadata) = (RegionKind::Store, RegionKind::Log, RegionKind::Metadata);
    assert!(with(Role::Data, &[(store, 4096, DEVICE_BYTES - 8192)]));
    assert!(!with(Role::Data, &[(store, 4096, DEVICE_BYTES - 4096)]), "over the last label");
    assert!(!with(Role::Data, &[(store, 0, 8192)]), "over the first one");
    assert!(!with(Role::Data, &[(store, 4096, u64::MAX - 4095)]), "beyond all numbers");
    assert!(!with(Role::Data, &[(store, 4097, 4096)]) && !with(Role::Data, &[(store, 4096, 0)]));
    assert!(with(Role::Data, &[(metadata, 4096, 4096), (store, 8192, 4096)]));
    assert!(!with(Role::Data, &[(metadata, 4096, 8192), (store, 8192, 4096)]), "one over the other");
    assert!(!with(Role::Data, &[(store, 4096, 4096), (metadata, 8192, 4096)]));
    assert!(with(Role::Log, &[(log, 4096, 4096)]) && with(Role::Metadata, &[(metadata, 4096, 4096)]));
    assert!(!with(Role::Log, &[(store, 4096, 4096)]) && !with(Role::Metadata, &[]));
}

#[test]
fn an_erased_device_has_no_label() {
    let file = labelled();
    erase(&file, &label()).expect("a healthy device");
    assert!(matches!(read_label(&file, DEVICE_BYTES), Err(LabelError::Absent)));
}

/// Programs that know no partitions know version 3.
#[test]
fn the_label_of_a_divided_device_says_so_to_us_and_is_too_new_for_others() {
    for (is_encrypted, version) in [(false, 4), (true, 5)] {
        let file = device(DEVICE_BYTES);
        let divided = Label { is_divided: true, is_encrypted, ..label() };
        write_label(&file, &divided).expect("a healthy device");
        assert_eq!(read_label(&file, DEVICE_BYTES).expect("whole").label, divided);
        assert_eq!(divided.encode().get(8), Some(&version));
    }
}

/// Programs that know no encryption know version 2.
#[test]
fn the_label_of_an_encrypted_device_says_so_to_us_and_is_too_new_for_others() {
    let file = device(DEVICE_BYTES);
    let encrypted = Label { is_encrypted: true, ..label() };
    write_label(&file, &encrypted).expect("a healthy device");
    assert_eq!(read_label(&file, DEVICE_BYTES).expect("whole").label, encrypted);
    assert_eq!(encrypted.encode().get(8), Some(&3));
    assert!(encrypted.to_string().starts_with("the encrypted data device of osd.7"), "{encrypted}");
    let early = Region { kind: RegionKind::Store, offset: 4096, length: 4096 };
    let over_the_key = Label { regions: vec![early], ..encrypted };
    assert!(over_the_key.check().is_err());
}

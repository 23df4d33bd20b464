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
        partitions: 1,
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
        let offset = KEYS_END;
        let regions = [
            Region { kind: RegionKind::Metadata, offset, length: 1 << 20 },
            Region { kind: RegionKind::Store, offset: 2 << 20, length: 1 << 20 },
        ];
        let divided = Label { partitions: 3, is_encrypted, regions: regions.to_vec(), ..label() };
        write_label(&file, &divided).expect("a healthy device");
        assert_eq!(read_label(&file, DEVICE_BYTES).expect("whole").label, divided);
        assert!(divided.to_string().ends_with(", for 3 shards)"), "{divided}");
        assert_eq!(divided.encode().get(8), Some(&version));
        // Neither one partition nor more than a store has, nor less than a block for each.
        for partitions in [0, 1, 257, u32::MAX] {
            let mut block = divided.encode();
            block[80..84].copy_from_slice(&partitions.to_le_bytes());
            assert!(matches!(decoded(block), Err(Bad::Damaged(why)) if why.contains("number of partitions")));
        }
        let small = Region { length: 2 * LABEL_BYTES, ..regions[0] };
        let small = Label { regions: vec![small, regions[1]], ..divided };
        assert!(
            matches!(decoded(small.encode()), Err(Bad::Damaged(why)) if why.contains("no block for each"))
        );
    }
}

/// As if it had been written so.
fn decoded(mut block: Vec<u8>) -> Result<Label, Bad> {
    let sum = crc32c(u32::MAX, &block[..CRC_AT]);
    block[CRC_AT..].copy_from_slice(&sum.to_le_bytes());
    Label::decode(&block)
}

#[test]
fn partitions_have_equal_parts_of_metadata_and_journal_and_all_of_their_heads_are_erased() {
    let region = |kind, offset, length| Region { kind, offset, length };
    let regions = vec![
        region(RegionKind::Journal, 4 << 20, 1 << 20),
        region(RegionKind::Metadata, 5 << 20, 30 << 20),
        region(RegionKind::Store, 40 << 20, 4 << 20),
    ];
    let device_bytes = 64 << 20;
    let label = Label { partitions: 3, regions, device_bytes, ..label() };
    // A third of 256 blocks is 85.
    let journals = [0, 1, 2].map(|number| label.part(RegionKind::Journal, number).expect("there is one"));
    assert_eq!(journals.map(|part| part.length), [85 * 4096; 3]);
    assert_eq!(journals.map(|part| part.offset - (4 << 20)), [0, 85 * 4096, 170 * 4096]);
    let metadata = [0, 1, 2].map(|number| label.part(RegionKind::Metadata, number).expect("there is one"));
    assert_eq!(metadata.map(|part| part.offset >> 20), [5, 15, 25]);
    let whole = Label { partitions: 1, ..label.clone() };
    assert_eq!(whole.part(RegionKind::Metadata, 0), whole.region(RegionKind::Metadata));
    assert_eq!(label.part(RegionKind::Log, 0), None);
    let file = device(device_bytes);
    let starts = journals.into_iter().chain(metadata).map(|part| part.offset);
    let starts: Vec<u64> = starts.chain([0, 40 << 20, device_bytes - 4096]).collect();
    starts.iter().for_each(|at| file.write(*at, &[7; 4096]).expect("healthy"));
    erase(&file, &label).expect("healthy");
    for at in starts {
        let mut head = vec![1; 4096];
        file.read(at, &mut head).expect("healthy");
        assert!(head.iter().all(|byte| *byte == 0), "what is at {at} is there");
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

//! Stores that older programs made must stay readable: images in `testdata/stores`, one folder for each format.
//!
//! An image is a file without the zeros: runs of sectors of 512 bytes, each as `u64` offset, `u32` bytes, the bytes;
//! first the file's length as `u64`. All little-endian.

use super::content::{Folder, change, fill, same};
use crate::check;
use std::path::{Path, PathBuf};

const SECTOR_BYTES: usize = 512;
/// Files of a store; those of older programs have no journal.
const FILES: [&str; 3] = ["block", "meta.redb", "meta.journal"];
/// Where a new image goes, when one is to be made.
const OUT_VARIABLE: &str = "NACRE_STORE_IMAGE";

fn stores() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testdata/stores")
}

fn pack(file: &[u8]) -> Vec<u8> {
    let mut out = (file.len() as u64).to_le_bytes().to_vec();
    let is_zero = |sector: &[u8]| sector.iter().all(|byte| *byte == 0);
    let mut at = 0;
    let sectors: Vec<&[u8]> = file.chunks(SECTOR_BYTES).collect();
    for run in sectors.chunk_by(|a, b| is_zero(a) == is_zero(b)) {
        let bytes = run.concat();
        if !is_zero(&bytes) {
            out.extend((at as u64).to_le_bytes());
            out.extend(u32::try_from(bytes.len()).expect("a small image").to_le_bytes());
            out.extend(&bytes);
        }
        at += bytes.len();
    }
    out
}

fn unpack(image: &[u8]) -> Vec<u8> {
    let word = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().expect("eight bytes"));
    let mut file = vec![0; usize::try_from(word(0)).expect("a small image")];
    let mut at = 8;
    while at < image.len() {
        let offset = usize::try_from(word(at)).expect("within the file");
        let length = u32::from_le_bytes(image[at + 8..at + 12].try_into().expect("four bytes")) as usize;
        at += 12;
        file[offset..offset + length].copy_from_slice(&image[at..at + length]);
        at += length;
    }
    file
}

#[test]
fn images_of_all_formats_are_read() {
    let fresh = Folder::new("image-fresh");
    fill(&fresh);
    let mut formats = 0;
    for folder in std::fs::read_dir(stores()).expect("testdata/stores").filter_map(Result::ok) {
        if !folder.path().is_dir() {
            continue;
        }
        formats += 1;
        let name = folder.file_name().to_string_lossy().into_owned();
        let old = Folder::empty(&format!("image-{name}"));
        for file in FILES {
            let path = folder.path().join(format!("{file}.image"));
            if file == "meta.journal" && !path.exists() {
                continue;
            }
            let image = std::fs::read(path).expect("an image");
            std::fs::write(old.path().join(file), unpack(&image)).expect("a writable temporary folder");
        }
        let findings = check::examine(&old.target(), true).expect("can be checked");
        assert!(findings.is_sound(), "{name}: {:?}", findings.problems);
        // Opened for good, and once more: the first time may bring it to the newest format.
        for _ in 0..2 {
            let (mut store, _) = old.target().open().unwrap_or_else(|error| panic!("{name}: {error:#}"));
            let (mut expected, _) = fresh.target().look().expect("the store opens");
            same(&mut expected, &mut store);
            store.checkpoint_now().expect("a healthy device");
        }
        // What is there is changed, which may bring it to another form.
        let changed = Folder::new(&format!("image-changed-{name}"));
        fill(&changed);
        for folder in [&old, &changed] {
            change(folder);
        }
        let (mut store, _) = old.target().open().expect("it opens");
        let (mut expected, _) = changed.target().open().expect("it opens");
        same(&mut expected, &mut store);
        drop(store);
        let findings = check::examine(&old.target(), true).expect("can be checked");
        assert!(findings.is_sound(), "{name}, after it was changed: {:?}", findings.problems);
    }
    assert!(formats > 0, "no image in testdata/stores");
}

/// Not a test: makes the image of the present format. `NACRE_STORE_IMAGE=testdata/stores/vN cargo test
/// -p nacre-store-tool -- --ignored make_an_image`, with the path from the crate's folder or whole.
#[test]
#[ignore = "makes the image of a new format"]
fn make_an_image() {
    let out = PathBuf::from(std::env::var(OUT_VARIABLE).expect("NACRE_STORE_IMAGE says where to"));
    std::fs::create_dir_all(&out).expect("a writable folder");
    let folder = Folder::new("image");
    fill(&folder);
    for file in FILES {
        let content = std::fs::read(folder.path().join(file)).expect("readable");
        let image = pack(&content);
        assert!(unpack(&image) == content);
        std::fs::write(out.join(format!("{file}.image")), image).expect("a writable folder");
    }
}

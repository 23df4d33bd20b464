//! Beginnings for the fuzzer: captured messages and maps in the form that each target reads.

use crate::{auth, classes, device, metadata, monitors};
use nacre_buf::Bytes;
use nacre_denc::Reader;
use std::fs;
use std::path::{Path, PathBuf};

/// A target's name and an input for it.
pub type Seed = (&'static str, Vec<u8>);

/// All seeds that `testdata` yields.
///
/// # Panics
/// When `testdata` is not as this repository has it.
pub fn seeds() -> Vec<Seed> {
    let folders = ["messages", "peer-messages"];
    let hex = folders.iter().flat_map(|folder| files(folder, "hex"));
    let mut seeds: Vec<Seed> = hex.map(|path| message(&path)).collect();
    files("maps", "chain").iter().for_each(|path| chain(path, &mut seeds));
    seeds.extend(MAPS.map(|(target, name)| (target, read(&testdata("maps").join(name)))));
    files("classes", "calls").iter().for_each(|path| calls(path, &mut seeds));
    seeds.extend(auth::seeds().into_iter().map(|seed| ("auth", seed)));
    seeds.extend(metadata::seeds().into_iter().map(|seed| ("store_metadata", seed)));
    seeds.extend(device::seeds().into_iter().map(|seed| ("device_label", seed)));
    seeds.extend(monitors::link_seeds().into_iter().map(|seed| ("mon_link", seed)));
    seeds.extend(monitors::key_seeds().into_iter().map(|seed| ("recovery_key", seed)));
    seeds.extend(monitors::snapshot_seeds().into_iter().map(|seed| ("recovery_snapshot", seed)));
    seeds.extend(TEXTS.map(|text| ("keyring", text.as_bytes().to_vec())));
    seeds.extend([("transaction", vec![0; 64]), ("frames", handshake())]);
    seeds
}

const CALLS_PER_SEED: usize = 30;
const MAPS: [(&str, &str); 6] = [
    ("monmap", "monmap.bin"),
    ("crush", "crush-classes.bin"),
    ("mgrmap", "mgrmap-active.bin"),
    ("mgrmap", "mgrmap-empty.bin"),
    ("fsmap", "fsmap-empty.bin"),
    ("fsmap", "fsmap-one.bin"),
];

/// A keyring and caps of every dialect.
const TEXTS: [&str; 6] = [
    "[client.admin]\n\tkey = AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA==\n\tcaps mon = \"allow *\"\n",
    "allow rwx pool=rbd namespace=a object_prefix b, allow class-read object_prefix rbd_children",
    "profile rbd pool=images, profile rbd-read-only",
    "allow rw tag cephfs data=*",
    "allow profile osd, allow command \"osd pool create\" with pool=x network 10.0.0.0/8",
    "allow module status with a regex \".*\"",
];

fn testdata(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata").join(folder)
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).expect("a file of testdata")
}

fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(testdata(folder)).expect("testdata");
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    all.retain(|path| path.extension().is_some_and(|found| found == extension));
    all.sort();
    all
}

pub(crate) fn chunk(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("seeds are short").to_le_bytes();
    [&length[..], bytes].concat()
}

/// The header's fields, the front as a chunk, the data behind it; see [`crate::message`].
fn message(path: &Path) -> Seed {
    let text = String::from_utf8(read(path)).expect("text");
    let field = |key: &str| -> u16 {
        let behind = text.split(key).nth(1).expect("a header field");
        behind.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
    };
    let segment = |tag: &str| -> Vec<u8> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(tag));
        lines.flat_map(|hex| (0..hex.len()).step_by(2).map(move |at| digits(&hex[at..at + 2]))).collect()
    };
    let versions = ["version ", "compat "].map(|key| u8::try_from(field(key)).expect("small versions"));
    let kind = field("kind ").to_le_bytes();
    ("message", [&kind[..], &versions, &chunk(&segment("f ")), &segment("d ")].concat())
}

/// What was recorded of real classes, object by object: `testdata/classes/record.py` explains the lines.
fn calls(path: &Path, seeds: &mut Vec<Seed>) {
    let text = String::from_utf8(read(path)).expect("text");
    for object in text.split("object ").skip(1) {
        let mut lines = object.lines();
        let exists = lines.next().is_some_and(|title| title.ends_with(" existing"));
        let calls = lines.filter_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
            // What the object's data is by then.
            ["bytes", ..] => None,
            [class, method, "-", _, _] => Some((class, method, Vec::new())),
            [class, method, input, _, _] => {
                let pairs = (0..input.len()).step_by(2).map(|at| digits(&input[at..at + 2]));
                Some((class, method, pairs.collect()))
            }
            _ => None,
        });
        // Long recordings make slow seeds, and what follows does not depend on all that was before.
        let calls: Vec<_> = calls.collect();
        for part in calls.chunks(CALLS_PER_SEED) {
            let part = part.iter().map(|(class, method, input)| (*class, *method, input.clone()));
            seeds.push(("class_calls", classes::script(exists, part)));
        }
    }
}

fn digits(hex: &str) -> u8 {
    u8::from_str_radix(hex, 16).expect("hex digits")
}

/// A full map, the incrementals that followed, and the full map they lead to.
fn chain(path: &Path, seeds: &mut Vec<Seed>) {
    let mut r = Reader::new(Bytes::from(read(path)));
    let mut maps = Vec::new();
    while !r.is_empty() {
        maps.push(r.blob().expect("a whole chain").to_vec());
    }
    let last = maps.len() - 1;
    for (index, map) in maps.into_iter().enumerate() {
        let target = if index == 0 || index == last { "osdmap" } else { "osdmap_incremental" };
        seeds.push((target, map));
    }
}

/// HELLO, AUTH_REQUEST for the method "none", an empty signature and a message; see [`crate::frames()`].
fn handshake() -> Vec<u8> {
    let addr = [1, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let hello = [&[8][..], &addr].concat();
    let request = [1_u32, 1, 1, 0].map(u32::to_le_bytes).concat();
    let one = |tag: u8, segment: &[u8]| [&[tag, 0][..], &chunk(segment)].concat();
    [one(1, &hello), one(2, &request), one(7, &[0; 32]), one(17, &[0; 41])].concat()
}

//! Moves in which power is lost after each change of each device and of the OSD's folder.

mod rig;

use super::Moved;
use super::steps::Planted;
use nacre_env::disk::BLOCK_BYTES;
use rig::{DATA, ONE, Rig, TWO, Victim};
use std::collections::BTreeMap;
use std::path::Path;

const VICTIMS: [Victim; 4] = [Victim::Device(DATA), Victim::Device(ONE), Victim::Device(TWO), Victim::Folder];

/// What the store says of itself in the clear: marks of superblock, database, its region and its journal.
const MARKS: [&[u8]; 4] = [b"NacreBLK", b"nacre-kv", b"NacreREG", b"nacrekvJ"];

/// Blocks in which a bit rots at most, one after the other, where `NACRE_STORE_ROTTEN` names no other number.
const ROTTEN_MAX: usize = 40;

/// A move from one place to another; `None` is the place beside the data.
#[derive(Debug, Clone, Copy)]
struct Way {
    what: Moved,
    from: Option<&'static str>,
    to: Option<&'static str>,
    is_encrypted: bool,
    partitions: u32,
}

const fn ways(what: Moved, is_encrypted: bool, partitions: u32) -> [Way; 3] {
    [
        Way { what, from: None, to: Some(ONE), is_encrypted, partitions },
        Way { what, from: Some(ONE), to: Some(TWO), is_encrypted, partitions },
        Way { what, from: Some(TWO), to: None, is_encrypted, partitions },
    ]
}

/// A store before such a move.
fn before(way: Way, seed: u64) -> Rig {
    let mut rig = Rig::new(seed, way.is_encrypted, way.partitions);
    if way.from.is_some() {
        rig.move_all(way.what, way.from, Planted::Nothing).expect("healthy");
        rig.write_more(3);
    }
    rig
}

/// What is wrong when power goes after so many changes; `None` when the move needs no more.
fn with_power_lost(way: Way, victim: Victim, after: u64, planted: Planted) -> Result<bool, String> {
    let Way { what, to, from, .. } = way;
    let mut rig = before(way, after.wrapping_mul(97) + 5);
    rig.lose_power_after(victim, after);
    let outcome = rig.move_all(what, to, planted);
    rig.crash();
    let current = rig.current(what);
    let known = |place: Option<&'static str>| current.as_deref() == place.map(Path::new);
    if !known(from) && !known(to) {
        return Err(format!("the link leads to {current:?}"));
    }
    rig.check()?;
    if outcome.is_ok() {
        return if known(to) { Ok(false) } else { Err("said to be done, and is not".to_owned()) };
    }
    // An OSD may have run before somebody says it again.
    if after.is_multiple_of(2) {
        rig.write_more(2);
    }
    rig.again(what, to);
    rig.check()?;
    let left = from.into_iter().any(|from| rig.has_label(from));
    if rig.current(what).as_deref() != to.map(Path::new) || left {
        return Err(format!("said again, and now at {:?}, the old place left: {left}", rig.current(what)));
    }
    Ok(true)
}

/// Of metadata of several partitions, which do the same one after the other, at one moment in so many.
fn survives(what: Moved, is_encrypted: bool, partitions: u32) {
    let step = if matches!(what, Moved::Metadata) { partitions as usize } else { 1 };
    for way in ways(what, is_encrypted, partitions) {
        let mut losses = 0;
        for victim in VICTIMS {
            for after in (0..).step_by(step) {
                match with_power_lost(way, victim, after, Planted::Nothing) {
                    Ok(true) => losses += 1,
                    Ok(false) => break,
                    Err(why) => panic!("{way:?}, {victim:?} without power after {after} changes: {why}"),
                }
            }
        }
        assert!(losses > 10, "{way:?}: {losses} losses of power");
    }
}

#[test]
fn a_log_that_is_moved_survives_losses_of_power() {
    survives(Moved::Log, false, 1);
}

#[test]
fn metadata_that_are_moved_survive_losses_of_power() {
    survives(Moved::Metadata, false, 1);
}

#[test]
fn so_does_a_log_that_is_encrypted() {
    survives(Moved::Log, true, 1);
}

#[test]
fn so_do_metadata_that_are_encrypted() {
    survives(Moved::Metadata, true, 1);
}

#[test]
fn so_does_a_log_of_two_partitions() {
    survives(Moved::Log, false, 2);
}

#[test]
fn so_do_metadata_of_two_partitions() {
    survives(Moved::Metadata, false, 2);
}

#[test]
fn so_do_metadata_of_three_partitions_that_are_encrypted() {
    survives(Moved::Metadata, true, 3);
}

/// Power goes on one device after so many changes of it, and with it on others, in every combination in turn: whatever was not durable there
/// may be lost, and what was not durable on those that keep their power is there, and may be lost later.
fn writes_survive(apart: &[(Moved, &'static str)], is_encrypted: bool, partitions: u32) {
    let devices: Vec<&str> = [DATA].into_iter().chain(apart.iter().map(|(_, device)| *device)).collect();
    for victim in devices.iter().copied() {
        let mut losses = 0;
        // One partition changes the devices less.
        for after in (0..).step_by(if partitions == 1 { 1 } else { 2 }) {
            let mut rig = Rig::new(after * 31 + 7, is_encrypted, partitions);
            for (what, device) in apart {
                rig.move_all(*what, Some(device), Planted::Nothing).expect("healthy");
            }
            rig.lose_power_after(Victim::Device(victim), after);
            let went = !rig.try_to_write(8);
            let chosen = |nth: usize| (after / 2) >> nth & 1 == 1;
            let nths = (0..devices.len()).filter(|nth| devices[*nth] == victim || chosen(*nth));
            let lost: Vec<&str> = nths.map(|nth| devices[nth]).collect();
            rig.crash_of(&lost);
            let context =
                format!("{apart:?}, {partitions} partitions, {lost:?} without power, {victim} after {after}");
            rig.check().unwrap_or_else(|why| panic!("{context}: {why}"));
            rig.write_more(2);
            rig.check().unwrap_or_else(|why| panic!("{context}, opened again: {why}"));
            rig.crash();
            rig.check().unwrap_or_else(|why| panic!("{context}, and all later: {why}"));
            if !went {
                break;
            }
            losses += 1;
        }
        assert!(losses > 3, "{apart:?}, {victim}: {losses} losses of power");
    }
}

#[test]
fn what_is_acknowledged_survives_losses_of_power_where_partitions_share_a_device() {
    writes_survive(&[], false, 2);
    writes_survive(&[], true, 3);
}

#[test]
fn so_it_does_where_log_and_metadata_have_devices_of_their_own() {
    writes_survive(&[(Moved::Log, ONE), (Moved::Metadata, TWO)], false, 1);
    writes_survive(&[(Moved::Log, ONE), (Moved::Metadata, TWO)], false, 3);
    writes_survive(&[(Moved::Metadata, ONE)], true, 2);
}

/// A bit changes in one block after the other of those that have something in them: labels, superblocks, metadata, their journal, log and
/// data. Of the log's newest record nobody can tell rot from a loss of power, so all is home.
fn rot_is_found(apart: &[(Moved, &'static str)], is_encrypted: bool, partitions: u32) {
    let mut rig = Rig::new(5, is_encrypted, partitions);
    for (what, device) in apart {
        rig.move_all(*what, Some(device), Planted::Nothing).expect("healthy");
    }
    rig.write_more(8);
    rig.checkpoint();
    assert_eq!(rig.serves(), Ok(true));
    let before = rig.contents();
    let blocks = before.iter().flat_map(|(name, content)| {
        let used =
            content.chunks(BLOCK_BYTES).enumerate().filter(|(_, block)| block.iter().any(|byte| *byte != 0));
        used.map(|(nth, _)| (*name, (nth * BLOCK_BYTES) as u64))
    });
    let blocks: Vec<_> = blocks.collect();
    let mut found = BTreeMap::<&str, u32>::new();
    let asked = std::env::var("NACRE_STORE_ROTTEN").ok().and_then(|text| text.parse().ok());
    let stride = blocks.len().div_ceil(asked.unwrap_or(ROTTEN_MAX).max(1));
    for (nth, (name, from)) in (0..).zip(blocks.iter().step_by(stride)) {
        let (at, bit) = (from + nth * 977 % BLOCK_BYTES as u64, u32::try_from(nth % 8).expect("small"));
        rig.rot(name, at, bit);
        let outcome =
            rig.serves().unwrap_or_else(|why| panic!("{apart:?}, bit {bit} of byte {at} of {name}: {why}"));
        *found.entry(name).or_default() += u32::from(!outcome);
        rig.put_back(&before);
    }
    // What the log has is stale, and a label has a copy.
    let places = apart.iter().filter(|(what, _)| *what == Moved::Metadata).map(|(_, device)| *device);
    let live: Vec<&str> = places.chain([DATA]).collect();
    assert!(
        live.iter().all(|name| found.get(name).is_some_and(|found| *found > 0)),
        "{apart:?}: {found:?} of {} blocks",
        blocks.len()
    );
    assert_eq!(rig.serves(), Ok(true), "all is back");
}

#[test]
fn a_bit_that_rots_anywhere_is_an_error_or_nothing() {
    rot_is_found(&[], false, 1);
    rot_is_found(&[(Moved::Log, ONE), (Moved::Metadata, TWO)], false, 2);
    rot_is_found(&[(Moved::Log, ONE), (Moved::Metadata, TWO)], true, 1);
}

#[test]
fn a_link_that_changes_too_early_and_a_place_given_up_too_early_are_found() {
    for planted in [Planted::EarlySwitch, Planted::EarlyFree] {
        let (log, metadata) = (ways(Moved::Log, false, 1), ways(Moved::Metadata, false, 2));
        for way in [log[1], metadata[0], metadata[1]] {
            let to = way.to.expect("a device");
            let found = [Victim::Device(to), Victim::Folder].into_iter().any(|victim| {
                (0..200)
                    .map(|after| with_power_lost(way, victim, after, planted))
                    .take_while(|outcome| *outcome != Ok(false))
                    .any(|outcome| outcome.is_err())
            });
            assert!(found, "{planted:?} in {way:?}");
        }
    }
}

fn goes_to_and_fro(is_encrypted: bool, partitions: u32) {
    let mut rig = Rig::new(1, is_encrypted, partitions);
    for (what, to) in [
        (Moved::Log, Some(ONE)),
        (Moved::Metadata, Some(TWO)),
        (Moved::Log, None),
        (Moved::Log, Some(ONE)),
        (Moved::Metadata, None),
        (Moved::Log, Some(TWO)),
        (Moved::Metadata, Some(ONE)),
        (Moved::Log, None),
        (Moved::Metadata, None),
    ] {
        rig.move_all(what, to, Planted::Nothing).expect("healthy");
        assert_eq!(rig.current(what).as_deref(), to.map(Path::new));
        rig.check().expect("sound");
        rig.write_more(3);
        let expected: &[&[u8]] = if is_encrypted { &[] } else { &MARKS };
        assert_eq!(rig.shows(&MARKS), expected, "the {what} to {to:?}");
    }
    assert!(!rig.has_label(ONE) && !rig.has_label(TWO));
}

#[test]
fn a_store_goes_to_and_fro() {
    goes_to_and_fro(false, 1);
}

#[test]
fn so_does_one_of_three_partitions() {
    goes_to_and_fro(false, 3);
}

#[test]
fn an_encrypted_store_goes_to_and_fro_and_shows_nothing_on_any_device() {
    goes_to_and_fro(true, 1);
    goes_to_and_fro(true, 3);
}

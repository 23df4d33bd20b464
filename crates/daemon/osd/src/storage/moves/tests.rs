//! Moves in which power is lost after each change of each device and of the OSD's folder.

mod rig;

use super::Moved;
use super::steps::Planted;
use rig::{DATA, ONE, Rig, TWO, Victim};
use std::path::Path;

const VICTIMS: [Victim; 4] = [Victim::Device(DATA), Victim::Device(ONE), Victim::Device(TWO), Victim::Folder];

/// What the store says of itself in the clear: marks of superblock, database, its region and its journal.
const MARKS: [&[u8]; 4] = [b"NacreBLK", b"nacre-kv", b"NacreREG", b"nacrekvJ"];

/// A move from one place to another; `None` is the place beside the data.
#[derive(Debug, Clone, Copy)]
struct Way {
    what: Moved,
    from: Option<&'static str>,
    to: Option<&'static str>,
    is_encrypted: bool,
}

const fn ways(what: Moved, is_encrypted: bool) -> [Way; 3] {
    [
        Way { what, from: None, to: Some(ONE), is_encrypted },
        Way { what, from: Some(ONE), to: Some(TWO), is_encrypted },
        Way { what, from: Some(TWO), to: None, is_encrypted },
    ]
}

/// A store before such a move.
fn before(way: Way, seed: u64) -> Rig {
    let mut rig = Rig::new(seed, way.is_encrypted);
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

fn survives(what: Moved, is_encrypted: bool) {
    for way in ways(what, is_encrypted) {
        let mut losses = 0;
        for victim in VICTIMS {
            for after in 0.. {
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
    survives(Moved::Log, false);
}

#[test]
fn metadata_that_are_moved_survive_losses_of_power() {
    survives(Moved::Metadata, false);
}

#[test]
fn so_does_a_log_that_is_encrypted() {
    survives(Moved::Log, true);
}

#[test]
fn so_do_metadata_that_are_encrypted() {
    survives(Moved::Metadata, true);
}

#[test]
fn a_link_that_changes_too_early_and_a_place_given_up_too_early_are_found() {
    for planted in [Planted::EarlySwitch, Planted::EarlyFree] {
        let (log, metadata) = (ways(Moved::Log, false), ways(Moved::Metadata, false));
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

fn goes_to_and_fro(is_encrypted: bool) {
    let mut rig = Rig::new(1, is_encrypted);
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
    goes_to_and_fro(false);
}

#[test]
fn an_encrypted_store_goes_to_and_fro_and_shows_nothing_on_any_device() {
    goes_to_and_fro(true);
}

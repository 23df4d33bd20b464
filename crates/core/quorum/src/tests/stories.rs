//! Random stories: faults for a while, then calm, in which everything must come right.

use super::world::{Planted, World};

/// Seeds of each story in the normal run; `QUORUM_SEEDS` asks for others, from `QUORUM_FIRST` on.
const SEEDS: u64 = 150;

fn seeds() -> std::ops::Range<u64> {
    let of = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = of("QUORUM_FIRST").unwrap_or(0);
    first..first + of("QUORUM_SEEDS").unwrap_or(SEEDS)
}

#[derive(Clone, Copy)]
struct Faults {
    crashes: bool,
    cuts: bool,
    freezes: bool,
    wipes: bool,
    /// One message in this many is late.
    late_one_in: u64,
}

fn fault(world: &mut World, faults: Faults) {
    let count = world.slots.len() as u64;
    let at = usize::try_from(world.random(count)).expect("few");
    let other = usize::try_from(world.random(count)).expect("few");
    match world.random(10) {
        0 | 1 if faults.crashes => world.crash(at),
        2 | 3 => (0..world.slots.len()).for_each(|at| world.start(at)),
        4 if faults.cuts => {
            world.cut.insert((at, other));
        }
        5 if faults.cuts => (0..world.slots.len()).for_each(|other| {
            world.cut.insert((at, other));
            world.cut.insert((other, at));
        }),
        6 => world.cut.clear(),
        7 if faults.freezes => {
            let steps = world.random(400);
            world.freeze(at, steps);
        }
        // One at a time: a majority must keep its disks.
        8 if faults.wipes && world.is_complete() && world.leader() != Some(at) => world.wipe(at),
        9 => {
            (0..world.slots.len()).for_each(|at| world.hear_of_death(at));
            // In the middle of the election.
            if faults.crashes && world.random(2) == 0 {
                let steps = 2 + world.random(if faults.late_one_in < 10 { 40 } else { 4 });
                (0..steps).for_each(|_| world.step());
                world.crash(at);
                world.start(at);
            }
        }
        _ => world.replace_lost_members(),
    }
}

/// What a story came to: the rule that was broken, if one was.
fn story(seed: u64, members: u64, faults: Faults, planted: Planted) -> World {
    let mut world = World::new(seed, members, planted);
    world.late_one_in = faults.late_one_in;
    for _ in 0..3000 {
        world.step();
        match world.random(40) {
            0 => fault(&mut world, faults),
            1..8 => {
                // Clients ask whoever says that it leads, be it an old leader or not.
                let at = usize::try_from(world.random(members)).expect("few");
                world.propose(at);
            }
            8..12 => {
                let at = usize::try_from(world.random(members)).expect("few");
                world.read(at);
            }
            _ => (),
        }
        if world.broken.is_some() {
            return world;
        }
    }
    world.cut.clear();
    (0..world.slots.len()).for_each(|at| {
        world.freeze(at, 0);
        world.start(at);
    });
    for _ in 0..1500 {
        world.step();
        world.replace_lost_members();
    }
    end(&mut world);
    world
}

/// After the calm: one leader, which takes a change, and everybody has everything.
fn end(world: &mut World) {
    let Some(leader) = world.leader() else {
        world.broken.get_or_insert("nobody leads".to_owned());
        return;
    };
    let before = world.acked.len();
    let taken = world.propose(leader);
    for _ in 0..200 {
        world.step();
    }
    if !taken || world.acked.len() == before {
        world.broken.get_or_insert("a change in the calm is not acknowledged".to_owned());
    }
    if !world.is_complete() {
        world.broken.get_or_insert("not everybody votes".to_owned());
    }
    let acked = world.acked.keys().copied().collect();
    for at in 0..world.slots.len() {
        world.check_has(at, &acked, "a member in the calm");
    }
}

const ALL: Faults = Faults { crashes: true, cuts: true, freezes: true, wipes: true, late_one_in: 20 };
const LATE: Faults = Faults { late_one_in: 2, ..ALL };

fn end_well(members: u64, faults: Faults) {
    let (mut acked, mut reads, mut snapshots) = (0, 0, 0);
    for seed in seeds() {
        let world = story(seed, members, faults, Planted::Nothing);
        assert_eq!(world.broken, None, "seed {seed}");
        (acked, reads, snapshots) =
            (acked + world.acked.len(), reads + world.reads_done, snapshots + world.snapshots);
    }
    assert!(acked > 0 && reads > 0, "{acked} changes, {reads} reads, {snapshots} snapshots");
}

#[test]
fn three_members_keep_what_they_acknowledge() {
    end_well(3, ALL);
}

#[test]
fn three_members_with_late_messages_keep_what_they_acknowledge() {
    end_well(3, LATE);
}

#[test]
fn five_members_keep_what_they_acknowledge() {
    end_well(5, ALL);
}

#[test]
fn one_member_keeps_what_it_acknowledges() {
    end_well(1, Faults { cuts: false, wipes: false, ..ALL });
}

/// Tables that name the others only, then a new member besides: the leader hands over and goes, and the new one comes to vote.
#[test]
fn members_become_those_that_the_tables_name() {
    for seed in 0..20 {
        let mut world = World::new(seed, 3, Planted::Nothing);
        (0..600).for_each(|_| world.step());
        let first = world.leader().expect("nothing is in the way");
        let gone = world.slots[first].id;
        let stay: Vec<_> = world.slots.iter().map(|slot| slot.id).filter(|id| *id != gone).collect();
        world.name_members(first, &stay);
        (0..1000).for_each(|_| world.step());
        let leader = world.leader().expect("two are left");
        assert_ne!(leader, first, "seed {seed}");
        let voters = |world: &World| {
            let quorum = world.slots[world.leader()?].quorum.as_ref()?;
            Some((quorum.members().voters, quorum.members().learners))
        };
        assert_eq!(voters(&world), Some((stay, Vec::new())), "seed {seed}");
        world.wipe(first);
        (0..1000).for_each(|_| world.step());
        assert!(world.is_complete(), "seed {seed}: {:?}", voters(&world));
        end(&mut world);
        assert_eq!(world.broken, None, "seed {seed}");
    }
}

#[test]
fn a_story_is_the_same_each_time() {
    let told = |seed| {
        let world = story(seed, 3, ALL, Planted::Nothing);
        (
            world.acked,
            world.reads_done,
            world.snapshots,
            world.slots.iter().map(|slot| slot.disk.tables.clone()).collect::<Vec<_>>(),
        )
    };
    assert_eq!(told(7), told(7));
}

fn is_found(planted: Planted, faults: Faults) {
    let found =
        (0..4000).find_map(|seed| story(seed, 3, faults, planted).broken.map(|broken| (seed, broken)));
    let (seed, broken) = found.unwrap_or_else(|| panic!("{planted:?} shows in no story"));
    eprintln!("{planted:?} shows in story {seed}: {broken}");
}

#[test]
fn an_acknowledgement_before_the_write_is_found() {
    is_found(Planted::AckBeforeAppend, ALL);
}

#[test]
fn a_vote_that_is_not_stored_is_found() {
    is_found(Planted::VoteNotStored, LATE);
}

#[test]
fn a_change_that_is_applied_twice_is_found() {
    is_found(Planted::ApplyTwice, ALL);
}

#[test]
fn an_id_that_is_used_again_is_found() {
    is_found(Planted::IdReused, ALL);
}

/// Both that are left hear of the leader's death in the same moment, and vote for themselves: who hears of it again stands again, instead of
/// waiting for the other's patience to end.
#[test]
fn a_split_vote_is_over_as_soon_as_one_stands_again() {
    let mut world = World::new(1, 3, Planted::Nothing);
    (0..400).for_each(|_| world.step());
    let leader = world.leader().expect("a leader");
    let left: Vec<usize> = (0..3).filter(|at| *at != leader).collect();
    world.crash(leader);
    left.iter().for_each(|at| world.hear_of_death(*at));
    (0..40).for_each(|_| world.step());
    assert_eq!(world.leader(), None, "the votes are split");
    world.hear_of_death(left[0]);
    (0..40).for_each(|_| world.step());
    assert_eq!(world.leader(), Some(left[0]));
}

/// A member dies, its silence is not known yet, and just then another one is to go: it stays as long as its vote is needed.
#[test]
fn a_member_does_not_go_while_one_that_just_died_counts_as_there() {
    for seed in 0..20 {
        let mut world = World::new(seed, 3, Planted::Nothing);
        (0..300).for_each(|_| world.step());
        let leader = world.leader().expect("in the calm");
        let others: Vec<usize> = (0..3).filter(|at| *at != leader).collect();
        let [dies, goes] = others[..] else { panic!("three members") };
        world.crash(dies);
        let left = [world.slots[leader].id, world.slots[dies].id];
        world.name_members(leader, &left);
        (0..500).for_each(|_| world.step());
        assert_eq!(world.leader(), Some(leader), "seed {seed}: two of three are there");
        let quorum = world.slots[leader].quorum.as_ref().expect("it leads");
        assert!(quorum.members().voters.contains(&world.slots[goes].id), "seed {seed}");
        world.start(dies);
        (0..500).for_each(|_| world.step());
        let quorum = world.slots[leader].quorum.as_ref().expect("it leads");
        assert_eq!(quorum.members().voters.len(), 2, "seed {seed}: now it may go");
    }
}

//! Monitors come, go, lose their stores and come back, while clients write and read (`nacre_sim::MonLoad`): the history stays that of one
//! register, each term has one leader, and nobody waits for a monitor that is not there yet. Exams Q6 and Q10. `SIM_SEED=n` tells one story
//! again; `SIM_SEEDS=count` tells many, from `SIM_FIRST` on.

use nacre_sim::{MonLoad, Proc, mon_seeds};
use std::time::Duration;

/// Stories of a normal run.
const SEEDS: u64 = 10;
/// Places for monitors in a story.
const PLACES: usize = 5;
const EBUSY: i32 = -16;

fn join_order(load: &MonLoad, n: usize) -> String {
    let (name, addr) = load.world.mon_place(n);
    format!(r#"{{"prefix": "mon join", "name": "{name}", "addr": "{addr}"}}"#)
}

fn rm_order(load: &MonLoad, n: usize) -> String {
    format!(r#"{{"prefix": "mon rm", "name": "{}"}}"#, load.world.mon_place(n).0)
}

/// What `nacre mon join` and `nacre mon` do.
fn join(load: &mut MonLoad, n: usize) {
    let order = join_order(load, n);
    let seed = loop {
        let answer = load.order_and_wait(&order);
        match answer.result {
            0 => break answer.data,
            EBUSY => load.run_for(Duration::from_millis(250)), // its silence is not known yet
            _ => panic!("{answer:?}"),
        }
    };
    load.world.seed_mon(n, seed);
    load.world.start_mon(n);
}

fn rm(load: &mut MonLoad, n: usize) {
    let order = rm_order(load, n);
    let answer = load.order_and_wait(&order);
    assert_eq!(answer.result, 0, "{answer:?}");
}

/// Waits until so many monitors are in the quorum; yields how long that took.
fn await_quorum(load: &mut MonLoad, count: usize) -> Duration {
    let from = load.world.now();
    let patience = Duration::from_secs(30);
    let whole = load.run_until(patience, |load| load.leader().is_some() && load.quorum_shown() == count);
    assert!(whole, "{} are in the quorum, not {count}: {:?}", load.quorum_shown(), load.world);
    load.world.now().since(from)
}

/// Longest pause of commands that a change of monitors may cost: nothing that clients see.
const CALM: Duration = Duration::from_millis(250);

#[test]
fn a_cluster_of_one_becomes_one_of_three_and_outlives_the_first() {
    for seed in 0..3 {
        let mut load = MonLoad::new(seed, 1);
        for n in [1, 2] {
            assert_eq!(load.world.add_mon(), n);
            join(&mut load, n);
            let took = await_quorum(&mut load, n + 1);
            assert!(took <= Duration::from_secs(10), "seed {seed}: {took:?}");
        }
        let pause = load.take_pause();
        assert!(pause <= CALM, "seed {seed}: {pause:?}");
        load.world.wipe_mon(0);
        load.run_for(Duration::from_secs(5));
        let pause = load.take_pause();
        assert!(pause <= Duration::from_secs(1), "seed {seed}: {pause:?}");
        // It comes back under its name.
        join(&mut load, 0);
        await_quorum(&mut load, 3);
        load.ends_well();
    }
}

/// Exam Q6 of several monitors: a store is lost.
#[test]
fn a_monitor_whose_store_was_lost_is_back_within_ten_seconds() {
    for seed in 0..3 {
        let mut load = MonLoad::new(seed, 3);
        let leader = load.leader().expect("commands are answered");
        for n in load.others(leader) {
            load.world.wipe_mon(n);
            let from = load.world.now();
            join(&mut load, n);
            await_quorum(&mut load, 3);
            let took = load.world.now().since(from);
            assert!(took <= Duration::from_secs(10), "seed {seed}: {took:?}");
            let pause = load.take_pause();
            assert!(pause <= CALM, "seed {seed}: {pause:?}");
        }
        load.ends_well();
    }
}

/// Exam Q10: in Ceph a monitor counts from the moment of `mon add`, and a cluster of one stops.
#[test]
fn a_monitor_that_never_runs_stops_nobody() {
    for mons in [1, 3] {
        let mut load = MonLoad::new(7, mons);
        let n = load.world.add_mon();
        let (name, addr) = load.world.mon_place(n);
        let order = format!(r#"{{"prefix": "mon add", "name": "{name}", "addr": "{addr}"}}"#);
        assert_eq!(load.order_and_wait(&order).result, 0);
        load.run_for(Duration::from_secs(20));
        let pause = load.take_pause();
        assert!(pause <= CALM, "{mons} monitors: {pause:?}");
        assert_eq!(load.quorum_shown(), mons);
        if mons == 3 {
            // It is not counted: one of three may go as before.
            let leader = load.leader().expect("commands are answered");
            load.world.stop_mon(leader, false);
            load.run_for(Duration::from_secs(5));
            let pause = load.take_pause();
            assert!(pause <= Duration::from_secs(1), "{pause:?}");
        }
        rm(&mut load, n);
        load.ends_well();
    }
}

#[test]
fn monitors_are_removed_down_to_one_the_leader_first() {
    for seed in 0..3 {
        let mut load = MonLoad::new(seed, 3);
        for left in [2, 1] {
            let leader = load.leader().expect("commands are answered");
            load.take_pause();
            rm(&mut load, leader);
            let gone = load.run_until(Duration::from_secs(10), |load| !load.world.runs(Proc::Mon(leader)));
            assert!(
                gone,
                "seed {seed}: the one that was removed does not end: {:?}",
                load.world.monitor(leader)
            );
            load.run_for(Duration::from_secs(3));
            let pause = load.take_pause();
            assert!(pause <= Duration::from_secs(1), "seed {seed}, {left} left: {pause:?}");
            assert_eq!(load.quorum_shown(), left);
        }
        load.ends_well();
    }
}

/// One that did not hear of its removal, and one whose store was put back, end when they are told.
#[test]
fn a_monitor_that_was_replaced_while_it_was_away_ends_and_never_votes() {
    let mut load = MonLoad::new(3, 3);
    let leader = load.leader().expect("commands are answered");
    let others = load.others(leader);
    let away = others[0];
    load.world.stop_mon(away, false);
    load.run_for(Duration::from_secs(3));
    rm(&mut load, away);
    load.run_for(Duration::from_secs(2));
    load.world.start_mon(away);
    let gone = load.run_until(Duration::from_secs(10), |load| !load.world.runs(Proc::Mon(away)));
    assert!(gone, "{:?}", load.world.monitor(away));
    assert_eq!(load.leader(), Some(leader), "nobody was disturbed");
    let pause = load.take_pause();
    assert!(pause <= CALM, "{pause:?}");
    // A place in the cluster is to be had again.
    join(&mut load, away);
    await_quorum(&mut load, 3);
    load.ends_well();
}

fn move_to_port(load: &mut MonLoad, n: usize, port: u16) {
    let (name, addr) = load.world.mon_place(n);
    let addr = addr.replace(":3300", &format!(":{port}"));
    let answer = load
        .order_and_wait(&format!(r#"{{"prefix": "mon set-addrs", "name": "{name}", "addrs": "{addr}"}}"#));
    assert_eq!(answer.result, 0, "{answer:?}");
}

/// A monitor hears that it has moved although the others look for it elsewhere from then on.
#[test]
fn a_monitor_moves_while_it_runs_and_while_it_does_not() {
    for is_away in [false, true] {
        let mut load = MonLoad::new(5, 3);
        let leader = load.leader().expect("commands are answered");
        let others = load.others(leader);
        if is_away {
            load.world.stop_mon(others[0], false);
            load.run_for(Duration::from_secs(3));
        }
        move_to_port(&mut load, others[0], 3400);
        load.run_for(Duration::from_secs(3));
        if is_away {
            load.world.start_mon(others[0]);
        }
        await_quorum(&mut load, 3);
        load.run_for(Duration::from_secs(3));
        // It is needed now, and all that was connected to it is over.
        load.world.stop_mon(others[1], false);
        load.run_for(Duration::from_secs(3));
        load.world.stop_mon(others[0], false);
        load.run_for(Duration::from_secs(2));
        load.world.start_mon(others[0]);
        await_quorum(&mut load, 2);
        load.world.start_mon(others[1]);
        await_quorum(&mut load, 3);
        load.ends_well();
    }
}

/// A change of monitors that was ordered.
#[derive(Debug)]
enum Order {
    Join(usize, u64),
    Rm(u64),
}

/// Takes the answer to an order, if it has come.
fn follow(load: &mut MonLoad, order: &mut Option<Order>) {
    let Some(Order::Join(_, tid) | Order::Rm(tid)) = *order else { return };
    let Some(answer) = load.take_answer(tid) else { return };
    if let Some(Order::Join(n, _)) = order.take() {
        assert!([0, EBUSY].contains(&answer.result), "{answer:?}");
        if answer.result == 0 {
            load.world.seed_mon(n, answer.data);
            load.world.start_mon(n);
        }
    }
}

/// True when all that the map names vote and are there, as the leader knows it and as it is: one of them may lose its store.
fn is_whole(load: &MonLoad) -> bool {
    let Some(leader) = load.leader() else { return false };
    let Some(mon) = load.world.monitor(leader).and_then(nacre_monitor::Driver::mon) else { return false };
    let state = mon.state();
    let (map, quorum) = (state.mon.map(), &state.quorum);
    let votes =
        |name: &String| quorum.monitors.get(name).is_some_and(|mon| mon.is_in_quorum && !mon.is_learner);
    let mut named = (0..PLACES).filter(|n| map.mons.contains_key(&load.world.mon_place(*n).0));
    map.ranks.len() >= 3 && map.ranks.iter().all(votes) && named.all(|n| load.world.has_mon_store(n))
}

fn trouble(load: &mut MonLoad, n: usize, order: &mut Option<Order>) {
    let until = load.world.now() + Duration::from_millis(200 + load.world.below(6000));
    match load.world.below(11) {
        0 if load.world.runs(Proc::Mon(n)) => {
            let power = load.world.below(2) == 0;
            load.world.stop_mon(n, power);
        }
        1 => load.world.freeze(Proc::Mon(n), until),
        2 => load.others(n).into_iter().for_each(|other| load.cut(Proc::Mon(n), Proc::Mon(other))),
        3 => {
            let factor = 2 + u32::try_from(load.world.below(20)).expect("few");
            load.world.set_slow(Proc::Mon(n), factor);
        }
        4 | 5 if order.is_none() && load.world.has_mon_store(n) => {
            let tid = load.order(&rm_order(load, n));
            *order = Some(Order::Rm(tid));
        }
        6 | 7 if order.is_none() && is_whole(load) => load.world.wipe_mon(n),
        8 | 9 => load.heal(),
        _ => (),
    }
    if order.is_none() && !load.world.has_mon_store(n) {
        let tid = load.order(&join_order(load, n));
        *order = Some(Order::Join(n, tid));
    }
}

/// Whatever happens to monitors, wires, and who is one.
fn story(seed: u64) {
    let mut load = MonLoad::new(seed, 3);
    while load.world.mon_count() < PLACES {
        load.world.add_mon();
    }
    let mut order = None;
    for _ in 0..20 {
        let n = usize::try_from(load.world.below(PLACES as u64)).expect("few");
        trouble(&mut load, n, &mut order);
        let end = load.world.now() + Duration::from_millis(100 + load.world.below(5000));
        while load.world.now() < end {
            load.run_for(Duration::from_millis(100));
            follow(&mut load, &mut order);
        }
    }
    load.heal();
    for _ in 0..600 {
        load.run_for(Duration::from_millis(100));
        follow(&mut load, &mut order);
        let lost = (0..PLACES).find(|n| !load.world.has_mon_store(*n));
        match lost {
            Some(n) if order.is_none() => {
                let tid = load.order(&join_order(&load, n));
                order = Some(Order::Join(n, tid));
            }
            None if load.leader().is_some() && load.quorum_shown() == PLACES => break,
            _ => load.heal(),
        }
    }
    assert_eq!(
        load.quorum_shown(),
        PLACES,
        "everybody who asks for it has a vote in the end: {:?}",
        load.world
    );
    load.ends_well();
}

#[test]
fn stories_of_monitors_that_come_and_go_end_well() {
    for seed in mon_seeds(SEEDS) {
        let outcome = std::panic::catch_unwind(|| story(seed));
        assert!(outcome.is_ok(), "seed {seed} does not end well");
    }
}

/// Two sites and a witness: it gives the majority to whichever is left, and leads itself only while nobody else can.
#[test]
fn a_witness_votes_and_leads_last() {
    for seed in 0..5 {
        let mut load = MonLoad::new(seed, 2);
        assert_eq!(load.world.add_mon(), 2);
        let order = join_order(&load, 2).replace('}', r#", "witness": true}"#);
        let answer = load.order_and_wait(&order);
        assert_eq!(answer.result, 0, "{answer:?}");
        load.world.seed_mon(2, answer.data);
        load.world.start_mon(2);
        await_quorum(&mut load, 3);
        load.take_pause();
        for n in [0, 1, 0] {
            load.world.stop_mon(n, false);
            load.run_for(Duration::from_secs(5));
            let pause = load.take_pause();
            assert!(pause <= Duration::from_secs(2), "seed {seed}: without {n}: {pause:?}");
            assert_eq!(load.leader(), Some(1 - n), "seed {seed}: without {n}");
            load.world.start_mon(n);
            await_quorum(&mut load, 3);
            load.run_for(Duration::from_secs(3)); // it catches up
            load.take_pause();
        }
        // Whoever leads is disallowed: it hands the lead over, and nobody waits.
        let leader = load.leader().expect("commands are answered");
        let name = load.world.mon_place(leader).0.to_owned();
        let order = format!(r#"{{"prefix": "mon add disallowed_leader", "name": "{name}"}}"#);
        assert_eq!(load.order_and_wait(&order).result, 0);
        load.run_for(Duration::from_secs(3));
        let pause = load.take_pause();
        assert!(pause <= Duration::from_millis(500), "seed {seed}: the lead is handed over: {pause:?}");
        assert_eq!(load.leader(), Some(1 - leader), "seed {seed}");
        // Of the two that should not lead one does while the third is away.
        load.world.stop_mon(1 - leader, false);
        load.run_for(Duration::from_secs(5));
        assert!(load.leader().is_some(), "seed {seed}");
        load.world.start_mon(1 - leader);
        await_quorum(&mut load, 3);
        load.run_for(Duration::from_secs(3));
        assert_eq!(load.leader(), Some(1 - leader), "seed {seed}");
        load.ends_well();
    }
}

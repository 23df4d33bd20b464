//! Several monitors: commands go on while a majority lives, what was acknowledged stays, and nobody is told what is not so.
//!
//! Clients write and read one key of the config-key store all the time. Their history must be that of one register
//! ([`nacre_sim::Register`]), whatever happens to monitors and wires. `SIM_SEED=n` tells one story again; `SIM_SEEDS=count` tells many, from `SIM_FIRST` on.

use nacre_mon::MonitorPhase;
use nacre_sim::{CLIENTS, Config, MonLoad, Proc, mon_seeds};
use std::time::Duration;

/// Stories of a normal run, with three monitors and with five.
const SEEDS: u64 = 8;

/// Exam Q1: at most 1 s.
#[test]
fn when_the_leaders_process_is_killed_another_takes_over_within_a_second() {
    for seed in 0..3 {
        let mut load = MonLoad::new(seed, 3);
        for _ in 0..5 {
            let leader = load.leader().expect("commands are answered");
            load.world.stop_mon(leader, false);
            load.run_for(Duration::from_secs(5));
            let pause = load.take_pause();
            assert!(pause <= Duration::from_secs(1), "seed {seed}: {pause:?}");
            load.world.start_mon(leader);
            load.run_for(Duration::from_secs(5));
            let pause = load.take_pause();
            assert!(pause <= Duration::from_millis(250), "seed {seed}: its return costs {pause:?}");
        }
        load.ends_well();
    }
}

/// Exam Q3: at most 2 s, for clients of the other monitors: those of the frozen one find out by its silence, as with Ceph. What the thawed
/// one says is no answer to anything ([`nacre_sim::Register`]).
#[test]
fn when_the_leader_freezes_another_takes_over_within_two_seconds() {
    let worlds = (0..).map(|seed| (seed, MonLoad::new(seed, 3)));
    let worlds = worlds.filter(|(_, load)| load.clients_elsewhere_than_the_leader() > 0);
    for (seed, mut load) in worlds.take(3) {
        for in_turn in [false, true] {
            let leader = load.leader().expect("commands are answered");
            if load.clients_elsewhere_than_the_leader() == 0 {
                continue;
            }
            let until = load.world.now() + Duration::from_secs(15);
            if in_turn {
                load.world.freeze_in_turn(Proc::Mon(leader), until);
            } else {
                load.world.freeze(Proc::Mon(leader), until);
            }
            load.run_for(Duration::from_secs(25));
            let pause = load.take_pause();
            assert!(pause <= Duration::from_secs(2), "seed {seed}, in a turn: {in_turn}: {pause:?}");
            assert_ne!(load.leader(), Some(leader), "it has not taken the lead again");
        }
        load.ends_well();
    }
}

/// A machine that is gone says nothing: as Q3.
#[test]
fn when_the_leaders_machine_loses_power_another_takes_over_within_two_seconds() {
    for seed in 0..3 {
        let mut load = MonLoad::new(seed, 5);
        for _ in 0..2 {
            let leader = load.leader().expect("commands are answered");
            load.world.stop_mon(leader, true);
            load.run_for(Duration::from_secs(10));
            let pause = load.take_pause();
            assert!(pause <= Duration::from_secs(2), "seed {seed}: {pause:?}");
        }
        load.ends_well();
    }
}

/// Exam Q5: nothing is noticed of a monitor that does not lead but by its own clients.
#[test]
fn when_another_monitor_is_killed_and_returns_commands_go_on() {
    for seed in 0..3 {
        let mut load = MonLoad::new(seed, 3);
        let leader = load.leader().expect("commands are answered");
        for n in load.others(leader) {
            load.world.stop_mon(n, false);
            load.run_for(Duration::from_secs(3));
            assert_eq!(load.quorum_shown(), 2, "seed {seed}: MON_DOWN says so");
            load.world.start_mon(n);
            load.run_for(Duration::from_secs(3));
            assert_eq!(load.quorum_shown(), 3, "seed {seed}: it is back");
            let pause = load.take_pause();
            assert!(pause <= Duration::from_millis(250), "seed {seed}: {pause:?}");
        }
        assert_eq!(load.leader(), Some(leader), "no election was needed");
        load.ends_well();
    }
}

/// Exam Q4: two seconds after the cut the minority answers nothing, neither its leader nor its clients' fronts, and after healing nobody
/// who led in the majority has to give that up.
#[test]
fn a_minority_answers_nothing() {
    for seed in 0..4 {
        let mut load = MonLoad::new(seed, 3);
        let old = load.leader().expect("commands are answered");
        let (inside, outside) = (Proc::Client(0), [Proc::Client(1), Proc::Client(2)]);
        for other in load.others(old) {
            load.cut_both(Proc::Mon(old), Proc::Mon(other));
            load.cut_both(inside, Proc::Mon(other));
        }
        outside.into_iter().for_each(|client| load.cut_both(client, Proc::Mon(old)));
        load.run_for(Duration::from_secs(2));
        let before = load.by_client.clone();
        load.run_for(Duration::from_secs(40));
        assert_eq!(load.by_client.get(&0), before.get(&0), "seed {seed}: the minority answers");
        for client in [1, 2] {
            assert!(load.by_client[&client] > before[&client] + 50, "seed {seed}: the majority serves");
        }
        let leader = load.leader();
        assert!(leader.is_some_and(|leader| leader != old), "seed {seed}");
        load.world.fabric().heal();
        load.run_for(Duration::from_secs(10));
        assert_eq!(load.leader(), leader, "seed {seed}: an election without need");
        load.ends_well();
    }
}

/// A monitor that is cut off from the others sends its clients to them: a client of ours, which comes back to the same one first, is answered
/// after some 5 s (by its silence it would find out after 30).
#[test]
fn clients_of_a_monitor_that_is_cut_off_go_to_another() {
    for seed in 0..4 {
        let mut load = MonLoad::new(seed, 3);
        // Each monitor in turn; somebody's session is at one of them.
        for cut in 0..3 {
            for other in load.others(cut) {
                load.cut_both(Proc::Mon(cut), Proc::Mon(other));
            }
            let before = load.by_client.clone();
            load.run_for(Duration::from_secs(10));
            for client in 0..CLIENTS {
                let count = load.by_client[&client] - before.get(&client).copied().unwrap_or(0);
                assert!(count > 30, "seed {seed}, without {cut}: client {client} had {count} answers");
            }
            load.world.fabric().heal();
            load.run_for(Duration::from_secs(5));
        }
        load.ends_well();
    }
}

/// A monitor that was away for longer than the log is kept gets all tables.
#[test]
fn a_monitor_that_is_too_far_behind_gets_all_tables() {
    let mut load = MonLoad::new(1, 3);
    let leader = load.leader().expect("commands are answered");
    let away = load.others(leader)[0];
    load.world.stop_mon(away, true);
    load.run_for(Duration::from_secs(30));
    load.world.start_mon(away);
    load.run_for(Duration::from_secs(3));
    let pause = load.take_pause();
    assert!(pause <= Duration::from_millis(250), "{pause:?}");
    load.ends_well();
}

/// Whatever happens to monitors and wires.
fn story(seed: u64, mons: usize) {
    let mut load = MonLoad::new(seed, mons);
    for _ in 0..12 {
        let n = usize::try_from(load.world.below(mons as u64)).expect("few");
        let other = load.others(n)[usize::try_from(load.world.below(mons as u64 - 1)).expect("few")];
        let now = load.world.now();
        match load.world.below(8) {
            0 | 1 if load.world.runs(Proc::Mon(n)) => {
                let power = load.world.below(2) == 0;
                load.world.stop_mon(n, power);
            }
            2 => {
                let until = now + Duration::from_millis(200 + load.world.below(8000));
                load.world.freeze(Proc::Mon(n), until);
            }
            3 => {
                let until = now + Duration::from_millis(200 + load.world.below(8000));
                load.world.freeze_in_turn(Proc::Mon(n), until);
            }
            4 => load.cut(Proc::Mon(n), Proc::Mon(other)),
            5 => {
                for other in load.others(n) {
                    load.cut_both(Proc::Mon(n), Proc::Mon(other));
                }
            }
            6 => {
                let factor = 2 + u32::try_from(load.world.below(30)).expect("few");
                load.world.set_slow(Proc::Mon(n), factor);
            }
            _ => load.heal(),
        }
        let pause = Duration::from_millis(100 + load.world.below(6000));
        load.run_for(pause);
    }
    load.ends_well();
}

fn stories(mons: usize) {
    for seed in mon_seeds(SEEDS) {
        let outcome = std::panic::catch_unwind(|| story(seed, mons));
        assert!(outcome.is_ok(), "seed {seed} with {mons} monitors does not end well");
    }
}

#[test]
fn stories_of_three_monitors_end_well() {
    stories(3);
}

#[test]
fn stories_of_five_monitors_end_well() {
    stories(5);
}

/// Exam Q11: clocks that are five minutes fast and slow, and one that is set back by an hour: the quorum stays, clients come and go on, and the
/// leader says whose clock differs.
#[test]
fn clocks_that_differ_do_not_matter_and_show() {
    const HOUR: Duration = Duration::from_secs(3600);
    let minutes = |minutes: u64| HOUR + Duration::from_secs(60 * minutes);
    let clocks = [(Proc::Mon(0), 5), (Proc::Mon(1), 0), (Proc::Mon(2), 10)];
    let clients = (0..=CLIENTS).map(|n| (Proc::Client(n), 5));
    let skews = clocks.into_iter().chain(clients).map(|(proc, ahead)| (proc, minutes(ahead)));
    let config = Config { mons: 3, skews: skews.collect(), ..Config::default() };
    for seed in 0..2 {
        let mut load = MonLoad::with(seed, &config);
        let is_told = |load: &MonLoad| {
            let leader = load.leader().and_then(|n| load.world.monitor(n)?.mon());
            let checks = leader.map(|mon| nacre_mon::health::checks(mon.state())).unwrap_or_default();
            checks.iter().any(|check| check.code == "MON_CLOCK_SKEW")
        };
        assert!(is_told(&load), "seed {seed}");
        for set_back in [false, true] {
            let leader = load.leader().expect("commands are answered");
            if set_back {
                let ahead =
                    clocks.iter().find(|(proc, _)| *proc == Proc::Mon(leader)).expect("one of them").1;
                load.world.set_skew(Proc::Mon(leader), minutes(ahead) - HOUR);
                load.run_for(Duration::from_secs(20));
                assert!(load.take_pause() <= Duration::from_millis(250), "seed {seed}: set back");
                assert_eq!(load.leader(), Some(leader), "seed {seed}: no election was needed");
            }
            load.world.stop_mon(leader, false);
            load.run_for(Duration::from_secs(5));
            let pause = load.take_pause();
            assert!(pause <= Duration::from_secs(1), "seed {seed}: {pause:?}");
            load.world.start_mon(leader);
            let new = load.world.add_client();
            let came = load.run_until(Duration::from_secs(2), |load| load.world.client(new).global_id() != 0);
            assert!(came, "seed {seed}: a new client is let in");
            load.run_for(Duration::from_secs(5));
            assert!(is_told(&load), "seed {seed}");
        }
        load.ends_well();
    }
}

/// A monitor knows of itself what it is, whoever leads, and while nobody does.
#[test]
fn each_monitor_says_what_it_is() {
    let mut load = MonLoad::new(4, 3);
    let of = |load: &mut MonLoad, n: usize| load.world.monitor_mut(n).expect("it runs").own_view();
    let leader = load.leader().expect("commands are answered");
    let names = ["a", "b", "c"];
    for n in 0..3 {
        let own = of(&mut load, n);
        let phase = if n == leader { MonitorPhase::Leader } else { MonitorPhase::Peon };
        assert_eq!((own.name.as_str(), own.phase), (names[n], phase));
        assert_eq!((own.leader.as_deref(), own.quorum.len()), (Some(names[leader]), 3), "{own:?}");
        assert_eq!(own.election_epoch() % 2, 0);
    }
    let facts = &load.world.mon().expect("somebody leads").state().monitor_facts;
    for (n, name) in names.into_iter().enumerate() {
        assert_eq!(facts[name]["hostname"], format!("machine{n}"), "each says it of itself");
    }
    // One alone is connected with nobody.
    let [one, other] = load.others(leader)[..] else { panic!("two others") };
    load.cut_both(Proc::Mon(one), Proc::Mon(leader));
    load.cut_both(Proc::Mon(one), Proc::Mon(other));
    load.run_for(Duration::from_secs(8));
    let own = of(&mut load, one);
    assert_eq!((own.phase, own.leader.as_deref(), own.quorum.len()), (MonitorPhase::Probing, None, 0));
    assert_eq!(own.election_epoch() % 2, 1);
    let own = of(&mut load, other);
    assert_eq!((own.phase, own.quorum.len()), (MonitorPhase::Peon, 2), "{own:?}");
    load.ends_well();
}

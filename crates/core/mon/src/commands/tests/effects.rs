//! Options and settings by what they do, not by what is stored: each line sets one and shows the difference it makes.

use super::Bench;
use nacre_maps::{AutoscaleMode, Pool, flags};
use nacre_types::Errno;

const UNSUPPORTED: i32 = Errno::EOPNOTSUPP.negated();

fn set(bench: &mut Bench, who: &str, name: &str, value: &str) -> (i32, String) {
    bench.say(&format!(r#"{{"prefix":"config set","who":"{who}","name":"{name}","value":"{value}"}}"#))
}

/// The pool that `osd pool create` makes now, or what it says.
fn create(bench: &mut Bench, more: &str) -> Result<Pool, (i32, String)> {
    let name = format!("new{}", bench.state.osd.upcoming().pool_max);
    let (code, text) = bench.say(&format!(r#"{{"prefix":"osd pool create","pool":"{name}"{more}}}"#));
    if code != 0 {
        return Err((code, text));
    }
    let map = bench.state.osd.upcoming();
    Ok(map.pool(map.pool_by_name(&name).expect("the pool")).expect("the pool").clone())
}

#[test]
fn defaults_of_pools_follow_their_options() {
    let made = |name: &str, value: &str| {
        let mut bench = Bench::new();
        bench
            .state
            .config
            .set(&crate::config::Who::global(), "mon_max_pg_per_osd", "100000", false)
            .expect("a value");
        assert_eq!(set(&mut bench, "mon", name, value), (0, String::new()));
        create(&mut bench, "").expect("a pool")
    };
    assert_eq!(made("osd_pool_default_size", "2").size, 2);
    assert_eq!(made("osd_pool_default_min_size", "3").min_size, 3);
    assert_eq!(made("osd_pool_default_pg_num", "8").pg_num, 8);
    let pool = made("osd_pool_default_pgp_num", "4");
    assert_eq!((pool.pg_num, pool.pgp_num), (32, 4));
    assert!(made("osd_pool_default_flag_nodelete", "true").has_flag(flags::pool::NODELETE));
    assert!(made("osd_pool_default_flag_nopgchange", "true").has_flag(flags::pool::NOPGCHANGE));
    assert!(made("osd_pool_default_flag_nosizechange", "true").has_flag(flags::pool::NOSIZECHANGE));
    assert_eq!(made("mon_allow_pool_size_one", "true").pg_autoscale_mode, AutoscaleMode::On);
    assert_eq!(made("osd_pool_default_pg_autoscale_mode", "off").pg_autoscale_mode, AutoscaleMode::Off);
    assert_eq!(made("osd_pool_default_pg_autoscale_mode", "warn").pg_autoscale_mode, AutoscaleMode::Warn);
    assert!(made("osd_pool_default_flag_bulk", "true").has_flag(flags::pool::BULK));
    let mut bench = Bench::new();
    set(&mut bench, "mon", "osd_pool_default_crush_rule", "77");
    assert_eq!(
        create(&mut bench, "").map_err(|(code, _)| code),
        Err(Errno::ENOENT.negated()),
        "there is no rule 77"
    );
}

#[test]
fn limits_of_pools_follow_their_options() {
    let mut bench = Bench::new();
    set(&mut bench, "mon", "mon_max_pool_pg_num", "4");
    assert_eq!(create(&mut bench, r#","pg_num":8"#).map_err(|(code, _)| code), Err(Errno::ERANGE.negated()));
    let mut bench = Bench::new();
    set(&mut bench, "global", "mon_max_pg_per_osd", "1");
    assert_eq!(create(&mut bench, r#","pg_num":64"#).map_err(|(code, _)| code), Err(Errno::ERANGE.negated()));
    let mut bench = Bench::new();
    let one = r#"{"prefix":"osd pool set","pool":"rbd","var":"size","val":"1","yes_i_really_mean_it":true}"#;
    assert_eq!(bench.say(one).0, Errno::EPERM.negated());
    set(&mut bench, "mon.a", "mon_allow_pool_size_one", "true");
    assert_eq!(bench.say(one).0, 0);
    set(&mut bench, "mon", "mon_osd_blocklist_default_expire", "17");
    let add = r#"{"prefix":"osd blocklist","blocklistop":"add","addr":"192.0.2.7:0/9"}"#;
    assert!(bench.say(add).1.ends_with("(17 sec)"));
}

/// No daemon reads them, or not in that section: nothing is kept, and the answer says what holds.
#[test]
fn options_without_effect_are_refused() {
    let mut bench = Bench::new();
    for (who, name, value, text) in [
        ("osd", "osd_recovery_sleep", "0.1", "nacre_recovery_client_latency_target_ms"),
        ("osd.0", "osd_memory_target", "2G", "--osd-memory-target"),
        ("osd", "bdev_async_discard", "true", "never hold anybody up"),
        ("global", "osd_objectstore", "bluestore", "one kind of store"),
        ("global", "osd_failsafe_full_ratio", "0.98", "fixed at 0.97"),
        ("global", "auth_allow_insecure_global_id_reclaim", "false", "always needs proof"),
        ("mon", "mon_osd_full_ratio", "0.9", "set-full-ratio"),
        ("osd", "debug_osd", "20", "it is read by client"),
        ("osd", "mon_allow_pool_delete", "true", "it is read by mon"),
        ("mon", "osd_max_backfills", "2", "it is read by osd"),
        ("mgr", "mon_max_pg_per_osd", "2", "it is read by mon"),
        ("client.x", "osd_heartbeat_grace", "9", "it is read by osd and mon"),
        ("mon/host:a", "mon_allow_pool_delete", "true", "it is read by mon"),
        ("mgr", "mgr/balancer/active", "true", "modules are not built"),
    ] {
        let (code, said) = set(&mut bench, who, name, value);
        assert_eq!(code, UNSUPPORTED, "{who} {name}: {said}");
        assert!(said.contains(name) && said.contains(text), "{who} {name}: {said}");
    }
    assert_eq!(bench.state.config.iter().count(), 0);
    for (who, name, value) in [
        ("client", "debug_rbd", "20"),
        ("global", "debug_ms", "1"),
        ("client.admin", "rbd_cache", "false"),
        ("osd.1", "osd_crush_initial_weight", "2"),
        ("osd/class:hdd", "bdev_enable_discard", "false"),
        ("osd/class:ssd", "osd_max_backfills", "2"),
        ("global/host:a", "osd_heartbeat_grace", "20"),
    ] {
        assert_eq!(set(&mut bench, who, name, value), (0, String::new()), "{who} {name}");
    }
    let help = bench.ask(r#"{"prefix":"config help","key":"osd_recovery_sleep"}"#);
    assert!(
        help.contains("Not read here: recovery keeps to nacre_recovery_client_latency_target_ms"),
        "{help}"
    );
    let help = bench.ask(r#"{"prefix":"config help","key":"osd_heartbeat_grace"}"#);
    assert!(help.contains("Read by: osd, mon"), "{help}");
}

#[test]
fn settings_of_pools_without_effect_are_refused() {
    let mut bench = Bench::new();
    let mut ask = |var: &str, value: &str| {
        bench.say(&format!(r#"{{"prefix":"osd pool set","pool":"rbd","var":"{var}","val":"{value}"}}"#))
    };
    for (var, value) in [
        ("csum_type", "xxhash64"),
        ("csum_min_block", "4096"),
        ("csum_max_block", "4096"),
        ("recovery_priority", "5"),
        ("recovery_op_priority", "5"),
        ("scrub_priority", "5"),
    ] {
        assert_eq!(ask(var, value).0, UNSUPPORTED, "{var} {value}");
    }
    assert_eq!(ask("use_gmt_hitset", "true").0, Errno::EACCES.negated(), "of cache tiers");
    for (var, value) in [
        ("scrub_min_interval", "3600"),
        ("deep_scrub_interval", "7200"),
        ("scrub_max_interval", "7200"),
        ("compression_mode", "none"),
        ("csum_type", "crc32c"),
        ("recovery_priority", "0"),
        ("target_size_ratio", "0"),
    ] {
        assert_eq!(ask(var, value).0, 0, "{var} {value}");
    }
    assert_eq!(ask("scrub_min_interval", "-1").0, Errno::EINVAL.negated());
    let more = r#","expected_num_objects":9"#;
    assert_eq!(create(&mut bench, more).map_err(|(code, _)| code), Err(UNSUPPORTED), "{more}");
    assert!(create(&mut bench, r#","autoscale_mode":"off","bulk":false,"expected_num_objects":0"#).is_ok());
}

/// The OSDs of this map are up and did not say that they can.
#[test]
fn compression_is_refused_where_an_osd_that_is_up_does_not_compress() {
    let mut bench = Bench::new();
    for (var, value) in [
        ("compression_mode", "aggressive"),
        ("compression_algorithm", "zstd"),
        ("compression_required_ratio", "0.8"),
        ("compression_max_blob_size", "65536"),
        ("compression_min_blob_size", "16384"),
    ] {
        let (code, said) =
            bench.say(&format!(r#"{{"prefix":"osd pool set","pool":"rbd","var":"{var}","val":"{value}"}}"#));
        assert_eq!(code, UNSUPPORTED, "{var} {value}");
        assert!(said.contains("cannot compress"), "{said}");
    }
}

/// What changed, when, from what to what: not what holds now.
#[test]
fn the_log_of_options_has_their_history() {
    let mut bench = Bench::new();
    for value in ["2", "3"] {
        assert_eq!(set(&mut bench, "osd", "osd_max_backfills", value).0, 0);
        bench.state.flush(bench.wall);
    }
    bench.ask(r#"{"prefix":"config rm","who":"osd","name":"osd_max_backfills"}"#);
    bench.state.flush(bench.wall);
    let log = bench.ask(r#"{"prefix":"config log"}"#);
    let lines: Vec<&str> = log.lines().filter(|line| !line.starts_with("---")).collect();
    let wanted = [
        "- osd/osd_max_backfills = 3",
        "- osd/osd_max_backfills = 2",
        "+ osd/osd_max_backfills = 3",
        "+ osd/osd_max_backfills = 2",
    ];
    assert_eq!(lines, wanted);
    assert!(log.starts_with("--- 3 --- 20"), "{log}");
    assert_eq!(bench.ask(r#"{"prefix":"config log","num":1}"#).lines().count(), 2);
}

#[test]
fn arguments_are_followed() {
    let mut bench = Bench::new();
    bench.ask(r#"{"prefix":"osd down","ids":["0"],"definitely_dead":true}"#);
    let map = bench.state.osd.upcoming();
    assert!(map.is_down(0) && map.xinfo(0).dead_epoch == map.epoch);
    bench.ask(r#"{"prefix":"osd down","ids":["1"]}"#);
    let map = bench.state.osd.upcoming();
    assert!(map.is_down(1) && map.xinfo(1).dead_epoch < map.epoch);

    let plain = bench.ask(r#"{"prefix":"mon feature ls"}"#);
    assert!(plain.contains("[kraken,luminous,"), "{plain}");
    let valued = bench.ask(r#"{"prefix":"mon feature ls","with_value":"--with-value"}"#);
    assert!(valued.contains("[kraken(1),luminous(2),mimic(4),"), "{valued}");

    for name in ["here", "there"] {
        bench.ask(&format!(r#"{{"prefix":"osd crush add-bucket","name":"{name}","type":"rack"}}"#));
    }
    bench.ask(r#"{"prefix":"osd crush add-bucket","name":"inner","type":"host"}"#);
    bench.ask(r#"{"prefix":"osd crush move","name":"inner","args":["rack=here"]}"#);
    let unlink =
        |ancestor: &str| format!(r#"{{"prefix":"osd crush unlink","name":"inner","ancestor":"{ancestor}"}}"#);
    for elsewhere in ["there", "nowhere"] {
        assert_eq!(bench.say(&unlink(elsewhere)).0, Errno::ENOENT.negated(), "{elsewhere}");
        assert!(bench.state.osd.upcoming().crush.item_by_name("inner").is_some());
    }
    assert_eq!(bench.say(&unlink("here")).0, 0);
    assert!(bench.state.osd.upcoming().crush.item_by_name("inner").is_none());
}

/// What was not measured is not shown.
#[test]
fn what_is_not_known_is_absent() {
    let mut bench = Bench::new();
    let features = bench.ask(r#"{"prefix":"features","format":"json"}"#);
    assert!(features.contains(r#""client":[]"#), "{features}");
    assert!(bench.ask(r#"{"prefix":"report"}"#).contains(r#""paxos": {}"#));
    assert!(bench.ask(r#"{"prefix":"time-sync-status","format":"json"}"#).contains(r#""timechecks":{}"#));
    assert!(
        bench
            .ask(r#"{"prefix":"mon metadata","id":"a","format":"json"}"#)
            .contains(r#""hostname":"unknown""#)
    );
    bench.state.host = Some("machine7".to_owned());
    bench.state.monitor_facts.insert("a".to_owned(), crate::monitor_facts::of_program("machine7"));
    for command in ["mon metadata", "mgr metadata", "node ls"] {
        let text = bench.ask(&format!(r#"{{"prefix":"{command}","format":"json"}}"#));
        assert!(text.contains("machine7"), "{text}");
    }
}

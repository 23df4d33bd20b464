//! The autoscaler of our own manager: pools get other numbers of PGs, at its pace, and what it may not do it says.

use super::{ADMIN, World, clean_pg};
use crate::event::SessionId;
use nacre_maps::{AutoscaleMode, Pool, flags};
use nacre_msg::stats::{PgStat, pg_state};
use nacre_msg::{OsdPgCreated, PgStats};
use nacre_types::{Errno, OsdId, PgId, PoolId};
use serde_json::Value;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const GIB: i64 = 1 << 30;

struct Cluster {
    world: World,
    osds: Vec<SessionId>,
    admin: SessionId,
    /// Bytes of each OSD.
    capacity: i64,
}

impl Cluster {
    /// Six OSDs of 100 GiB; the autoscaler looks each second.
    fn start() -> Self {
        let mut cluster = Self::of(6, 100 * GIB);
        cluster.ask(
            r#""prefix":"config set","who":"mgr","name":"mgr/pg_autoscaler/sleep_interval","value":"1""#,
        );
        cluster.serve(0);
        cluster
    }

    fn of(osds: OsdId, capacity: i64) -> Self {
        let mut world = World::new(osds);
        let osds = world.boot_all(osds);
        let admin = world.connect(ADMIN);
        Self { world, osds, admin, capacity }
    }

    fn say(&mut self, command: &str) -> (i32, String, String) {
        let ack = self.world.ask(self.admin, &format!("{{{command}}}")).expect("an answer");
        let data = String::from_utf8(ack.data.to_bytes().to_vec()).expect("text");
        (ack.result, ack.status, data)
    }

    fn ask(&mut self, command: &str) -> String {
        let (result, said, data) = self.say(command);
        assert_eq!(result, 0, "{command}: {said}");
        data
    }

    fn pool(&self, id: PoolId) -> &Pool {
        &self.world.map().pools[&id]
    }

    fn create(&mut self, name: &str, more: &str) -> PoolId {
        self.ask(&format!(r#""prefix":"osd pool create","pool":"{name}"{more}"#));
        self.serve(0);
        self.world.map().pool_by_name(name).expect("the pool")
    }

    fn set(&mut self, pool: &str, var: &str, value: &str) {
        self.ask(&format!(r#""prefix":"osd pool set","pool":"{pool}","var":"{var}","val":"{value}""#));
    }

    /// Each OSD reports the PGs that it leads, active and clean, with so many objects of a MiB each.
    fn serve(&mut self, objects: i64) {
        let map = self.world.map().clone();
        for (osd, session) in (0..).zip(self.osds.clone()) {
            let mut stats = PgStats { fsid: self.world.mon.fsid(), ..PgStats::default() };
            for (id, pool) in &map.pools {
                for pg in (0..pool.pg_num).map(|seed| PgId::new(*id, seed)) {
                    let mut stat = clean_pg(&map, pg);
                    if stat.acting_primary != osd {
                        continue;
                    }
                    let sum = &mut stat.stats.sum;
                    sum.num_objects = objects;
                    sum.num_object_copies = objects * i64::from(pool.size);
                    sum.num_bytes = objects << 20;
                    stats.pg_stat.insert(pg, stat);
                    self.world.message(session, 0, OsdPgCreated { version: 0, pg });
                }
            }
            stats.osd_stat.statfs.total = self.capacity;
            stats.osd_stat.statfs.available = self.capacity;
            self.world.message(session, 0, stats);
        }
        self.world.pass(SECOND);
    }

    fn status(&mut self) -> Vec<Value> {
        let text = self.ask(r#""prefix":"osd pool autoscale-status","format":"json""#);
        serde_json::from_str(&text).expect("JSON")
    }

    fn health(&mut self) -> String {
        self.ask(r#""prefix":"health","detail":"detail""#)
    }
}

#[test]
fn a_pool_grows_by_splits_and_then_is_placed_at_its_pace() {
    let mut cluster = Cluster::start();
    cluster.ask(r#""prefix":"config set","who":"mgr","name":"target_max_misplaced_ratio","value":"0.25""#);
    let id = cluster.create("p", r#","pg_num":4,"autoscale_mode":"on""#);
    let mut steps = vec![(4, 4)];
    for _ in 0..20 {
        cluster.serve(10);
        let pool = cluster.pool(id);
        let now = (pool.pg_num, pool.pgp_num);
        if steps.last() != Some(&now) {
            steps.push(now);
        }
    }
    // A quarter of 32 PGs at a time.
    assert_eq!(steps, [(4, 4), (8, 4), (16, 4), (32, 4), (32, 12), (32, 20), (32, 28), (32, 32)]);
    assert!(cluster.world.logged("autoscaler: pool 'p' goes from 4 to 32 PGs"));
    assert_eq!(cluster.status()[0]["would_adjust"], false);
    // What nobody has reported on does not go on.
    cluster.set("p", "pg_num", "64");
    cluster.world.pass(SECOND * 3);
    assert_eq!(cluster.pool(id).pg_num, 32, "the next report is to come");
    cluster.serve(10);
    assert_eq!(cluster.pool(id).pg_num, 64);
    cluster.world.pass(SECOND * 3);
    assert_eq!(cluster.pool(id).pgp_num, 32, "the first report of 64 PGs is to come");
    cluster.world.check();
}

fn golden(name: &str) -> String {
    let path = format!("{}/../../../testdata/autoscaler/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A cluster of Ceph 16.2.15 with such pools said so (`testdata/autoscaler/status.*`).
#[test]
fn the_status_is_that_of_a_real_cluster() {
    let mut cluster = Cluster::of(3, GIB);
    cluster.create("device_health_metrics", r#","pg_num":1,"pg_num_min":1,"pg_num_max":32"#);
    cluster.create("rbd", r#","pg_num":64"#);
    cluster.create("small", r#","pg_num":4,"pg_num_max":16,"autoscale_mode":"on""#);
    cluster.create("nonum", r#","autoscale_mode":"on""#);
    cluster.create("big", r#","bulk":true,"autoscale_mode":"on""#);
    let told = cluster.create("told", r#","pg_num":4,"autoscale_mode":"warn""#);
    cluster.set("told", "target_size_bytes", "100G");
    let (pg, fsid) = (PgId::new(told, 0), cluster.world.mon.fsid());
    let placed = cluster.world.map().pg_to_up_acting(pg);
    let mut stat =
        PgStat { up: placed.up, acting: placed.acting, state: pg_state::ACTIVE, ..PgStat::default() };
    stat.acting_primary = placed.acting_primary;
    (stat.reported_epoch, stat.reported_seq) = (cluster.world.map().epoch, 1);
    stat.stats.sum.num_bytes = 1_000_000;
    let mut stats = PgStats { fsid, pg_stat: [(pg, stat)].into(), ..PgStats::default() };
    stats.osd_stat.statfs.total = GIB;
    let primary = usize::try_from(placed.acting_primary).expect("an OSD");
    cluster.world.message(cluster.osds[primary], 0, stats);
    let table = cluster.ask(r#""prefix":"osd pool autoscale-status""#);
    assert_eq!(table.trim_end(), golden("status.txt").trim_end());
    let theirs: Vec<Value> = serde_json::from_str(&golden("status.json")).expect("JSON");
    let ours = cluster.status();
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let keys = |row: &Value| row.as_object().expect("a row").keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(ours), keys(theirs));
        for key in keys(theirs) {
            assert_eq!(ours[&key], theirs[&key], "{key} of {}", theirs["pool_name"]);
        }
    }
}

#[test]
fn expectations_make_a_pool_larger_and_smaller() {
    let mut cluster = Cluster::start();
    let id = cluster.create("p", r#","pg_num":32,"autoscale_mode":"on""#);
    cluster.serve(0);
    assert_eq!(cluster.pool(id).pg_num_target, 32);
    // 600 copies, three each.
    cluster.set("p", "target_size_ratio", "0.5");
    cluster.serve(0);
    assert_eq!(cluster.pool(id).pg_num_target, 256);
    cluster.set("p", "target_size_ratio", "0");
    cluster.serve(0);
    assert_eq!(cluster.pool(id).pg_num_target, 32);
    cluster.set("p", "bulk", "true");
    cluster.serve(0);
    assert_eq!(cluster.pool(id).pg_num_target, 256);
    assert!(cluster.pool(id).has_flag(flags::pool::BULK));
    cluster.set("p", "pg_num_max", "64");
    let (result, said, _) = cluster.say(r#""prefix":"osd pool set","pool":"p","var":"pg_num","val":"128""#);
    assert_eq!(result, Errno::EINVAL.negated());
    assert!(said.ends_with("pg_num_min is not set, pg_num_max 64"), "{said}");
    cluster.serve(0);
    assert_eq!(cluster.pool(id).pg_num_target, 64);
    let row = &cluster.status()[0];
    assert_eq!(
        (&row["bulk"], &row["pg_num_final"], &row["crush_root_id"]),
        (&true.into(), &64.into(), &(-1).into())
    );
    let other = cluster.create("q", r#","pg_num":8,"autoscale_mode":"on","pg_num_min":8,"bulk":false"#);
    cluster.serve(0);
    assert_eq!(cluster.pool(other).pg_num_target, 8);
    let large = cluster.create("r", r#","pg_num":32,"bulk":true,"autoscale_mode":"on""#);
    cluster.serve(0);
    assert!(cluster.pool(large).pg_num_target > 32);
    cluster.world.check();
}

#[test]
fn pools_are_left_alone_or_warned_of_as_their_mode_says() {
    let mut cluster = Cluster::start();
    let off = cluster.create("off", r#","pg_num":4"#);
    let warn = cluster.create("warn", r#","pg_num":4,"autoscale_mode":"warn""#);
    let right = cluster.create("right", r#","pg_num":32,"autoscale_mode":"warn""#);
    for _ in 0..3 {
        cluster.serve(0);
    }
    assert_eq!(cluster.pool(off).pg_autoscale_mode, AutoscaleMode::Off);
    for pool in [off, warn] {
        assert_eq!(cluster.pool(pool).pg_num_target, 4);
    }
    assert_eq!(cluster.pool(right).pg_num_target, 32);
    let health = cluster.health();
    assert!(health.contains("POOL_TOO_FEW_PGS") && !health.contains("POOL_TOO_MANY_PGS"), "{health}");
    assert!(health.contains("Pool warn has 4 placement groups, should have 32"), "{health}");
    assert!(!health.contains("Pool right") && !health.contains("Pool off"), "{health}");
    cluster.set("warn", "pg_num", "32");
    assert!(!cluster.health().contains("POOL_TOO_FEW_PGS"));
    cluster.set("right", "pg_num_max", "4");
    assert!(cluster.health().contains("Pool right has 32 placement groups, should have 4"));
    assert!(cluster.health().contains("POOL_TOO_MANY_PGS"));
    cluster.set("right", "target_size_bytes", "1099511627776");
    cluster.set("right", "target_size_ratio", "0.1");
    let health = cluster.health();
    assert!(health.contains("POOL_HAS_TARGET_SIZE_BYTES_AND_RATIO"), "{health}");
    cluster.set("right", "target_size_ratio", "0");
    let health = cluster.health();
    assert!(health.contains("POOL_TARGET_SIZE_BYTES_OVERCOMMITTED"), "{health}");
    assert!(!health.contains("POOL_HAS_TARGET_SIZE_BYTES_AND_RATIO"), "{health}");
    cluster.set("right", "target_size_bytes", "0");
    assert!(!cluster.health().contains("OVERCOMMITTED"));
}

#[test]
fn what_is_refused_is_said_and_left() {
    let mut cluster = Cluster::start();
    let id = cluster.create("p", r#","pg_num":4,"autoscale_mode":"on","pg_num_max":4"#);
    cluster.set("p", "nopgchange", "true");
    cluster.set("p", "pg_num_max", "0");
    for _ in 0..3 {
        cluster.serve(0);
    }
    assert_eq!(cluster.pool(id).pg_num_target, 4);
    let (_, said, _) = cluster.say(r#""prefix":"osd pool autoscale-status""#);
    assert_eq!(said, "pool 'p' keeps its PGs: the pool's flag nopgchange forbids another pg_num");
    assert_eq!(cluster.status()[0]["would_adjust"], true);
    let text = "autoscaler: pool 'p' keeps 4 PGs and should have 32: the pool's flag nopgchange forbids another pg_num";
    let times = |cluster: &Cluster| {
        cluster.world.mon.state().log.entries().filter(|entry| entry.message == text).count()
    };
    assert_eq!(times(&cluster), 1, "once, not each second");
    cluster.set("p", "nopgchange", "false");
    cluster.serve(0);
    assert_eq!(cluster.pool(id).pg_num_target, 32);
}

#[test]
fn noautoscale_ends_it_for_all_pools() {
    let mut cluster = Cluster::start();
    let id = cluster.create("p", r#","pg_num":4"#);
    let say = |cluster: &mut Cluster, word: &str| {
        cluster.say(&format!(r#""prefix":"osd pool {word} noautoscale""#))
    };
    assert_eq!(say(&mut cluster, "get").1, "noautoscale is off");
    assert_eq!(say(&mut cluster, "set").0, 0);
    assert_eq!(say(&mut cluster, "get").1, "noautoscale is on");
    let on = r#""prefix":"osd pool set","pool":"p","var":"pg_autoscale_mode","val":"on""#;
    let (result, said, _) = cluster.say(on);
    assert_eq!(result, Errno::EINVAL.negated());
    assert!(said.contains("osd pool unset noautoscale"), "{said}");
    cluster.serve(0);
    assert_eq!(cluster.pool(id).pg_num_target, 4);
    assert_eq!(say(&mut cluster, "unset").0, 0);
    assert_eq!(cluster.pool(id).pg_autoscale_mode, AutoscaleMode::On, "of all pools");
    let new = cluster.create("q", "");
    assert_eq!(cluster.pool(new).pg_autoscale_mode, AutoscaleMode::On, "and of new ones");
    cluster.serve(0);
    assert_eq!(cluster.pool(id).pg_num_target, 32);
    assert_eq!(say(&mut cluster, "set").0, 0);
    assert_eq!(cluster.pool(id).pg_autoscale_mode, AutoscaleMode::Off);
}

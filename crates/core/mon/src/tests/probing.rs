//! Probes of pools: what a round has found out is health, and that none could begin as well.

use super::{ADMIN, World};
use crate::event::SessionId;
use crate::prober::{ProbeOrder, RETRY};
use nacre_mgr::probes::{PoolProbe, ProbeFault, ProbeWork};
use nacre_types::{PgId, PoolId};
use std::collections::BTreeMap;
use std::time::Duration;

struct Cluster {
    world: World,
    admin: SessionId,
    pool: PoolId,
}

impl Cluster {
    fn new() -> Self {
        let mut world = World::new(3);
        world.boot_all(3);
        let admin = world.connect(ADMIN);
        let ack = world.ask(admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
        assert_eq!(ack.expect("an answer").result, 0);
        let pool = *world.map().pools.keys().next_back().expect("a pool");
        Self { world, admin, pool }
    }

    fn probed(&mut self, found: Result<PoolProbe, &str>) {
        let found = found.map(|probe| BTreeMap::from([(self.pool, probe)])).map_err(str::to_owned);
        self.world.mon.probed(found, self.world.now, self.world.wall);
        self.world.settle();
    }

    /// Severity and text of a check that is on.
    fn check(&mut self, code: &str) -> Option<(String, String)> {
        let checks = self.world.checks(self.admin);
        let check = checks.get(code)?;
        Some((check["severity"].as_str()?.to_owned(), check.to_string()))
    }

    fn has(&mut self, code: &str) -> bool {
        self.check(code).is_some()
    }

    fn order(&mut self) -> Option<ProbeOrder> {
        self.world.mon.probe_order(self.world.now)
    }
}

fn answered(us: u64) -> PoolProbe {
    PoolProbe { answered_us: [vec![us; 8], vec![us; 8]], ..PoolProbe::default() }
}

fn failed(cluster: &Cluster) -> PoolProbe {
    let pg = PgId::new(cluster.pool, 3);
    let fault = ProbeFault { pg, primary: Some(2), work: ProbeWork::Write, errno: None };
    PoolProbe { faults: vec![fault], ..answered(3000) }
}

#[test]
fn what_probes_find_is_health_until_it_is_over() {
    let mut cluster = Cluster::new();
    (0..6).for_each(|_| cluster.probed(Ok(answered(3000))));
    assert!(!cluster.has("POOL_PROBE_FAILED") && !cluster.has("POOL_PROBE_SLOW"));
    let fault = failed(&cluster);
    cluster.probed(Ok(fault));
    let (severity, text) = cluster.check("POOL_PROBE_FAILED").expect("a PG is silent");
    assert!(severity == "HEALTH_ERR" && text.contains("led by osd.2: no answer to a write"), "{text}");
    // A pool that is full is asked nothing: that it has failed is not known any more.
    cluster.probed(Ok(PoolProbe::default()));
    assert!(!cluster.has("POOL_PROBE_FAILED"));
    (0..2).for_each(|_| cluster.probed(Ok(answered(90_000))));
    let (severity, text) = cluster.check("POOL_PROBE_SLOW").expect("it is slow");
    assert!(severity == "HEALTH_WARN" && text.contains("usual: half within 3.0 ms"), "{text}");
    cluster.probed(Ok(answered(3000)));
    assert!(!cluster.has("POOL_PROBE_SLOW"));
}

#[test]
fn rounds_that_cannot_begin_are_a_check_of_their_own() {
    let mut cluster = Cluster::new();
    let order = (0..900).find_map(|_| {
        cluster.world.pass(Duration::from_secs(1));
        cluster.order()
    });
    assert_eq!(order.expect("a round").pools, None);
    let fault = failed(&cluster);
    cluster.probed(Ok(fault));
    assert!(cluster.has("POOL_PROBE_FAILED"));
    cluster.probed(Err("no sockets"));
    assert!(!cluster.has("POOL_PROBE_FAILED"), "it is not known any more");
    assert!(!cluster.has("PROBES_FAILED"), "an election may be the reason");
    assert!(cluster.order().is_none());
    cluster.world.now = cluster.world.now + RETRY;
    assert_eq!(cluster.order().expect("another try").pools, None);
    cluster.probed(Err("no sockets"));
    let (severity, text) = cluster.check("PROBES_FAILED").expect("twice");
    assert!(severity == "HEALTH_WARN" && text.contains("no sockets"), "{text}");
    cluster.probed(Ok(answered(3000)));
    assert!(!cluster.has("PROBES_FAILED"));
}

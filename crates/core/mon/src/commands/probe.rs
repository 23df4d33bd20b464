//! `probe status` and `probe report`: what clients' probes of pools have found out. Our own commands.

use super::call::{Answer, Call, done, refuse};
use super::table::{Command, command};
use crate::probing::interval;
use nacre_format::{Align, Node, Section, Table, fixed};
use nacre_mgr::probes::{HOSTS_MAX, HostProbe, LATENCY_BOUNDS_US, PoolHealth, ProbeWork};
use nacre_types::{Errno, PoolId};

pub(super) const COMMANDS: &[Command] = &[
    command("probe status", "mgr", "r", "How pools answer small writes and reads of a client", status),
    command(
        "probe report name=pool,type=CephPoolname name=sum_us,type=CephInt,range=0 name=failed,type=CephInt,range=0 name=counts,type=CephString",
        "mgr",
        "w",
        "Tell how long writes took at the host that this is sent from; what 'nacre probe' does",
        report,
    ),
];

/// Counts that a report may have at most in all: a host that writes 1,000 times a second for a day.
const COUNT_MAX: u64 = 100_000_000;

fn ms(us: u64) -> String {
    fixed(us as f64 / 1000.0, 2)
}

fn status(call: &mut Call<'_>) -> Answer {
    let probes = &call.state.stats.probes;
    let map = call.state.osd.map();
    let name = |pool: PoolId| map.pool_name(pool).unwrap_or_default().to_owned();
    let pools: Vec<(String, &PoolHealth)> = probes.pools().map(|(id, health)| (name(id), health)).collect();
    let hosts: Vec<(&str, String, &HostProbe)> =
        probes.hosts.all().map(|(host, pool, probe)| (host, name(pool), probe)).collect();
    let tree = Section::new()
        .with("interval_s", interval(call.state).as_secs())
        .with("error", call.state.probing.error.clone().unwrap_or_default())
        .with("pools", Node::array("pool", pools.iter().map(|(name, health)| pool_section(name, health))))
        .with("hosts", Node::array("host", hosts.iter().map(host_section)));
    let mut text = String::new();
    if interval(call.state).is_zero() {
        text.push_str("pools are not probed: nacre_probe_interval is 0\n");
    } else if pools.is_empty() {
        text.push_str("no round of probes has ended yet\n");
    }
    if let Some(error) = &call.state.probing.error {
        text.push_str(&format!("the last round could not begin: {error}\n"));
    }
    if !pools.is_empty() {
        text.push_str(&pool_table(&pools));
    }
    if !hosts.is_empty() {
        text.push_str(&host_table(&hosts));
    }
    call.either("probe_status", text, tree)
}

fn pool_table(pools: &[(String, &PoolHealth)]) -> String {
    let mut table = Table::aligned(&[
        ("POOL", Align::Left),
        ("WRITE p50 ms", Align::Right),
        ("p95 ms", Align::Right),
        ("READ p50 ms", Align::Right),
        ("p95 ms", Align::Right),
        ("ROUNDS", Align::Right),
        ("FAILED PGS", Align::Right),
    ]);
    for (name, health) in pools {
        let levels = health.levels.iter().flat_map(|level| {
            level.map_or(["-".to_owned(), "-".to_owned()], |level| [level.half_us, level.most_us].map(ms))
        });
        let failed = health.last.faults.len() + health.last.unasked;
        let ends = [health.rounds.to_string(), failed.to_string()];
        table.row([name.clone()].into_iter().chain(levels).chain(ends));
    }
    table.render()
}

fn host_table(hosts: &[(&str, String, &HostProbe)]) -> String {
    let mut table = Table::aligned(&[
        ("HOST", Align::Left),
        ("POOL", Align::Left),
        ("WRITES", Align::Right),
        ("MEAN ms", Align::Right),
        ("p50 ms", Align::Right),
        ("p99 ms", Align::Right),
        ("FAILED", Align::Right),
    ]);
    for (host, pool, probe) in hosts {
        let at =
            |share| probe.percentile_us(share).map_or_else(|| "-".to_owned(), |us| format!("<= {}", ms(us)));
        let mean = probe.sum_us.checked_div(probe.count).map_or_else(|| "-".to_owned(), ms);
        let (count, failed) = (probe.count.to_string(), probe.failed.to_string());
        table.row([(*host).to_owned(), pool.clone(), count, mean, at(50), at(99), failed]);
    }
    table.render()
}

fn pool_section(name: &str, health: &PoolHealth) -> Section {
    let mut section = Section::new()
        .with("pool", name)
        .with("rounds", health.rounds)
        .with("failed_pgs", health.last.faults.len() + health.last.unasked)
        .with("is_slow", health.slow.is_some());
    for (work, level) in ProbeWork::ALL.into_iter().zip(health.levels) {
        if let Some(level) = level {
            section.put(format!("{}_p50_us", work.name()), level.half_us);
            section.put(format!("{}_p95_us", work.name()), level.most_us);
        }
    }
    section
}

fn host_section((host, pool, probe): &(&str, String, &HostProbe)) -> Section {
    Section::new()
        .with("host", *host)
        .with("pool", pool.as_str())
        .with("writes", probe.count)
        .with("sum_us", probe.sum_us)
        .with("failed", probe.failed)
        .with("counts", Node::array("count", probe.buckets))
}

/// The host is where the session's socket is, whatever the report says of itself.
fn report(call: &mut Call<'_>) -> Answer {
    let pool = {
        let name = call.args.text("pool").to_owned();
        call.pool_id(&name)?
    };
    let number = |name| call.args.int(name).and_then(|value| u64::try_from(value).ok());
    let counts = call.args.text("counts");
    let counts: Option<Vec<u64>> = counts.split(',').map(|count| count.trim().parse().ok()).collect();
    let wrong = || {
        let text = format!(
            "COUNTS are {} numbers with commas between them: writes within {:?} us, and those that took longer",
            LATENCY_BOUNDS_US.len() + 1,
            LATENCY_BOUNDS_US
        );
        refuse(Errno::EINVAL, text)
    };
    let (Some(sum_us), Some(failed), Some(counts)) = (number("sum_us"), number("failed"), counts) else {
        return Err(wrong());
    };
    let Some((longer, within)) = counts.split_last() else { return Err(wrong()) };
    let Ok(buckets) = within.try_into() else { return Err(wrong()) };
    let count = counts.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
    if count.saturating_add(failed) > COUNT_MAX {
        return Err(refuse(
            Errno::ERANGE,
            format!("one report is of at most {COUNT_MAX} writes, {longer} too long"),
        ));
    }
    let host = call.identity.seen_at.or_else(|| call.identity.addr.socket.map(|socket| socket.ip()));
    let host = host.map(|host| host.to_string()).unwrap_or_default();
    let probe = HostProbe { count, sum_us, buckets, failed };
    if call.state.stats.probes.hosts.report(&host, pool, &probe, call.now) {
        return done("");
    }
    Err(refuse(Errno::ENOSPC, format!("{HOSTS_MAX} hosts and pools report already, and no more are kept")))
}

//! The exam of `nacre doctor` and `nacre why-slow`: which of many faults is there is to be named first; of two, both among the first three;
//! of none, none. Strengths, places and pairs come from a seed (`NACRE_EXAM_SEED`), which is printed.

#![allow(clippy::print_stderr, reason = "what was named is to be read")]

use nacre_interop::{Cluster, Shell};

const PYTHON: &str = include_str!("doctor_exam.py");
const BEGIN: &str = r#"
print('seed %d' % SEED, flush=True)
machine()
ceph('config', 'set', 'mon', 'mon_allow_pool_delete', 'true')
# A slow device is to be found where it is, and not to be gone from all PGs before anybody looks.
ceph('config', 'set', 'mon', 'nacre_slow_device_out_after', '0')
# The disk of the machine that tests is nobody's fault here.
ceph('config', 'set', 'mon', 'mon_data_avail_warn', '1'); ceph('config', 'set', 'mon', 'mon_data_avail_crit', '1')
known.update(finding['check'] for finding in doctor(0)['findings'] if finding['check'] in ('build', 'osd-build'))
"#;

fn seed() -> u64 {
    let given = std::env::var("NACRE_EXAM_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| u64::from(std::process::id()))
}

fn take(shell: &Shell, seconds: u64, script: &str) {
    let script = format!("{PYTHON}{BEGIN}{script}");
    eprintln!("{}", shell.with("SEED", seed()).within(seconds).python(&script));
}

#[test]
fn a_slow_device_and_a_slow_client_are_named() {
    let Some(cluster) = Cluster::start_processes(4) else { return };
    take(
        &cluster.shell(),
        120,
        r#"
pool(64); load = Load(8); time.sleep(3)
# Where other tests take the processors and the disk, it may be too little of what is slow.
assert any(look([SlowDevice()], 1) for attempt in range(3))
assert any(look([SlowClient()], 1) for attempt in range(3))
load.end()
"#,
    );
}

/// Faults of a machine's files, all of them one by one and two at a time.
#[test]
fn faults_of_a_machine_are_named_alone_and_in_pairs() {
    let Some(cluster) = Cluster::start_processes(1) else { return };
    take(
        &cluster.shell(),
        60,
        r#"
def host(): return run('doctor', '--root', 'machine', '--json')
Host.by = staticmethod(host)
known.add('build')
assert costly(host()) == [], costly(host())
for kind in Host.FILES: alone(Host(kind))
assert all(rows), rows
kinds = list(Host.FILES); chance.shuffle(kinds)
for one, other in zip(kinds[::2], kinds[1::2]): assert look([Host(one), Host(other)], 3)
"#,
    );
}

#[test]
#[ignore = "a quarter of an hour, as root with nft, in which little else should run: cargo test -p nacre-interop --test all doctor_exam:: -- --ignored --nocapture"]
fn the_right_cause_is_named_first() {
    let Some(cluster) = Cluster::start_processes(4) else { return };
    take(
        &cluster.shell(),
        2400,
        r#"
load = None
try:
    alone(FewPgs()); load = Load(8); enclose(); well()
    if known: alone(Build())
    for fault in (SlowDevice, Stalls, Lossy, Recovery, Scrub, Noisy, SlowClient, Fill, Host):
        calm(); alone(fault())
    pairs = []
    for one, other in ((SlowDevice, Host), (SlowDevice, Lossy), (Stalls, Host), (Recovery, SlowDevice)):
        calm(); pairs.append(look([one(), other()], 3))
    for fault in (Frozen, Cut): calm(); alone(fault())
    print('%d of %d right causes first' % (sum(rows), len(rows)), flush=True)
    print('%d of %d pairs among the first three' % (sum(pairs), len(pairs)), flush=True)
    print('%d of %d looks without a fault named nothing' % (sum(quiet), len(quiet)), flush=True)
    assert sum(rows) >= len(rows) - 1 and len(rows) >= 12 and all(pairs) and all(quiet), (rows, pairs, quiet)
finally:
    release()
"#,
    );
}

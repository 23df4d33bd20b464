//! Peers that mean harm, and peers that are broken: no panic, no growth of memory, others are served as before.

use nacre_interop::{Client, Cluster, Mutants, Shell, Wire, attack};
use nacre_msg::{Message, MonCommand};
use nacre_types::{EntityAddr, EntityKind, OsdId};
use std::collections::BTreeMap;

/// Streams and messages for each port.
const COUNT: usize = 2000;
/// What the daemon's memory may grow by.
const GROWTH_BYTES_MAX: u64 = 64 << 20;
/// Answers that are read on the way; peers that send without reading are cut off, rightly.
const READ_EVERY: usize = 16;

/// A valid client is served, by every OSD.
fn assert_served(shell: &Shell) {
    shell.sh("
        echo content > in
        for n in $(seq 24); do rados -p $POOL put served-$n in; rados -p $POOL get served-$n out; cmp in out; done
        ceph -s >/dev/null; ceph pg stat >/dev/null; ceph tell osd.0 version >/dev/null");
}

fn grown(before: u64, after: u64) -> u64 {
    after.saturating_sub(before)
}

#[test]
fn strangers_at_every_port_do_no_harm() {
    let cluster = Cluster::start(3);
    let Some(daemon) = cluster.daemon() else { return };
    let shell = cluster.pool("strangers", 8);
    assert_served(&shell);
    let before = daemon.resident_bytes();
    for (seed, (name, port)) in (1..).zip(cluster.ports()) {
        attack(port, seed, COUNT).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let growth = grown(before, daemon.resident_bytes());
    assert!(growth < GROWTH_BYTES_MAX, "{growth} bytes more than before");
    assert_served(&shell);
}

#[test]
fn operations_that_no_client_sends_do_no_harm() {
    let cluster = Cluster::start(3);
    let Some(daemon) = cluster.daemon() else { return };
    let shell = cluster.pool("operations", 8);
    assert_served(&shell);
    let mut client = Client::new(&cluster);
    let map = client.osdmap().expect("a map");
    let before = daemon.resident_bytes();
    let mut mutants = Mutants::new(11, map, "operations");
    let mut wires: BTreeMap<OsdId, Wire> = BTreeMap::new();
    for count in 0..3 * COUNT {
        let (osd, raw) = mutants.operation();
        send_to(&mut wires, osd, raw, count, || client.daemon(EntityKind::OSD, osd_addr(&mutants, osd)));
    }
    drop(wires);
    let growth = grown(before, daemon.resident_bytes());
    assert!(growth < GROWTH_BYTES_MAX, "{growth} bytes more than before");
    assert_served(&shell);
}

fn osd_addr(mutants: &Mutants, osd: OsdId) -> EntityAddr {
    mutants.map().client_addr(osd).and_then(|addrs| addrs.msgr2()).expect("an address of version 2")
}

/// Sends on the wire of `key`, opening it if there is none; a peer that hangs up is dialled again next time.
fn send_to<K: Ord>(
    wires: &mut BTreeMap<K, Wire>,
    key: K,
    raw: nacre_msg::RawMessage,
    count: usize,
    open: impl FnOnce() -> Result<Wire, String>,
) {
    let mut wire = match wires.remove(&key) {
        Some(wire) => wire,
        None => open().expect("a valid client gets a session"),
    };
    let alive = wire.send(raw).is_ok() && (!count.is_multiple_of(READ_EVERY) || wire.take().is_ok());
    if alive {
        wires.insert(key, wire);
    }
}

#[test]
fn messages_that_nobody_sends_do_no_harm() {
    let cluster = Cluster::start(3);
    let Some(daemon) = cluster.daemon() else { return };
    let shell = cluster.pool("messages", 8);
    assert_served(&shell);
    let mut client = Client::new(&cluster);
    let map = client.osdmap().expect("a map");
    let mgr = shell.json("ceph mgr dump -f json")["active_addrs"]["addrvec"][0].clone();
    let mgr = format!("v2:{}/{}", mgr["addr"].as_str().expect("text"), mgr["nonce"]);
    let mgr = EntityAddr::parse(&mgr).expect("an address");
    let before = daemon.resident_bytes();
    let mut mutants = Mutants::new(12, map, "messages");
    let mut wires: BTreeMap<&str, Wire> = BTreeMap::new();
    for count in 0..COUNT {
        let raw = mutants.any();
        send_to(&mut wires, "mon", raw.clone(), count, || client.monitor());
        send_to(&mut wires, "mgr", raw.clone(), count, || client.daemon(EntityKind::MGR, mgr));
        let addr = osd_addr(&mutants, 1);
        send_to(&mut wires, "osd", raw, count, || client.daemon(EntityKind::OSD, addr));
    }
    drop(wires);
    let growth = grown(before, daemon.resident_bytes());
    assert!(growth < GROWTH_BYTES_MAX, "{growth} bytes more than before");
    assert_served(&shell);
}

#[test]
fn commands_that_make_no_sense_do_no_harm() {
    let cluster = Cluster::start(3);
    let shell = cluster.pool("commands", 8);
    let Some(daemon) = cluster.daemon() else { return };
    let mut client = Client::new(&cluster);
    let map = client.osdmap().expect("a map");
    let known = shell.python(
        "
import rados, json
cluster = rados.Rados(conffile=''); cluster.connect()
code, out, text = cluster.mon_command(json.dumps({'prefix': 'get_command_descriptions'}), b'')
for command in json.loads(out).values():
    words = []
    for word in command['sig']:
        if not isinstance(word, str) and not word.get('prefix'): break
        words.append(word if isinstance(word, str) else word['prefix'])
    print(' '.join(words))
",
    );
    // What an administrator may really break is not asked for: the test wants a cluster afterwards.
    let breaks = |prefix: &&str| {
        [
            "auth",
            "mon ",
            "osd crush",
            "osd purge",
            "osd destroy",
            "osd rm",
            "osd set",
            "osd pool set",
            "osd down",
            "osd out",
            "osd stop",
            "osd pool rm",
            "osd pause",
            "osd pool delete",
            "config set",
            "config-key",
            "osd reweight",
            "quorum",
            "stop",
        ]
        .iter()
        .any(|bad| prefix.starts_with(bad))
    };
    let prefixes: Vec<String> = known.lines().filter(|prefix| !breaks(prefix)).map(str::to_owned).collect();
    assert!(prefixes.len() > 30, "{known}");
    let before = daemon.resident_bytes();
    let mut mutants = Mutants::new(13, map, "commands");
    let mut wires: BTreeMap<(), Wire> = BTreeMap::new();
    for count in 0..COUNT {
        let command = MonCommand { cmd: vec![mutants.command(&prefixes)], ..MonCommand::default() };
        send_to(&mut wires, (), Message::from(command).encode(7), count, || client.monitor());
    }
    drop(wires);
    let growth = grown(before, daemon.resident_bytes());
    assert!(growth < GROWTH_BYTES_MAX, "{growth} bytes more than before");
    assert_served(&shell);
}

/// Commands by an administrator that fit their signatures, with values at and beyond every edge.
const COMMANDS: &str = r#"
import json, os, random, rados, sys
SEED, COUNT = int(os.environ.get('HOSTILE_SEED', '14')), int(os.environ.get('HOSTILE_COMMANDS', '1500'))
print('HOSTILE_SEED=%d' % SEED)
rng = random.Random(SEED)
cluster = rados.Rados(conffile=''); cluster.connect()
code, out, text = cluster.mon_command(json.dumps({'prefix': 'get_command_descriptions'}), b'')
known = [command['sig'] for command in json.loads(out).values()]
code, out, text = cluster.mon_command(json.dumps({'prefix': 'config ls', 'format': 'json'}), b'')
# An administrator may close the door to every client, or ask for more PGs than this machine can carry.
CLOSES = ('auth_', 'ms_', 'mon_max_p', 'mon_target_pg', 'osd_max_pg', 'osd_pool_default_', 'rbd_', 'client_', 'rgw_')
options = [name for name in json.loads(out) if not name.startswith(CLOSES)]
NUMBERS = ['0', '1', '-1', '0.5', 'nan', 'inf', '-inf', '1e308', '1e-308', '1e400', str(2**31), str(2**63), str(2**64), '-9223372036854775808', '3', '16']
NAMES = ['fuzz', 'fuzz2', 'osd.0', 'osd.1', 'client.fuzz', 'default', 'host-x', 'replicated_rule', 'size', 'min_size', '', '*', 'a/b', '\u0000', '\u00e4', 'x' * 300]
def number(word):
    low, high = ([float(bound) for bound in word['range'].split('|')] + [None] * 2)[:2] if word.get('range') else (None, None)
    edges = [edge for bound in (low, high) if bound is not None for edge in (bound, bound - 1, bound + 1)]
    value = rng.choice(edges + [0, 1, -1, 2, 3, 7, 2**31, 2**32, 2**53, -2**31])
    return float(value) if word['type'] == 'CephFloat' else int(value)
def value(word):
    kind = word['type']
    if word['name'] in ('value', 'val') and rng.random() < 0.8: return rng.choice(NUMBERS)
    if word['name'] == 'key' and rng.random() < 0.8: return rng.choice(options)
    if word['name'] == 'who': return rng.choice(['global', 'mon', 'osd', 'osd.1', 'mgr', 'client.fuzz'])
    if kind in ('CephInt', 'CephFloat'): return number(word)
    if kind == 'CephBool': return rng.random() < 0.5
    if kind == 'CephChoices': return rng.choice(word['strings'].split('|'))
    if kind == 'CephPoolname': return rng.choice(['fuzz', 'fuzz2', 'nothing'])
    if kind == 'CephOsdName': return rng.choice(['osd.0', 'osd.2', '1', 'osd.77', 'all', 'any'])
    if kind == 'CephPgid': return rng.choice(['1.0', '2.1', '9999.ffffffff'])
    if kind == 'CephEntityAddr': return rng.choice(['127.0.0.1:0/0', '10.0.0.0/8', 'v2:127.0.0.1:6800/1', 'nowhere'])
    if kind == 'CephIPAddr': return rng.choice(['127.0.0.1', '127.0.0.1:1', 'x'])
    if kind == 'CephUUID': return rng.choice(['00000000-0000-0000-0000-000000000001', 'x'])
    if kind == 'CephName': return rng.choice(['osd.1', 'mon.a', 'client.fuzz'])
    return rng.choice(NAMES)
def command(sig):
    words, out = [], {}
    for word in sig:
        if isinstance(word, str): words.append(word); continue
        if word.get('type') == 'CephPrefix' or word.get('prefix'): words.append(word['prefix']); continue
        if word.get('req') in (False, 'false') and rng.random() < 0.4: continue
        name = word['name']
        out[name] = [value(word) for _ in range(rng.choice([1, 1, 2, 20]))] if word.get('n') else value(word)
    return dict(out, prefix=' '.join(words))
done = {}
for nth in range(COUNT):
    asked = command(rng.choice(known))
    # Our own key and the OSDs are needed to the end.
    prefix, text = asked['prefix'], json.dumps(asked)
    if 'admin' in text or prefix.startswith('auth') and 'osd.' in text: continue
    if prefix.startswith(('osd stop', 'osd down', 'osd purge', 'osd destroy', 'osd rm', 'osd new')): continue
    try:
        code, _, text = cluster.mon_command(json.dumps(asked), b'' if rng.random() < 0.8 else b'[client.fuzz]\n key = x', timeout=30)
    except rados.Error as error:
        sys.exit('%s: %s' % (json.dumps(asked), error))
    assert -4096 < code <= 0, (asked, code, text)
    if code == 0: done[asked['prefix']] = done.get(asked['prefix'], 0) + 1
assert len(done) > 60, done
print('%d of %d commands had an effect or an answer, of %d kinds' % (sum(done.values()), COUNT, len(done)))
"#;

/// Whatever an administrator has accepted: the monitor serves, and it starts again from what it has stored.
#[test]
fn commands_that_change_state_leave_a_monitor_that_starts_again() {
    let Some(cluster) = Cluster::start_processes(3) else { return };
    let shell = cluster.pool("changed", 8).within(240);
    eprint!("{}", shell.python(COMMANDS));
    shell.sh("ceph -s; ceph osd dump >/dev/null");
    shell.sh(r#"
        pid=$(cat $DIR/run/mon.pid); mapfile -d '' -t line < /proc/$pid/cmdline
        kill -9 $pid
        setpriv --pdeathsig KILL -- "${line[@]}" </dev/null >>$DIR/log/mon.log 2>&1 &
        again=$!
        timeout 60 ceph -s; timeout 60 ceph health detail; timeout 60 ceph config dump >/dev/null
        kill $again; wait $again || true"#);
    let logged = cluster.daemon().map(nacre_interop::Daemon::logged).unwrap_or_default();
    let panics: Vec<&str> = logged.lines().filter(|line| line.contains("panicked")).collect();
    assert!(panics.is_empty(), "{panics:#?}");
}

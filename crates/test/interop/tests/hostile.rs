//! Peers that mean harm, and peers that are broken: no panic, no growth of memory, others are served as before.

use nacre_interop::{Client, Cluster, Mutants, Shell, Wire, attack};
use nacre_msg::{Message, MonCommand};
use nacre_types::{EntityAddr, EntityKind, OsdId};
use std::collections::BTreeMap;

/// Streams and messages for each port.
const COUNT: usize = 2000;
/// What the daemon's memory may grow by.
const GROWTH_BYTES_MAX: u64 = 64 << 20;
/// Answers that are read on the way; those who send without reading are cut off, rightly.
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

//! What entities may do at an OSD, beside a real one: `testdata/caps/osd.json` is what `test/caps/record-osd` wrote of a cluster of Ceph v16.2.15,
//! and the same script is run against ours. No cell may be laxer. Those that are stricter are listed here with the reason.

use nacre_interop::Cluster;
use serde_json::Value;

/// Why a cell may be stricter than at Ceph's; none if it may not.
fn reason(_caps: &str, _place: &Value, _op: &str) -> Option<&'static str> {
    None
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

#[test]
fn who_may_do_what_at_an_osd() {
    let cluster = Cluster::start(1);
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");
    let recorded = std::fs::read_to_string(format!("{root}/testdata/caps/osd.json")).expect("the record");
    let recorded: Value = serde_json::from_str(&recorded).expect("JSON");
    let shell = cluster.shell().within(300).with("SCRIPT", format!("{root}/test/caps/record-osd"));
    shell.sh("ceph config set mon mon_allow_pool_delete true");
    let ours = shell.json(
        "/usr/bin/python3 $SCRIPT $CEPH_CONF $(ceph-conf -c $CEPH_CONF --name client.admin --lookup keyring)",
    );
    for what in ["places", "ops"] {
        assert_eq!(ours[what], recorded[what], "another script made the record");
    }
    let (places, ops) = (list(&recorded["places"]), list(&recorded["ops"]));
    let (mut laxer, mut stricter, mut compared) = (Vec::new(), Vec::new(), 0);
    assert_eq!(list(&ours["osd"]).len(), list(&recorded["osd"]).len());
    for (ours, theirs) in list(&ours["osd"]).iter().zip(list(&recorded["osd"])) {
        let caps = text(&theirs[0]);
        assert_eq!(text(&ours[0]), caps);
        let cells = places.iter().flat_map(|place| ops.iter().map(move |op| (place, text(op))));
        assert_eq!(text(&theirs[1]).len(), places.len() * ops.len(), "{caps}");
        for ((place, op), (our, their)) in cells.zip(text(&ours[1]).chars().zip(text(&theirs[1]).chars())) {
            compared += 1;
            let cell = format!("{caps}: {op} of {place}");
            match (our, their) {
                ('a', 'd') => laxer.push(cell),
                ('d', 'a') if reason(caps, place, op).is_none() => stricter.push(cell),
                _ => (),
            }
        }
    }
    assert!(laxer.is_empty(), "{} cells are laxer than Ceph's: {laxer:#?}", laxer.len());
    assert!(stricter.is_empty(), "{} cells are stricter without a reason: {stricter:#?}", stricter.len());
    assert!(compared > 10_000, "{compared} cells");
}

/// A client that writes and reads all the time, and watches: its session must not end.
const OPEN: &str = "
import json, os, rados, time
POOL = os.environ['POOL']
admin = rados.Rados(conffile=''); admin.connect()
def order(**command):
    code, out, text = admin.mon_command(json.dumps(dict(command, format='json')), b'')
    assert code == 0, text
    return json.loads(out) if out else None
def give(caps): order(prefix='auth caps', entity='client.x', caps=['mon', 'allow r', 'osd', caps])
key = order(prefix='auth get-or-create', entity='client.x', caps=['mon', 'allow r', 'osd', 'allow rwx'])[0]['key']
client = rados.Rados(conffile='', name='client.x', conf={'key': key, 'keyring': '/dev/null'}); client.connect()
io = client.open_ioctx(POOL)
for n in range(32): io.write_full('o%d' % n, b'first')
errors = []
watch = io.watch('o0', lambda *told: None, lambda *told: errors.append(told))
def writes(n):
    try: io.write_full('o%d' % (n % 32), b'later'); return True
    except rados.PermissionError: return False
# How long until each of all objects, on all OSDs, is as wanted; and so it stays.
def until(wanted):
    began = last = time.monotonic(); n, row = 0, 0
    while row < 64:
        if writes(n) == wanted: row += 1
        else: row, last = 0, time.monotonic()
        assert len(io.read('o%d' % (n % 32))) == 5
        n += 1
        assert last < began + 10, 'never'
    return last - began
longest = 0
for round in range(5):
    give('allow r'); longest = max(longest, until(False))
    give('allow rw pool=' + POOL); longest = max(longest, until(True))
assert not errors, errors
give('allow rw pool=another')
def reads():
    try: io.read('o1'); return True
    except rados.PermissionError: return False
def wait(holds):
    end = time.monotonic() + 10
    while not holds(): assert time.monotonic() < end
wait(lambda: not reads())
give('allow rwx'); wait(lambda: all(reads() and writes(n) for n in range(64)))
assert client.get_instance_id() > 0 and longest < 3, longest
print('changed caps held in open sessions after %.3f s at most' % longest)
";

#[test]
fn changed_caps_hold_at_once_in_open_sessions() {
    let cluster = Cluster::start(2);
    if !cluster.is_ours() {
        return; // Ceph's OSDs go by the ticket
    }
    eprint!("{}", cluster.pool("caps", 8).python(OPEN));
}

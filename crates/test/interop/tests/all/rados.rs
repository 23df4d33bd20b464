//! Objects: the `rados` program and librados through Python.

use nacre_interop::{Cluster, Shell};

/// Begins every Python script: a session and the pool.
const PYTHON: &str = "
import os, rados, sys, threading, time
cluster = rados.Rados(conffile=''); cluster.connect()
io = cluster.open_ioctx(os.environ['POOL'])
def raises(kind, call, *args, **kwargs):
    try: call(*args, **kwargs)
    except kind: return
    raise AssertionError('no %s' % kind.__name__)
";

fn python(shell: &Shell, script: &str) -> String {
    shell.python(&format!("{PYTHON}{script}"))
}

#[test]
fn objects_of_all_sizes_come_back() {
    let cluster = Cluster::start(3);
    let shell = cluster.pool("objects", 16);
    shell.sh("
        for size in 0 1 4095 4096 4097 100000 4194304 9437184; do
            head -c $size /dev/urandom > in
            rados -p $POOL put object-$size in
            rados -p $POOL get object-$size out; cmp in out
            rados -p $POOL stat object-$size | grep -q \"size $size$\"
        done
        [ $(rados -p $POOL ls | wc -l) = 8 ]
        rados -p $POOL cp object-4097 copy; rados -p $POOL get copy out; rados -p $POOL get object-4097 in; cmp in out
        rados -p $POOL append copy in; rados -p $POOL stat copy | grep -q 'size 8194$'
        rados -p $POOL truncate copy 100; rados -p $POOL get copy out; cmp out <(head -c 100 in)
        rados -p $POOL touch empty; rados -p $POOL stat empty | grep -q 'size 0$'
        rados -p $POOL rm copy; nok rados -p $POOL stat copy
        rados df | grep -q $POOL");
    shell.fails("rados -p $POOL get copy out").expect_code(1).expect_text("No such file");
    shell.fails("rados -p $POOL-not ls").expect_text("error opening pool");
}

#[test]
fn attributes_omap_namespaces_and_locators_keep_apart() {
    let cluster = Cluster::start(3);
    let shell = cluster.pool("attrs", 16);
    shell.sh("
        rados -p $POOL touch o
        rados -p $POOL setxattr o name value; [ $(rados -p $POOL getxattr o name) = value ]
        rados -p $POOL setxattr o other 2; [ \"$(rados -p $POOL listxattr o | sort | tr '\\n' ' ')\" = 'name other ' ]
        rados -p $POOL rmxattr o name; nok rados -p $POOL getxattr o name
        rados -p $POOL setomapval o key-b 2; rados -p $POOL setomapval o key-a 1
        [ \"$(rados -p $POOL listomapkeys o | tr '\\n' ' ')\" = 'key-a key-b ' ]
        rados -p $POOL getomapval o key-a | grep -q 31
        rados -p $POOL setomapheader o header; rados -p $POOL getomapheader o | grep -q 'header (6 bytes)'
        rados -p $POOL rmomapkey o key-a; [ $(rados -p $POOL listomapkeys o) = key-b ]
        rados -p $POOL clearomap o; [ -z \"$(rados -p $POOL listomapkeys o)\" ]
        echo one > in; rados -p $POOL -N blue put o in; rados -p $POOL -N blue get o out; cmp in out
        [ $(rados -p $POOL -N blue ls) = o ]; [ $(rados -p $POOL ls --all | wc -l) = 2 ]
        rados -p $POOL --object-locator key put located in; rados -p $POOL --object-locator key get located out; cmp in out
        nok rados -p $POOL get located out");
}

#[test]
fn pool_snapshots_show_the_past() {
    let cluster = Cluster::start(3);
    let shell = cluster.pool("snaps", 16);
    shell.sh("
        echo one > one; echo two > two
        rados -p $POOL put o one; rados -p $POOL put gone one
        rados -p $POOL mksnap s1 2>/dev/null >&2
        rados -p $POOL put o two; rados -p $POOL rm gone; rados -p $POOL put new two
        rados -p $POOL lssnap | grep -q s1
        rados -p $POOL -s s1 get o out; cmp one out
        rados -p $POOL -s s1 get gone out; cmp one out
        nok rados -p $POOL -s s1 get new out
        rados -p $POOL get o out; cmp two out
        rados -p $POOL listsnaps o | grep -q head
        rados -p $POOL rollback o s1 >/dev/null; rados -p $POOL get o out; cmp one out
        rados -p $POOL rmsnap s1 >/dev/null; [ \"$(rados -p $POOL lssnap)\" = '0 snaps' ]");
}

#[test]
fn librados_does_what_its_callers_expect() {
    let cluster = Cluster::start(3);
    let shell = cluster.pool("python", 16);
    python(
        &shell,
        "
# Asynchronous writes to one object happen in order.
done = [io.aio_append('log', b'%04d' % n) for n in range(200)]
[c.wait_for_complete() for c in done]
assert io.read('log', 800) == b''.join(b'%04d' % n for n in range(200))

# A message is all or nothing.
with rados.WriteOpCtx() as op:
    op.new(rados.LIBRADOS_CREATE_EXCLUSIVE); op.write(b'content', 0)
    io.set_omap(op, ('a', 'b', 'c'), (b'1', b'2', b'3'))
    io.operate_write_op(op, 'whole')
with rados.WriteOpCtx() as op:
    op.write(b'CHANGED', 0); op.new(rados.LIBRADOS_CREATE_EXCLUSIVE)
    raises(rados.ObjectExists, io.operate_write_op, op, 'whole')
assert io.read('whole') == b'content'

# Omap by pages, by keys and by range.
with rados.ReadOpCtx() as op:
    page, _ = io.get_omap_vals(op, '', '', 2)
    rest, _ = io.get_omap_vals(op, 'b', '', 10)
    some, _ = io.get_omap_vals_by_keys(op, ('a', 'c', 'x'))
    keys, _ = io.get_omap_keys(op, '', 10)
    io.operate_read_op(op, 'whole')
    assert dict(page) == {'a': b'1', 'b': b'2'} and dict(rest) == {'c': b'3'}
    assert dict(some) == {'a': b'1', 'c': b'3'} and [k for k, _ in keys] == ['a', 'b', 'c']
with rados.WriteOpCtx() as op:
    io.remove_omap_range2(op, 'a', 'c')
    io.operate_write_op(op, 'whole')
with rados.ReadOpCtx() as op:
    keys, _ = io.get_omap_keys(op, '', 10); io.operate_read_op(op, 'whole')
    assert [k for k, _ in keys] == ['c']

# Ranges.
io.write('holes', b'x' * 100, 10000); io.write('holes', b'y', 20000)
assert io.stat('holes')[0] == 20001 and io.read('holes', 10000) == bytes(10000)
with rados.WriteOpCtx() as op:
    op.zero(10000, 50); op.truncate(15000); io.operate_write_op(op, 'holes')
assert io.read('holes', 20000, 10000) == bytes(50) + b'x' * 50 + bytes(4900)
raises(rados.ObjectNotFound, io.read, 'nothing'); raises(rados.ObjectNotFound, io.remove_object, 'nothing')
raises(rados.NoData, io.get_xattr, 'holes', 'nothing')

# Locks of class lock.
io.lock_exclusive('locked', 'name', 'cookie', 'why')
raises(rados.ObjectExists, io.lock_exclusive, 'locked', 'name', 'cookie')
raises(rados.ObjectBusy, io.lock_exclusive, 'locked', 'name', 'other')
raises(rados.ObjectBusy, io.lock_shared, 'locked', 'name', 'other', 'tag')
io.unlock('locked', 'name', 'cookie'); io.lock_shared('locked', 'name', 'other', 'tag')

# Snapshots that the client numbers itself.
snaps = []
for text in (b'one', b'two', b'three'):
    io.write_full('self', text); snaps.append(io.create_self_managed_snap()); io.set_self_managed_snap_write(snaps[::-1])
io.write_full('self', b'head')
for snap, text in zip(snaps, (b'one', b'two', b'three')):
    io.set_read(snap); assert io.read('self') == text, snap
io.set_read(rados.LIBRADOS_SNAP_HEAD); io.rollback_self_managed_snap('self', snaps[0]); assert io.read('self') == b'one'
for snap in snaps: io.remove_self_managed_snap(snap)
",
    );
}

#[test]
fn watchers_are_notified_and_time_out() {
    let cluster = Cluster::start(3);
    let shell = cluster.pool("watch", 8);
    python(
        &shell,
        "
heard = []
io.write_full('o', b'x')
def callback(notify_id, notifier, watch_id, data):
    heard.append(data); return b'answer'
first = io.watch('o', callback, None, None); second = io.watch('o', callback, None, None)
io.notify('o', 'hello', 10000)
start = time.time()
while len(heard) < 2 and time.time() < start + 10: time.sleep(0.01)
assert heard == [b'hello', b'hello'], heard
second.close(); heard.clear()
io.notify('o', 'again', 10000)
assert heard == [b'again'], heard
first.close()
",
    );
    // A watcher that vanishes: its watch ends, and a notify does not wait for ever.
    shell.sh("rados -p $POOL watch o < <(exec sleep 20 2>/dev/null) >/dev/null 2>&1 & victim=$!
        for _ in $(seq 50); do rados -p $POOL listwatchers o | grep -q client && break; sleep 0.1; done
        rados -p $POOL notify o hello >/dev/null
        kill -KILL $victim; wait $victim || true");
}

/// librados without Python's idea of what a name is; behind [`PYTHON`].
const RAW_NAMES: &str = "
import ctypes
library = ctypes.CDLL('librados.so.2')
def done(result):
    if result < 0: raise OSError(-result, os.strerror(-result))
    return result
raw = ctypes.c_void_p(); done(library.rados_create(ctypes.byref(raw), None))
done(library.rados_conf_read_file(raw, None)); library.rados_conf_parse_env(raw, None); done(library.rados_connect(raw))
raw_io = ctypes.c_void_p(); done(library.rados_ioctx_create(raw, os.environ['POOL'].encode(), ctypes.byref(raw_io)))
size_t = ctypes.c_size_t
def put(name, data): done(library.rados_write_full(raw_io, name, data, size_t(len(data))))
def get(name):
    room = ctypes.create_string_buffer(4096)
    length = done(library.rados_read(raw_io, name, room, size_t(4096), ctypes.c_uint64(0)))
    return room.raw[:length]
def names():
    cursor, found = ctypes.c_void_p(), []
    done(library.rados_nobjects_list_open(raw_io, ctypes.byref(cursor)))
    entry = ctypes.c_char_p()
    while library.rados_nobjects_list_next(cursor, ctypes.byref(entry), None, None) == 0: found.append(entry.value)
    library.rados_nobjects_list_close(cursor)
    return found
";

#[test]
fn names_of_any_bytes_and_of_any_length_allowed() {
    let cluster = Cluster::start(3);
    let shell = cluster.pool("names", 16);
    python(
        &shell,
        &format!(
            "{RAW_NAMES}
every = bytes(range(1, 256))
hard = [every, every[::-1], *(bytes([byte]) for byte in every), b'..', b'a/b', b'%25', b'n' * 2047, b'n' * 2048]
for name in hard: put(name, name[:100])
for name in hard: assert get(name) == name[:100], name
found = names()
assert sorted(found) == sorted(hard), set(found) ^ set(hard)
import errno
for name, refusal in ((b'n' * 2049, errno.ENAMETOOLONG), (b'', errno.EINVAL)):
    try: put(name, b'x')
    except OSError as error: assert error.errno == refusal, error
    else: raise AssertionError('written')
"
        ),
    );
}

#[test]
fn objects_and_their_parts_may_be_large() {
    let cluster = Cluster::start(3);
    let shell = cluster.pool("large", 16).within(120);
    python(
        &shell,
        "
for size in (65536, 1 << 20, 4 << 20):
    value = os.urandom(size); io.set_xattr('attributes', 'a', value); assert io.get_xattr('attributes', 'a') == value
count, page = 100000, 5000
with rados.WriteOpCtx() as op:
    io.set_omap(op, tuple('k%06d' % n for n in range(count)), tuple(b'%d' % n for n in range(count)))
    io.operate_write_op(op, 'omap')
got, after = [], ''
while True:
    with rados.ReadOpCtx() as op:
        values, _ = io.get_omap_vals(op, after, '', page)
        io.operate_read_op(op, 'omap')
        some = list(values)
    if not some: break
    got += some; after = some[-1][0]
assert got == [('k%06d' % n, b'%d' % n) for n in range(count)], len(got)
chunk, total = 4 << 20, 100 << 20
chunks = [os.urandom(64) * (chunk >> 6) for _ in range(total // chunk)]
for n, data in enumerate(chunks): io.write('big', data, n * chunk)
assert io.stat('big')[0] == total
for n, data in enumerate(chunks): assert io.read('big', chunk, n * chunk) == data, n
with open('big', 'wb') as f: f.writelines(chunks)
io.remove_object('big')
",
    );
    shell.sh("rados -p $POOL put big big; rados -p $POOL get big again; cmp big again");
}

#[test]
fn a_listing_names_each_object_once_while_others_come_and_go() {
    let cluster = Cluster::start(3);
    let shell = cluster.pool("list", 32).within(120);
    shell.with("OBJECTS", 20000).python(include_str!("listing.py"));
}

#[test]
fn snapshots_under_load_keep_what_they_saw() {
    let cluster = Cluster::start(3);
    let shell = cluster.pool("load", 16).within(150);
    python(
        &shell,
        "
import json, random, threading
seed = random.randrange(1 << 31); print('seed', seed, flush=True)
NAMES, SIZE, BLOCK = ['o%d' % n for n in range(12)], 1 << 18, 4096
admin, state, lock, ending = random.Random(seed), {name: bytes(SIZE) for name in NAMES}, threading.Lock(), threading.Event()
snaps, errors, writes = {}, [], [0]
session = cluster.open_ioctx(os.environ['POOL'])
for name in NAMES: session.write_full(name, state[name])
# A snapshot is the state of all objects between two writes: writers hold a lock each, who takes one holds all.
locks = {name: threading.Lock() for name in NAMES}
context = []
def write(number):
    rng, mine = random.Random(seed + number), cluster.open_ioctx(os.environ['POOL'])
    while not ending.is_set():
        name = rng.choice(NAMES)
        with locks[name]:
            mine.set_self_managed_snap_write(context[:])
            at, data = rng.randrange(SIZE // BLOCK) * BLOCK, rng.randbytes(BLOCK)
            mine.write(name, data, at)
            before = state[name]
            state[name] = before[:at] + data + before[at + BLOCK:]
            writes[0] += 1
def watched(*arguments):
    try: write(*arguments)
    except Exception as error: errors.append(error); ending.set()
writers = [threading.Thread(target=watched, args=(number,)) for number in range(4)]
for writer in writers: writer.start()
def check(snap, seen):
    session.set_read(snap)
    for name in NAMES:
        found = session.read(name, SIZE)
        assert found == seen[name], '%s at snapshot %d: %d blocks differ' % (name, snap, sum(found[i:i + BLOCK] != seen[name][i:i + BLOCK] for i in range(0, SIZE, BLOCK)))
    session.set_read(rados.LIBRADOS_SNAP_HEAD)
for step in range(60):
    if ending.wait(0.1): break
    what = admin.choice(['take', 'take', 'take', 'remove', 'roll back', 'read'])
    if what == 'take' and len(snaps) < 8:
        for name in NAMES: locks[name].acquire()
        snap = session.create_self_managed_snap(); context.insert(0, snap); snaps[snap] = dict(state)
        for name in NAMES: locks[name].release()
    elif what == 'remove' and snaps:
        snap = admin.choice(sorted(snaps))
        for name in NAMES: locks[name].acquire()
        context.remove(snap); del snaps[snap]
        for name in NAMES: locks[name].release()
        session.remove_self_managed_snap(snap)
    elif what == 'roll back' and snaps:
        snap, name = admin.choice(sorted(snaps)), admin.choice(NAMES)
        with locks[name]:
            session.set_self_managed_snap_write(context[:])
            session.rollback_self_managed_snap(name, snap)
            state[name] = snaps[snap][name]
    elif snaps:
        snap = admin.choice(sorted(snaps)); check(snap, snaps[snap])
ending.set()
for writer in writers: writer.join()
assert not errors, errors
for snap, seen in snaps.items(): check(snap, seen)
for name in NAMES: assert session.read(name, SIZE) == state[name], name
assert writes[0] > 100, writes
for snap in snaps: session.remove_self_managed_snap(snap)
# Trimmed: no clone is left, and the space is back.
def clones():
    asked = json.dumps({'prefix': 'df', 'format': 'json', 'detail': 'detail'})
    code, out, _ = cluster.mon_command(asked, b'')
    pool = next(pool for pool in json.loads(out)['pools'] if pool['name'] == os.environ['POOL'])
    return pool['stats']['objects'], pool['stats']['stored']
wanted = (len(NAMES), len(NAMES) * SIZE)
start = time.time()
while clones() != wanted and time.time() < start + 60: time.sleep(0.5)
assert clones() == wanted, (clones(), wanted)
",
    );
}

#[test]
fn benchmarks_run_and_clean_up() {
    let cluster = Cluster::start(3);
    let shell = cluster.pool("bench", 16).within(120);
    for (size, count) in [("4096", "20000"), ("4194304", "64")] {
        let bench = shell.with("SIZE", size).with("COUNT", count);
        let write = "rados -p $POOL bench 2 write -b $SIZE --max-objects $COUNT --no-cleanup";
        bench.run(write).expect_code(0).expect_text("Average IOPS");
        bench.run("rados -p $POOL bench 2 seq").expect_code(0).expect_text("Average IOPS");
        bench.run("rados -p $POOL bench 2 rand").expect_code(0).expect_text("Average IOPS");
        bench.sh("rados -p $POOL cleanup >/dev/null; [ -z \"$(rados -p $POOL ls)\" ]");
    }
    shell.sh("rados -p $POOL bench 2 write -b 4096 --write-omap --no-cleanup >/dev/null; rados -p $POOL cleanup >/dev/null");
}

/// Connections break again and again while a client appends; each append must have happened exactly once. The
/// client resends what was not answered, so an OSD that forgot what it had done would do it twice. The script
/// cuts the sockets of its own librados: half of the times politely, after which the answers are lost, half of
/// the times by disconnecting, which also loses what was not sent yet.
#[test]
fn appends_over_cut_connections_happen_exactly_once() {
    let cluster = Cluster::start(3);
    let osds: Vec<String> = cluster.ports().iter().skip(2).map(|(_, addr)| addr.port().to_string()).collect();
    let shell = cluster.pool("cuts", 8).with("PORTS", osds.join(",")).within(120);
    let said = python(
        &shell,
        "
import ctypes, random, socket
ports = set(map(int, os.environ['PORTS'].split(',')))
libc = ctypes.CDLL(None)
random.seed(7)
def cut():
    count = 0
    for fd in map(int, os.listdir('/proc/self/fd')):
        try: s = socket.socket(fileno=fd)
        except OSError: continue
        try:
            if s.getpeername()[1] in ports:
                count += 1
                if random.random() < 0.5: s.shutdown(socket.SHUT_RDWR)
                else: libc.connect(fd, bytes(16), 16)
        except OSError: pass
        s.detach()
    return count
OBJECTS, PIECE, CUTS = 16, 64, 60
expected, failed, cuts, enough = {}, [], 0, False
def appender(index):
    name = 'log-%d' % index
    expected[name] = b''
    n = 0
    while not enough:
        n += 1
        piece = (b'%02d:%04d;' % (index, n)).ljust(PIECE, b'.')
        try: io.append(name, piece)
        except Exception as error: failed.append(repr(error)); return
        expected[name] += piece
threads = [threading.Thread(target=appender, args=(n,)) for n in range(OBJECTS)]
[t.start() for t in threads]
def appends(): return sum(map(len, expected.values())) // PIECE
# As many as the test wants, however slow the machine is.
while (cuts < CUTS or appends() <= 500) and not failed:
    # Where a handshake takes longer than the next cut, nobody would ever get through.
    seen, end = appends(), time.monotonic() + 30
    time.sleep(random.uniform(0.005, 0.05))
    while appends() == seen and not failed and time.monotonic() < end: time.sleep(0.001)
    cuts += cut()
enough = True
[t.join() for t in threads]
assert not failed, failed
for name, content in expected.items():
    found = io.read(name, 1 << 24)
    assert found == content, (name, len(found), len(content))
print(appends())
",
    );
    let appends: u32 = said.trim().parse().expect("a number");
    assert!(appends > 500, "only {appends} appends happened");
}

/// What is too long for one operation is refused however long it is, and the client goes on. Reads may be as long as objects.
#[test]
fn operations_of_any_length_are_answered() {
    let cluster = Cluster::start(3);
    let shell = cluster.pool("long", 8);
    python(
        &shell,
        "
for mib in (91, 97, 300):
    try: io.write_full('o', bytes(mib << 20))
    except rados.OSError as error: assert error.errno == 90, error
    else: raise AssertionError('%d MiB in one operation' % mib)
    io.write_full('o', b'short')
    assert io.read('o') == b'short'
piece = os.urandom(1 << 20)
for nth in range(100): io.append('o', piece)
assert io.read('o', 100 << 20) == (b'short' + 100 * piece)[:100 << 20]
",
    );
}

/// More than clients may have under way, in bytes or messages, waits in their sockets, and all of it is done in the end.
#[test]
fn little_room_for_messages_slows_clients_down_only() {
    let cluster = Cluster::start(3);
    let shell = cluster.pool("narrow", 8);
    shell.sh(
        "ceph config set osd osd_client_message_size_cap 1048576; ceph config set osd osd_client_message_cap 8",
    );
    python(
        &shell,
        "
parts = {'o%d' % nth: os.urandom(3 << 20) for nth in range(48)}
done = [io.aio_write_full(name, data) for name, data in parts.items()]
small = [io.aio_append('s', b'%d;' % nth) for nth in range(500)]
for one in done + small: one.wait_for_complete_and_cb(); assert one.get_return_value() == 0
for name, data in parts.items(): assert io.read(name, 4 << 20) == data, name
assert io.read('s') == b''.join(b'%d;' % nth for nth in range(500))
",
    );
    shell.sh("
        for osd in 0 1 2; do
            idle() { ceph tell osd.$osd perf dump > dump; jq -e '[.[\"throttle-osd_client_messages\", \"throttle-osd_client_bytes\"].val] == [0, 0]' dump; }
            for try in $(seq 20); do ! idle || break; sleep 0.2; done; idle
            for what in messages bytes; do
                jq \".[\\\"throttle-osd_client_$what\\\"].wait.avgcount\" dump >> waits.$what; done; done
        for what in messages bytes; do echo $what; [ $(jq -s add waits.$what) -gt 0 ]; done");
}

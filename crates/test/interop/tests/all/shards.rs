//! OSDs of several threads, each with a part of a store on one device.

use crate::devices::{self, Loops, Started};
use crate::encryption;
use nacre_interop::{Cluster, Shell};

/// Begins every Python script: a session, hands for the daemons, and a writer of many objects, 16 writes at a time, that knows what was
/// acknowledged.
const PYTHON: &str = concat!(
    include_str!("gone.py"),
    "
import collections, json, os, rados, random, signal, subprocess, sys, threading, time
DIR, POOL, NACRE = os.environ['DIR'], os.environ['POOL'], os.environ['NACRE']
cluster = rados.Rados(conffile=''); cluster.connect()
io = cluster.open_ioctx(POOL)

def pid(osd): return int(open('%s/run/osd.%d.pid' % (DIR, osd)).read())
def line(osd): return open('/proc/%d/cmdline' % pid(osd), 'rb').read().split(b'\\0')[:-1]
def start(osd, line):
    log = open('%s/log/osd.%d.log' % (DIR, osd), 'ab')
    subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
def ask(**command):
    code, out, text = cluster.mon_command(json.dumps(dict(command, format='json')), b'')
    assert code == 0, text
    return json.loads(out)
def wait(what, holds, seconds=300):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, '%s: %s' % (what, json.dumps(ask(prefix='status')))
        time.sleep(0.1)
def is_clean():
    return {state['state_name'] for state in ask(prefix='status')['pgmap']['pgs_by_state']} == {'active+clean'}
# What the store of an OSD that does not run says, which is sound.
def checked(osd):
    key = ['--key-file', 'luks.%d' % osd] if os.path.exists('luks.%d' % osd) else []
    said = subprocess.run([NACRE, 'store', 'check', '--deep', '--json', '%s/osd.%d' % (DIR, osd)] + key, stdout=subprocess.PIPE)
    found = json.loads(said.stdout)
    assert said.returncode == 0 and found['sound'], found['problems']
    return found['facts']
# Kills an OSD, looks at what it left, and starts it again, with so many threads if that is said.
def kill(osd, threads=None):
    again, last = line(osd), pid(osd); os.kill(last, signal.SIGKILL); wait('gone', lambda: is_gone(last))
    facts = checked(osd)
    if threads: again[again.index(b'--shards') + 1] = str(threads).encode()
    start(osd, again)
    return facts
# Microseconds that each thread of an OSD has run.
def threads(osd):
    found, folder = {}, '/proc/%d/task' % pid(osd)
    for task in os.listdir(folder):
        # One that ends meanwhile counts for nothing.
        try: name, stat = [open('%s/%s/%s' % (folder, task, file)).read() for file in ('comm', 'stat')]
        except (FileNotFoundError, ProcessLookupError): continue
        name, fields = name.strip(), stat.rsplit(')', 1)[1].split()
        found[name] = (int(fields[11]) + int(fields[12])) * 10000
    return found

# Writes 4 KiB to objects in turn, each whole: what an object has is what was acknowledged last, or what was sent since.
class Writer(threading.Thread):
    COUNT = 400
    def __init__(self):
        super().__init__(daemon=True)
        self.sent, self.acked = [0] * self.COUNT, [0] * self.COUNT; self.going = True; self.failure = None; self.total = 0; self.start()
    def block(self, nth, version): return (b'%08d-%08d.' % (nth, version)) * 227 + b'x' * 10
    def run(self):
        try:
            under_way = collections.deque()
            while self.going or under_way:
                if not self.going or len(under_way) == 16:
                    nth, version, write = under_way.popleft(); write.wait_for_complete()
                    assert write.get_return_value() == 0, write.get_return_value()
                    self.acked[nth] = version; self.total += 1
                if self.going:
                    nth = random.randrange(self.COUNT); self.sent[nth] += 1
                    write = io.aio_write_full('w%d' % nth, self.block(nth, self.sent[nth]))
                    under_way.append((nth, self.sent[nth], write))
        except Exception as failure:
            self.failure = failure
    def finish(self):
        self.going = False; self.join()
        if self.failure: raise self.failure
        self.compare(exact=True)
    def compare(self, exact):
        for nth in range(self.COUNT):
            if self.acked[nth] == 0: continue
            found = io.read('w%d' % nth, 5000); version = int(found[9:17])
            assert found == self.block(nth, version), nth
            assert self.acked[nth] <= version <= self.sent[nth], (nth, version, self.acked[nth], self.sent[nth])
            assert not exact or version == self.sent[nth], (nth, version)
"
);

fn python(shell: &Shell, script: &str) -> String {
    shell.within(240).python(&format!("{PYTHON}{script}"))
}

#[test]
fn an_osd_of_two_threads_has_everything_after_it_is_killed() {
    let Some(cluster) = Cluster::start_sharded(1, 2) else { return };
    let shell = cluster.pool("sharded", 16);
    let said = python(
        &shell,
        "
assert ask(prefix='osd metadata', id=0)['nacre_shards'] == '2'
subprocess.check_call(['rbd', 'create', POOL + '/image', '--size', '64M'])
image = os.urandom(8 << 20); open('image', 'wb').write(image)
subprocess.check_call(['rbd', 'import', '--no-progress', 'image', POOL + '/copy'])
writer = Writer()
for round in range(4):
    before = writer.total; wait('written', lambda: writer.total > before + 500)
    # A hundredth of a second is the least that is counted.
    wait('both threads work', lambda: min(threads(0).get('osd.0/%d' % nth, 0) for nth in (0, 1)) > 0)
    busy = threads(0)
    facts = kill(0)
    assert facts['partitions'] == 2 and facts['placement_groups'] == 16, facts
    before = writer.total; wait('served again', lambda: writer.total > before + 100)
writer.finish()
subprocess.check_call(['rbd', 'export', '--no-progress', POOL + '/copy', 'copy'])
assert open('copy', 'rb').read() == image
wait('clean', is_clean)
print('%d writes were acknowledged, the threads ran %s' % (writer.total, busy))
",
    );
    eprint!("{said}");
}

/// No byte moves: a thread has the partitions whose turn it is.
#[test]
fn an_osd_has_everything_with_fewer_threads_than_it_was_made_for_and_with_all_again() {
    let Some(cluster) = Cluster::start_sharded(1, 3) else { return };
    let shell = cluster.pool("sharded", 8);
    let said = python(
        &shell,
        "
writer = Writer()
def has_threads(count):
    # Its pid file may be that of the killed one still.
    if not os.path.exists('/proc/%d' % pid(0)): return False
    return {name for name in threads(0) if name.startswith('osd.0/') and name[6:].isdigit()} == {'osd.0/%d' % nth for nth in range(count)}
assert has_threads(3)
sizes = iter((12, 16))
for count in (1, 2, 3, 2, 1, 3):
    before = writer.total; wait('written', lambda: writer.total > before + 200)
    assert kill(0, count)['partitions'] == 3
    wait('up', lambda: has_threads(count))
    before = writer.total; wait('served again', lambda: writer.total > before + 100)
    if count == 1:
        # PGs that split or begin belong where more threads look for them.
        subprocess.check_call(['ceph', 'osd', 'pool', 'set', POOL, 'pg_num', str(next(sizes))])
        subprocess.check_call(['ceph', 'osd', 'pool', 'create', 'more%d' % before, '4'])
        wait('clean', is_clean)
writer.finish()
wait('clean', is_clean)
assert ask(prefix='osd metadata', id=0)['nacre_shards'] == '3'
again, last = line(0), pid(0); os.kill(last, signal.SIGTERM); again[again.index(b'--shards') + 1] = b'4'
wait('gone', lambda: is_gone(last))
refused = subprocess.run(again, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
assert refused.returncode != 0 and b'made for 3 shards at most, not 4' in refused.stderr, (refused.stdout, refused.stderr)
print('%d writes were acknowledged' % writer.total)
",
    );
    eprint!("{said}");
}

/// PGs split in their partition, and are merged with those of others; the copies of a killed OSD recover.
#[test]
fn replicated_osds_of_two_threads_split_recover_and_merge() {
    let Some(mut cluster) = Cluster::start_sharded(3, 2) else { return };
    let shell = cluster.pool("sharded", 4);
    let said = python(
        &shell,
        "
writer = Writer()
wait('written', lambda: writer.total > 300)
wait('all are written', lambda: all(writer.acked))
subprocess.check_call(['ceph', 'osd', 'pool', 'set', POOL, 'pg_num', '16'])
wait('split', lambda: len(ask(prefix='pg ls')['pg_stats']) == 16 and is_clean())
def tell(osd, *words): return json.loads(subprocess.check_output(['ceph', 'tell', 'osd.%d' % osd, *words]))
# Connections with each of the others: two for pings, one of the first shards, and one of the second ones where there are two.
def links(osd): return {link['osd']: link['tcp']['connections'] for link in tell(osd, 'dump_links')['links']}
wait('links', lambda: links(0) == {1: 4, 2: 4} and links(2) == {0: 4, 1: 4})
before = writer.total; kill(1, 1); wait('written', lambda: writer.total > before + 300)
wait('links of first shards', lambda: links(0) == {1: 3, 2: 4} and links(2) == {0: 4, 1: 3})
for osd in range(3):
    before = writer.total; kill(osd, 2)
    wait('written', lambda: writer.total > before + 300); wait('clean', is_clean)
wait('links', lambda: links(0) == {1: 4, 2: 4} and links(2) == {0: 4, 1: 4})
# What both shards have counted.
assert tell(0, 'perf', 'dump')['osd']['numpg'] == 16
for osd in range(3): subprocess.check_call(['ceph', 'osd', 'deep-scrub', str(osd)], stdout=subprocess.DEVNULL)
writer.finish()
# Both write what is to be measured.
def used():
    of = tell(1, 'perf', 'dump')['osd-cpu']
    return of['shard_0_us'], of['shard_1_us']
wait('clean', is_clean); before = used(); measured = tell(1, 'bench', str(16384 * 4096 + 1), '4096')
assert (measured['bytes_written'], measured['blocksize']) == (16384 * 4096 + 1, 4096), measured
more = [now - then for now, then in zip(used(), before)]
assert min(more) > max(more) / 3, more
# These are of one partition each, and then of different ones.
for count in (2, 1):
    subprocess.check_call(['ceph', 'osd', 'pool', 'set', POOL, 'pg_num', str(count)])
    wait('merged', lambda: len(ask(prefix='pg ls')['pg_stats']) == count and is_clean(), 600)
writer.compare(exact=True)
print('%d writes were acknowledged' % writer.total)
",
    );
    eprint!("{said}");
    cluster.restart();
    cluster.await_clean();
    shell.sh(
        "rados -p $POOL ls | wc -l | grep -q '^400$'; [ $(ceph osd metadata 1 | jq -r .nacre_shards) = 2 ]",
    );
}

/// What merges are about: snapshots that share data with what was written since, omaps, large objects, and a writer that goes on. OSDs are
/// killed at any moment of it, looked at, and start with another number of threads.
const MERGES: &str = "
import hashlib
subprocess.check_call(['rbd', 'create', POOL + '/image', '--size', '32M'])
def bench(): subprocess.check_call(['rbd', 'bench', '--io-type', 'write', '--io-size', '16K', '--io-total', '4M', '--io-pattern', 'rand', POOL + '/image'], stdout=subprocess.DEVNULL)
def export(what): return hashlib.md5(subprocess.check_output(['rbd', 'export', '--no-progress', POOL + '/image' + what, '-'])).hexdigest()
for snap in ('one', 'two'):
    bench(); subprocess.check_call(['rbd', 'snap', 'create', '--no-progress', POOL + '/image@' + snap])
bench()
images = {what: export(what) for what in ('@one', '@two', '')}
large = {'l%d' % nth: os.urandom(4 << 20) for nth in range(8)}
for name, data in large.items(): io.write_full(name, data)
keys = tuple('key%05d' % nth for nth in range(4000)); values = tuple(os.urandom(300) for key in keys)
for at in range(0, 4000, 500):
    with rados.WriteOpCtx() as op:
        io.set_omap(op, keys[at:at + 500], values[at:at + 500]); io.operate_write_op(op, 'mapped')
io.set_xattr('mapped', 'a', b'b'); io.set_xattr('l0', 'c', b'd')
def compare():
    assert {what: export(what) for what in images} == images
    for name, data in large.items(): assert io.read(name, 5 << 20) == data, name
    found = {}
    while True:
        with rados.ReadOpCtx() as op:
            page, _ = io.get_omap_vals(op, max(found, default=''), '', 1000); io.operate_read_op(op, 'mapped')
            page = dict(page)
        if not page: break
        found.update(page)
    assert found == dict(zip(keys, values)), len(found)
    assert io.get_xattr('mapped', 'a') == b'b' and io.get_xattr('l0', 'c') == b'd'
writer = Writer(); wait('written', lambda: writer.total > 300)
def pgs(): return len(ask(prefix='pg ls')['pg_stats'])
kills, moments = 0, random.Random(7)
def merge(count):
    global kills
    subprocess.check_call(['ceph', 'osd', 'pool', 'set', POOL, 'pg_num', str(count)])
    end = time.monotonic() + 900
    while not (pgs() == count and is_clean()):
        assert time.monotonic() < end, json.dumps(ask(prefix='status'))
        time.sleep(moments.random() * 3)
        if pgs() > count and kills < 8:
            kill(kills % 3, 1 + kills % PARTITIONS); kills += 1
            wait('all up', lambda: ask(prefix='osd stat')['num_up_osds'] == 3)
merge(2); compare(); merge(1); compare()
# What is split off again is where what it was split off is.
subprocess.check_call(['ceph', 'osd', 'pool', 'set', POOL, 'pg_num', '4'])
def pgp_num(): return ask(prefix='osd pool get', pool=POOL, var='pgp_num')['pgp_num']
# Where they are placed otherwise, too: a scrub that is asked for before ends with its interval.
wait('split', lambda: pgs() == 4 and pgp_num() == 4 and is_clean(), 600)
writer.finish(); compare()
began = time.time()
for osd in range(3): subprocess.check_call(['ceph', 'osd', 'deep-scrub', str(osd)], stdout=subprocess.DEVNULL)
def scrubbed():
    stats = ask(prefix='pg ls')['pg_stats']
    at = lambda stat: time.mktime(time.strptime(stat['last_deep_scrub_stamp'][:19], '%Y-%m-%dT%H:%M:%S')) - time.timezone
    return all(at(stat) >= int(began) for stat in stats)
wait('scrubbed', scrubbed, 600)
errors = [stat['stat_sum']['num_scrub_errors'] for stat in ask(prefix='pg ls')['pg_stats']]
assert errors == [0] * 4 and is_clean(), errors
for osd in range(3):
    assert kill(osd, PARTITIONS)['partitions'] == PARTITIONS
    wait('all up', lambda: ask(prefix='osd stat')['num_up_osds'] == 3); wait('clean', is_clean)
compare()
print('%d writes were acknowledged, OSDs were killed %d times while PGs were merged' % (writer.total, kills))
";

/// What the script says, on three OSDs of so many partitions; nothing where there are no stock programs.
fn merges(partitions: u32) -> String {
    let Some(cluster) = Cluster::start_sharded(3, partitions) else { return String::new() };
    let shell = cluster.pool("sharded", 8);
    shell.within(500).python(&format!("{PYTHON}PARTITIONS = {partitions}\n{MERGES}"))
}

#[test]
#[ignore = "a minute; the same with three partitions is always told"]
fn pgs_of_two_partitions_are_merged_while_osds_are_killed() {
    eprint!("{}", merges(2));
}

#[test]
fn pgs_of_three_partitions_are_merged_while_osds_are_killed() {
    eprint!("{}", merges(3));
}

#[test]
fn an_osd_is_made_for_threads_and_says_what_it_was_made_for() {
    let Some(cluster) = Cluster::start_sharded(1, 2) else { return };
    let shell = cluster.shell();
    shell.sh(
        r#"
        nok $NACRE osd --dir $DIR --id 7 --mkfs --shards 0; nok $NACRE osd --dir $DIR --id 7 --mkfs --shards 65
        ! $NACRE osd --dir $DIR --id 7 --mkfs --shards 40 --osd-size 24M 2> said; grep -q 'too small for 40 partitions' said
        $NACRE osd --dir $DIR --id 7 --mkfs --shards 3 --osd-size 300M > /dev/null
        $NACRE store check --json $DIR/osd.7 | jq -e '.facts.partitions == 3'
        ! $NACRE store dump --pgid 2.1f $DIR/osd.7 2> said; grep -q 'has no placement group 2.1f' said
        truncate -s 1G disk
        ! $NACRE osd --dir $DIR --id 8 --mkfs --shards 3 --device disk 2> said; grep -q 'and not of 3: a larger' said"#,
    );
}

/// All of its partitions are full then, though the PG is in one: no write of another pool ends the OSD, and what is deleted is room for all.
#[test]
fn an_osd_that_one_pg_fills_is_full_without_ending_and_takes_writes_again() {
    let Some(cluster) = Cluster::start_sharded(1, 2) else { return };
    let shell = cluster.pool("filled", 1);
    let said = python(
        &shell,
        "
import errno
# Of the next number, so in the other partition.
subprocess.check_call(['ceph', 'osd', 'pool', 'create', 'beside', '1'])
numbers = {pool['pool_name']: pool['pool'] for pool in ask(prefix='osd dump')['pools']}
assert (numbers[POOL] + numbers['beside']) % 2, numbers
wait('clean', is_clean)
impatient = rados.Rados(conffile='', conf={'rados_osd_op_timeout': '20'}); impatient.connect()
filled, beside = impatient.open_ioctx(POOL), impatient.open_ioctx('beside')
data, first, written = os.urandom(4 << 20), pid(0), []
# Writes one after the other; how the first one ended that did not succeed. Whoever waits behind it is a burst that nobody has accounted for.
def fill(io, name, burst):
    flying = collections.deque(); error = 0
    while not error:
        written.append((io, name % len(written))); flying.append(io.aio_write_full(written[-1][1], data))
        if len(flying) >= burst:
            oldest = flying.popleft(); oldest.wait_for_complete(); error = oldest.get_return_value()
    for one in flying: one.wait_for_complete()
    return error
def flags(): return ask(prefix='health')['checks'].keys()
for io, name, burst in ((filled, 'f%d', 16), (beside, 'b%d', 24)):
    # A slow device makes clients give up long before.
    while (error := fill(io, name, burst)) == -errno.ETIMEDOUT and 'OSD_FULL' not in flags(): pass
    assert error in (-errno.ENOSPC, -errno.ETIMEDOUT), error
    wait('full', lambda: 'OSD_FULL' in flags())
assert len(written) > 130, 'full behind %d writes' % len(written)
assert pid(0) == first and os.path.exists('/proc/%d' % first), 'it ended'
assert kill(0)['partitions'] == 2
for pool in (POOL, 'beside'):
    names = subprocess.check_output(['rados', '-p', pool, 'ls']).split()
    if names: subprocess.check_call(['rados', '-p', pool, 'rm', '--force-full'] + names)
wait('empty', lambda: not {'OSD_FULL', 'OSD_BACKFILLFULL', 'OSD_NEARFULL', 'POOL_FULL'} & flags())
# What one had is the other one's now.
for nth in range(45): beside.write_full('again%d' % nth, data)
for nth in range(45): assert beside.read('again%d' % nth, 5 << 20) == data, nth
print('full behind %d writes of 4 MiB' % len(written))
",
    );
    eprint!("{said}");
}

/// The one that is killed is encrypted, and has its log and its metadata in another folder.
#[test]
fn an_encrypted_osd_of_two_threads_with_log_and_metadata_elsewhere_has_everything_after_it_is_killed() {
    let Some(cluster) = Cluster::start_sharded(1, 2) else { return };
    let shell = cluster.pool("sharded", 8);
    let made = "
        make 1 --shards 2 --osd-size 512M --wal-dir $PWD/fast --meta-dir $PWD/fast; start 1; up 2
        [ $(ls fast | wc -l) = 5 ]; ceph osd metadata 1 -f json | jq -e '.nacre_bdev_encrypted == \"1\" and .nacre_shards == \"2\"'
        ceph osd pool set $POOL size 2; ceph osd pool set $POOL min_size 1; clean";
    shell.within(60).sh(&[encryption::HANDS, made].concat());
    let said = python(
        &shell,
        "
writer = Writer()
for round in range(3):
    before = writer.total; wait('written', lambda: writer.total > before + 300)
    wait('both threads work', lambda: min(threads(1).get('osd.1/%d' % nth, 0) for nth in (0, 1)) > 0)
    busy = threads(1)
    assert kill(1)['partitions'] == 2
    before = writer.total; wait('written', lambda: writer.total > before + 100)
    wait('clean', is_clean)
writer.finish()
# It has everything itself.
os.kill(pid(0), signal.SIGTERM)
wait('alone', lambda: ask(prefix='osd stat')['num_up_osds'] == 1)
writer.compare(exact=True)
print('%d writes were acknowledged' % writer.total)
os.kill(pid(1), signal.SIGTERM)
",
    );
    eprint!("{said}");
}

/// Each script of an OSD on devices says which one, and goes on with what others have written.
const ON_DEVICES: &str = "
def has_threads(osd, count):
    if not os.path.exists('/proc/%d' % pid(osd)): return False
    names = {name for name in threads(osd) if name.startswith('osd.%d/' % osd) and name.split('/')[1].isdigit()}
    return len(names) == count
def sh(script): return subprocess.check_output(['bash', '-ec', script]).decode()
def stopped(osd):
    last = pid(osd); os.kill(last, signal.SIGKILL); wait('gone', lambda: is_gone(last))
def is_up(count): return ask(prefix='osd stat')['num_up_osds'] == count
";

fn on_devices(shell: &Shell, script: &str) -> String {
    shell.within(300).python(&[PYTHON, ON_DEVICES, script].concat())
}

/// Of two partitions on three devices, and of three on one. What holds something is not taken, and no more partitions than have room.
fn make_on_devices(shell: &Shell) {
    let script = r#"
        refused mkfs --device $ALONE --shards 5; said "has room for those of 4 shards, and not of 5: a larger --meta-size"
        make 1 --device $D --wal-device $L --meta-device $M --shards 2
        make 2 --device $ALONE --shards 3
        for device in $D $L $M $ALONE; do refused mkfs --device $device --shards 2 --force; said "device of osd."; said "nacre store wipe"; done
        $NACRE store label $M $ALONE > out; said "$M: the metadata device of osd.1"; said ", for 2 shards)"; said ", for 3 shards)"
        refused $NACRE osd --dir $DIR --id 2 --shards 4; said "made for 3 shards at most, not 4"
        run() { setsid $NACRE osd --dir $DIR --id $1 --listen 127.0.0.1 --shards $2 >> $DIR/log/osd.$1.log 2>&1 < /dev/null & }
        run 1 2; run 2 3; up 3; ceph osd pool set $POOL size 3; ceph osd pool set $POOL min_size 1; clean
        ceph osd metadata 1 -f json | jq -e --arg log $L --arg meta $M '
            .nacre_shards == "2" and .nacre_bdev_access_mode == "blk" and .nacre_log_dev_node == $log and .nacre_meta_dev_node == $meta'
        ceph osd metadata 2 -f json | jq -e '
            .nacre_shards == "3" and .nacre_meta_apart == "0" and (.nacre_meta_size | tonumber) > 250000000
            and (.nacre_meta_journal_size | tonumber) > 64000000'"#;
    shell.within(60).sh(&[devices::HANDS, script].concat());
}

#[test]
fn osds_of_two_and_three_threads_live_on_raw_devices() {
    let mut loops = match Loops::new() {
        Ok(loops) => loops,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let Some(cluster) = Cluster::start_processes(1) else { return };
    let mut attach =
        |name: &str, mib, block_bytes| loops.attach(name, mib, block_bytes).expect("a loop device");
    let (data, log, meta) = (attach("data", 1536, 512), attach("log", 200, 512), attach("meta", 512, 512));
    let (alone, log_too) = (attach("alone", 2048, 4096), attach("log-too", 300, 512));
    let meta_too = attach("meta-too", 1024, 4096);
    let shell = cluster.pool("sharded", 8).with("D", &data).with("L", &log).with("M", &meta);
    let shell = shell.with("ALONE", &alone).with("L2", &log_too).with("M2", &meta_too);
    let _started = Started(shell.folder().join("cluster/run"));
    make_on_devices(&shell);
    let said = on_devices(
        &shell,
        "
writer = Writer()
# No byte moves as their number changes. The load goes on.
for osd, counts in ((2, (1, 2, 3)), (1, (1, 2)), (2, (2, 3))):
    for count in counts:
        before = writer.total; wait('written', lambda: writer.total > before + 200)
        assert kill(osd, count)['partitions'] == osd + 1
        wait('up', lambda: has_threads(osd, count)); wait('up', lambda: is_up(3))
    before = writer.total; wait('written', lambda: writer.total > before + 200); wait('clean', is_clean)
writer.finish()
print('%d writes were acknowledged' % writer.total)
",
    );
    eprint!("{said}");
    let said = on_devices(
        &shell,
        "
writer = Writer()
again = line(2); counts = iter((1, 3, 2, 3))
for move in ('log --to $L2', 'metadata --to $M2 --meta-size 700M', 'metadata --back', 'log --back'):
    before = writer.total; wait('written', lambda: writer.total > before + 200)
    stopped(2); what, way = move.split(' ', 1)
    sh('$NACRE store move-%s $DIR/osd.2 %s' % (what, way))
    assert checked(2)['partitions'] == 3
    count = next(counts); again[again.index(b'--shards') + 1] = str(count).encode(); start(2, again)
    wait('up', lambda: has_threads(2, count)); wait('up', lambda: is_up(3)); wait('clean', is_clean)
    apart = sh('ceph osd metadata 2 -f json | jq -r .nacre_log_apart,.nacre_meta_apart').split()
    assert apart == {'log --to $L2': ['1', '0'], 'log --back': ['0', '0'], 'metadata --back': ['1', '0']}.get(move, ['1', '1']), (move, apart)
# Made with devices of their own: they go to others.
line_of_one = line(1); stopped(1)
sh('$NACRE store move-log $DIR/osd.1 --to $L2; $NACRE store move-metadata $DIR/osd.1 --to $M2; ! $NACRE store label $L; ! $NACRE store label $M')
assert checked(1)['partitions'] == 2
start(1, line_of_one); wait('up', lambda: is_up(3)); wait('clean', is_clean)
writer.finish()
# Each has everything itself.
for osd in (0, 1, 2):
    others = [other for other in (0, 1, 2) if other != osd]
    lines = {other: line(other) for other in others}
    for other in others: stopped(other)
    wait('alone', lambda: is_up(1)); writer.compare(exact=True)
    for other in others: start(other, lines[other])
    wait('up', lambda: is_up(3)); wait('clean', is_clean)
for osd in (1, 2): stopped(osd); checked(osd)
sh('$NACRE store trim $DIR/osd.2; $NACRE store compact $DIR/osd.2'); checked(2)
print('%d writes were acknowledged' % writer.total)
",
    );
    eprint!("{said}");
}

/// Of three partitions on a device for which a file stands, with a thread more or less at each start.
#[test]
fn an_encrypted_osd_of_three_threads_on_a_device_is_killed_and_moved_and_shows_nothing() {
    let Some(cluster) = Cluster::start_processes(1) else { return };
    let shell = cluster.pool("sharded", 8);
    let _started = Started(shell.folder().join("cluster/run"));
    let made = r#"
        truncate -s 2G disk; truncate -s 700M meta
        make 1 --shards 3 --device $PWD/disk
        setsid $NACRE osd --dir $DIR --id 1 --listen 127.0.0.1 --shards 3 >> $DIR/log/osd.1.log 2>&1 < /dev/null &
        up 2; ceph osd metadata 1 -f json | jq -e '.nacre_bdev_encrypted == "1" and .nacre_shards == "3"'
        ceph osd pool set $POOL size 2; ceph osd pool set $POOL min_size 1; clean
        for n in $(seq 2000); do printf dataPLAINTEXTdata; done > in
        for n in $(seq 16); do rados -p $POOL put namePLAINTEXT$n in; rados -p $POOL setomapval namePLAINTEXT$n keyPLAINTEXT valuePLAINTEXT; done"#;
    shell.within(60).sh(&[encryption::HANDS, made].concat());
    let said = on_devices(
        &shell,
        "
writer = Writer()
for count in (1, 2, 3):
    before = writer.total; wait('written', lambda: writer.total > before + 200)
    assert kill(1, count)['partitions'] == 3
    wait('up', lambda: has_threads(1, count)); wait('up', lambda: is_up(2)); wait('clean', is_clean)
again = line(1)
for way in ('--to $PWD/meta', '--back'):
    stopped(1); sh('$NACRE store move-metadata $DIR/osd.1 --key-file luks.1 %s' % way); assert checked(1)['partitions'] == 3
    assert sh('grep -caF -e PLAINTEXT -e NacreREG -e NacreBLK -e nacrekvJ disk meta || true').split() == ['disk:0', 'meta:0']
    start(1, again); wait('up', lambda: is_up(2)); wait('clean', is_clean)
writer.finish()
stopped(0); wait('alone', lambda: is_up(1)); writer.compare(exact=True)
for n in range(1, 17): assert io.read('namePLAINTEXT%d' % n, 1 << 20) == open('in', 'rb').read()
print('%d writes were acknowledged' % writer.total)
os.kill(pid(1), signal.SIGTERM)
",
    );
    eprint!("{said}");
}

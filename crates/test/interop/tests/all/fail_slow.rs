//! One of nine devices fails slowly: it is named, its OSD leads nothing until it is well; and nobody is named because there is much to do.

#![allow(clippy::print_stderr, reason = "what was measured is to be read")]

use nacre_interop::Cluster;

/// A light load that keeps every answer's time, a heavy one, and what the cluster says meanwhile.
const PYTHON: &str = r#"
import json, os, rados, random, subprocess, threading, time
POOL, SLOW = os.environ['POOL'], 4
cluster = rados.Rados(conffile=''); cluster.connect()

def ask(**command):
    code, out, text = cluster.mon_command(json.dumps(dict(command, format='json')), b'')
    assert code == 0, text
    return json.loads(out)
def slow(): return ask(prefix='health', detail='detail')['checks'].get('OSD_SLOW_DEVICE')
def pgs():
    code, out, text = cluster.mgr_command(json.dumps(dict(prefix='pg dump', dumpcontents=['pgs'], format='json')), b'')
    assert code == 0, text
    stats = json.loads(out)
    return stats['pg_stats'] if 'pg_stats' in stats else stats
def led(): return sum(pg['acting_primary'] == SLOW for pg in pgs())
def affinity(): return ask(prefix='osd dump')['osds'][SLOW]['primary_affinity']
def tell(*words): return json.loads(subprocess.check_output(['ceph', 'tell', 'osd.%d' % SLOW, *words]))
def delay(ms): tell('config', 'set', 'nacre_debug_device_delay_ms', str(ms))
def histogram(): return tell('perf', 'histogram', 'dump')['device']['durable_write_latency_histogram']['values']
# So many milliseconds, or more where the machine has so much other work that nobody would notice them.
def stall(ms):
    counts, sums = histogram(), []
    for count in counts: sums.append(count + (sums[-1] if sums else 0))
    middle = next(bucket for bucket, upto in enumerate(sums) if 2 * upto >= sums[-1])
    return max(ms, 3 * 2 ** (middle - 1) // 1000)
def until(what, holds, seconds):
    began = time.monotonic()
    while not holds():
        assert time.monotonic() < began + seconds, '%s: %s' % (what, json.dumps(ask(prefix='health', detail='detail')))
        time.sleep(0.5)
    return time.monotonic() - began
def named(): return slow() is not None

# 4 KiB each 10 ms, a write or a read of one of 256 objects.
class Light(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.io = cluster.open_ioctx(POOL); self.took = []; self.going = True; self.failure = None; self.start()
    def run(self):
        try:
            for n in range(256): self.io.write_full('light%d' % n, os.urandom(4096))
            while self.going:
                name, kind, began = 'light%d' % random.randrange(256), random.choice('rw'), time.monotonic()
                if kind == 'r': self.io.read(name, 4096)
                else: self.io.write(name, os.urandom(4096))
                ended = time.monotonic()
                self.took.append((began, kind, ended - began))
                time.sleep(max(0, began + 0.010 - ended))
        except Exception as failure:
            self.failure = failure
    def finish(self):
        self.going = False; self.join(); assert self.failure is None, self.failure
    def say(self, what, since):
        for kind, name in (('r', 'reads'), ('w', 'writes')):
            took = sorted(t for began, k, t in self.took if k == kind and began >= since)
            at = lambda share: 1000 * took[min(len(took) - 1, int(share * len(took)))]
            print('%s: %d %s, median %.1f ms, p99 %.1f ms' % (what, len(took), name, at(0.5), at(0.99)), flush=True)

# As many writes at a time as 64 threads make.
def overload(seconds):
    end = time.monotonic() + seconds
    def work(nth):
        io = cluster.open_ioctx(POOL)
        while time.monotonic() < end: io.write('heavy%d' % random.randrange(1024), os.urandom(16384))
    threads = [threading.Thread(target=work, args=(nth,), daemon=True) for nth in range(64)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"#;

fn run(script: &str, seconds: u64) {
    let Some(cluster) = Cluster::start_processes(9) else { return };
    let shell = cluster.pool("things", 64);
    eprintln!("{}", shell.within(seconds).python(&format!("{PYTHON}{script}")));
}

#[test]
#[ignore = "minutes of nine OSDs, in which nothing else should run: cargo test -p nacre-interop --test all fail_slow:: -- --ignored --test-threads 1"]
fn a_device_that_stalls_is_named_and_its_osd_leads_nothing_until_it_is_well() {
    run(
        r#"
light = Light(); time.sleep(5); began = time.monotonic(); time.sleep(25)
assert slow() is None and led() > 0, slow()
light.say('calm', began)
assert tell('perf', 'dump')['device']['durable_write_latency']['avgcount'] > 100
ms = stall(5); print('each request of osd.%d takes %d ms longer' % (SLOW, ms), flush=True); delay(ms); stalled = time.monotonic()
after = until('named', named, 60)
check = slow()
print('named after %.0f s: %s' % (after, [line['message'] for line in check['detail']]), flush=True)
assert check['severity'] == 'HEALTH_WARN' and len(check['detail']) == 1, check
assert check['detail'][0]['message'].startswith('osd.%d (' % SLOW), check
light.say('stalled', stalled)
until('without primaries', lambda: led() == 0, 90 - (time.monotonic() - stalled))
print('without primaries after %.0f s' % (time.monotonic() - stalled), flush=True)
assert affinity() == 0 and 'its primary affinity is 0 and will be 1 again' in slow()['detail'][0]['message']
time.sleep(2); before = tell('perf', 'dump')['osd']; relieved = time.monotonic(); time.sleep(20)
now = tell('perf', 'dump')['osd']
assert (now['op_r'], now['op_w']) == (before['op_r'], before['op_w']), 'no client waits for its reads any more'
light.say('relieved, until %.0f s after the stalls began' % (time.monotonic() - stalled), relieved)
log = subprocess.check_output(['ceph', 'log', 'last', '1000', 'debug', 'cluster'], text=True)
assert 'osd.%d' % SLOW in log and 'leads no PGs while its device is slow' in log, log
assert sum(histogram()[12:]) > 100, histogram()

delay(0); began = time.monotonic()
until('well', lambda: not named(), 150)
print('well after %.0f s' % (time.monotonic() - began), flush=True)
until('primaries again', lambda: affinity() == 1 and led() > 0, 30)
print('primaries again after %.0f s' % (time.monotonic() - began), flush=True)
light.finish()
"#,
        480,
    );
}

/// What the OSD has is copied elsewhere, and no write waits for its device any more.
#[test]
#[ignore = "minutes of nine OSDs, in which nothing else should run: cargo test -p nacre-interop --test all fail_slow:: -- --ignored --test-threads 1"]
fn clients_feel_nothing_two_minutes_after_a_device_began_to_stall() {
    run(
        r#"
light = Light(); time.sleep(30); began = time.monotonic(); time.sleep(40)
light.say('calm', began)
def p99(since, until):
    took = sorted(t for began, k, t in light.took if since <= began < until)
    return took[int(0.99 * len(took))]
calm = p99(began, time.monotonic())
delay(5); stalled = time.monotonic()
after = until('named', named, 60); print('named after %.0f s' % after, flush=True)
def out(): return ask(prefix='osd dump')['osds'][SLOW]['in'] == 0
print('out after %.0f s' % until('out', out, 120), flush=True)
time.sleep(max(0, stalled + 120 - time.monotonic()) + 30)
for second in range(0, 150, 10):
    print('%3d s: p99 %.2f times that of the calm' % (second, p99(stalled + second, stalled + second + 10) / calm), flush=True)
light.say('stalled, the first 30 s', stalled)
felt = p99(stalled + 120, stalled + 150) / calm
print('two minutes after: p99 %.2f times that of the calm' % felt, flush=True)
held = [pg['pgid'] for pg in pgs() if SLOW in pg['up']]
assert held == [] and felt <= 1.5, (held, felt)
delay(0); began = time.monotonic()
until('in again', lambda: not out(), 200); print('in again after %.0f s' % (time.monotonic() - began), flush=True)
light.finish()
"#,
        600,
    );
}

/// Neither because there is little to do, nor because there is more than all can do. `NACRE_EXAM_MINUTES`: so long of each, 1 and 1.5 without.
#[test]
#[ignore = "minutes of nine OSDs, in which nothing else should run: cargo test -p nacre-interop --test all fail_slow:: -- --ignored --test-threads 1"]
fn calm_and_overload_name_nobody() {
    let minutes = std::env::var("NACRE_EXAM_MINUTES").ok().and_then(|minutes| minutes.parse::<u64>().ok());
    let (calm, over) = minutes.map_or((60, 90), |minutes| (minutes * 60, minutes * 60));
    let script = r#"
names = []
going = True
def watch():
    while going:
        if named(): names.append((time.monotonic() - began, slow()))
        time.sleep(1)
began = time.monotonic(); watcher = threading.Thread(target=watch); watcher.start()
time.sleep(CALM / 3); light = Light(); time.sleep(CALM * 2 / 3)
light.say('calm', began)
overloaded = time.monotonic(); overload(OVERLOAD); light.say('overload', overloaded)
time.sleep(20); light.finish()
going = False; watcher.join()
print('nobody was named' if names == [] else names[0], 'in %d s of calm and %d s of overload' % (CALM, OVERLOAD), flush=True)
assert names == [], names[:3]
"#;
    run(&format!("CALM, OVERLOAD = {calm}, {over}\n{script}"), calm + over + 150);
}

/// Nobody has anything to do: probes alone find it, and find it well.
#[test]
#[ignore = "minutes of nine OSDs, in which nothing else should run: cargo test -p nacre-interop --test all fail_slow:: -- --ignored --test-threads 1"]
fn an_idle_device_that_stalls_is_found_by_probes() {
    run(
        r#"
time.sleep(40); assert slow() is None
delay(stall(20))
print('named after %.0f s' % until('named', named, 300), flush=True)
lines = [line['message'] for line in slow()['detail']]
assert len(lines) == 1 and lines[0].startswith('osd.%d (' % SLOW), lines
until('without primaries', lambda: led() == 0, 90)
delay(0)
print('well after %.0f s' % until('well', lambda: not named(), 240), flush=True)
until('primaries again', lambda: affinity() == 1 and led() > 0, 30)

def probes(interval):
    subprocess.check_call(['ceph', 'config', 'set', 'osd', 'nacre_device_probe_interval', str(interval)]); time.sleep(8)
    before = tell('perf', 'dump')['device']['read_latency']['avgcount']; time.sleep(12)
    return tell('perf', 'dump')['device']['read_latency']['avgcount'] - before
many, none, some = probes(1), probes(0), probes(5)
assert many >= 6 and none == 0 and 1 <= some <= 4, (many, none, some)
"#,
        600,
    );
}

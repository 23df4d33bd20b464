# The exam of `nacre doctor` and `nacre why-slow`: faults of varying strength are made one at a time in a cluster of four OSDs under a light
# load; after each the right cause must be named first. Environment: DIR, NACRE, SEED, CEPH_CONF; POOL is made here.
import json, os, rados, random, signal, subprocess, sys, threading, time

SEED = int(os.environ['SEED'])
chance = random.Random(SEED)
DIR, NACRE = os.environ['DIR'], os.environ['NACRE']
OSDS = 4
cluster = rados.Rados(conffile=''); cluster.connect()

def ceph(*words): return subprocess.check_output(['ceph', *words], text=True, stderr=subprocess.DEVNULL)
def ask(*words): return json.loads(ceph(*words, '-f', 'json'))
def tell(osd, *words): return json.loads(ceph('tell', 'osd.%d' % osd, *words))
def pid(osd): return int(open('%s/run/osd.%d.pid' % (DIR, osd)).read())
def run(*words):
    took = time.monotonic()
    done = subprocess.run([NACRE, *words], capture_output=True, text=True)
    assert done.returncode in (0, 3), (words, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return json.loads(done.stdout)
ACCESS = ['-c', DIR + '/ceph.conf', '-k', DIR + '/keyring', '--json']
def doctor(seconds=5): return run('doctor', '--root', 'machine', *ACCESS, '--seconds', str(seconds))
def why(seconds=5): return run('why-slow', *ACCESS, '--seconds', str(seconds))
def until(what, holds, seconds):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, '%s: not in %d s: %s' % (what, seconds, ceph('-s'))
        time.sleep(0.5)

# The files of a machine with which nothing is wrong, as far as faults are made in them.
CLEAN = {
    'proc/pressure/memory': 'some avg10=0.00 avg60=0.10 avg300=0.00 total=9\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n',
    'proc/pressure/cpu': 'some avg10=1.00 avg60=3.00 avg300=0.00 total=9\n',
    'proc/meminfo': 'MemTotal: 16384000 kB\nMemFree: 100 kB\nMemAvailable: 8000000 kB\n',
    'proc/vmstat': 'compact_stall 7\noom_kill 0\n', 'proc/uptime': '36000.5 7200.0\n',
    'sys/devices/system/cpu/cpu0/cpufreq/scaling_governor': 'performance\n',
    'sys/devices/system/cpu/cpu0/cpufreq/scaling_available_governors': 'performance powersave\n',
    'sys/devices/system/cpu/cpu0/cpuidle/state1/name': 'C6\n', 'sys/devices/system/cpu/cpu0/cpuidle/state1/latency': '133\n',
    'sys/devices/system/cpu/cpu0/cpuidle/state1/disable': '1\n',
    'etc/tuned/active_profile': 'latency-performance\n',
    'sys/devices/system/node/node0/numastat': 'numa_hit 100000\nlocal_node 99000\nother_node 1000\n',
    'sys/devices/system/node/node1/numastat': 'numa_hit 100000\nlocal_node 99000\nother_node 1000\n',
    'sys/kernel/mm/transparent_hugepage/enabled': 'always [madvise] never\n',
    'sys/kernel/mm/transparent_hugepage/defrag': 'always defer [madvise] never\n',
    'proc/sys/vm/zone_reclaim_mode': '0\n',
}
def write(path, text):
    path = 'machine/' + path
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, 'w').write(text)
def machine(): [write(path, text) for path, text in CLEAN.items()]

# What is so before any fault: a build for developers, where that is what is tested.
known = set()
def shown(report):
    if 'verdicts' in report: return [(v['cause'], v['subject']) for v in report['verdicts']]
    return [(f['check'], f['subject']) for f in report['findings'] if f['check'] not in known]
def costly(report): return [(f['check'], f['rank'], f['measured']) for f in report['findings'] if f['check'] not in known and f['rank'] != 'hint']

# Eight small writes and reads at a time, of two clients.
class Load(threading.Thread):
    def __init__(self, depth=2):
        super().__init__(daemon=True)
        self.io = cluster.open_ioctx('exam'); self.going = True; self.depth = depth; self.start()
    def one(self, nth):
        while self.going:
            name = 'light%d' % random.randrange(512)
            try:
                if random.randrange(4): self.io.write(name, os.urandom(4096))
                else: self.io.read(name, 4096)
            except rados.ObjectNotFound: pass
            except rados.Error as error: print('a client: %s' % error, flush=True)
            time.sleep(0.005)
    def run(self):
        threads = [threading.Thread(target=self.one, args=(nth,), daemon=True) for nth in range(self.depth)]
        [thread.start() for thread in threads]; [thread.join() for thread in threads]
    def end(self): self.going = False; self.join()

# Programs that are clients of their own.
def client(script, *words):
    return subprocess.Popen(['/usr/bin/python3', '-c', 'import os, rados, sys, threading, time\nc = rados.Rados(conffile=""); c.connect(); io = c.open_ioctx("exam")\nprint(c.get_instance_id(), flush=True)\n' + script, *map(str, words)], stdout=subprocess.PIPE, text=True)
HOG = '''
room = threading.Semaphore(int(sys.argv[1]))
while True:
    room.acquire(); io.aio_write('hog%d' % (time.monotonic_ns() % 97), os.urandom(int(sys.argv[2])), oncomplete=lambda done: room.release())
'''
LONE = '''
while True: io.write('lone%d' % (time.monotonic_ns() % 13), b'x' * 4096)
'''
SPIN = '''
while True:
    io.write('spin%d' % (time.monotonic_ns() % 13), b'x' * 4096)
    until = time.thread_time() + int(sys.argv[1]) / 1000
    while time.thread_time() < until: pass
'''

# Ways between OSDs: packets of one's control group to another's are dropped, `share` of 1000.
GROUPS, TABLE = '/sys/fs/cgroup/unified', 'nacre_exam_%d' % os.getpid()
def cgroup(osd): return '%s_%d' % (TABLE, osd)
def nft(rules):
    # nft looks for control groups where they lie on machines with one hierarchy.
    script = 'mount --bind %s /sys/fs/cgroup 2>/dev/null; exec nft -f -' % GROUPS if os.path.isdir(GROUPS) else 'exec nft -f -'
    subprocess.run(['unshare', '-m', 'sh', '-c', script], input=rules, text=True, check=True)
def enclose():
    root = GROUPS if os.path.isdir(GROUPS) else '/sys/fs/cgroup'
    for osd in range(OSDS):
        os.makedirs('%s/%s' % (root, cgroup(osd)), exist_ok=True)
        line = open('/proc/%d/cmdline' % pid(osd), 'rb').read().split(b'\0')[:-1]
        before = pid(osd); os.kill(before, signal.SIGTERM)
        until('osd.%d ends' % osd, lambda: not os.path.exists('/proc/%d' % before), 30)
        def enter(osd=osd): open('%s/%s/cgroup.procs' % (root, cgroup(osd)), 'w').write(str(os.getpid()))
        subprocess.Popen(line, preexec_fn=enter, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=open('%s/log/osd.%d.log' % (DIR, osd), 'ab'))
        until('osd.%d is back' % osd, lambda: ask('osd', 'dump')['osds'][osd]['up'] == 1 and os.path.exists('%s/run/osd.%d.pid' % (DIR, osd)), 60)
def drop(source, target, share):
    chance_of = '' if share >= 1000 else 'numgen random mod 1000 < %d' % share
    nft('''table inet %s { chain out { type filter hook output priority 0; socket cgroupv2 level 1 "%s" meta mark set 0x6e61; }
      chain in { type filter hook input priority 0; meta mark 0x6e61 socket cgroupv2 level 1 "%s" %s drop; }
    }''' % (TABLE, cgroup(source), cgroup(target), chance_of))
def undrop(): subprocess.run(['nft', 'delete', 'table', 'inet', TABLE], stderr=subprocess.DEVNULL)
def release():
    undrop()
    root = GROUPS if os.path.isdir(GROUPS) else '/sys/fs/cgroup'
    for osd in range(OSDS):
        try:
            for process in open('%s/%s/cgroup.procs' % (root, cgroup(osd))).read().split(): open(root + '/cgroup.procs', 'w').write(process)
            os.rmdir('%s/%s' % (root, cgroup(osd)))
        except OSError: pass

def clean():
    return ask('health')['status'] == 'HEALTH_OK' or not [name for name, check in ask('health', 'detail')['checks'].items() if not check.get('muted')]
def well(): until('nothing is wrong', clean, 180)

# Each fault: its strength in words, what must be named first, how it is made and taken back, and what looks.
class Fault:
    settle, seconds = 2, 5
    def by(self): return doctor(self.seconds)
    def back(self): pass

def counts(osd): return tell(osd, 'perf', 'histogram', 'dump')['device']['durable_write_latency_histogram']['values']

# Averages of minutes, which tell of what was: of no fault that is made after it.
def hush(): [ceph('health', 'mute', 'OSD_SLOW_PING_TIME_' + side, '20m', '--sticky') for side in ('BACK', 'FRONT')]

class SlowDevice(Fault):
    def __init__(self): self.osd, self.ms = chance.randrange(OSDS), chance.choice([8, 15, 25, 40]); self.wanted = [('slow-device', 'osd.%d ' % self.osd)]
    def make(self):
        # Or more, where the machine has so much other work that nobody would notice them.
        before = counts(self.osd); time.sleep(4); now = [after - at for after, at in zip(counts(self.osd), before)]
        middle = next(bucket for bucket in range(len(now)) if 2 * sum(now[:bucket + 1]) >= sum(now))
        self.ms = max(self.ms, 3 * 2 ** middle // 1000)
        self.words = 'osd.%d, %d ms a request' % (self.osd, self.ms)
        tell(self.osd, 'config', 'set', 'nacre_debug_device_delay_ms', str(self.ms))
    def back(self): tell(self.osd, 'config', 'set', 'nacre_debug_device_delay_ms', '0')

class Stalls(Fault):
    def __init__(self): self.osd, self.off, self.on = chance.randrange(OSDS), chance.choice([60, 100, 200, 300]), chance.choice([20, 40]); self.words = 'osd.%d, stopped for %d ms, then %d ms on' % (self.osd, self.off, self.on); self.wanted = [('osd-stalled', 'osd.%d ' % self.osd)]
    def make(self):
        self.going = True; process = pid(self.osd)
        def brake():
            while self.going:
                os.kill(process, signal.SIGSTOP); time.sleep(self.off / 1000); os.kill(process, signal.SIGCONT); time.sleep(self.on / 1000)
        self.thread = threading.Thread(target=brake, daemon=True); self.thread.start()
    def back(self): self.going = False; self.thread.join()

class Frozen(Fault):
    settle = 6
    def __init__(self): self.osd, self.settle = chance.randrange(OSDS), chance.choice([5, 8, 12]); self.words = 'osd.%d, stopped for %d s before' % (self.osd, self.settle); self.wanted = [('osd-silent', 'osd.%d ' % self.osd)]
    def make(self): ceph('osd', 'set', 'nodown'); os.kill(pid(self.osd), signal.SIGSTOP)
    def back(self): os.kill(pid(self.osd), signal.SIGCONT); time.sleep(3); ceph('osd', 'unset', 'nodown'); hush()

class Lossy(Fault):
    seconds = 15
    def __init__(self): (self.a, self.b), self.share = chance.sample(range(OSDS), 2), chance.choice([15, 30, 60, 100]); self.words = '%.1f %% of packets from osd.%d to osd.%d' % (self.share / 10, self.a, self.b); self.wanted = [('lossy-link', 'the way between osd.%d and osd.%d ' % (min(self.a, self.b), max(self.a, self.b))), ('lossy-link', 'the way from osd.%d to osd.%d ' % (self.a, self.b))]
    def make(self): drop(self.a, self.b, self.share)
    def back(self): undrop()

class Cut(Fault):
    def __init__(self): (self.a, self.b), self.settle = chance.sample(range(OSDS), 2), chance.choice([8, 15, 25]); self.words = 'all packets from osd.%d to osd.%d, for %d s before' % (self.a, self.b, self.settle); self.wanted = [('one-way-cut', 'the way from osd.%d to osd.%d ' % (self.a, self.b))]
    def make(self): ceph('osd', 'set', 'nodown'); drop(self.a, self.b, 1000)
    def back(self): undrop(); time.sleep(12); ceph('osd', 'unset', 'nodown'); hush()

class Fill(Fault):
    def __init__(self): self.mib = chance.choice([420, 480, 540]); self.words = '%d MiB on one OSD of 755' % self.mib; self.wanted = [('fill', 'osd.')]
    def make(self):
        ceph('config', 'set', 'mon', 'mon_warn_on_pool_no_redundancy', 'false'); ceph('config', 'set', 'mon', 'mon_allow_pool_size_one', 'true')
        ceph('osd', 'pool', 'create', 'big', '1'); ceph('osd', 'pool', 'application', 'enable', 'big', 'rados'); ceph('osd', 'pool', 'set', 'big', 'size', '1', '--yes-i-really-mean-it')
        io = cluster.open_ioctx('big'); data = os.urandom(4 << 20)
        for nth in range(self.mib // 4): io.write_full('big%d' % nth, data)
        self.osd = ask('osd', 'map', 'big', 'big0')['acting'][0]; self.wanted = [('fill', 'osd.%d ' % self.osd)]; self.words += ' (osd.%d)' % self.osd; io.close(); time.sleep(6)
    def back(self): ceph('osd', 'pool', 'rm', 'big', 'big', '--yes-i-really-really-mean-it'); time.sleep(5)

class FewPgs(Fault):
    def __init__(self): self.pgs = chance.choice([4, 8, 16, 32]); self.words = '%d PGs of three copies on %d OSDs' % (self.pgs, OSDS); self.wanted = [('pg-count', 'there are few PGs')]
    def make(self): pool(self.pgs)
    def back(self): ceph('osd', 'pool', 'rm', 'exam', 'exam', '--yes-i-really-really-mean-it'); pool(64)

# What a fault has written would fill OSDs that another one is to fill.
def remove_bulk(objects):
    io = cluster.open_ioctx('exam')
    for gone in [io.aio_remove('bulk%d' % nth) for nth in range(objects)]: gone.wait_for_complete()
    io.close()

class Recovery(Fault):
    # So that it lasts until it is looked at.
    settle, seconds = 0, 2
    SLOW = ('osd_recovery_max_active', 'osd_max_backfills', 'nacre_recovery_client_latency_target_ms')
    def __init__(self): self.osd, self.objects = chance.randrange(OSDS), chance.choice([4000, 5000, 6000]); self.words = 'osd.%d is out, %d objects of 64 KiB' % (self.osd, self.objects); self.wanted = [('background', 'copies of objects are being made')]
    def make(self):
        io = cluster.open_ioctx('exam')
        for nth in range(self.objects): io.write_full('bulk%d' % nth, os.urandom(65536))
        io.close()
        [ceph('config', 'set', 'osd', name, '1') for name in self.SLOW]; ceph('osd', 'out', str(self.osd)); time.sleep(1)
    def back(self):
        [ceph('config', 'rm', 'osd', name) for name in self.SLOW]; ceph('osd', 'in', str(self.osd)); remove_bulk(self.objects); time.sleep(3)

class Scrub(Fault):
    def __init__(self): self.objects = chance.choice([800, 1200]); self.words = 'deep scrubs of all PGs, %d objects of 256 KiB' % self.objects; self.wanted = [('background', 'copies are being compared')]
    def make(self):
        io = cluster.open_ioctx('exam'); data = os.urandom(262144)
        for nth in range(self.objects): io.write_full('bulk%d' % nth, data)
        io.close(); time.sleep(3); self.going = True
        def order():
            while self.going: ceph('osd', 'pool', 'deep-scrub', 'exam'); time.sleep(0.1)
        self.thread = threading.Thread(target=order, daemon=True); self.thread.start()
    def back(self): self.going = False; self.thread.join(); until('scrubs end', lambda: 'scrubbing' not in ceph('-s'), 60); remove_bulk(self.objects)

class Noisy(Fault):
    def by(self): return why()
    def __init__(self): self.depth, self.bytes = chance.choice([24, 48, 96]), chance.choice([4096, 16384, 65536]); self.words = '%d writes of %d KiB at a time beside two clients with one' % (self.depth, self.bytes >> 10)
    def make(self):
        self.all = [client(HOG, self.depth, self.bytes), client(LONE), client(LONE)]
        self.wanted = [('noisy-client', 'client.%s ' % self.all[0].stdout.readline().strip())]; time.sleep(3)
    def back(self): [(one.kill(), one.wait()) for one in self.all]

class SlowClient(Fault):
    def by(self): return why()
    def __init__(self): self.ms = chance.choice([40, 80, 200]); self.words = 'one client that computes for %d ms after each write' % self.ms
    def make(self): load.end(); self.one = client(SPIN, self.ms); self.wanted = [('client-cpu', 'the client itself is what is slow: python3 (process %d)' % self.one.pid)]; self.one.stdout.readline(); time.sleep(2)
    def back(self): global load; self.one.kill(); self.one.wait(); load = Load()

class Build(Fault):
    settle = 0
    def __init__(self): self.words = 'OSDs of a build for developers'; self.wanted = [('build', 'this program'), ('osd-build', 'osd.0 osd.1')]
    def make(self): self.was = set(known); known.clear()
    def back(self): known.update(self.was)

class Host(Fault):
    settle = 0
    FILES = {
        'memory-pressure': lambda: ('proc/pressure/memory', 'some avg10=0.00 avg60=%.2f avg300=0.00 total=9\n' % chance.uniform(3, 60)),
        'governor': lambda: ('sys/devices/system/cpu/cpu0/cpufreq/scaling_governor', 'powersave\n'),
        'idle-states': lambda: ('sys/devices/system/cpu/cpu0/cpuidle/state1/disable', '0\n'),
        'tuned': lambda: ('etc/tuned/active_profile', chance.choice(['powersave', 'balanced-battery', 'laptop-battery-powersave']) + '\n'),
        'numa': lambda: ('sys/devices/system/node/node0/numastat', 'numa_hit 100000\nlocal_node 60000\nother_node %d\n' % chance.randrange(20000, 90000)),
        'memory': lambda: ('proc/meminfo', 'MemTotal: 16384000 kB\nMemFree: 100 kB\nMemAvailable: %d kB\n' % chance.randrange(1000, 600000)),
        'hugepages': lambda: ('proc/vmstat', 'compact_stall %d\noom_kill 0\n' % chance.randrange(2000, 90000)),
        'zone-reclaim': lambda: ('proc/sys/vm/zone_reclaim_mode', '1\n'),
    }
    def __init__(self, kind=None): self.kind = kind or chance.choice(list(self.FILES)); self.file, self.text = self.FILES[self.kind](); self.words = '%s: %s' % (self.file, self.text.split('\n')[0]); self.wanted = [(self.kind, '')]
    def make(self): write(self.file, self.text)
    def back(self): write(self.file, CLEAN[self.file])

def pool(pgs):
    ceph('osd', 'pool', 'create', 'exam', str(pgs)); ceph('osd', 'pool', 'application', 'enable', 'exam', 'rados')
    until('PGs are clean', lambda: ask('status')['pgmap'].get('pgs_by_state', [{}])[0].get('state_name') == 'active+clean' and clean(), 120)

rows, quiet = [], []
def look(faults, within):
    # What does not last comes last; of others the one that must be watched longest says for how long.
    for fault in sorted(faults, key=lambda fault: -fault.settle): fault.make(); time.sleep(fault.settle)
    report = min(faults, key=lambda fault: (fault.settle, -fault.seconds)).by()
    named = shown(report)[:within]
    for fault in reversed(faults): fault.back()
    right = all(any(check == wanted and subject.startswith(words) for wanted, words in fault.wanted for check, subject in named) for fault in faults)
    row = ('right' if right else 'WRONG', ' + '.join('%s: %s' % (type(fault).__name__, fault.words) for fault in faults), ' | '.join('%s: %s' % one for one in named[:within]) or 'nothing')
    print('%s; %s; named: %s' % row, flush=True)
    if not right: print(json.dumps(report, indent=1)[:9000], flush=True)
    return right
def alone(fault): rows.append(look([fault], 1))
def calm(seconds=5):
    well(); false = costly(doctor(seconds)); quiet.append(not false)
    if false: print('named without a fault: %s' % false, flush=True)

# Loads for OSDs in cgroups of their own (memory.rs). $LOAD names one, $SECONDS is about how long it goes on, $CGROUPS has the files
# by which a process joins the cgroup of each OSD. What was written is compared with what is read.
import faulthandler, json, os, rados, random, resource, signal, subprocess, sys, threading, time
DIR, POOL, SECONDS = os.environ['DIR'], os.environ.get('POOL', ''), float(os.environ.get('SECONDS', '5'))
CGROUPS = os.environ['CGROUPS'].split(':')
MIB = 1 << 20
# A load that does not come to its end says where it is.
faulthandler.dump_traceback_later(500 + 6 * SECONDS, exit=True)
chance = random.Random(int(os.environ.get('SEED', '7')))

def connect():
    cluster = rados.Rados(conffile=''); cluster.connect()
    return cluster
cluster = connect()

def ask(**command):
    code, out, text = cluster.mon_command(json.dumps(dict(command, format='json')), b'')
    assert code == 0, text
    return json.loads(out) if out else None
def wait(what, holds, seconds=600):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, '%s: %s' % (what, json.dumps(ask(prefix='status')))
        time.sleep(0.1)
def pid(daemon): return int(open('%s/run/%s.pid' % (DIR, daemon)).read())
def line(daemon): return open('/proc/%d/cmdline' % pid(daemon), 'rb').read().split(b'\0')[:-1]
def is_clean():
    status = ask(prefix='status')
    pgs, osds = status['pgmap'], status['osdmap']
    states = {state['state_name'].replace('+scrubbing', '').replace('+deep', '') for state in pgs['pgs_by_state']}
    return osds['num_up_osds'] == osds['num_osds'] and states <= {'active+clean'} and pgs.get('degraded_objects', 0) == 0

# The command that an OSD was started with, with the memory target of this test.
def command(osd):
    words = line('osd.%d' % osd); at = words.index(b'--osd-memory-target')
    words[at + 1] = os.environ['TARGET'].encode()
    return words
def start(osd, words):
    log = open('%s/log/osd.%d.log' % (DIR, osd), 'ab')
    def join(): open(CGROUPS[osd], 'w').write('%d' % os.getpid())
    subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, preexec_fn=join)
def stop(osd, how=signal.SIGTERM):
    number = pid('osd.%d' % osd); os.kill(number, how)
    wait('end', lambda: is_gone(number))
# Each OSD anew, in its cgroup: what it has in memory counts there from the beginning.
def move():
    for osd in range(len(CGROUPS)):
        words = command(osd); stop(osd); start(osd, words)
        wait('pid', lambda: os.path.exists('%s/run/osd.%d.pid' % (DIR, osd)))
        wait('clean', is_clean)

def until(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end: yield
# At most `depth` operations at a time; `make` begins one, and gives it with what is to be done when it is complete.
class Queue:
    def __init__(self, depth): self.depth, self.waiting = depth, []
    def add(self, completion, done=lambda completion: None):
        self.waiting.append((completion, done))
        if len(self.waiting) >= self.depth: self.take()
    def take(self):
        completion, done = self.waiting.pop(0)
        completion.wait_for_complete()
        assert completion.get_return_value() >= 0, completion.get_return_value()
        done(completion)
    def finish(self):
        while self.waiting: self.take()

# Writes of any length anywhere, none of which keeps to blocks, beside small objects, new ones as long as the OSDs' files have room for them,
# 512 at a time.
def unaligned():
    io, queue, objects = cluster.open_ioctx(POOL), Queue(512), {}
    for number in range(64):
        # What an earlier load has left is not in the model.
        try: io.remove_object('u%d' % number)
        except rados.ObjectNotFound: pass
    for _ in until(SECONDS):
        for _ in range(64):
            name = 'u%d' % chance.randrange(64); model = objects.setdefault(name, bytearray())
            at, data = chance.randrange(2 * MIB), chance.randbytes(chance.choice((1, 7, 513, 4095, 4097, 9001)))
            if len(model) < at + len(data): model.extend(bytes(at + len(data) - len(model)))
            model[at:at + len(data)] = data
            queue.add(io.aio_write(name, data, at))
            queue.add(io.aio_write_full('small%d' % chance.randrange(40000), b'x' * chance.randrange(600)))
    queue.finish()
    for name, model in objects.items(): assert io.read(name, 3 * MIB) == bytes(model), name

# Megabytes at a time, far more of them asked for than there is memory: 512 writes and 512 reads of 4 MiB under way, then whole objects of
# 24 MiB.
def deep():
    io, queue = cluster.open_ioctx(POOL), Queue(64)
    fill = lambda number: bytes((number * 7 + 1) % 251 for _ in range(1)) * (4 * MIB)
    for number in range(24): queue.add(io.aio_write_full('d%d' % number, fill(number)))
    queue.finish()
    failures = []
    def check(number, completion, data):
        if data != fill(number): failures.append(number)
    queue = Queue(512)
    for _ in until(SECONDS):
        for number in range(24):
            queue.add(io.aio_read('d%d' % number, 4 * MIB, 0, lambda completion, data, number=number: check(number, completion, data)))
            if number % 4 == 0: queue.add(io.aio_write_full('d%d' % number, fill(number)))
    queue.finish()
    queue = Queue(16)
    io.write_full('large', b'l' * 24 * MIB)
    for _ in range(32): queue.add(io.aio_read('large', 24 * MIB, 0, lambda completion, data: None))
    queue.finish()
    assert not failures, failures

# Six clients that ask for a gigabyte each and take none of it: frozen, with their sockets open. Others go on beside them, which wait no
# longer than until so many are hung up on that there is room: some seconds, and on a busy machine a few more.
def frozen():
    io, children = cluster.open_ioctx(POOL), []
    for number in range(8): io.write_full('f%d' % number, bytes([number + 1]) * (4 * MIB))
    for _ in range(6):
        child = os.fork()
        if child == 0:
            mine = connect().open_ioctx(POOL)
            for number in range(8): mine.stat('f%d' % number)  # it is connected with all OSDs
            for number in range(256): mine.aio_read('f%d' % (number % 8), 4 * MIB, 0, lambda completion, data: None)
            time.sleep(0.03); os.kill(os.getpid(), signal.SIGSTOP); os._exit(0)
        children.append(child)
    try:
        for child in children: os.waitpid(child, os.WUNTRACED)
        for _ in until(SECONDS):
            number, began = chance.randrange(8), time.monotonic()
            assert io.read('f%d' % number, 4 * MIB) == bytes([number + 1]) * (4 * MIB)
            assert time.monotonic() < began + 60, 'others wait for those that take nothing'
    finally:
        for child in children: os.kill(child, signal.SIGKILL); os.waitpid(child, 0)

# Large maps: many keys, long values, read by pages and by keys from many threads.
def omap():
    io, queue, keys = cluster.open_ioctx(POOL), Queue(8), 20000
    value = lambda number: (b'%08d' % number) * 16
    for first in range(0, keys, 2000):
        for name in ('m0', 'm1'):
            with rados.WriteOpCtx() as op:
                numbers = range(first, first + 2000)
                io.set_omap(op, tuple('%08d' % number for number in numbers), tuple(value(number) for number in numbers))
                io.operate_write_op(op, name)
    for number in range(24):
        with rados.WriteOpCtx() as op:
            io.set_omap(op, ('long%d' % number,), (bytes([number + 1]) * MIB,)); io.operate_write_op(op, 'long')
    failures = []
    def read(name, after, count):
        with rados.ReadOpCtx() as op:
            entries, code = io.get_omap_vals(op, after, '', count); io.operate_read_op(op, name)
            return list(entries)
    def reader(seed):
        chance = random.Random(seed)
        try:
            for _ in until(SECONDS):
                first = chance.randrange(keys - 2000)
                for key, got in read(chance.choice(('m0', 'm1')), '%08d' % first, 1024):
                    assert got == value(int(key)), key
                at, got = '', 0
                while got < 24:
                    page = read('long', at, 24)
                    assert page and all(data == bytes([int(key[4:]) + 1]) * MIB for key, data in page)
                    at, got = page[-1][0], got + len(page)
                with rados.WriteOpCtx() as op:
                    io.set_omap(op, ('own%d' % seed,), (b'o' * 100000,)); io.operate_write_op(op, 'm0')
        except BaseException as failure:
            failures.append(failure)
    threads = [threading.Thread(target=reader, args=(seed,)) for seed in range(24)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert not failures, failures

# An OSD is killed and comes again while objects large and small are written: logs grow, and what it lacks is brought to it. A deep scrub
# of everything follows.
def recovery():
    io, queue = cluster.open_ioctx(POOL), Queue(128)
    for number in range(40): io.write_full('r%d' % number, b'a' * 4 * MIB)
    words = command(1); stop(1, signal.SIGKILL)
    wait('down', lambda: ask(prefix='status')['osdmap']['num_up_osds'] == len(CGROUPS) - 1)
    count = 0
    for _ in until(SECONDS):
        for _ in range(100):
            queue.add(io.aio_write_full('s%d' % (count % 20000), b'%08d' % count)); count += 1
    queue.finish()
    for number in range(40): io.write_full('r%d' % number, b'b' * 4 * MIB)
    start(1, words)
    wait('clean', is_clean)
    scrub()
    for number in range(40): assert io.read('r%d' % number, 4 * MIB) == b'b' * 4 * MIB
    for number in range(max(0, count - 20000), count, 97): assert io.read('s%d' % (number % 20000)) == b'%08d' % number

def scrub():
    pool = cluster.pool_lookup(POOL)
    def stamps():
        pgs = ask(prefix='pg dump', dumpcontents=['pgs'])['pg_stats']
        return {pg['pgid']: pg['last_deep_scrub_stamp'] for pg in pgs if pg['pgid'].startswith('%d.' % pool)}
    before = stamps()
    for pg in before: ask(prefix='pg deep-scrub', pgid=pg)
    wait('scrubbed', lambda: all(stamps()[pg] != stamp for pg, stamp in before.items()))
    assert 'PG_DAMAGED' not in ask(prefix='health')['checks'], ask(prefix='health')

for load in os.environ['LOAD'].split(','): globals()[load]()
print('done', flush=True)
# Threads of librados may still have something to say.
os._exit(0)

#!/usr/bin/python3
"""Kills a whole cluster with SIGKILL, again and again, under fio and a client that checks every acknowledged write.

    ROUNDS=50 test/kill9/run.py [target/release/nacre]

Needs Debian's python3-rados, ceph-common, and fio with the rbd engine (test/packages). Everything is in a temporary
folder that is removed at the end. Fails when an acknowledged write is missing or doubled, when fio sees an error, when
the cluster needs more than READY_S seconds until it serves again, or when a store is not sound at the end.

OBJECTS  objects in the store before the first kill (10000)
ROUNDS   kills (50)
READY_S  seconds from exec to ready (2)
SIZE     size of a store (2G)
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROUNDS = int(os.environ.get("ROUNDS", "50"))
OBJECTS = int(os.environ.get("OBJECTS", "10000"))
READY_S = float(os.environ.get("READY_S", "2"))
SIZE = os.environ.get("SIZE", "2G")
BINARY = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/release/nacre")
POOL, IMAGE = "kill9", "image"

# Appends a number to an object, and only then says so in a file: what the file says was acknowledged.
WRITER = """
import os, rados, sys
cluster = rados.Rados(conffile=os.environ['CEPH_CONF']); cluster.connect()
io, said = cluster.open_ioctx('kill9'), open(sys.argv[1], 'a')
n = int(sys.argv[2])
while True:
    n += 1
    name = 'checked-%d' % (n % 997)
    io.append(name, b'%d;' % n)
    said.write('%s %d\\n' % (name, n)); said.flush()
"""

# Every acknowledged number is there exactly once. A number that was sent and not acknowledged may be there.
CHECKER = """
import os, rados, sys
cluster = rados.Rados(conffile=os.environ['CEPH_CONF']); cluster.connect()
io, wanted = cluster.open_ioctx('kill9'), {}
for line in open(sys.argv[1]):
    if line.endswith('\\n'):
        name, number = line.split(); wanted.setdefault(name, []).append(number.encode())
for name, numbers in wanted.items():
    found = {}
    for number in io.read(name, 1 << 22).split(b';'): found[number] = found.get(number, 0) + 1
    bad = [number for number in numbers if found.get(number) != 1]
    assert not bad, '%s: acknowledged and not there exactly once: %s' % (name, bad[:9])
print(sum(map(len, wanted.values())))
"""

# Small objects, many at a time.
FILLER = """
import os, rados, sys
cluster = rados.Rados(conffile=os.environ['CEPH_CONF']); cluster.connect()
io, waiting = cluster.open_ioctx('kill9'), []
for nth in range(int(sys.argv[1])):
    waiting.append(io.aio_write_full('filled-%06d' % nth, b'%d' % nth * 500))
    if len(waiting) == 128: waiting.pop(0).wait_for_complete()
for one in waiting: one.wait_for_complete()
"""


CHILDREN = []


def started(*arguments, **options):
    CHILDREN.append(subprocess.Popen(*arguments, **options))
    return CHILDREN[-1]


def leave(folder):
    for child in CHILDREN:
        if child.poll() is None:
            child.kill()
            child.wait()
    shutil.rmtree(folder, ignore_errors=True)


class Cluster:
    def __init__(self, folder):
        self.folder = os.path.join(folder, "cluster")
        self.log = open(os.path.join(folder, "nacre.log"), "w+")
        self.process = None
        os.environ["CEPH_CONF"] = os.path.join(self.folder, "ceph.conf")
        os.environ.pop("CEPH_ARGS", None)

    def start(self, *options):
        """Seconds until it is ready."""
        begin, where = time.monotonic(), self.log.seek(0, os.SEEK_END)
        self.process = started(
            [BINARY, "up", "--dir", self.folder, *options], stdout=self.log, stderr=self.log)
        while True:
            self.log.seek(where)
            if "ready in" in self.log.read():
                return time.monotonic() - begin
            if self.process.poll() is not None or time.monotonic() - begin > 60:
                self.log.seek(where)
                sys.exit("the cluster does not start:\n" + self.log.read())
            time.sleep(0.02)

    def end(self, how):
        self.process.send_signal(how)
        self.process.wait()


def python(text, *arguments, wait=True):
    command = [sys.executable, "-c", text, *map(str, arguments)]
    if wait:
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=300).stdout
    return started(command, stderr=subprocess.DEVNULL)


def ceph(*arguments):
    return subprocess.run(arguments, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)


def main(folder):
    cluster, said = Cluster(folder), os.path.join(folder, "said")
    seed = int(os.environ.get("SEED", str(random.randrange(1 << 30))))
    rng = random.Random(seed)
    print(f"seed {seed}, {ROUNDS} rounds", flush=True)
    cluster.start("--osds", "3", "--osd-size", SIZE)
    ceph("ceph", "osd", "pool", "create", POOL, "16")
    ceph("rbd", "pool", "init", POOL)
    ceph("rbd", "create", f"{POOL}/{IMAGE}", "--size", "128M")
    python(FILLER, OBJECTS)
    open(said, "w").close()
    fio = started(
        ["fio", "--name=kill9", "--ioengine=rbd", f"--pool={POOL}", f"--rbdname={IMAGE}", "--clientname=admin",
         "--rw=randwrite", "--bs=4k", "--iodepth=4", "--time_based", "--runtime=36000", "--size=128M"],
        stdout=open(os.path.join(folder, "fio.log"), "w"), stderr=subprocess.STDOUT)
    slowest, acknowledged, last = 0.0, 0, 0
    for nth in range(ROUNDS):
        writer = python(WRITER, said, last, wait=False)
        time.sleep(rng.uniform(1.0, 2.5))
        cluster.end(signal.SIGKILL)
        writer.kill()
        writer.wait()
        took = cluster.start()
        slowest = max(slowest, took)
        acknowledged = int(python(CHECKER, said))
        # What the dead writer had sent may have arrived: its numbers are not used again.
        last += 1_000_000
        print(f"round {nth + 1}: ready after {took:.2f} s, {acknowledged} acknowledged writes are there", flush=True)
        if took > READY_S:
            sys.exit(f"ready only after {took:.2f} s")
        if fio.poll() is not None:
            sys.exit("fio ended: " + open(os.path.join(folder, "fio.log")).read())
    fio.send_signal(signal.SIGINT)
    if fio.wait(60) not in (0, 128):
        sys.exit("fio failed: " + open(os.path.join(folder, "fio.log")).read())
    cluster.end(signal.SIGTERM)
    for osd in range(3):
        subprocess.run([BINARY, "store", "check", "--deep", f"{cluster.folder}/osd.{osd}"],
                       check=True, stdout=subprocess.DEVNULL)
    print(f"passed: {ROUNDS} kills, {acknowledged} acknowledged writes, {OBJECTS} objects, "
          f"slowest start {slowest:.2f} s, three stores sound")


if __name__ == "__main__":
    FOLDER = tempfile.mkdtemp(prefix="nacre-kill9-")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    try:
        main(FOLDER)
    finally:
        leave(FOLDER)

"""The two sides of a comparison: a Ceph cluster that runs already, and a Nacre cluster that is started for it, with OSDs on files or on loop
devices; and what the disk below takes for durable writes."""
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
import uuid

POOL, IMAGE = "side-by-side", "image"
TICK = os.sysconf("SC_CLK_TCK")
RAMP_S = 1
# Until a cluster is what it is waited to be.
PATIENCE_S = 900


def bench_figures(command, out, keep):
    """Runs `nacre bench` with results in the file `out`, appends them to the file `keep` if there is one, and yields the
    figures of each repetition."""
    command = [*command, "--out", str(out)]
    if subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
        sys.exit(f"{' '.join(command)} failed")
    text = pathlib.Path(out).read_text()
    if keep:
        with open(keep, "a") as kept:
            kept.write(text)
    return [row for row in map(json.loads, text.splitlines()) if row["kind"] == "figures"]


def fio_figures(text, direction):
    """Of the first job in fio's JSON, which notices may stand before."""
    return json.loads(text[text.index("{"):])["jobs"][0][direction]


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def raw_write_us(places, seconds):
    """Mean latency of processes, one for each of the fio options `places`, that write 4 KiB durably, one after the other."""
    jobs = [word for number, place in enumerate(places) for word in (f"--name=raw{number}", place)]
    done = subprocess.run(
        ["fio", "--size=64M", "--bs=4k", "--rw=randwrite", "--direct=1", "--sync=dsync", "--ioengine=psync", "--fallocate=none",
         "--overwrite=1", "--time_based", f"--runtime={seconds}", "--group_reporting", "--output-format=json", *jobs],
        capture_output=True, text=True, timeout=60 + seconds)
    if done.returncode:
        sys.exit(f"fio on {', '.join(places)} failed:\n{done.stdout}{done.stderr}")
    return fio_figures(done.stdout, "write")["clat_ns"]["mean"] / 1e3


def in_flight(depth, ask, names):
    """Calls `ask(name, done)` for each name, which begins a request that calls `done` in the end, with at most `depth` under way; waits for
    all. Gives how many there were."""
    room, count = threading.Semaphore(depth), 0
    for name in names:
        room.acquire()
        ask(name, lambda *_: room.release())
        count += 1
    for _ in range(depth):
        room.acquire()
    return count


def in_turn(sides, number):
    """The order of a round. ABBA: no side always runs first."""
    return sides if number % 2 == 0 else sides[::-1]


def rss_bytes(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Side:
    """One cluster: how clients reach it, where its OSDs' pid files are, and an image of `size` in it."""

    def __init__(self, name, conf, keyring, scratch, size):
        self.name, self.size = name, size
        self.run_folder = pathlib.Path(conf).resolve().parent / "run"
        # librbd's cache would hide the cluster; the same for both sides.
        self.conf = f"{scratch}/{name}.conf"
        pathlib.Path(self.conf).write_text(pathlib.Path(conf).read_text() + "\n[client]\nrbd cache = false\n")
        self.env = dict(os.environ, CEPH_CONF=self.conf, CEPH_ARGS=f"--keyring {keyring}")

    def run(self, *command, timeout=300, env=None):
        """What the command prints; as a client of the cluster, unless `env` says otherwise."""
        done = subprocess.run(command, env=env or self.env, capture_output=True, text=True, timeout=timeout)
        if done.returncode:
            sys.exit(f"{self.name}: {' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def ask(self, *command):
        return json.loads(self.run("ceph", *command, "--format", "json"))

    def is_clean(self):
        """And no longer says what it said before a loss: something was degraded first."""
        groups = self.ask("status")["pgmap"]
        states = {state["state_name"] for state in groups["pgs_by_state"]}
        return states == {"active+clean"} and not groups.get("degraded_objects") and not groups.get("misplaced_objects")

    def wait_until(self, what, is_so):
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            if time.monotonic() > deadline:
                sys.exit(f"{self.name} is not {what} after {PATIENCE_S} s")
            time.sleep(0.25)

    def make_pool(self, pool):
        self.run("ceph", "osd", "pool", "create", pool, "32", "32")

    def prepare(self):
        self.make_pool(POOL)
        self.run("rbd", "pool", "init", POOL)
        self.add_image(IMAGE, self.size)

    def add_image(self, image, size):
        """Makes an image and writes all of it."""
        self.run("rbd", "create", f"{POOL}/{image}", "--size", size)
        self.fio(["--rw=write", "--bs=4M", "--iodepth=4", f"--rbdname={image}", f"--size={size}"], "write", 0)

    def tear_down(self):
        self.run("ceph", "config", "set", "mon", "mon_allow_pool_delete", "true")
        self.run("ceph", "osd", "pool", "rm", POOL, POOL, "--yes-i-really-really-mean-it")

    def fio_command(self, *args):
        return ["fio", "--name=j", "--ioengine=rbd", "--clientname=admin", f"--pool={POOL}", f"--rbdname={IMAGE}",
                "--output-format=json", f"--size={self.size}", *args]

    def fio(self, args, direction, seconds):
        timed = ["--time_based", f"--runtime={seconds}", f"--ramp_time={RAMP_S}"] if seconds else []
        text = self.run(*self.fio_command(*timed, *args), timeout=PATIENCE_S)
        return fio_figures(text, direction)

    def pid(self, osd):
        return int((self.run_folder / f"osd.{osd}.pid").read_text())

    def pids(self):
        return [int(path.read_text()) for path in self.run_folder.glob("osd.*.pid")]

    def monitor_pids(self):
        return [int(path.read_text()) for path in self.run_folder.glob("mon.*.pid")]

    def cpu(self):
        return sum(cpu_seconds(pid) for pid in self.pids())

    def rss(self):
        return max(rss_bytes(pid) for pid in self.pids())

    def cell(self, args, direction, seconds):
        before = self.cpu()
        result = self.fio(args, direction, seconds)
        used = self.cpu() - before
        # The ramp's I/O is not in fio's count, but its processor time is in ours: count it by rate.
        ios = result["total_ios"] + result["iops"] * RAMP_S
        clat = result["clat_ns"]
        return {
            "iops": result["iops"],
            "mean_us": clat["mean"] / 1e3,
            "p99_us": clat["percentile"]["99.000000"] / 1e3,
            "cpu_us_per_io": used / ios * 1e6,
        }

    def stop(self):
        """A cluster that ran before goes on."""


class Nacre(Side):
    def __init__(self, binary, folder, size, osds=3, arguments=(), name="nacre"):
        cluster = pathlib.Path(folder) / f"{name}.daemons"
        self.binary, self.folder, self.cluster = binary, pathlib.Path(folder), cluster
        self.process = subprocess.Popen(
            [binary, "up", "--processes", "--dir", str(cluster), "--osds", str(osds), *arguments],
            stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if line.startswith("ready"):
                break
        else:
            sys.exit("nacre did not become ready")
        super().__init__(name, cluster / "ceph.conf", cluster / "keyring", folder, size)
        # What each run makes it removes, or the next finds no room.
        self.run("ceph", "config", "set", "mon", "mon_allow_pool_delete", "true")

    def client(self):
        """A handle of librados, not yet connected."""
        import rados  # not every comparison needs it
        return rados.Rados(conffile=self.conf, rados_id="admin", conf={"keyring": str(self.cluster / "keyring")})

    def own_client(self, cells, name, *options, keep=None):
        """Figures of each repetition by our own client; `name` is the results' file in the folder."""
        command = [self.binary, "bench", "run", "--client", "own", "--conf", str(self.cluster / "ceph.conf"), "--keyring",
                   str(self.cluster / "keyring"), "--dir", str(self.folder), "--cells", ",".join(cells), *options]
        return bench_figures(command, self.folder / f"{name}.jsonl", keep)

    def stop(self):
        self.process.terminate()
        self.process.wait()


class LoopDevice:
    """A loop device that goes past the page cache. All of its file is written: nothing is allocated later."""

    def __init__(self, backing, size_bytes):
        with open(backing, "wb") as file:
            for _ in range(size_bytes >> 20):
                file.write(bytes(1 << 20))
            os.fsync(file.fileno())
        self.path = subprocess.run(["losetup", "--find", "--show", "--direct-io=on", str(backing)], check=True, capture_output=True,
                                   text=True).stdout.strip()

    def remove(self):
        subprocess.run(["losetup", "-d", self.path], check=True)


class OnDevices(Nacre):
    """A cluster whose OSDs 1 to `count` are on loop devices, one each; the CRUSH rule `raw` takes only these. Needs root."""

    RULE = "raw"

    def __init__(self, binary, folder, name, count, size_bytes, memory_bytes):
        super().__init__(binary, folder, "256M", osds=1, arguments=["--osd-size", "1G"], name=name)
        self.memory_bytes, self.devices, self.osds = memory_bytes, {}, {}
        for osd in range(1, count + 1):
            self.make_osd(osd, size_bytes)
        self.run("ceph", "osd", "crush", "rule", "create-replicated", self.RULE, "default", "osd", self.RULE)

    def make_osd(self, osd, size_bytes):
        self.devices[osd] = LoopDevice(self.folder / f"{self.name}.{osd}.device", size_bytes)
        key, name = self.run("ceph-authtool", "--gen-print-key").strip(), str(uuid.uuid4())
        secret = self.folder / "secret.json"
        secret.write_text(json.dumps({"cephx_secret": key}))
        self.run("ceph", "osd", "new", name, str(osd), "-i", str(secret))
        self.run(self.binary, "osd", "--dir", str(self.cluster), "--id", str(osd), "--mkfs", "--uuid", name, "--key", key, "--device",
                 self.devices[osd].path, "--force")
        self.start_osd(osd)
        self.run("ceph", "osd", "crush", "rm-device-class", f"osd.{osd}")
        self.run("ceph", "osd", "crush", "set-device-class", self.RULE, f"osd.{osd}")

    def start_osd(self, osd):
        command = [self.binary, "osd", "--dir", str(self.cluster), "--id", str(osd), "--listen", "127.0.0.1", "--osd-memory-target",
                   str(self.memory_bytes)]
        with open(self.folder / f"{self.name}.osd.log", "a") as log:
            self.osds[osd] = subprocess.Popen(command, stdout=log, stderr=log)
        self.wait_until("up", lambda: self.ask("osd", "stat")["num_up_osds"] == len(self.osds) + 1)

    def stop_osd(self, osd):
        process = self.osds.pop(osd)
        process.terminate()
        process.wait()

    def restart(self):
        """With nothing in memory, and all of it where it belongs."""
        for osd in list(self.osds):
            self.stop_osd(osd)
            self.start_osd(osd)
        self.wait_until("clean", self.is_clean)

    def make_pool(self, pool, copies=3):
        self.run("ceph", "osd", "pool", "create", pool, "32", "32", "replicated", self.RULE, "--size", str(copies), "--autoscale-mode", "off")
        self.wait_until("clean", self.is_clean)

    def pids(self):
        """Without that of osd.0, which has none of the data."""
        return [process.pid for process in self.osds.values()]

    def stop(self):
        for osd in list(self.osds):
            self.stop_osd(osd)
        super().stop()
        for device in self.devices.values():
            device.remove()

"""A real Ceph cluster on this machine, started for a comparison: Debian's packages, one process per daemon, BlueStore in files."""
import os
import pathlib
import signal
import subprocess
import sys
import uuid

from ports import free_port
from sides import Side

PACKAGES = ["ceph-mon", "ceph-mgr", "ceph-osd"]
# As Nacre is set up: cephx, frames with CRCs, a copy per OSD. What daemons log is left out, which favours Ceph.
CONF = """[global]
fsid = {fsid}
mon host = v2:{addr}
mon initial members = a
public addr = 127.0.0.1
keyring = {folder}/$name.keyring
mon data = {folder}/mon
mgr data = {folder}/mgr
osd data = {folder}/osd.$id
run dir = {folder}/run
admin socket = {folder}/run/$name.asok
log file = {folder}/log/$name.log
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
auth allow insecure global id reclaim = false
ms cluster mode = crc
ms service mode = crc
ms client mode = crc
osd crush chooseleaf type = 0
osd pool default size = 3
osd pool default pg autoscale mode = off
mon allow pool delete = true
bluestore block size = {osd_bytes}
osd memory target = {memory_bytes}
debug osd = 0/0
debug bluestore = 0/0
debug rocksdb = 0/0
debug bdev = 0/0
debug bluefs = 0/0
debug ms = 0/0
debug mon = 0/0
debug paxos = 0/0
"""
# The kernel calls virtual disks rotational, and Ceph then takes its settings for spindles: one queue shard, sleeps between recoveries.
# These are its settings for flash, whatever it detects.
FLASH = """bluestore debug enforce settings = ssd
osd op num shards = 8
osd op num threads per shard = 2
osd recovery sleep hdd = 0
osd recovery sleep hybrid = 0
osd snap trim sleep hdd = 0
osd snap trim sleep hybrid = 0
osd delete sleep hdd = 1
osd delete sleep hybrid = 1
"""
CAPS = {"osd": ["mon", "allow profile osd", "mgr", "allow profile osd", "osd", "allow *"],
        "mgr": ["mon", "allow profile mgr", "osd", "allow *"]}
OSD_BYTES = 8 << 30
# What Nacre's OSDs have, too.
MEMORY_BYTES = 1 << 30


def install():
    script = pathlib.Path(__file__).resolve().parent.parent / "test/packages"
    subprocess.run([script, *PACKAGES], check=True)


class Ceph(Side):
    """One monitor, one manager and `osds` OSDs in a folder below `scratch`, all up once it is made; `stop` ends them. With its settings for
    flash, or with those for what it detects."""

    def __init__(self, scratch, size, osds=3, name="ceph", flash=True, memory_bytes=MEMORY_BYTES):
        install()
        self.folder, self.daemons = pathlib.Path(scratch) / f"{name}.daemons", {}
        for part in "run", "log", "mgr":
            (self.folder / part).mkdir(parents=True)
        fsid, addr = str(uuid.uuid4()), f"127.0.0.1:{free_port()}"
        self.daemon_conf, keyring = self.folder / "ceph.conf", self.folder / "client.admin.keyring"
        conf = CONF.format(fsid=fsid, addr=addr, folder=self.folder, osd_bytes=OSD_BYTES, memory_bytes=memory_bytes)
        self.daemon_conf.write_text(conf + (FLASH if flash else ""))
        super().__init__(name, self.daemon_conf, keyring, scratch, size)
        # Without the client's arguments, which name the administrator's key.
        self.daemon_env = {name: value for name, value in os.environ.items() if not name.startswith("CEPH_")}
        try:
            self.start_monitor(fsid, addr, keyring)
            self.make_key("mgr.x")
            self.start("mgr.x")
            for osd in range(osds):
                self.start_osd(osd)
            self.wait_until("up", lambda: self.ask("osd", "stat")["num_up_osds"] == osds)
        except BaseException:
            self.stop()
            raise

    def prepare_daemon(self, *command):
        self.run(*command, env=self.daemon_env)

    def start_monitor(self, fsid, addr, keyring):
        key, monmap = self.folder / "mon.keyring", self.folder / "monmap"
        everything = [word for daemon in ("mon", "osd", "mgr") for word in ("--cap", daemon, "allow *")]
        make = ["ceph-authtool", "--create-keyring", "--gen-key"]
        self.prepare_daemon(*make, key, "--name", "mon.", "--cap", "mon", "allow *")
        self.prepare_daemon(*make, keyring, "--name", "client.admin", *everything)
        self.prepare_daemon("ceph-authtool", key, "--import-keyring", keyring)
        self.prepare_daemon("monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v2:{addr}]", monmap)
        self.prepare_daemon("ceph-mon", "--mkfs", "--id", "a", "--conf", self.daemon_conf, "--monmap", monmap, "--keyring", key)
        self.start("mon.a")

    def start_osd(self, osd):
        name, identity = f"osd.{osd}", str(uuid.uuid4())
        (self.folder / name).mkdir()
        self.run("ceph", "osd", "new", identity, str(osd))
        self.make_key(name)
        self.prepare_daemon("ceph-osd", "--mkfs", "--id", str(osd), "--osd-uuid", identity, "--conf", self.daemon_conf)
        self.start(name)

    def make_key(self, name):
        caps = CAPS[name.partition(".")[0]]
        self.run("ceph", "auth", "get-or-create", name, *caps, "--out-file", str(self.folder / f"{name}.keyring"))

    def start(self, name):
        kind, _, number = name.partition(".")
        with open(self.log(name), "w") as log:
            self.daemons[name] = subprocess.Popen([f"ceph-{kind}", "--foreground", "--id", number, "--conf", self.daemon_conf],
                                                  env=self.daemon_env, stdout=log, stderr=log)

    def log(self, name):
        return self.folder / "log" / f"{name}.out"

    def wait_until(self, what, is_so):
        def is_so_yet():
            for name, daemon in self.daemons.items():
                if daemon.poll() not in (None, -signal.SIGKILL):
                    sys.exit(f"{name} has ended:\n{self.log(name).read_text()}")
            return is_so()
        super().wait_until(what, is_so_yet)

    def pid(self, osd):
        return self.daemons[f"osd.{osd}"].pid

    def pids(self):
        return self.pids_of("osd.")

    def monitor_pids(self):
        return self.pids_of("mon.")

    def pids_of(self, kind):
        return [daemon.pid for name, daemon in self.daemons.items() if name.startswith(kind)]

    def tear_down(self):
        """It goes as a whole."""

    def stop(self):
        for daemon in reversed(self.daemons.values()):
            daemon.terminate()
        for daemon in self.daemons.values():
            daemon.wait()

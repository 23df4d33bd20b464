//! Stock ceph-mds and ceph-fuse under our monitor: a file system is made, mounted, written, snapshotted, loses its server and gets another.

use nacre_interop::{Cluster, Shell};

/// `mds_start NAME`, `mds_kill NAME`, `mds_wait TEXT`: until `ceph mds stat` has it.
pub(crate) const TOOLS: &str = r#"
mds_start() {
  ceph auth get-or-create mds.$1 mon 'profile mds' mgr 'profile mds' osd 'allow *' mds 'allow *' -o $PWD/mds.$1.keyring
  mkdir -p $PWD/mds.$1
  ceph-mds -c $CEPH_CONF -i $1 -f --keyring $PWD/mds.$1.keyring --mds-data $PWD/mds.$1 --log-file $PWD/mds.$1.log \
    --run-dir $PWD/mds.$1 --admin-socket $PWD/mds.$1.asok > $PWD/mds.$1.out 2>&1 &
  echo $! > $PWD/mds.$1.pid
}
mds_kill() { kill -9 $(cat $PWD/mds.$1.pid); }
mds_wait() {
  until_true 30 "ceph mds stat | grep -q '$1'" && return 0
  ceph mds stat; tail -5 $PWD/mds.*.log; return 1
}
"#;

fn sh(shell: &Shell, script: &str) -> String {
    shell.sh(&format!("{TOOLS}{script}"))
}

/// Ends what the test has started, however it ends.
pub(crate) struct Servers(pub(crate) Shell);

impl Drop for Servers {
    fn drop(&mut self) {
        self.0.run(
            "umount -l mnt || true; for file in mds.*.pid fuse.pid; do kill -9 $(cat $file) || true; done",
        );
    }
}

#[test]
fn a_file_system_is_served_and_a_standby_takes_over_when_its_server_dies() {
    let Some(cluster) = Cluster::start_processes(3) else { return };
    let shell = cluster.pool("p", 8).within(58);
    let _servers = Servers(shell.clone());
    sh(
        &shell,
        r#"
        mds_start a
        ceph osd pool create meta 8; ceph osd pool create data 8; ceph fs new f meta data
        mds_wait 'f:1 {0=a=up:active}'
        mds_start b; mds_wait '1 up:standby'
        ceph -s | grep -q 'mds: 1/1 daemons up, 1 standby'; ceph -s | grep -q 'volumes: 1/1 healthy'
        ceph health | grep -q HEALTH_OK || ceph health detail
        ceph mds metadata | jq -e 'length == 2 and all(.ceph_version | contains("16.2"))' > /dev/null
        ceph versions | jq -e '.mds | length == 1' > /dev/null
        ceph fs dump -f json | jq -e '.filesystems[0].mdsmap.info | length == 1' > /dev/null
        nok ceph osd pool rm meta meta --yes-i-really-really-mean-it"#,
    );
    // A client with caps of its own, by libcephfs: what it is not to see it cannot open.
    sh(
        &shell,
        "ceph fs authorize f client.c / rws -o $PWD/c.keyring; ceph auth get client.c | grep -q 'allow rws fsname=f'",
    );
    let took = shell.python(
        r#"
import cephfs, os, signal, time
fs = cephfs.LibCephFS(conffile=os.environ["CEPH_CONF"], auth_id="c", conf={"keyring": os.getcwd() + "/c.keyring"})
fs.mount(filesystem_name=b"f")
fs.mkdir("/d", 0o755)
def write(name, data, sync=True):
    fd = fs.open(name, "w", 0o644)
    fs.write(fd, data, 0)
    if sync: fs.fsync(fd, 0)
    fs.close(fd)
def read(name):
    fd = fs.open(name, "r"); data = fs.read(fd, 0, 1 << 24); fs.close(fd); return data
big = os.urandom(5 << 20)
write("/d/big", big)
write("/d/old", b"before")
fs.mkdir("/d/.snap/s", 0o755)
write("/d/old", b"after!")
assert read("/d/.snap/s/old") == b"before" and read("/d/old") == b"after!"
fs.rename("/d/old", "/d/new")
done = []
for n in range(50):
    write("/d/f%d" % n, b"%d" % n); done.append(n)
os.kill(int(open("mds.a.pid").read()), signal.SIGKILL)
start = time.monotonic()
write("/d/later", b"later")
took = time.monotonic() - start
for n in done: assert read("/d/f%d" % n) == b"%d" % n
assert read("/d/big") == big and read("/d/new") == b"after!" and read("/d/later") == b"later"
assert read("/d/.snap/s/old") == b"before"
fs.rmdir("/d/.snap/s")
fs.unmount(); fs.shutdown()
print(int(took * 1000))"#,
    );
    let took_ms: u64 = took.trim().parse().expect("milliseconds");
    assert!(took_ms < 15_000, "the standby takes over after {took_ms} ms, Ceph's after more than 15 s");
    sh(
        &shell,
        r#"
        mds_wait 'f:1 {0=b=up:active}'; ceph osd blocklist ls 2>/dev/null | grep -q :
        # It comes back, and two ranks serve.
        mds_start a; mds_wait '1 up:standby'
        ceph fs set f max_mds 2; mds_wait 'f:2 .*up:active.*up:active'
        ceph fs set f max_mds 1; mds_wait 'f:1 {0=b=up:active} 1 up:standby'
        ceph fs fail f; ceph fs rm f --yes-i-really-mean-it; ceph fs ls | grep -q 'No filesystems'"#,
    );
}

/// With three monitors: the leader is killed while files are written. Nobody takes the server of metadata for dead: its rank is what it was,
/// writes go on, and a standby takes over under the new leader as before.
#[test]
fn a_file_system_outlives_the_leading_monitor() {
    let Some(cluster) = Cluster::start_quorum(3) else { return };
    let shell = cluster.pool("p", 8).within(120);
    let _servers = Servers(shell.clone());
    sh(
        &shell,
        r#"
        mds_start a
        ceph osd pool create meta 8; ceph osd pool create data 8; ceph fs new f meta data
        mds_wait 'f:1 {0=a=up:active}'
        mds_start b; mds_wait '1 up:standby'
        ceph fs dump -f json | jq '.filesystems[0].mdsmap.info[].gid' > gid
        ceph fs authorize f client.c / rws -o $PWD/c.keyring"#,
    );
    let worst_ms: u64 = shell
        .python(
            r#"
import cephfs, json, os, signal, subprocess, time
fs = cephfs.LibCephFS(conffile=os.environ["CEPH_CONF"], auth_id="c", conf={"keyring": os.getcwd() + "/c.keyring"})
fs.mount(filesystem_name=b"f")
def write(n):
    fd = fs.open("/f%d" % n, "w", 0o644); fs.write(fd, b"%d" % n, 0); fs.fsync(fd, 0); fs.close(fd)
def leader(): return json.loads(subprocess.check_output(["ceph", "quorum_status", "-f", "json"]))["quorum_leader_name"]
def pid_file(mon): return os.environ["DIR"] + "/run/" + ("mon" if mon == "a" else "mon." + mon) + ".pid"
worst, n = 0, 0
# Longer than the grace of a beacon (15 s), beside a monitor that is gone.
killed = False
while not killed or time.monotonic() < end:
    if n == 20 and not killed:
        os.kill(int(open(pid_file(leader())).read()), signal.SIGKILL); killed = True; end = time.monotonic() + 20
    began = time.monotonic(); write(n); n += 1
    worst = max(worst, time.monotonic() - began); time.sleep(0.02)
for m in range(n):
    fd = fs.open("/f%d" % m, "r"); assert fs.read(fd, 0, 10) == b"%d" % m; fs.close(fd)
fs.unmount(); fs.shutdown()
assert killed
print(int(worst * 1000))"#,
        )
        .trim()
        .parse()
        .expect("milliseconds");
    assert!(worst_ms < 15_000, "a write waited for {worst_ms} ms, as if the server had been taken for dead");
    sh(
        &shell,
        r#"
        ceph quorum_status -f json | jq -e '.quorum_names | length == 2'
        # The same server, which nobody has replaced or shut out meanwhile.
        mds_wait 'f:1 {0=a=up:active} 1 up:standby'
        [ "$(ceph fs dump -f json | jq '.filesystems[0].mdsmap.info[].gid')" = $(cat gid) ]
        mds_kill a; mds_wait 'f:1 {0=b=up:active}'"#,
    );
}

//! Erasure-coded pools with `allow_ec_overwrites` under stock programs: images' and files' data in chunks, changed in part.

use crate::file_systems;
use nacre_interop::{Cluster, Shell};

/// Hands for OSDs that are killed; `sum` and `same` of images.
const HANDS: &str = concat!(
    include_str!("kills.sh"),
    r#"
sum() { rbd --no-progress export "$1" - | sha256sum; }
same() { [ "$(sum "$1")" = "$(sum "$2")" ] || { echo "$1 and $2 differ" >&2; exit 1; }; }
fio() { command fio --name=t --ioengine=rbd --clientname=admin --pool=rbd --rbdname=a --verify=crc32c --verify_fatal=1 "$@"; }
scrubbed() {
  for pg in $(ceph pg ls-by-pool ec -f json | jq -r .pg_stats[].pgid); do ceph pg deep-scrub $pg; done
  sleep 3; wait clean; nok grep -q inconsistent <(ceph health detail)
}
"#
);

/// A pool `ec` of two data and `m` parity shards whose objects may be changed in part.
fn chunks(m: u8) -> String {
    format!(
        r#"
        ceph osd erasure-code-profile set prof k=2 m={m} crush-failure-domain=osd
        ceph osd pool create ec 8 8 erasure prof
        nok ceph osd pool set ec allow_ec_overwrites false
        ceph osd pool set ec allow_ec_overwrites true; ceph osd pool get ec allow_ec_overwrites | grep -q true
        ceph osd pool ls detail | grep "'ec'.* flags [a-z,]*ec_overwrites" > /dev/null"#
    )
}

/// A pool `rbd` of images whose data is in a pool `ec`.
fn images(cluster: &Cluster, m: u8) -> Shell {
    let shell = cluster.shell().within(280);
    let pools =
        "ceph osd pool create rbd 8; ceph osd pool application enable ec rbd; wait clean; rbd pool init rbd";
    shell.sh(&format!("{HANDS}{}\n{pools}", chunks(m)));
    shell
}

#[test]
fn objects_are_changed_in_part() {
    let Some(cluster) = Cluster::start_processes(3) else { return };
    let shell = cluster.shell().within(120);
    shell.sh(&format!("{HANDS}{}\nceph osd pool application enable ec rados; wait clean", chunks(1)));
    shell.python(
        r#"
import os, rados, random
cluster = rados.Rados(conffile=os.environ["CEPH_CONF"]); cluster.connect()
io = cluster.open_ioctx("ec")
random.seed(5)
for name in ("a", "b", "c"):
    have = bytearray()
    kept = None
    for n in range(120):
        at, data = random.randrange(60000), os.urandom(random.randrange(1, 30000))
        kind = random.randrange(8)
        if kind == 0:
            io.trunc(name, at) if n else io.write_full(name, b"")
            if n: have[at:] = b""; have += bytes(at - len(have))
            else: have = bytearray()
        elif kind == 1:
            io.append(name, data); have += data
        elif kind == 2:
            with rados.WriteOpCtx() as op:
                op.zero(len(data), at)  # Pacific's binding takes the length first, whatever its documentation says
                io.operate_write_op(op, name)
            end = min(at + len(data), len(have))
            if at + len(data) >= len(have): del have[at:]
            elif at < len(have): have[at:end] = bytes(end - at)
        elif kind == 3:
            with rados.WriteOpCtx() as op:
                op.writesame(b"0123456789", 40000, at); io.operate_write_op(op, name)
            have += bytes(max(0, at + 40000 - len(have))); have[at:at + 40000] = b"0123456789" * 4000
        else:
            io.write(name, data, at)
            have += bytes(max(0, at + len(data) - len(have))); have[at:at + len(data)] = data
        if n == 60:
            io.create_snap("s" + name); kept = bytes(have)
        assert io.read(name, 1 << 20) == bytes(have), (name, n, kind, at, len(data))
    io.set_read(io.lookup_snap("s" + name).snap_id); assert io.read(name, 1 << 20) == kept; io.set_read(rados.LIBRADOS_SNAP_HEAD)
    io.snap_rollback(name, "s" + name); assert io.read(name, 1 << 20) == kept
    io.remove_snap("s" + name)
try:
    with rados.WriteOpCtx() as op:
        io.set_omap(op, ("k",), (b"v",)); io.operate_write_op(op, "a")
    raise SystemExit("an omap was taken")
except rados.Error as error: assert error.errno == 95, error
io.close(); cluster.shutdown()"#,
    );
    shell.sh(&format!("{HANDS}scrubbed"));
}

#[test]
fn images_with_their_data_in_chunks_live_a_whole_life() {
    let Some(cluster) = Cluster::start_processes(3) else { return };
    let shell = images(&cluster, 1);
    shell.sh(&format!(
        "{HANDS}{}",
        r#"
        head -c 24M /dev/urandom > data; rbd import --no-progress --data-pool ec data rbd/a
        rbd info rbd/a | grep -q 'data_pool: ec'; rados -p ec ls | grep rbd_data > /dev/null; nok grep -q rbd_data <(rados -p rbd ls)
        rbd export --no-progress rbd/a out; cmp data out
        bench() { rbd bench --io-type write --io-size $1 --io-total $2 --io-pattern rand $3 > /dev/null; }
        rbd snap create --no-progress rbd/a@one; bench 4K 2M rbd/a; bench 100K 4M rbd/a
        rm out; rbd export --no-progress rbd/a@one out; cmp data out
        rbd snap create --no-progress rbd/a@two; rm -f diff; rbd export-diff --no-progress --from-snap one rbd/a@two diff
        rbd import --no-progress --data-pool ec data rbd/copy; rbd snap create --no-progress rbd/copy@one
        rbd import-diff --no-progress diff rbd/copy; same rbd/copy rbd/a@two
        rbd snap protect rbd/a@one; rbd clone --data-pool ec rbd/a@one rbd/c; same rbd/c rbd/a@one
        bench 4K 1M rbd/c; before=$(sum rbd/c); rbd flatten --no-progress rbd/c; [ "$(sum rbd/c)" = "$before" ]
        rbd snap unprotect rbd/a@one
        rbd snap rollback --no-progress rbd/a@one; same rbd/a rbd/a@one
        rbd resize --no-progress --allow-shrink --size 5M rbd/a; rbd resize --no-progress --size 24M rbd/a
        head -c 5M data > short; truncate -s 24M short; rm out; rbd export --no-progress rbd/a out; cmp short out
        rbd snap purge --no-progress rbd/a; rbd snap purge --no-progress rbd/copy
        scrubbed
        fio --rw=randrw --size=24M --io_size=12M --bsrange=512-128k --bs_unaligned=1 --iodepth=8 --do_verify=1 > said || { cat said; exit 1; }
        scrubbed
        for image in a copy c; do rbd rm --no-progress rbd/$image; done
        gone() { [ -z "$(rados -p ec ls | grep rbd_data)" ]; }; wait gone"#
    ));
}

/// What a client was told is there, whichever OSD is killed under it; and all chunks belong together in the end.
#[test]
fn images_outlive_osds_that_are_killed_under_load() {
    let Some(cluster) = Cluster::start_processes(3) else { return };
    let shell = images(&cluster, 1);
    shell.sh(&format!(
        "{HANDS}{}",
        r#"
        rbd create --data-pool ec --size 16M rbd/a
        fio --rw=write --bs=64k --iodepth=4 --size=16M --do_verify=0 > said.0
        (until [ -e enough ]; do fio --rw=randwrite --bs=4k --iodepth=8 --size=16M --time_based --runtime=10 --do_verify=0 >> said.1 2>&1 || exit 1; done) & load=$!
        for osd in 0 1 2; do
            sleep 2; command="$(line $osd)"; kill9 $osd; wait up 2; sleep 3; start "$command"; wait up 3; wait clean
        done
        kill -0 $load; touch enough; status=0; builtin wait $load || status=$?; [ $status = 0 ] || { cat said.1; exit 1; }
        for osd in 0 1 2; do
            fio --rw=read --bs=4k --iodepth=8 --size=16M --do_verify=1 > said.2 2>&1 || { cat said.2; exit 1; }
            command="$(line $osd)"; kill9 $osd; wait up 2
            fio --rw=read --bs=4k --iodepth=8 --size=16M --do_verify=1 > said.2 2>&1 || { cat said.2; exit 1; }
            start "$command"; wait up 3; wait clean
        done
        scrubbed"#
    ));
}

/// It is no primary of what is read. Without `fast_read` those that it has a chunk of would wait until it is marked down.
#[test]
fn fast_reads_do_not_wait_for_a_frozen_osd() {
    let Some(cluster) = Cluster::start_processes(4) else { return };
    let shell = cluster.shell().within(120);
    shell.sh(&format!(
        "{HANDS}{}\n{}",
        chunks(2),
        r#"
        ceph osd pool application enable ec rados; ceph osd pool set ec fast_read 1; ceph osd pool get ec fast_read | grep -q 1
        ceph osd pool ls detail | grep "'ec'.* fast_read 1" > /dev/null
        wait clean; head -c 300000 /dev/urandom > in; for n in $(seq 24); do rados -p ec put o$n in; done
        others() { for n in $(seq 24); do [ $(ceph osd map ec o$n -f json | jq .acting_primary) = 3 ] || echo o$n; done; }
        read="$(others | sed -n 1,8p)"; [ $(wc -w <<< "$read") = 8 ]
        # It counts as there for longer than this takes: nobody else may serve in its place, and those that serve ask it.
        ceph config set global osd_heartbeat_grace 300
        for id in 0 1 2 3; do until_true 30 "ceph tell osd.$id config get osd_heartbeat_grace | grep -q 300"; done
        trap 'kill -CONT $(cat $DIR/run/osd.3.pid)' EXIT; kill -STOP $(cat $DIR/run/osd.3.pid)
        readers=; for object in $read; do timeout 60 rados -p ec get $object out.$object & readers="$readers $!"; done
        for reader in $readers; do builtin wait $reader; done; for object in $read; do cmp in out.$object; done
        up 4"#
    ));
}

#[test]
fn files_have_their_data_in_chunks() {
    let Some(cluster) = Cluster::start_processes(3) else { return };
    let shell = cluster.shell().within(120);
    let _servers = file_systems::Servers(shell.clone());
    shell.sh(&format!(
        "{}{HANDS}{}\n{}",
        file_systems::TOOLS,
        chunks(1),
        r#"
        mds_start a
        ceph osd pool create meta 8; ceph osd pool create data 8; ceph fs new f meta data; ceph fs add_data_pool f ec
        mds_wait 'f:1 {0=a=up:active}'"#
    ));
    shell.python(
        r#"
import cephfs, os, random
fs = cephfs.LibCephFS(conffile=os.environ["CEPH_CONF"]); fs.mount(filesystem_name=b"f")
fs.mkdir("/d", 0o755); fs.setxattr("/d", "ceph.dir.layout.pool", b"ec", 0)
random.seed(3)
have = bytearray(os.urandom(6 << 20))
fd = fs.open("/d/file", "w+", 0o644); fs.write(fd, bytes(have), 0); fs.fsync(fd, 0)
for n in range(60):
    at, data = random.randrange(7 << 20), os.urandom(random.randrange(1, 200000))
    if n % 10 == 9:
        fs.ftruncate(fd, at); del have[at:]; have += bytes(at - len(have))
    else:
        fs.write(fd, data, at)
        have += bytes(max(0, at + len(data) - len(have))); have[at:at + len(data)] = data
    if n == 30: fs.fsync(fd, 0); fs.mkdir("/d/.snap/s", 0o755); kept = bytes(have)
    if n % 7 == 0: fs.fsync(fd, 0)
fs.fsync(fd, 0); fs.close(fd); fs.unmount(); fs.shutdown()
# Somebody who has nothing in memory.
fs = cephfs.LibCephFS(conffile=os.environ["CEPH_CONF"]); fs.mount(filesystem_name=b"f")
def read(name):
    fd = fs.open(name, "r"); data = fs.read(fd, 0, 16 << 20); fs.close(fd); return data
assert read("/d/file") == bytes(have) and read("/d/.snap/s/file") == kept
fs.rmdir("/d/.snap/s"); fs.unmount(); fs.shutdown()"#,
    );
    shell.sh(&format!("{HANDS}[ -n \"$(rados -p ec ls)\" ]; [ $(rados -p ec ls | wc -l) -ge 2 ]; scrubbed"));
}

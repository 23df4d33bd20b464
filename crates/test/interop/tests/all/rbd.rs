//! Images: the `rbd` program, fio's rbd engine and `qemu-img`.

use nacre_interop::{Cluster, Shell};

/// Prints the checksum of an image's or a snapshot's content.
const CHECKSUM: &str = r#"sum() { rbd --no-progress export "$1" - | sha256sum; }
same() { [ "$(sum "$1")" = "$(sum "$2")" ] || { echo "$1 and $2 differ" >&2; exit 1; }; }
exported() { rm -f out; rbd export --no-progress "$1" out; cmp data out; }
differ() { [ "$(sum "$1")" != "$(sum "$2")" ] || { echo "$1 and $2 are the same" >&2; exit 1; }; }
"#;

fn images(cluster: &Cluster) -> Shell {
    let shell = cluster.pool("images", 16).within(120);
    shell.sh("rbd pool init $POOL");
    shell
}

fn steps(shell: &Shell, script: &str) {
    shell.sh(&format!("{CHECKSUM}{script}"));
}

#[test]
fn images_live_a_whole_life() {
    let cluster = Cluster::start(3);
    let shell = images(&cluster);
    steps(
        &shell,
        "rbd create $POOL/a --size 64M
        rbd ls $POOL | grep -qx a
        rbd info $POOL/a | grep -q 'exclusive-lock'
        rbd resize $POOL/a --size 128M --no-progress; rbd info $POOL/a | grep -q '128 MiB'
        rbd resize $POOL/a --size 32M --allow-shrink --no-progress; rbd info $POOL/a | grep -q '32 MiB'
        rbd rename $POOL/a $POOL/b; rbd ls $POOL | grep -qx b
        rbd image-meta set $POOL/b key value; [ $(rbd image-meta get $POOL/b key) = value ]
        rbd feature disable $POOL/b fast-diff object-map; rbd feature enable $POOL/b object-map fast-diff
        rbd object-map rebuild $POOL/b --no-progress; rbd object-map check $POOL/b --no-progress
        rbd create $POOL/plain --size 8M --image-feature layering; rbd create $POOL/small --size 8M --object-size 64K
        rbd rm $POOL/plain --no-progress; rbd rm $POOL/small --no-progress; rbd rm $POOL/b --no-progress
        [ -z \"$(rbd ls $POOL)\" ]
        nok rbd info $POOL/b",
    );
    let info = shell.run("rbd info $POOL/b");
    info.expect_code(2).expect_text("No such file");
    // Nothing is left but the pool's own objects.
    let left =
        shell.sh("rados -p $POOL ls --all | grep -v -e rbd_info -e rbd_directory -e rbd_trash || true");
    assert_eq!(left, "");
}

#[test]
fn snapshots_and_clones_keep_what_they_saw() {
    let cluster = Cluster::start(3);
    let shell = images(&cluster);
    shell.sh("head -c 9000000 /dev/urandom > data; truncate -s 16M data");
    steps(
        &shell,
        "rbd import --no-progress data $POOL/a
        exported $POOL/a
        rbd snap create --no-progress $POOL/a@one; rbd bench --io-type write --io-size 4K --io-total 1M --io-pattern rand $POOL/a >/dev/null
        exported $POOL/a@one; differ $POOL/a $POOL/a@one
        rbd snap create --no-progress $POOL/a@two; rbd snap ls $POOL/a | grep -q two
        rm -f diff; rbd export-diff --no-progress --from-snap one $POOL/a@two diff
        rbd import --no-progress data $POOL/copy; rbd snap create --no-progress $POOL/copy@one
        rbd import-diff --no-progress diff $POOL/copy; same $POOL/copy $POOL/a@two
        rbd diff --from-snap one $POOL/a | grep -q data
        rbd snap protect $POOL/a@one; nok rbd snap rm --no-progress $POOL/a@one
        rbd clone $POOL/a@one $POOL/c; same $POOL/c $POOL/a@one
        rbd children $POOL/a@one | grep -q c; rbd info $POOL/c | grep -q 'parent: '
        rbd bench --io-type write --io-size 4K --io-total 1M --io-pattern rand $POOL/c >/dev/null; differ $POOL/c $POOL/a@one
        before=$(sum $POOL/c); rbd flatten --no-progress $POOL/c; [ \"$(sum $POOL/c)\" = \"$before\" ]
        nok grep 'parent: ' <(rbd info $POOL/c)
        rbd snap unprotect $POOL/a@one
        rbd snap rollback --no-progress $POOL/a@one; same $POOL/a $POOL/a@one
        exported $POOL/a
        rbd snap purge --no-progress $POOL/a; [ -z \"$(rbd snap ls $POOL/a)\" ]
        exported $POOL/a
        rbd cp --no-progress $POOL/c $POOL/d; same $POOL/c $POOL/d; rbd deep cp --no-progress $POOL/copy $POOL/e; same $POOL/copy@one $POOL/e@one",
    );
}

#[test]
fn benchmarks_run_and_locks_pass_from_hand_to_hand() {
    let cluster = Cluster::start(3);
    let shell = images(&cluster);
    shell.sh("rbd create $POOL/a --size 64M");
    for (kind, size) in [("write", "4K"), ("write", "4M"), ("read", "4K"), ("rw", "64K")] {
        let script =
            format!("rbd bench --io-type {kind} --io-size {size} --io-total 16M --io-pattern rand $POOL/a");
        shell.run(&script).expect_code(0).expect_text("elapsed");
    }
    // Two clients on one image: the lock goes to and fro.
    shell.sh("
        one() { rbd bench --io-type write --io-size 4K --io-threads 1 --io-total 256K $POOL/a; }
        one >/dev/null & first=$!
        one >/dev/null & second=$!
        wait $first; wait $second");
    // A client that dies with the lock: the next one breaks it.
    shell.sh("
        rbd bench --io-type write --io-size 4K --io-total 1G $POOL/a >/dev/null 2>&1 & victim=$!
        for _ in $(seq 100); do rbd lock ls $POOL/a 2>/dev/null | grep -q client && break; sleep 0.1; done
        kill -KILL $victim; wait $victim || true
        rbd bench --io-type write --io-size 4K --io-total 64K $POOL/a >/dev/null
        nok grep client <(rbd lock ls $POOL/a)");
}

/// Writes blocks of the byte `$1` all over the image, until one fails; says each that was acknowledged.
const SCRIBBLER: &str = "
import os, rados, rbd, sys
cluster = rados.Rados(conffile=''); cluster.connect()
with cluster.open_ioctx(os.environ['POOL']) as io, rbd.Image(io, 'a') as image:
    size, block, n = image.size(), 65536, 0
    while True:
        image.write(sys.argv[1].encode() * block, n * block % size); n += 1
        print(n, flush=True)
";

#[test]
fn who_lost_the_lock_writes_no_more() {
    let cluster = Cluster::start(3);
    let shell = images(&cluster).with("SCRIBBLER", SCRIBBLER);
    // The owner of the lock is frozen for so long that its watch ends; the next one takes the lock from it and has it
    // blocklisted. When it goes on, its writes are refused and harm nothing.
    shell.sh("rbd create $POOL/a --size 8M
        py() { /usr/bin/python3 -c \"$SCRIBBLER\" $1 >said.$1 2>err.$1; }
        py X & victim=$!
        until_true 30 '[ -s said.X ]'
        frozen=$(pgrep -P $victim || echo $victim); kill -STOP $frozen
        said=$(wc -l <said.X)
        py Y & heir=$!
        until_true 60 '[ $(wc -l <said.Y) -gt 256 ]'
        kill -STOP $(pgrep -P $heir || echo $heir)
        kill -CONT $frozen; ok=0; wait $victim || ok=$?; [ $ok != 0 ]
        grep -qi 'shut' err.X || { cat err.X >&2; exit 1; }
        [ $(wc -l <said.X) -le $((said + 1)) ]
        ceph osd blocklist ls 2>/dev/null | grep -q .
        kill -KILL $(pgrep -P $heir || echo $heir); wait $heir || true
        rbd export --no-progress $POOL/a out; [ \"$(tr -d Y <out | wc -c)\" = 0 ]");
}

#[test]
fn the_heir_of_a_killed_owner_finds_what_was_acknowledged() {
    let cluster = Cluster::start(3);
    let shell = images(&cluster);
    let job = "fio --name=t --ioengine=rbd --clientname=admin --pool=$POOL --rbdname=a --bs=4k --iodepth=8 --size=16M";
    shell.sh(&format!(
        "rbd create $POOL/a --size 16M
        {job} --rw=write --verify=crc32c --do_verify=0 --loops=1 >out.0
        {job} --rw=randwrite --verify=crc32c --do_verify=0 --time_based --runtime=300 >out.1 2>&1 & victim=$!
        for _ in $(seq 100); do rbd lock ls $POOL/a 2>/dev/null | grep -q client && break; sleep 0.1; done; sleep 2
        {job} --rw=randwrite --verify=crc32c --do_verify=0 --io_size=48M >out.2 2>&1 & heir=$!
        sleep 3; kill -KILL $victim; wait $victim || true
        wait $heir || {{ cat out.2 >&2; exit 1; }}
        {job} --rw=read --verify=crc32c --do_verify=1 >out.3 2>err.3 || {{ cat err.3 out.3 out.2 >&2; exit 1; }}
        grep -q 'err= 0' out.3"
    ));
}

fn fio(shell: &Shell, image: &str, arguments: &str) {
    let script = format!(
        "rbd create $POOL/{image} --size 32M
        fio --name=t --ioengine=rbd --clientname=admin --pool=$POOL --rbdname={image} --group_reporting \
            --rw=randrw --verify=crc32c --verify_fatal=1 --do_verify=1 --output-format=json {arguments} > fio.{image} 2> err.{image} \
            || {{ cat err.{image} fio.{image} >&2; exit 1; }}
        [ $(sed -n '/^{{/,$p' fio.{image} | jq '[.jobs[].error] | add') = 0 ]"
    );
    shell.sh(&script);
}

#[test]
fn fio_verifies_every_block_size() {
    let cluster = Cluster::start(3);
    let shell = images(&cluster);
    for (image, size, total) in
        [("b512", "512", "1M"), ("b4k", "4k", "8M"), ("b64k", "64k", "16M"), ("b1m", "1m", "32M")]
    {
        fio(&shell, image, &format!("--bs={size} --iodepth=16 --size=32M --io_size={total}"));
    }
    fio(&shell, "mixed", "--bsrange=512-1m --bs_unaligned=1 --iodepth=8 --size=32M --io_size=24M");
}

#[test]
fn qemu_img_converts_to_an_image_and_back() {
    let cluster = Cluster::start(3);
    let shell = images(&cluster).with("IMAGE", "rbd:$POOL/$1:conf=$CEPH_CONF");
    steps(
        &shell,
        "url() { echo \"rbd:$POOL/$1:conf=$CEPH_CONF\"; }
        { head -c 5000000 /dev/urandom; head -c 3000000 /dev/zero; head -c 2000000 /dev/urandom; } > data; truncate -s 24M data
        qemu-img convert -f raw -O raw data $(url a)
        qemu-img info $(url a) | grep -q '24 MiB'
        qemu-img compare -f raw -F raw data $(url a)
        qemu-img convert -f raw -O raw $(url a) out; cmp data out
        qemu-img convert -f raw -O qcow2 $(url a) out.qcow2; qemu-img convert -f qcow2 -O raw out.qcow2 $(url b)
        same $POOL/a $POOL/b
        qemu-io -f raw -c 'write -P 0x5a 1M 64k' -c 'read -P 0x5a 1M 64k' -c 'discard 2M 4M' -c 'write -z 8M 1M' -c flush $(url b)
        differ $POOL/a $POOL/b",
    );
}

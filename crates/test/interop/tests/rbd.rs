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

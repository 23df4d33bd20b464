//! OSDs on raw devices: loop devices over sparse files, made, filled, killed, started again, confused with each other, given up.

use nacre_interop::{Cluster, Scratch, Shell};
use std::path::PathBuf;
use std::process::Command;

/// Loop devices of a test, and a place where one may be mounted; all of it goes with this, whatever became of the test.
pub(crate) struct Loops {
    folder: Scratch,
    devices: Vec<String>,
}

impl Loops {
    /// # Errors
    /// Why this machine, or this user, has no loop devices.
    pub(crate) fn new() -> Result<Self, String> {
        let mut loops = Self { folder: Scratch::new(), devices: Vec::new() };
        loops.attach("probe", 1, 512).map_err(|why| format!("no loop devices here: {why}"))?;
        Ok(loops)
    }

    /// A device of so many MiB and half a block, with this logical block size.
    pub(crate) fn attach(&mut self, name: &str, mib: u64, block_bytes: u64) -> Result<String, String> {
        let path = self.folder.path().join(name);
        let file = std::fs::File::create(&path).map_err(|error| error.to_string())?;
        let rest = if block_bytes == 512 { 2048 } else { 0 };
        file.set_len((mib << 20) + rest).map_err(|error| error.to_string())?;
        let output = Command::new("losetup")
            .args(["--find", "--show", "--sector-size", &block_bytes.to_string()])
            .arg(&path)
            .output();
        let output = output.map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        let device = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        self.devices.push(device.clone());
        Ok(device)
    }

    fn mount_point(&self) -> PathBuf {
        self.folder.path().join("mnt")
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        // What is not there any more need not go.
        let _outcome = Command::new("umount").arg(self.mount_point()).output();
        for device in &self.devices {
            let _outcome = Command::new("losetup").args(["-d", device]).output();
        }
    }
}

/// OSDs 1 and 2, which a test has started beside its cluster's, by the folder of their process ids: they end with this.
pub(crate) struct Started(pub(crate) PathBuf);

impl Drop for Started {
    fn drop(&mut self) {
        for id in [1, 2] {
            let pid = std::fs::read_to_string(self.0.join(format!("osd.{id}.pid"))).unwrap_or_default();
            if let Ok(pid) = pid.trim().parse::<u32>() {
                let _gone = Command::new("kill").args(["-9", &pid.to_string()]).output();
            }
        }
    }
}

/// Begins each script: an OSD of a number is made with an order of the cluster, started, and looked for.
pub(crate) const HANDS: &str = concat!(
    include_str!("osds.sh"),
    r#"
    make() {
        id=$1; shift; uuid=$(uuidgen); key=$(ceph-authtool --gen-print-key)
        [ $(echo "{\"cephx_secret\": \"$key\"}" | ceph osd new $uuid $id -i -) = $id ]
        $NACRE osd --dir $DIR --id $id --mkfs --uuid $uuid --key $key "$@"
    }
    mkfs() { $NACRE osd --dir $DIR --id 9 --mkfs "$@"; }
    refused() { if "$@" > out 2>&1; then echo "should have failed: $*" >&2; exit 1; fi; }
    said() { grep -qF "$1" out || { cat out; return 1; }; }
"#
);

fn sh(shell: &Shell, script: &str) -> String {
    shell.within(60).sh(&[HANDS, script].concat())
}

/// What the parts of the test share; things end in this order.
struct Raw {
    shell: Shell,
    _started: Started,
    _cluster: Cluster,
    _loops: Loops,
}

/// A cluster with one OSD on a file, osd.1 on three devices, and osd.2 on one with sectors of 4 KiB; the last device is free.
fn raw() -> Result<Raw, String> {
    let mut loops = Loops::new()?;
    let cluster = Cluster::start_processes(1).ok_or("the cluster is not ours")?;
    let mut attach =
        |name: &str, mib, block_bytes| loops.attach(name, mib, block_bytes).expect("a loop device");
    let (data, log, meta) = (attach("data", 2048, 512), attach("log", 200, 512), attach("meta", 512, 512));
    let (alone, other) = (attach("alone", 1536, 4096), attach("other", 1024, 512));
    let (log_too, meta_too) = (attach("log-too", 300, 512), attach("meta-too", 1024, 4096));
    let backing = loops.folder.path().join("alone");
    let shell = cluster.shell().with("D", &data).with("L", &log).with("M", &meta).with("ALONE", &alone);
    let started = Started(shell.folder().join("cluster/run"));
    let shell = shell.with("OTHER", &other).with("MNT", loops.mount_point().display());
    let shell = shell.with("BACKING", backing.display()).with("L2", &log_too).with("M2", &meta_too);

    make_osds(&shell);
    Ok(Raw { shell, _started: started, _cluster: cluster, _loops: loops })
}

fn make_osds(shell: &Shell) {
    sh(
        shell,
        r#"
        refused make 1 --device $D --wal-device $D; said "is given twice"; ceph osd purge-new 1 --yes-i-really-mean-it
        make 1 --device $D --wal-device $L --meta-device $M
        make 2 --device $ALONE
        [ -L $DIR/osd.1/block ] && [ -L $DIR/osd.1/log ] && [ -L $DIR/osd.1/meta ] && [ ! -e $DIR/osd.1/meta.redb ]
        [ -L $DIR/osd.2/block ] && [ ! -e $DIR/osd.2/meta ] && [ ! -e $DIR/osd.2/meta.redb ]
        refused mkfs --device $M; said "is the metadata device of osd.1"
        start 1; start 2; up 3
        ceph osd metadata 1 -f json | jq -e --arg node $D --arg log $L --arg meta $M --arg bytes $((2048 << 20)) '
            .nacre_bdev_access_mode == "blk" and .nacre_bdev_size == $bytes and .nacre_bdev_dev_node == $node
            and .nacre_log_dev_node == $log and .nacre_meta_dev_node == $meta and .nacre_meta_apart == "1"
            and (.devices | split(",") | length) == 3 and ("/dev/" + (.devices | split(",")[0]) | startswith("/dev/loop"))
            and "/dev/" + .nacre_bdev_devices == $node and "/dev/" + .nacre_log_devices == $log and "/dev/" + .nacre_meta_devices == $meta
            and ([.nacre_bdev_rotational, .nacre_log_rotational, .nacre_meta_rotational] | all(. == "0" or . == "1"))
            and ([.nacre_bdev_volatile_cache, .nacre_log_volatile_cache, .nacre_meta_volatile_cache] | all(. == "0" or . == "1"))
            and ([.nacre_bdev_flush, .nacre_log_flush] | all(. == "cheap" or . == "expensive"))
            and ([.nacre_bdev_durable_write_us, .nacre_log_durable_write_us] | all(tonumber >= 0)) and (has("nacre_meta_flush") | not)'
        ceph osd metadata 2 -f json | jq -e --arg node $ALONE '
            .nacre_bdev_dev_node == $node and .nacre_meta_apart == "0" and (.nacre_meta_size | tonumber) > 190000000
            and "/dev/" + .nacre_meta_devices == $node and has("nacre_bdev_flush_us") and (has("nacre_log_flush_us") | not)
            and .nacre_meta_journal_size == "50331648" and .nacre_bdev_block_size == "4096"'
        # What a device has for objects: all but labels, log, metadata and their journal, and 256 MiB that an OSD of any kind keeps free.
        size() { ceph osd df -f json | jq ".nodes[] | select(.id == $1) | .kb / 1024 | floor"; }
        for try in $(seq 100); do [ "$(size 1)" -gt 0 ] && [ "$(size 2)" -gt 0 ] && break; sleep 0.1; done
        [ $(size 1) -gt 1785 ] && [ $(size 1) -lt 1792 ] || { size 1; false; }
        [ $(size 2) -gt 950 ] && [ $(size 2) -lt 965 ] || { size 2; false; }"#,
    );
}

/// What is removed goes back to the files below the devices; an OSD's own file keeps its blocks until it is told otherwise.
fn give_back(shell: &Shell) {
    sh(
        shell,
        r#"
        queue=/sys/block/$(basename $ALONE)/queue/discard_max_bytes
        [ $(cat $queue) -gt 0 ] || { echo "no discards here" >&2; exit 0; }
        mib() { echo $(($(stat -c %b $1) / 2048)); }
        discarded() { ceph tell osd.$1 perf dump | jq .device.discarded_bytes; }
        each() { seq $1 | xargs -P 8 -I{} rados -p gone "${@:2}"; }
        shrinks() { # below so many MiB
            until_true 30 "[ \$(mib $1) -lt $2 ]" || { mib $1; return 1; }
        }
        ceph osd pool create gone 8; ceph osd pool set gone size 3; clean
        head -c 4M /dev/urandom > four; own=$DIR/osd.0/block; empty=$(mib $BACKING); file=$(mib $own)
        each 50 put o{} four
        full=$(mib $BACKING); [ $full -ge $((empty + 200)) ] || { echo $empty $full; false; }
        each 40 rm o{}; shrinks $BACKING $((full - 140))
        for osd in 1 2; do until_true 30 "[ \$(discarded $osd) -gt 140000000 ]"; done
        [ $(discarded 0) = 0 ]; [ $(mib $own) = $file ]
        ceph config set osd.0 nacre_discard_files true; ceph config set osd.2 bdev_enable_discard false
        each 40 put o{} four; before=$(discarded 2); each 40 rm o{}; shrinks $own $((file - 140))
        [ $(discarded 2) = $before ] || { echo "$before and then $(discarded 2)" >&2; exit 1; }
        ceph config rm osd.2 bdev_enable_discard
        for n in $(seq 41 50); do rados -p gone get o$n out; cmp four out; done
        ceph tell osd.2 perf dump | jq -e '.device.discard_latency | .avgcount > 0 and .sum > 0'
        ceph config set mon mon_allow_pool_delete true; ceph osd pool rm gone gone --yes-i-really-really-mean-it"#,
    );
}

/// What is durable is there after kill -9.
fn kill_both(shell: &Shell) {
    sh(
        shell,
        r#"
        ceph osd pool create raw 8; ceph osd pool set raw size 3
        # It waits for a while: what a killed OSD left under way holds a device, too.
        refused mkfs --device $ALONE; said "in use by another process"; clean
        head -c 300000 /dev/urandom > in; head -c 3000 /dev/urandom > small
        for n in $(seq 12); do rados -p raw put large$n in; rados -p raw put small$n small; done
        rados -p raw setomapval small1 key value
        stop KILL 1; stop KILL 2; start 1; start 2; up 3; clean
        for n in $(seq 12); do rados -p raw get large$n out; cmp in out; rados -p raw get small$n out; cmp small out; done
        rados -p raw getomapval small1 key | grep -q value
        for n in $(seq 12); do rados -p raw put large$n small; rados -p raw put more$n in; done
        stop KILL 2; start 2; up 3; stop TERM 1; stop TERM 2
        for id in 1 2; do $NACRE store trim $DIR/osd.$id > out; said "bytes discarded of"; done
        for id in 1 2; do $NACRE store check --deep $DIR/osd.$id > out || { cat out; false; }; done
        $NACRE store compact $DIR/osd.2; $NACRE store dump $DIR/osd.2 > /dev/null"#,
    );
}

/// Log and metadata go to other devices and back, also where the tool is killed at any moment.
fn move_parts(shell: &Shell) {
    let sh = |script: &str| shell.within(300).sh(&[HANDS, script].concat());
    sh(r#"
        put() { for n in $(seq 12); do rados -p raw put $1$n in; done; rados -p raw setomapval ${1}1 key value; }
        got() { for n in $(seq 12); do rados -p raw get $1$n out; cmp in out; done; rados -p raw getomapval ${1}1 key | grep -q value; }
        fact() { ceph osd metadata $1 -f json | jq -e "$2"; }
        move() { what=$1; osd=$2; shift 2; $NACRE store move-$what $DIR/osd.$osd "$@"; }
        start 1; start 2; up 3; clean
        refused move log 2 --to $L2; said "in use by another process"
        fact 2 '.nacre_log_apart == "0" and .nacre_meta_apart == "0"'
        own=$(ceph osd metadata 2 -f json | jq -r .nacre_meta_size); put first; stop KILL 2
        refused move log 2; said "required arguments"; refused move log 2 --to $ALONE; said "is the device with the data"
        refused move log 2 --to $M; said "in use by another process"; refused move metadata 2 --to $L2 --meta-size 1G; said "meta-size of 1073741824 bytes"
        refused $NACRE store label $L2
        move log 2 --back > out; said "is with the data already"
        move log 2 --to $L2 > out; said "of the log"; said "is on $L2 now"
        [ "$(readlink -f $DIR/osd.2/log)" = $L2 ]; $NACRE store label $L2 > out; said "$L2: the log device of osd.2"
        $NACRE store check --deep $DIR/osd.2; move log 2 --to $L2 > out; said "is on $L2 already"
        mv $DIR/osd.2/log gone; refused $NACRE store check $DIR/osd.2; said "both must be given"; mv gone $DIR/osd.2/log
        start 2; up 3; clean; got first; put second
        fact 2 '.nacre_log_apart == "1" and .nacre_meta_apart == "0" and .nacre_log_dev_node == "'$L2'" and has("nacre_log_flush_us")'
        stop KILL 2; move metadata 2 --to $M2 --meta-size 700M > out; said "is on $M2 now"; $NACRE store check --deep $DIR/osd.2
        start 2; up 3; clean; got first; got second; put third
        fact 2 '.nacre_meta_apart == "1" and .nacre_meta_dev_node == "'$M2'" and .nacre_log_apart == "1"'
        fact 2 '(.nacre_meta_size | tonumber) > 700000000 and (.nacre_meta_size | tonumber) <= 700 * 1048576'
        stop KILL 2; move log 2 --back; move metadata 2 --back; [ ! -e $DIR/osd.2/log ] && [ ! -e $DIR/osd.2/meta ] && [ ! -e $DIR/osd.2/move ]
        for device in $L2 $M2; do refused $NACRE store label $device; said "no label of an OSD"; done
        start 2; up 3; clean; got first; got second; got third
        fact 2 '.nacre_log_apart == "0" and .nacre_meta_apart == "0" and .nacre_meta_size == "'$own'"'
        # Made with devices of their own: they go to others, and there is no place for them beside the data.
        stop TERM 1; refused move log 1 --back; said "has no place for the log"; refused move metadata 1 --back; said "has no place for the metadata"
        move log 1 --to $L2; refused $NACRE store label $L; move metadata 1 --to $M2; refused $NACRE store label $M
        start 1; up 3; clean; got third; fact 1 '.nacre_log_dev_node == "'$L2'" and .nacre_meta_dev_node == "'$M2'"'; put fourth
        stop KILL 1; move log 1 --to $L; move metadata 1 --to $M; start 1; up 3; clean; got fourth"#);
    sh(r#"
        stop TERM 2; killed=0; ended=0
        for try in 05 1 2 4 7; do for what in log metadata; do
            to=$L2; [ $what = log ] || to=$M2
            for way in "--to $to" --back; do
                if timeout -s KILL 0.$try $NACRE store move-$what $DIR/osd.2 $way > out 2>&1; then ended=$((ended + 1)); else killed=$((killed + 1)); fi
                $NACRE store check $DIR/osd.2 > out || { cat out; false; }
                $NACRE store move-$what $DIR/osd.2 $way > out || { cat out; false; }
                [ ! -e $DIR/osd.2/move ]
            done
        done; done
        echo "killed $killed, ended $ended" >&2; [ $killed -gt 0 ]
        for device in $L2 $M2; do refused $NACRE store label $device; done; $NACRE store check --deep $DIR/osd.2
        start 2; up 3; clean
        for name in first second third fourth; do for n in $(seq 12); do rados -p raw get $name$n out; cmp in out; done; done
        # All PGs of the pool are scrubbed: all data, since that time.
        scrubbed() {
            until_true 30 "ceph pg ls-by-pool raw -f json | jq -e '[.pg_stats[] | select(.last_deep_scrub_stamp > \"$1\")] | length == 8'" ||
                { ceph pg ls-by-pool raw; return 1; }
        }
        now() { date -u +%Y-%m-%dT%H:%M:%S; }
        since=$(now); for pg in $(ceph pg ls-by-pool raw -f json | jq -r .pg_stats[].pgid); do ceph pg deep-scrub $pg; done
        scrubbed $since; nok grep -q PG_DAMAGED <(ceph health detail)
        # Whoever is ordered to scrub may lead no more when the order comes: then whoever does is ordered.
        pid=$(cat $DIR/run/osd.1.pid); kill -STOP $pid; since=$(now); sleep 1; ceph osd pool deep-scrub raw
        ceph osd down 1; ceph osd primary-affinity 1 0; kill -CONT $pid; up 3; scrubbed $since
        ceph pg ls-by-pool raw -f json | jq -e '.pg_stats | all(.acting_primary != 1)'
        ceph osd primary-affinity 1 1; clean; stop TERM 1; stop TERM 2"#);
}

/// Devices that changed their names, and labels that are damaged.
fn confuse(shell: &Shell) {
    sh(
        shell,
        r#"
        mv $DIR/osd.1/block b1; mv $DIR/osd.2/block $DIR/osd.1/block; mv b1 $DIR/osd.2/block
        for id in 1 2; do
            refused $NACRE osd --dir $DIR --id $id
            said "which is the data device of osd.$((3 - id))"; said "expected was the data device of the OSD with uuid $(cat $DIR/osd.$id/fsid)"
        done
        refused $NACRE store check $DIR/osd.1; said "which is the data device of osd.2"
        mv $DIR/osd.1/block b1; mv $DIR/osd.2/block $DIR/osd.1/block; mv b1 $DIR/osd.2/block
        mv $DIR/osd.1/log l1; mv $DIR/osd.1/meta $DIR/osd.1/log; mv l1 $DIR/osd.1/meta
        refused $NACRE osd --dir $DIR --id 1; said "expected was the log device of osd.1"
        mv $DIR/osd.1/log l1; mv $DIR/osd.1/meta $DIR/osd.1/log; mv l1 $DIR/osd.1/meta

        spoil() { dd if=/dev/urandom of=$1 bs=4096 count=1 seek=$2 conv=notrunc status=none; }
        spoil $ALONE 0; refused $NACRE store check $DIR/osd.2; said "the copy of the label in the first block is damaged"
        $NACRE store repair $DIR/osd.2 > out; said "wrote it again from the other one"; $NACRE store check $DIR/osd.2
        last=$(($(blockdev --getsize64 $D) / 4096 - 1))
        spoil $D $last; refused $NACRE osd --dir $DIR --id 1; said "in the last block is damaged"; said "nacre store repair"
        dd if=/dev/zero of=$D bs=4096 count=1 seek=$last conv=notrunc status=none
        start 1; up 2; grep -q "in the last block is damaged" $DIR/log/osd.1.log
        stop TERM 1; $NACRE store check $DIR/osd.1
        dd if=$D of=first bs=4096 count=1 status=none; printf 'LABELONE' | dd of=$D bs=512 seek=1 conv=notrunc,sync status=none
        refused $NACRE osd --dir $DIR --id 1; said "LVM is on that device now"
        refused $NACRE store repair $DIR/osd.1; said "LVM is on that device now"
        spoil $D 0; spoil $D $last
        refused $NACRE osd --dir $DIR --id 1; said "no label of an OSD in its first block or its last one"
        dd if=first of=$D bs=4096 status=none; $NACRE store repair $DIR/osd.1; start 1; start 2; up 3; clean
        for n in $(seq 12); do rados -p raw get more$n out; cmp in out; done"#,
    );
}

/// What holds something is not taken, and a device is given up only by name.
fn refuse(shell: &Shell) {
    sh(
        shell,
        r#"
        stop TERM 1; stop TERM 2
        refused mkfs --device $D; said "is the data device of osd.1"; said "nacre store wipe"
        refused mkfs --device $D --force; said "is the data device of osd.1"
        mkfs.ext4 -q $OTHER; refused mkfs --device $OTHER --force; said "ext4"; said "wipefs -a $OTHER"
        mkdir $MNT; mount $OTHER $MNT; refused mkfs --device $OTHER; said "it is mounted at $MNT"; umount $MNT
        put() { dd of=$OTHER bs=512 seek=$1 conv=notrunc,sync status=none; }
        wipefs -q -a $OTHER; blkdiscard -z -o 0 -l 1048576 $OTHER; echo -n 'EFI PART' | put 1
        refused mkfs --device $OTHER --force; said "a GPT partition table (signature at byte 512)"
        echo something | put 3; : | dd of=$OTHER if=/dev/zero bs=512 seek=1 count=1 conv=notrunc status=none
        refused mkfs --device $OTHER; said "is not empty: there is something at byte 1536"
        mkfs --device $OTHER --force; [ -L $DIR/osd.9/block ]
        refused mkfs --device $D; said "holds an OSD"
        $NACRE store label $D $L $M > out; said "$L: the log device of osd.1"
        refused $NACRE store wipe $D --osd 2; said "expected was a device of osd.2"
        for device in $D $L $M; do $NACRE store wipe $device --osd 1; done
        refused $NACRE store label $D; said "no label of an OSD"
        rm -r $DIR/osd.1; ceph osd purge 1 --force --yes-i-really-mean-it; make 1 --device $D --meta-size 256M; start 1; up 2
        ceph osd metadata 1 -f json | jq -e '(.nacre_meta_size | tonumber) > 255000000 and (.nacre_meta_size | tonumber) <= 268435456'"#,
    );
}

#[test]
fn osds_live_on_raw_devices() {
    let raw = match raw() {
        Ok(raw) => raw,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    for part in [give_back, kill_both, move_parts, confuse, refuse] {
        part(&raw.shell);
    }
}

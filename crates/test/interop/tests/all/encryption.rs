//! Encrypted OSDs, on files and on a device for which a file stands: made as ceph-volume makes them, killed, searched for what was written,
//! given other places for log and metadata and another key while somebody kills that, and destroyed.

use crate::devices::Started;
use nacre_interop::{Cluster, Shell};

/// Begins each script.
pub(crate) const HANDS: &str = concat!(
    include_str!("osds.sh"),
    r#"
    umask 077
    key() { ceph-authtool --gen-print-key; }
    refused() { if "$@" > out 2>&1; then echo "should have failed: $*" >&2; exit 1; fi; }
    said() { grep -qF -- "$1" out || { cat out; return 1; }; }
    # An encrypted OSD of a number. Its secrets stay in files beside this script.
    make() {
        id=$1; shift; uuid=$(uuidgen); own=$(key); box=$(key); head -c 96 /dev/urandom | base64 -w0 > luks.$id
        printf '{"cephx_secret": "%s", "cephx_lockbox_secret": "%s", "dmcrypt_key": "%s"}' $own $box $(cat luks.$id) > secrets
        [ $(ceph osd new $uuid $id -i secrets) = $id ]; rm secrets
        $NACRE osd --dir $DIR --id $id --mkfs --uuid $uuid --key $own --dmcrypt --lockbox-key-file - "$@" <<< $box
    }
    name() { echo dm-crypt/osd/$(cat $DIR/osd.$1/fsid)/luks; }
    current() { ceph config-key get $(name $1) > luks.$1; }
    files() { # what an OSD has written
        if [ $1 = 1 ]; then echo $DEVICE; else ls -d $DIR/osd.$1/block $DIR/osd.$1/meta.redb $DIR/osd.$1/meta.journal; fi
    }
    # Of some patterns, those that are in the files of an OSD.
    shows() {
        osd=$1; shift; texts=(); for text in "$@"; do texts+=(-e "$text"); done
        LC_ALL=C grep -aohF "${texts[@]}" $(files $osd) | sort -u || [ $? = 1 ]
    }
"#
);

fn sh(shell: &Shell, script: &str) -> String {
    shell.within(300).sh(&[HANDS, script].concat())
}

fn make(shell: &Shell) {
    sh(
        shell,
        r#"
        truncate -s 1G $DEVICE
        refused $NACRE osd --dir $DIR --id 7 --mkfs --dmcrypt; said "--lockbox-key-file"
        refused $NACRE osd --dir $DIR --id 7 --mkfs --uuid $(uuidgen) --dmcrypt --lockbox-key-file <(key)
        said "the monitors refuse client.osd-lockbox."; [ ! -e $DIR/osd.7/fsid ]
        make 1 --device $DEVICE; make 2 --osd-size 1G
        $NACRE store label $DEVICE > out; said "the encrypted data device of osd.1"
        [ ! -e $DIR/osd.1/block.keys ] && [ -e $DIR/osd.2/block.keys ]
        # One that has no other rights fetches the key, and that of no other OSD.
        box() { ceph --name client.osd-lockbox.$(cat $DIR/osd.1/fsid) --keyring $DIR/osd.1/lockbox.keyring "$@"; }
        [ "$(box config-key get $(name 1))" = "$(cat luks.1)" ]
        refused box config-key get $(name 2); refused box osd tree
        # Without monitors an OSD waits for its key.
        kill -STOP $(cat $DIR/run/mon.pid); start 1; start 2; until_true 30 "[ -s $DIR/run/osd.1.pid ]"; sleep 1; kill -0 $(cat $DIR/run/osd.1.pid); kill -CONT $(cat $DIR/run/mon.pid)
        up 3
        for osd in 0 1 2; do
            encrypted=$((osd > 0)); ceph osd metadata $osd -f json | jq -e ".nacre_bdev_encrypted == \"$encrypted\""
        done"#,
    );
}

/// Data, names, attributes, omaps and small writes of known text, read back behind a kill of both, and searched for.
fn search(shell: &Shell) {
    sh(
        shell,
        r#"
        ceph osd pool create known 8; ceph osd pool set known size 3; ceph osd pool set known min_size 1; clean
        for n in $(seq 20000); do printf dataPLAINTEXTdata; done > in; printf 'smallPLAINTEXTwrite' > small
        for n in $(seq 16); do
            rados -p known put namePLAINTEXTobject$n in; rados -p known put tiny$n small
            rados -p known setxattr tiny$n attr xattrPLAINTEXTvalue
            rados -p known setomapval tiny$n omapPLAINTEXTkey omapPLAINTEXTvalue
        done
        all="dataPLAINTEXTdata smallPLAINTEXTwrite namePLAINTEXTobject xattrPLAINTEXTvalue omapPLAINTEXTkey omapPLAINTEXTvalue"
        stop KILL 1; stop KILL 2; start 1; start 2; up 3; clean
        # From the encrypted ones alone.
        stop TERM 0; up 2
        for n in $(seq 16); do
            rados -p known get namePLAINTEXTobject$n out; cmp in out; rados -p known get tiny$n out; cmp small out
            [ $(rados -p known getxattr tiny$n attr) = xattrPLAINTEXTvalue ]
            rados -p known getomapval tiny$n omapPLAINTEXTkey | grep -q omapPLAINTEXT
        done
        stop TERM 1; stop TERM 2
        [ "$(shows 0 $all | wc -l)" = 6 ] || { shows 0 $all; echo "the search does not find what is not encrypted"; false; }
        for osd in 1 2; do
            [ -z "$(shows $osd PLAINTEXT $all NacreBLK nacre-kv nacrekvJ NacreREG)" ] || { shows $osd PLAINTEXT $all; false; }
            # Nor the key that opens it, as text or as the bytes of a part of it.
            [ -z "$(shows $osd "$(cat luks.$osd)" "$(head -c 40 luks.$osd)")" ]; refused grep -rqaF "$(cat luks.$osd)" $DIR/osd.$osd
            $NACRE store check --deep --key-file luks.$osd $DIR/osd.$osd
            refused $NACRE store check $DIR/osd.$osd; said "Give it with --key-file"
            refused $NACRE store check --key-file luks.$((3 - osd)) $DIR/osd.$osd; said "this key does not open it"
            $NACRE store dump --key-file luks.$osd $DIR/osd.$osd > dumped; [ -s dumped ]
            $NACRE store compact --key-file luks.$osd $DIR/osd.$osd
        done"#,
    );
}

/// Log and metadata go to other devices, or folders, and back, also where the tool is killed; in no place is anything to be read.
fn move_parts(shell: &Shell) {
    sh(
        shell,
        r#"
        move() { what=$1; osd=$2; shift 2; $NACRE store move-$what --key-file luks.$osd $DIR/osd.$osd "$@"; }
        to() { if [ $2 = 1 ]; then echo $DEVICE.$1; else echo $PWD/elsewhere; fi; }
        hidden() {
            found=$(grep -raohF -e PLAINTEXT -e NacreBLK -e nacre-kv -e nacrekvJ -e NacreREG $DEVICE* elsewhere $DIR/osd.2 | sort -u || [ $? = 1 ])
            [ -z "$found" ] || { echo "to be read: $found"; false; }
        }
        sound() { of=$1; shift; $NACRE store check "$@" --key-file luks.$of $DIR/osd.$of > out || { cat out; false; }; }
        got() { for n in $(seq 16); do rados -p known get namePLAINTEXTobject$n out; cmp in out; done; }
        truncate -s 300M $DEVICE.log; truncate -s 400M $DEVICE.metadata; mkdir elsewhere
        refused $NACRE store move-log $DIR/osd.1 --to $DEVICE.log; said "Give it with --key-file"
        refused $NACRE store move-log --key-file luks.2 $DIR/osd.1 --to $DEVICE.log; said "this key does not open it"
        for osd in 1 2; do for what in log metadata; do
            move $what $osd --to $(to $what $osd) > out; said "of the store is "; sound $osd --deep
        done; done
        $NACRE store label $DEVICE.log > out; said "the encrypted log device of osd.1"; [ $(ls elsewhere | wc -l) = 3 ]; hidden
        start 1; start 2; up 2; got; for n in $(seq 16); do rados -p known put namePLAINTEXTmoved$n in; done
        stop KILL 1; stop KILL 2; hidden
        killed=0
        for osd in 1 2; do for what in log metadata; do for try in 0.1 0.03 0.2; do
            way=--back; [ $try != 0.03 ] || way="--to $(to $what $osd)"
            timeout -s KILL $try $NACRE store move-$what --key-file luks.$osd $DIR/osd.$osd $way > out 2>&1 || killed=$((killed + 1))
            sound $osd; move $what $osd $way > out || { cat out; false; }; [ ! -e $DIR/osd.$osd/move ]
        done; done; done
        echo "killed $killed" >&2; [ $killed -gt 0 ]
        for device in $DEVICE.log $DEVICE.metadata; do refused $NACRE store label $device; said "no label of an OSD"; done
        [ -z "$(ls elsewhere)" ]; [ ! -e $DIR/osd.2/log ]; [ ! -L $DIR/osd.2/meta.redb ]; hidden
        for osd in 1 2; do sound $osd --deep; done"#,
    );
}

/// Killed at any moment, the change of a key leaves an OSD that the monitors' key opens.
fn rotate(shell: &Shell) {
    sh(
        shell,
        r#"
        rotate() { $NACRE osd --dir $DIR --id $1 --rotate-dmcrypt-key; }
        for osd in 1 2; do
            cp luks.$osd first.$osd
            for delay in 0.01 0.02 0.03 0.05 0.08 0.12 0.2; do
                timeout -s KILL $delay $NACRE osd --dir $DIR --id $osd --rotate-dmcrypt-key > out 2>&1 || true
                # One copy of the wrapped key may be older than the other: opening it mends that, and so does this.
                current $osd; $NACRE store repair --key-file luks.$osd $DIR/osd.$osd > out || { cat out; false; }
                $NACRE store check --key-file luks.$osd $DIR/osd.$osd > out || { cat out; false; }
            done
            rotate $osd > out; said "the monitors have a new key"; cp luks.$osd before.$osd; current $osd
            refused cmp luks.$osd before.$osd; $NACRE store check --key-file luks.$osd $DIR/osd.$osd
            # One that an abandoned change had sent, and that comes now.
            jq -n --rawfile was before.$osd --arg now "$(key)$(key)" '{was: $was, now: $now}' > late
            refused ceph config-key replace $(name $osd) -i late; said ECANCELED; cp luks.$osd kept; current $osd; cmp luks.$osd kept
            for old in first before; do
                refused $NACRE store check --key-file $old.$osd $DIR/osd.$osd; said "this key does not open it"
            done
        done
        start 1; start 2; up 2; refused rotate 1; said "osd.1"
        refused $NACRE osd --dir $DIR --id 0 --rotate-dmcrypt-key; said "is not encrypted"
        rados -p known get namePLAINTEXTobject3 out; cmp in out; rados -p known get namePLAINTEXTmoved3 out; cmp in out"#,
    );
}

/// What is forgotten nothing opens any more.
fn destroy(shell: &Shell) {
    sh(
        shell,
        r#"
        one=$(cat $DIR/osd.1/fsid); two=$(cat $DIR/osd.2/fsid)
        stop TERM 1; stop TERM 2
        ceph osd destroy 1 --force --yes-i-really-mean-it; ceph osd purge 2 --force --yes-i-really-mean-it
        for uuid in $one $two; do
            refused ceph config-key exists dm-crypt/osd/$uuid/luks; refused ceph auth get client.osd-lockbox.$uuid
        done
        for osd in 1 2; do
            refused timeout 30 $NACRE osd --dir $DIR --id $osd; said "was the OSD destroyed or purged?"
            refused $NACRE store check $DIR/osd.$osd; said "is encrypted"
        done
        # The number gets another store, with another key, on the same device.
        $NACRE store wipe $DEVICE --osd 1; rm -r $DIR/osd.1; make 1 --device $DEVICE; start 1; up 1"#,
    );
}

#[test]
fn encrypted_osds_keep_what_they_are_given_and_show_nothing_of_it() {
    let Some(cluster) = Cluster::start_processes(1) else { return };
    let shell = cluster.shell();
    let folder = shell.folder();
    let shell = shell.with("DEVICE", folder.join("device").display());
    let _started = Started(folder.join("cluster/run"));
    for part in [make, search, move_parts, rotate, destroy] {
        part(&shell);
    }
}

//! All monitors are lost: the cluster begins anew from what an OSD has kept, with the recovery key (docs/runbooks/mon-add-remove.md).

use nacre_interop::Cluster;

/// A cluster of processes of this test's own: what `nacre up` prints is looked at.
const HEAD: &str = r#"
D=$PWD/lost; STARTED=; trap 'kill -9 $STARTED 2>/dev/null || :; for pid in $(cat $D/run/*.pid 2>/dev/null); do kill -9 $pid 2>/dev/null || :; done' EXIT
up() { setsid $NACRE up --dir $D --processes "$@" >> up.out 2>&1 < /dev/null & STARTED="$STARTED $!"; UP=$!; }
ready() { for try in $(seq 1200); do [ $(grep -c '^ready in' up.out) = $1 ] && return; kill -0 $UP; sleep 0.1; done; cat up.out; return 1; }
conf() { cp $D/ceph.conf client.conf; printf '[client]\nkeyring = %s/keyring\nlog file = %s/client.log\nadmin socket =\n' $D $PWD >> client.conf; }
kill_all() { for pid in $UP $(cat $D/run/*.pid); do kill -9 $pid; done; for pid in $UP $(cat $D/run/*.pid); do while [ -e /proc/$pid ]; do sleep 0.02; done; done; rm $D/run/*.pid; }
have_snapshots() { [ "$(ceph mon recovery-status -f json | jq '[.osds[] | select(.snapshot_made != "")] | length')" = 3 ]; }
"#;

#[test]
fn a_cluster_that_has_lost_all_monitors_begins_anew_from_one_osd() {
    // The cluster of the harness gives the environment, and proves that an OSD of another cluster is told apart.
    let Some(other) = Cluster::start_processes(1) else { return };
    let shell = other.shell();
    let script = r#"
        export CEPH_CONF=$PWD/client.conf; OTHER=$DIR
        up --osds 3 --osd-size 1G; ready 1; conf
        FIRST=$(sed -n 's/^recovery key: //p' up.out); [ ${#FIRST} = 69 ]
        until_true 60 have_snapshots
        if grep -rqF "$FIRST" $D; then echo 'the key is in a file'; false; fi

        ceph osd pool create things 8; ceph osd pool application enable things rados
        ceph config set mon mon_data_avail_warn 0; ceph config set global osd_pool_default_pg_num 16; ceph config-key set site/name north
        ceph auth get-or-create client.writer mon 'allow r' osd 'allow rw pool=things' > writer.keyring
        for n in $(seq 20); do head -c 50000 /dev/urandom > in.$n; rados -p things put o$n in.$n; done
        FSID=$(ceph fsid); ADMIN=$(ceph auth get-key client.admin); MON=$(ceph auth get-key mon.)

        # A new key is handed out at once, with all that was set until then; the one before is of no use any more.
        sleep 1.1; KEY=$($NACRE mon recovery-key --dir $D --rotate | sed -n 's/^recovery key: //p')
        [ ${#KEY} = 69 ]; [ "$KEY" != "$FIRST" ]
        until_true 60 have_snapshots
        $NACRE mon recovery-key --dir $D | grep -c '^osd\.. 20' | grep -qx 3
        # What comes behind the snapshot: the OSDs' maps have it.
        ceph osd pool create late 4; ceph osd pool application enable late rados; rados -p late put o in.1
        recover() { $NACRE mon recover "$@" --dir $D --name a --addr 127.0.0.1:$PORT; }
        # One line that says this.
        refuses() {
            what=$1; shift
            if recover "$@" > refused 2>&1; then echo "should have been refused: $what"; return 1; fi
            grep -q "$what" refused && [ $(grep -c . refused) = 1 ] || { cat refused; return 1; }
        }
        PORT=$(sed -n 's/^mon host = v2:.*:\([0-9]*\)$/\1/p' $D/ceph.conf)
        refuses 'in use by a running OSD; stop it first' --from-osd $D/osd.0 --recovery-key "$KEY"
        kill_all

        # An OSD's disk alone tells nothing: neither keys as text nor as bytes, in no file of the store.
        cat > search.py << 'END'
import base64, mmap, os, sys
D, secrets = sys.argv[1], sys.argv[2:]
needles = [text.encode() for text in secrets] + [base64.b64decode(text)[-16:] for text in secrets]
needles += [b'client.writer', b'site/name']
for name in ('block', 'meta.redb', 'meta.journal'):
    with open('%s/osd.1/%s' % (D, name), 'rb') as file:
        data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        for needle in needles:
            assert data.find(needle) < 0, (name, needle)
        if name == 'block': assert data.find(open('in.1', 'rb').read(4000)) >= 0, 'the search finds what is there'
END
        WRITER=$(sed -n 's/.*key = //p' writer.keyring)
        /usr/bin/python3 search.py $D "$ADMIN" "$MON" "$WRITER"

        # Refused, with nothing changed.
        refuses 'holds the store of mon.a' --from-osd $D/osd.1 --recovery-key "$KEY"
        rm -r $D/mon
        refuses 'not that of' --from-osd $D/osd.1 --recovery-key "$FIRST"
        refuses 'mistyped' --from-osd $D/osd.1 --recovery-key "$(echo $KEY | tr 0-9 1-90)"
        refuses 'characters besides' --from-osd $D/osd.1 --recovery-key "${KEY:5}"
        refuses "holds no OSD's store" --from-osd $D/log --recovery-key "$KEY"
        kill $(cat $OTHER/run/osd.0.pid); until_true 60 "[ ! -e $OTHER/run/osd.0.pid ]"
        refuses 'give OSDs of one cluster' --from-osd $D/osd.1 $OTHER/osd.0 --recovery-key "$KEY"
        refuses 'not that of' --from-osd $OTHER/osd.0 --recovery-key "$KEY"
        [ ! -e $D/mon ]

        # From one OSD that has the newest map, begun on standard input.
        echo "$KEY" | recover --from-osd $D/osd.1 --recovery-key - > recovered; grep -q "of cluster $FSID" recovered
        up; ready 2; conf
        until_true 60 'ceph health | grep HEALTH_OK'
        until_true 60 'ceph pg stat | grep "active+clean;"'
        [ $(ceph fsid) = $FSID ]; [ "$(ceph auth get-key client.admin)" = "$ADMIN" ]; [ "$(ceph config-key get site/name)" = north ]
        [ $(ceph config get osd osd_pool_default_pg_num) = 16 ]
        for n in $(seq 20); do rados -p things get o$n out; cmp in.$n out; done
        rados -p late get o out; cmp in.1 out
        rados --name client.writer --keyring writer.keyring -p things put new in.2
        [ $(ceph osd stat -f json | jq .num_up_osds) = 3 ]
        # And again: the key is the same, the snapshots are of the new incarnation.
        until_true 60 have_snapshots
        ceph mon dump -f json | jq -e '.mons | map(.name) == ["a"]'
        kill $UP; until_true 60 "[ ! -e /proc/$UP ]""#;
    shell.within(240).sh(&format!("{HEAD}{script}"));
}

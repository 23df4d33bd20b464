//! Stock rbd-mirror daemons keep images the same on two of our clusters.

use nacre_interop::{Cluster, Shell};

/// `a` and `b` run a program against one of the clusters.
const TOOLS: &str = r#"
a() { CEPH_CONF=$CONF_A "$@"; }
b() { CEPH_CONF=$CONF_B "$@"; }
mirror_start() {
  $1 ceph auth get-or-create client.rbd-mirror.$1 mon 'profile rbd-mirror' osd 'profile rbd' -o $1.keyring
  ( export CEPH_KEYRING=$PWD/$1.keyring; local conf=CONF_${1^^}; export CEPH_CONF=${!conf}
    exec rbd-mirror -f --id rbd-mirror.$1 --log-file $PWD/$1.log --admin-socket $PWD/$1.asok --run-dir $PWD \
      --rbd-mirror-pool-replayers-refresh-interval 1 --rbd-mirror-image-state-check-interval 1 --rbd-mirror-delete-retry-interval 1 \
      > $1.out 2>&1 ) &
  echo $! > $1.pid
}
write() { $1 /usr/bin/python3 -c "$WRITER" $2 $3; }
sum() { $1 rbd export --no-progress rbd/$2 - | md5sum; }
same() { [ "$(sum a $1)" = "$(sum b $1)" ]; }
"#;

/// Writes so many times 64 KiB of random bytes to random places of an image.
const WRITER: &str = r#"
import os, rados, random, rbd, sys
client = rados.Rados(conffile=os.environ['CEPH_CONF']); client.connect()
with rbd.Image(client.open_ioctx('rbd'), sys.argv[1]) as image:
    for _ in range(int(sys.argv[2])): image.write(os.urandom(65536), random.randrange(image.size() >> 16) << 16)
"#;

/// Ends the daemons, however the test ends.
struct Mirrors(Shell);

impl Mirrors {
    fn sh(&self, script: &str) {
        self.0.sh(&format!("{TOOLS}{script}"));
    }
}

impl Drop for Mirrors {
    fn drop(&mut self) {
        self.0.run("for site in a b; do kill -9 $(cat $site.pid); done");
    }
}

#[test]
fn images_are_mirrored_fail_over_and_come_back() {
    let (here, there) = (Cluster::start(3), Cluster::start(3));
    let conf_of = |cluster: &Cluster| cluster.shell().sh("echo -n $CEPH_CONF");
    let shell = here
        .shell()
        .with("CONF_A", conf_of(&here))
        .with("CONF_B", conf_of(&there))
        .with("WRITER", WRITER)
        .within(150);
    let mirrors = Mirrors(shell);
    // Both modes; what is written before and after mirroring begins arrives.
    mirrors.sh(r#"
        for site in a b; do
          $site ceph osd pool create rbd 8; $site rbd pool init rbd; $site rbd mirror pool enable rbd image
        done
        a rbd mirror pool peer bootstrap create --site-name here rbd > token
        b rbd mirror pool peer bootstrap import --site-name there --direction rx-tx rbd token
        mirror_start a; mirror_start b
        a rbd create rbd/shots --size 32M; write a shots 64; a rbd mirror image enable rbd/shots snapshot
        a rbd create rbd/journal --size 32M --image-feature exclusive-lock,journaling; a rbd mirror image enable rbd/journal journal
        until_true 60 'b rbd info rbd/shots && b rbd info rbd/journal'
        write a shots 64; a rbd mirror image snapshot rbd/shots; write a journal 64
        until_true 60 'same shots'; until_true 60 'same journal'
        until_true 60 'b rbd mirror image status rbd/shots | grep -q up+replaying && b rbd mirror image status rbd/journal | grep -q up+replaying'
        until_true 60 'b rbd mirror pool status rbd | grep -q "^health: OK"'
        for site in a b; do $site ceph -s -f json | jq -e '.servicemap.services["rbd-mirror"].daemons | length >= 1' > /dev/null; done
        # Only one side may be written.
        nok write b shots 1; nok write b journal 1
"#);
    // Fail over, in order; and back, by force, with what the other side wrote meanwhile thrown away.
    mirrors.sh(r#"
        for image in shots journal; do
          a rbd mirror image demote rbd/$image; until_true 60 "b rbd mirror image promote rbd/$image"
          write b $image 32
        done
        b rbd mirror image snapshot rbd/shots
        until_true 60 'same shots'; until_true 60 'same journal'
"#);
    mirrors.sh(r#"
        kill -9 $(cat b.pid)
        for image in shots journal; do
          a rbd mirror image promote --force rbd/$image; write a $image 16; write b $image 16
          [ "$(sum a $image)" != "$(sum b $image)" ]; sum a $image > $image.kept
        done
        a rbd mirror image snapshot rbd/shots
        mirror_start b
        for image in shots journal; do b rbd mirror image demote rbd/$image; b rbd mirror image resync rbd/$image; done
        for image in shots journal; do
          until_true 100 "b rbd mirror image status rbd/$image | grep -q up+replaying && same $image"
          [ "$(sum b $image)" = "$(cat $image.kept)" ]
        done
        # An end: the copies go with the mirroring.
        for image in shots journal; do a rbd mirror image disable rbd/$image; done
        until_true 60 '[ -z "$(b rbd ls rbd)" ]'
        a rbd info rbd/shots > /dev/null; a rbd info rbd/journal > /dev/null
"#);
}

//! OSDs of ours under three real monitors and a real manager, beside a real OSD: what `docs/runbooks/nacre-osds-in-a-ceph-cluster.md` says.
//!
//! Needs Debian's ceph-mon, ceph-mgr and ceph-osd, which `test/packages` installs, and fails without them.

use nacre_interop::{Scratch, Shell, binary};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MONITORS: [&str; 3] = ["a", "b", "c"];
/// Ours; the real one comes behind them.
const OURS: [i32; 3] = [0, 1, 2];
const THEIRS: i32 = 3;
/// Of ours, the one that is encrypted.
const ENCRYPTED: i32 = 2;
/// The manager must have lived for so long with ours.
const MANAGER_LIVES: Duration = Duration::from_secs(60);

const CONF: &str = "[global]
fsid = FSID
mon host = MONHOST
public network = 127.0.0.0/8
keyring = DIR/$name.keyring
mon data = DIR/mon.$id
mgr data = DIR/mgr.$id
run dir = DIR/run
admin socket = DIR/run/$name.asok
log file = DIR/log/$name.log
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
auth allow insecure global id reclaim = false
osd crush chooseleaf type = 0
osd pool default size = 3
osd pool default pg autoscale mode = off
mon allow pool delete = true
mon allow pool size one = true
mon data avail warn = 2
mon data avail crit = 1
mon min osdmap epochs = 10
paxos service trim min = 1
mon warn on pool no redundancy = false
osd memory target = 128M
[mon]
keyring = DIR/mon.keyring
[osd]
osd data = DIR/osd.$id
osd objectstore = memstore
memstore device bytes = 1G
osd beacon report interval = 5
crush location = root=nacre host=ours
[osd.3]
crush location = root=default host=theirs
[client]
admin socket =
";

/// A real cluster, without OSDs at first. Everything ends with it.
struct Ceph {
    daemons: BTreeMap<String, Child>,
    shell: Shell,
    started: Instant,
    scratch: Scratch,
}

impl Ceph {
    fn start() -> Self {
        let scratch = Scratch::new();
        let folder = scratch.path().to_owned();
        let shell = Shell::at(&folder, &folder.join("ceph.conf")).within(150);
        let ports = shell.sh(&format!("free_port {}", MONITORS.len() + 1));
        let ports: Vec<&str> = ports.lines().collect();
        let addrs: Vec<String> = ports.iter().map(|port| format!("v2:127.0.0.1:{port}")).collect();
        let conf = CONF.replace("DIR", &folder.display().to_string());
        let conf = conf.replace("MONHOST", &addrs[..MONITORS.len()].join(","));
        let mons = MONITORS.iter().zip(&addrs).map(|(name, addr)| format!("--addv {name} [{addr}]"));
        let shell = shell
            .with("ADDV", mons.collect::<Vec<_>>().join(" "))
            .with("PROMETHEUS", ports[MONITORS.len()])
            .with("NACRE", binary().display());
        let missing = shell.run("type ceph-mon ceph-mgr ceph-osd");
        assert!(missing.code == 0, "test/packages installs what this test needs: {missing:?}");
        let fsid = shell.sh("uuidgen");
        fs::write(folder.join("ceph.conf"), conf.replace("FSID", &fsid)).expect("a writable folder");
        shell.sh(
            r#"
            mkdir log run mgr.x
            all=(--cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *')
            ceph-authtool --create-keyring mon.keyring --gen-key -n mon. --cap mon 'allow *' > /dev/null
            ceph-authtool --create-keyring client.admin.keyring --gen-key -n client.admin "${all[@]}" > /dev/null
            ceph-authtool mon.keyring --import-keyring client.admin.keyring > /dev/null
            monmaptool --create --fsid $(ceph-conf fsid) $ADDV monmap > /dev/null
            for mon in a b c; do ceph-mon --mkfs -i $mon --monmap monmap --keyring mon.keyring; done"#,
        );
        let mut ceph = Self { daemons: BTreeMap::new(), shell, started: Instant::now(), scratch };
        for name in MONITORS {
            ceph.run(&format!("mon.{name}"), "ceph-mon", &["-f", "-i", name]);
        }
        ceph.shell.sh(r#"
            ceph auth get-or-create mgr.x mon 'allow profile mgr' osd 'allow *' > mgr.x.keyring
            ceph config set mgr mgr/prometheus/server_addr 127.0.0.1 --force
            ceph config set mgr mgr/prometheus/server_port $PROMETHEUS --force
            ceph mgr module enable prometheus --force"#);
        ceph.run("mgr.x", "ceph-mgr", &["-f", "-i", "x"]);
        ceph.started = Instant::now();
        ceph
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Starts a daemon, which must not outlive the test.
    fn run(&mut self, name: &str, program: impl AsRef<std::ffi::OsStr>, args: &[&str]) {
        let log = fs::File::create(self.path(&format!("log/{name}.out"))).expect("a writable folder");
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(args)
            .args(["--conf".as_ref(), self.path("ceph.conf").as_os_str()])
            .env_remove("CEPH_ARGS")
            .current_dir(self.scratch.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a descriptor"))
            .stderr(log)
            .spawn()
            .expect("setpriv, of util-linux");
        self.daemons.insert(name.to_owned(), child);
    }

    /// Makes and starts one OSD, of ours or a real one.
    fn add_osd(&mut self, id: i32, ours: bool) {
        let shell = self.shell.with("ID", id).with("ENCRYPTED", u8::from(id == ENCRYPTED));
        shell.sh(r#"
            UUID=$(uuidgen); KEY=$(ceph-authtool --gen-print-key); BOX=$(ceph-authtool --gen-print-key)
            SECRETS="\"cephx_secret\": \"$KEY\""; LUKS=$(head -c 128 /dev/urandom | base64 -w0)
            if [ $ENCRYPTED = 1 ]; then SECRETS="$SECRETS, \"cephx_lockbox_secret\": \"$BOX\", \"dmcrypt_key\": \"$LUKS\""; fi
            echo "{$SECRETS}" | ceph osd new $UUID $ID -i - > /dev/null
            echo $UUID > osd.$ID.uuid; echo $KEY > osd.$ID.key; : > osd.$ID.dmcrypt
            if [ $ENCRYPTED = 1 ]; then echo $BOX > box.$ID; echo "--dmcrypt --lockbox-key-file box.$ID" > osd.$ID.dmcrypt; fi"#);
        let (number, data) = (id.to_string(), format!("osd.{id}"));
        if ours {
            shell.sh(
                r#"
                $NACRE osd --mkfs --conf ceph.conf --id $ID --data osd.$ID --osd-size 1G --uuid $(cat osd.$ID.uuid) --key $(cat osd.$ID.key) $(cat osd.$ID.dmcrypt)
                [ $ENCRYPTED = $(ls osd.$ID | grep -c block.keys || true) ]"#,
            );
            self.run(&format!("osd.{id}"), binary(), &["osd", "--id", &number, "--data", &data]);
        } else {
            shell.sh(
                r#"
                mkdir osd.$ID
                ceph-authtool --create-keyring osd.$ID.keyring -n osd.$ID --add-key $(cat osd.$ID.key) > /dev/null
                ceph-osd --mkfs -i $ID --osd-uuid $(cat osd.$ID.uuid)"#,
            );
            self.run(&format!("osd.{id}"), "ceph-osd", &["-f", "-i", &number]);
        }
    }

    fn kill(&mut self, name: &str) {
        let mut child = self.daemons.remove(name).expect("it runs");
        child.kill().and_then(|()| child.wait()).expect("killed");
    }

    fn check_alive(&mut self) {
        for (name, child) in &mut self.daemons {
            let ended = child.try_wait().expect("our own child");
            assert!(
                ended.is_none(),
                "{name} has ended: {ended:?}, see log/{name}.out in {:?}",
                self.scratch.path()
            );
        }
    }

    /// What a daemon has said.
    fn said(&self, name: &str) -> String {
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        read(&self.path(&format!("log/{name}.out"))) + &read(&self.path(&format!("log/{name}.log")))
    }
}

impl Drop for Ceph {
    fn drop(&mut self) {
        for child in self.daemons.values_mut() {
            // What is gone already needs no more.
            drop(child.kill().and_then(|()| child.wait()));
        }
    }
}

/// Waits until `test`, a line of `bash`, is true.
fn until(shell: &Shell, seconds: u32, test: &str) {
    let script = format!(
        "for try in $(seq {}); do if ( {test} ) > /dev/null 2>&1; then exit 0; fi; sleep 0.5; done; ceph -s; ceph osd dump; exit 1",
        seconds * 2
    );
    let ran = shell.run(&script);
    assert!(ran.code == 0, "not within {seconds} s: {test}\n{}\n{}", ran.out, ran.err);
}

/// They boot in their place, serve a pool of their own beside a real OSD's, and are seen by commands and modules.
fn boot_and_serve(ceph: &mut Ceph) {
    for id in OURS {
        ceph.add_osd(id, true);
    }
    ceph.add_osd(THEIRS, false);
    until(&ceph.shell, 60, "[ $(ceph osd stat -f json | jq .num_up_osds) = 4 ]");
    ceph.shell.sh(r#"
        ceph osd tree -f json | jq -e '[.nodes[] | select(.name == "ours") | .children[]] | sort == [0, 1, 2]'
        ceph osd tree -f json | jq -e '[.nodes[] | select(.name == "theirs") | .children[]] == [3]'
        ceph osd crush get-device-class osd.0
        ceph osd metadata 0 | jq -e '.nacre_version and .hostname and .osd_objectstore == "nacre-block"'
        ceph osd crush rule create-replicated on-nacre nacre osd
        ceph osd pool create fast 32 32 replicated on-nacre
        ceph osd pool application enable fast rbd
        ceph osd pool create theirs 8 8"#);
    // One real OSD holds one copy; while a PG lacks some, the balancer does nothing. The manager makes a pool of its own with OSDs.
    until(
        &ceph.shell,
        40,
        "for pool in theirs device_health_metrics; do ceph osd pool set $pool size 1 --yes-i-really-mean-it; done; sleep 2; \
         ceph pg stat -f json | jq -e '.pg_summary | .num_pgs == 41 and all(.num_pg_by_state[]; .name == \"active+clean\")'",
    );
    until(
        &ceph.shell,
        60,
        "ceph pg ls-by-pool fast -f json | jq -e '.pg_stats | length == 32 and all(.state == \"active+clean\")'",
    );
    ceph.shell.sh(r#"
        head -c 40M /dev/urandom > object
        rados -p fast put object object; rados -p fast get object back; cmp object back
        for osd in 0 1 2; do seq=$(ceph tell osd.$osd flush_pg_stats); echo $seq $osd; done > seqs"#);
    // What the OSDs said reaches the monitors with the manager's next digests.
    until(
        &ceph.shell,
        20,
        "while read seq osd; do [ $(ceph osd last-stat-seq $osd) -ge $seq ] || exit 1; done < seqs",
    );
    ceph.shell.sh(
        r#"
        ceph osd df -f json | jq -e '[.nodes[] | select(.id < 3)] | length == 3 and all(.kb > 500000 and .kb_used > 40000 and .pgs == 32)'
        ceph tell osd.0 perf schema | jq -e .osd.op.description
        [ "$(ceph tell osd.0 compact 2>&1 | grep -c 'compacts with each checkpoint')" = 1 ]"#,
    );
}

/// The manager's modules see ours, and act on their pools.
fn modules(ceph: &Ceph) {
    let metric = |name: &str| {
        format!(
            "/usr/bin/python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:'$PROMETHEUS'/metrics\").read().decode())' \
             | grep '^{name}{{ceph_daemon=\"osd.[012]\"}}' | awk '$2 > 0' | grep -q ."
        )
    };
    for name in [
        "ceph_osd_op",
        "ceph_osd_op_w",
        "ceph_osd_op_w_in_bytes",
        "ceph_osd_op_latency_sum",
        "ceph_osd_numpg",
    ] {
        until(&ceph.shell, 30, &metric(name));
    }
    ceph.shell.sh(
        r#"
        ceph osd pool create uneven 64 64 replicated on-nacre; ceph osd pool set uneven size 2
        ceph osd pool application enable uneven rados
        ceph osd set-require-min-compat-client luminous
        ceph config set mgr mgr/balancer/upmap_max_deviation 1; ceph config set mgr mgr/balancer/sleep_interval 1
        ceph balancer mode upmap; ceph balancer on
        ceph config set mgr mgr/pg_autoscaler/sleep_interval 2
        ceph osd pool create grows 4 4 replicated on-nacre; ceph osd pool application enable grows rados
        ceph osd pool set grows bulk true; ceph osd pool set grows pg_autoscale_mode on"#,
    );
    until(
        &ceph.shell,
        60,
        "ceph osd dump -f json | jq -e '.pools[] | select(.pool_name == \"grows\") | .pg_num > 4'",
    );
    until(&ceph.shell, 60, "[ $(ceph osd dump -f json | jq '.pg_upmap_items | length') -gt 0 ]");
    ceph.shell.sh("ceph balancer off; ceph osd pool rm grows grows --yes-i-really-really-mean-it; ceph osd pool rm uneven uneven --yes-i-really-really-mean-it");
}

/// The monitors trim maps, and hear how full ours are.
fn monitors(ceph: &Ceph) {
    ceph.shell
        .sh("for round in $(seq 8); do ceph osd set noscrub; ceph osd unset noscrub; done 2> /dev/null");
    until(&ceph.shell, 60, "[ $(ceph report 2> /dev/null | jq .osdmap_first_committed) -gt 1 ]");
    let state = |bit: &str| {
        format!(
            "ceph osd dump -f json | jq -e '[.osds[] | select(.osd < 3) | .state | index(\"{bit}\")] | all'"
        )
    };
    ceph.shell.sh("ceph osd set-nearfull-ratio 0.01; ceph osd set-backfillfull-ratio 0.02; ceph osd set-full-ratio 0.03");
    until(&ceph.shell, 30, &state("full"));
    ceph.shell.sh(
        "ceph osd set-full-ratio 0.95; ceph osd set-backfillfull-ratio 0.9; ceph osd set-nearfull-ratio 0.85",
    );
    until(
        &ceph.shell,
        30,
        "ceph osd dump -f json | jq -e '[.osds[] | select(.osd < 3) | .state[]] | index(\"full\") == null'",
    );
}

/// The leader ends under verified writes of an image.
fn leader_dies(ceph: &mut Ceph) {
    ceph.shell.sh("rbd -p fast create image --size 64M");
    let leader = ceph.shell.sh("ceph quorum_status -f json | jq -r .quorum_leader_name");
    let fio = ceph.shell.clone();
    let writer = std::thread::spawn(move || {
        fio.sh(
            "fio --name=verify --ioengine=rbd --clientname=admin --pool=fast --rbdname=image --rw=randwrite --bs=16k --iodepth=8 --size=64M \
             --runtime=20 --time_based --verify=crc32c --do_verify=1 --verify_fatal=1 --output=fio.out",
        )
    });
    std::thread::sleep(Duration::from_secs(4));
    ceph.kill(&format!("mon.{leader}"));
    assert!(writer.join().is_ok(), "fio found what it had not written, or an error");
    until(&ceph.shell, 40, "timeout 10 ceph quorum_status -f json | jq -e '.quorum | length == 2'");
    let name = format!("mon.{leader}");
    ceph.run(&name, "ceph-mon", &["-f", "-i", &leader]);
}

/// A pool that takes both kinds is not served, is named, and hurts nothing else.
fn mixed_rule(ceph: &mut Ceph) {
    ceph.shell.sh(
        r#"
        ceph osd getcrushmap -o crush 2> /dev/null; crushtool -d crush -o crush.txt
        printf '%s\n' 'rule mixed {' ' id 77' ' type replicated' ' min_size 1' ' max_size 10' ' step take nacre' \
            ' step chooseleaf firstn 2 type osd' ' step emit' ' step take default' ' step chooseleaf firstn 1 type osd' ' step emit' \
            '}' 'rule led {' ' id 78' ' type replicated' ' min_size 1' ' max_size 10' ' step take default' \
            ' step chooseleaf firstn 1 type osd' ' step emit' ' step take nacre' ' step chooseleaf firstn 2 type osd' ' step emit' '}' \
            >> crush.txt
        crushtool -c crush.txt -o crush.new; ceph osd setcrushmap -i crush.new 2> /dev/null
        ceph osd pool create led 8 8 replicated led 2> /dev/null"#,
    );
    // A real OSD leads: it dials ours, which hang up.
    until(&ceph.shell, 40, "[ $(ceph pg ls-by-pool led -f json | jq '.pg_stats | length') = 8 ]");
    ceph.shell.sh("ceph osd pool create mixed 8 8 replicated mixed 2> /dev/null; ceph osd pool rm led led --yes-i-really-really-mean-it");
    until(&ceph.shell, 40, "ceph log last 200 | grep 'shares placement groups with osd.3'");
    ceph.shell.sh("rados -p fast put beside object; rados -p fast get beside back; cmp object back; sleep 5");
    for name in ["osd.0", "osd.1", "osd.2", "osd.3"] {
        let said = ceph.said(name);
        assert!(
            !said.contains("decode unknown message type") && !said.contains("panicked"),
            "{name}: {said}"
        );
    }
    ceph.check_alive();
    ceph.shell.sh("ceph osd pool rm mixed mixed --yes-i-really-really-mean-it");
}

#[test]
fn our_osds_serve_under_real_monitors_and_a_real_manager() {
    let mut ceph = Ceph::start();
    boot_and_serve(&mut ceph);
    modules(&ceph);
    monitors(&ceph);
    leader_dies(&mut ceph);
    mixed_rule(&mut ceph);
    std::thread::sleep(MANAGER_LIVES.saturating_sub(ceph.started.elapsed()));
    ceph.check_alive();
    // Each increment led to the map that the monitors have, by its checksum.
    until(
        &ceph.shell,
        10,
        "[ $(ceph tell osd.0 status | jq .newest_map) = $(ceph osd dump -f json | jq .epoch) ]",
    );
    for id in OURS {
        let said = ceph.said(&format!("osd.{id}"));
        for wrong in ["asking the monitor for maps", "ERROR", "panicked"] {
            assert!(!said.contains(wrong), "osd.{id}: {wrong}:\n{said}");
        }
    }
}

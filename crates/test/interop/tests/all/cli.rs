//! The `ceph` program: status in both modes, pools, authentication and caps, configuration, OSD states,
//! placement, and what a restart keeps.

use nacre_interop::Cluster;
use serde_json::Value;
use std::collections::BTreeMap;

const EPERM: i32 = 1;
const EACCES: i32 = 13;
const EINVAL: i32 = 22;

fn names(list: &Value, field: &str) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(|item| item[field].as_str()).map(str::to_owned).collect()
}

#[test]
fn status_is_healthy_in_both_modes() {
    let cluster = Cluster::start(3);
    let pool = cluster.pool("status", 8);
    if cluster.is_ours() {
        // How full the machine's disk is must not decide.
        pool.sh("ceph config set mon mon_data_avail_warn 0; ceph config set global mon_warn_on_slow_ping_time 100000");
    }
    for mode in ["crc", "secure"] {
        let shell =
            cluster.shell().with("MODES", format!("--ms_mon_client_mode={mode} --ms_client_mode={mode}"));
        shell.run("ceph $MODES -s").expect_code(0).expect_text("3 osds: 3 up");
        let status = shell.json("ceph $MODES -s -f json");
        if cluster.is_ours() {
            shell.sh("until_true 60 'ceph $MODES health | grep HEALTH_OK'");
        }
        assert_eq!(status["osdmap"]["num_up_osds"], 3, "{mode}: {status}");
        assert_eq!(status["pgmap"]["pgs_by_state"][0]["state_name"], "active+clean", "{mode}: {status}");
        shell.run("ceph $MODES health detail").expect_code(0).expect_text("HEALTH_");
        shell.run("ceph $MODES health detail -f json").expect_code(0).expect_text("HEALTH_");
        shell.run("ceph $MODES tell osd.0 version").expect_code(0).expect_text("version");
    }
}

#[test]
fn pools_are_made_changed_and_removed() {
    let cluster = Cluster::start(3);
    let shell = cluster.pool("one", 16).with("OTHER", cluster.name("two"));
    let of = |list: &Value, name: &str| {
        list.as_array()
            .expect("pools")
            .iter()
            .find(|pool| pool["pool_name"] == name)
            .cloned()
            .expect("our pool")
    };
    let name = shell.sh("echo $POOL");
    let detail = of(&shell.json("ceph osd pool ls detail -f json"), &name);
    assert_eq!((&detail["pg_num"], &detail["size"]), (&16.into(), &3.into()), "{detail}");
    shell.run("ceph osd pool ls detail").expect_code(0).expect_text("replicated size 3");

    // Making it again says that it is there and succeeds.
    shell.run("ceph osd pool create $POOL 16").expect_code(0).expect_text("already exists");
    shell.sh("ceph osd pool set $POOL size 2; ceph osd pool set $POOL min_size 1");
    assert_eq!(shell.json("ceph osd pool get $POOL size -f json")["size"], 2);
    shell.run("ceph osd pool get $POOL min_size").expect_code(0).expect_text("min_size: 1");
    shell.fails("ceph osd pool set $POOL size 0").expect_code(EINVAL);
    shell.fails("ceph osd pool get $OTHER size").expect_code(2).expect_text("unrecognized pool");

    shell.sh("ceph osd pool rename $POOL $OTHER");
    let stats = shell.json("ceph osd pool stats $OTHER -f json");
    assert_eq!(stats[0]["pool_name"], shell.sh("echo $OTHER").as_str(), "{stats}");
    shell.sh("ceph osd pool application get $OTHER | grep -q rados");
    let df = shell.json("ceph df -f json");
    assert!(names(&df["pools"], "name").contains(&shell.sh("echo $OTHER")), "{df}");

    // Removal wants to be meant.
    shell.fails("ceph osd pool rm $OTHER").expect_code(EPERM);
    shell.sh("ceph config set mon mon_allow_pool_delete true");
    shell.sh("ceph osd pool rm $OTHER $OTHER --yes-i-really-really-mean-it");
    assert!(!shell.sh("ceph osd pool ls").lines().any(|line| line == shell.sh("echo $OTHER")));
}

/// Who has no right to something is told so at once, with Ceph's errno, and harms nobody else's session.
#[test]
fn keys_and_caps_decide_who_may_what() {
    let cluster = Cluster::start(3);
    let shell =
        cluster.pool("caps", 8).with("WHO", cluster.name("reader")).with("OTHER", cluster.name("mine"));
    shell.sh("echo content > in; rados -p $POOL put object in; rados -p $POOL -N mine put object in");
    shell.sh("ceph auth get-or-create client.$WHO mon 'allow r' osd \"allow r pool=$POOL\" > reader");
    shell.sh("ceph auth get-or-create client.$OTHER mon 'allow r' osd \"allow rw pool=$POOL namespace=mine\" > mine");
    let reader = shell.with("AS", "--id $WHO --keyring reader");
    reader.sh(
        "eval rados $AS -p $POOL get object out; cmp in out; eval rados $AS -p $POOL ls | grep -qx object",
    );
    reader.fails("eval rados $AS -p $POOL put object in").expect_code(EPERM).expect_text("not permitted");
    reader.fails("eval rados $AS -p $POOL rm object").expect_text("not permitted");
    reader.fails("eval ceph $AS osd pool create nope 8").expect_code(EACCES);
    reader.fails("eval ceph $AS tell osd.0 config set debug_osd 1").expect_code(EACCES);

    let mine = shell.with("AS", "--id $OTHER --keyring mine");
    mine.sh("eval rados $AS -p $POOL -N mine put object in; eval rados $AS -p $POOL -N mine get object out; cmp in out");
    mine.fails("eval rados $AS -p $POOL put object in").expect_code(EPERM);
    mine.fails("eval rados $AS -p $POOL get object out").expect_code(EPERM);

    // A key without any caps for the OSDs is told so, at once; one without caps for the manager likewise.
    shell.sh("ceph auth get-or-create client.$OTHER-none mon 'allow r' > none");
    let none = shell.with("AS", "--id $OTHER-none --keyring none");
    none.fails("eval timeout 20 rados $AS -p $POOL get object out").expect_code(EPERM);
    none.sh("eval timeout 20 ceph $AS osd dump > dump");
    none.fails("eval timeout 20 ceph $AS pg dump").expect_code(EACCES);
    shell.sh("ceph auth caps client.$OTHER-none mon 'allow r' mgr 'allow command \"pg dump\"'");
    none.sh("eval timeout 20 ceph $AS pg dump > dump");
    none.fails("eval timeout 20 ceph $AS osd df").expect_code(EACCES);

    // New caps count for the next session.
    shell.sh("ceph auth caps client.$WHO mon 'allow r' osd \"allow rw pool=$POOL object_prefix own-\"");
    reader.sh(
        "eval rados $AS -p $POOL put own-object in; eval rados $AS -p $POOL get own-object out; cmp in out",
    );
    reader.fails("eval rados $AS -p $POOL get object out").expect_code(EPERM);

    // A key that is not the user's, a user that nobody knows, a user that is gone.
    shell.sh("sed 's/key = .*/key = AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA==/' reader > forged");
    shell.fails("rados --id $WHO --keyring forged -p $POOL ls");
    shell.sh("sed 's/^\\[client.*/[client.nobody]/' reader > unknown");
    shell.fails("rados --id nobody --keyring unknown -p $POOL ls");
    shell.sh("ceph auth rm client.$WHO");
    reader.fails("eval rados $AS -p $POOL ls");
    shell.sh("rados -p $POOL get object out; cmp in out");
}

/// Whoever switches authentication off gets what Ceph gives: nobody is asked, everybody may do everything.
#[test]
fn without_authentication_nobody_is_asked() {
    let mut cluster = Cluster::start(3);
    if !cluster.is_ours() {
        return;
    }
    let shell = cluster.pool("open", 8);
    shell.sh("echo content > in; rados -p $POOL put object in");
    let stranger = shell.with("AS", "--id stranger --keyring /dev/null");
    stranger.fails("eval rados $AS -p $POOL get object out");
    cluster.restart_with(&["--auth", "none"]);
    stranger.sh("eval rados $AS -p $POOL get object out; cmp in out; eval rados $AS -p $POOL put object in");
    stranger.sh("eval rbd $AS create $POOL/image --size 8M; eval rbd $AS info $POOL/image");
    stranger
        .sh("eval ceph $AS -s; eval ceph $AS osd pool create another 8; eval ceph $AS tell osd.0 version");
    stranger.fails("eval rados $AS --auth_client_required=cephx -p $POOL ls");
    cluster.restart();
    stranger.sh("eval rados $AS -p $POOL get object out; cmp in out");
    cluster.restart_with(&["--auth", "cephx"]);
    stranger.fails("eval rados $AS -p $POOL ls");
    stranger.fails("eval rados $AS --auth_client_required=none -p $POOL ls");
    shell.sh("rados -p $POOL get object out; cmp in out");
}

#[test]
fn profiles_of_rbd_let_images_be_used() {
    let cluster = Cluster::start(3);
    let shell = cluster.pool("profiles", 8);
    let shell = shell.with("RW", cluster.name("writer")).with("RO", cluster.name("looker"));
    shell.sh("ceph auth get-or-create client.$RW mon 'profile rbd' osd \"profile rbd pool=$POOL\" > writer");
    shell.sh("ceph auth get-or-create client.$RO mon 'profile rbd' osd \"profile rbd-read-only pool=$POOL\" > looker");
    let writer = shell.with("AS", "--id $RW --keyring writer");
    let looker = shell.with("AS", "--id $RO --keyring looker");
    writer.sh("eval rbd $AS create $POOL/image --size 8M; eval rbd $AS info $POOL/image");
    writer.sh("eval rbd $AS bench --io-type write --io-total 1M $POOL/image");
    looker.sh("eval rbd $AS ls $POOL | grep -qx image; eval rbd $AS info $POOL/image");
    looker.fails("eval rbd $AS create $POOL/second --size 8M").expect_text("Operation not permitted");
    looker.sh("eval rbd $AS --no-progress export $POOL/image image.out");

    // A snapshot is the whole pool's, but an entity that may write in a namespace of it may make them.
    shell.sh("rbd namespace create $POOL/n");
    shell.sh("ceph auth get-or-create client.$RW-n mon 'profile rbd' osd \"profile rbd pool=$POOL namespace=n\" > part");
    let part = shell.with("AS", "--id $RW-n --keyring part");
    part.sh("eval rbd $AS create $POOL/n/image --size 8M; eval rbd $AS snap create $POOL/n/image@s");
    part.sh("eval rbd $AS snap ls $POOL/n/image | grep -qw s; eval rbd $AS snap rm $POOL/n/image@s");
    part.fails("eval rbd $AS create $POOL/other --size 8M").expect_text("Operation not permitted");
}

#[test]
fn configuration_is_kept_and_shown() {
    let cluster = Cluster::start(1);
    if !cluster.is_ours() {
        return;
    }
    let shell = cluster.shell();
    shell.sh("ceph config set osd osd_max_backfills 7");
    assert_eq!(shell.sh("ceph config get osd.0 osd_max_backfills"), "7");
    let dump = shell.json("ceph config dump -f json");
    let ours = dump.as_array().expect("options").iter().find(|option| option["name"] == "osd_max_backfills");
    assert_eq!(ours.map(|option| &option["value"]), Some(&"7".into()), "{dump}");
    shell.sh("ceph config rm osd osd_max_backfills");
    assert_eq!(shell.sh("ceph config get osd.0 osd_max_backfills"), "3");
    shell.fails("ceph config set osd no_such_option 1").expect_code(EINVAL).expect_text("no_such_option");
    shell.fails("ceph config set osd osd_max_backfills many").expect_code(EINVAL);
}

#[test]
fn unknown_commands_are_named_in_the_refusal() {
    let cluster = Cluster::start(1);
    let shell = cluster.shell();
    shell.fails("ceph no such thing").expect_code(EINVAL).expect_text("no valid command found");
    shell.fails("ceph osd pool create").expect_code(EINVAL);
    shell.python(
        "
import rados, json
cluster = rados.Rados(conffile=''); cluster.connect()
for command in ({'prefix': 'no such thing'}, {'prefix': 'osd pool create'}, {}):
    code, out, text = cluster.mon_command(json.dumps(command), b'')
    assert code == -22, (command, code, text)
code, out, text = cluster.mon_command(json.dumps({'prefix': 'no such thing'}), b'')
code, out, text = cluster.mon_command('{', b'')
assert code == -22, (code, text)
code, out, text = cluster.osd_command(0, json.dumps({'prefix': 'no such thing'}), b'')
assert code == -22, (code, text)
",
    );
}

#[test]
fn osds_go_out_and_down_and_come_back() {
    let cluster = Cluster::start(3);
    if !cluster.is_ours() {
        return;
    }
    let shell = cluster.pool("states", 16);
    shell.sh("ceph osd pool set $POOL size 2");
    shell.sh("rados -p $POOL bench 1 write -b 4096 --no-cleanup >/dev/null");
    shell.run("ceph osd stat").expect_code(0).expect_text("3 osds: 3 up");
    shell
        .sh("ceph osd tree | grep -q 'osd.2'; ceph osd df | grep -q TOTAL; ceph osd dump | grep -q '^epoch'");
    shell.sh("ceph pg stat | grep -q 'active+clean'; ceph pg dump pgs_brief | grep -q 'active+clean'");
    shell.sh(
        "ceph pg ls | grep -q 'active+clean'; ceph versions | grep -q overall; ceph mon dump | grep -q v2:",
    );
    let version = shell.json("ceph tell osd.1 version");
    assert!(version["version"].as_str().is_some_and(|text| text.starts_with("16.2.15")), "{version}");

    shell.sh("ceph osd out 2");
    cluster.await_clean();
    let on_two = |shell: &nacre_interop::Shell| {
        let pgs = shell.json("ceph pg ls-by-osd osd.2 -f json 2>/dev/null || true");
        pgs["pg_stats"].as_array().map_or(0, Vec::len)
    };
    shell.sh("ceph osd in 2; ceph osd reweight 2 0.5");
    let tree = shell.json("ceph osd tree -f json");
    let two = tree["nodes"].as_array().expect("nodes").iter().find(|node| node["name"] == "osd.2");
    assert_eq!(two.map(|node| &node["reweight"]), Some(&0.5.into()), "{tree}");
    shell.sh("ceph osd reweight 2 1");
    cluster.await_clean();
    assert!(on_two(&shell) > 0);

    // One that is marked down although it lives objects and comes back by itself, and nothing is lost.
    shell.sh("ceph osd down 1");
    shell.sh("for _ in $(seq 100); do ceph osd stat | grep -q '3 up' && exit; sleep 0.1; done; exit 1");
    cluster.await_clean();
    shell.sh("rados -p $POOL bench 1 seq >/dev/null; rados -p $POOL cleanup >/dev/null");
}

/// One OSD weighs so much that CRUSH finds no other for most PGs: those that have the copies keep them and
/// serve, and no map follows the other for ever.
#[test]
fn groups_that_cannot_be_placed_fully_come_to_rest() {
    let cluster = Cluster::start(5);
    if !cluster.is_ours() {
        return;
    }
    let shell = cluster.pool("crowded", 32);
    shell.sh(
        "rados -p $POOL bench 1 write -b 4096 --no-cleanup >/dev/null; ceph osd crush reweight osd.0 1000",
    );
    // What PGs say comes a little late, so it counts only when the map has been the same for a while.
    shell.sh("
        epoch() { ceph osd dump -f json | jq .epoch; }
        rested() {
            before=$(epoch); sleep 2
            ceph pg dump pgs_brief -f json 2>/dev/null > pgs
            jq -e '.pg_stats | (map(select((.up | length) < 3)) | length > 0) and all((.acting | length) == 3)
                and all(.state | startswith(\"active+clean\"))' pgs > /dev/null && [ $before = $(epoch) ]
        }
        for _ in $(seq 20); do rested && exit; done; cat pgs; exit 1");
    shell.sh("rados -p $POOL bench 1 seq >/dev/null; rados -p $POOL put object /etc/passwd");
    shell.sh("for n in 0 1 2 3 4; do ceph osd crush reweight osd.$n 1; done");
    cluster.await_clean();
    shell.sh("rados -p $POOL bench 1 seq >/dev/null; rados -p $POOL cleanup >/dev/null");
}

/// A placement group's name; its up set and primary, its acting set and primary.
type Placement = BTreeMap<String, [(Vec<i64>, i64); 2]>;

/// Reads `([0,2], p0)`.
fn osds_and_primary(text: &str) -> Option<(Vec<i64>, i64)> {
    let (osds, rest) = text.strip_prefix("([")?.split_once("], p")?;
    let osds = osds.split(',').filter_map(|osd| osd.parse().ok()).collect();
    Some((osds, rest.split_once(')')?.0.parse().ok()?))
}

/// Lines `1.0 raw ([1,0,2], p1) up ([0,2], p0) acting ([0,2], p0)`.
fn placement_of_osdmaptool(text: &str) -> Placement {
    let parse = |line: &str| {
        let (pg, rest) = line.split_once(" raw ")?;
        let (up, acting) = rest.split_once(" up ")?.1.split_once(" acting ")?;
        Some((pg.to_owned(), [osds_and_primary(up)?, osds_and_primary(acting)?]))
    };
    text.lines().filter_map(parse).collect()
}

/// What the daemon says of one PG.
fn placement_of(pg: &Value) -> [(Vec<i64>, i64); 2] {
    let set = |value: &Value| value.as_array().into_iter().flatten().filter_map(Value::as_i64).collect();
    let primary = |value: &Value| value.as_i64().expect("a primary");
    [(set(&pg["up"]), primary(&pg["up_primary"])), (set(&pg["acting"]), primary(&pg["acting_primary"]))]
}

#[test]
fn placement_equals_that_of_osdmaptool() {
    let cluster = Cluster::start(5);
    let shells = [cluster.pool("small", 8), cluster.pool("odd", 13), cluster.pool("large", 64)];
    shells[1].sh("ceph osd pool set $POOL size 2");
    if cluster.is_ours() {
        // Weights, affinity and exceptions all take part.
        let shell = cluster.shell();
        shell.sh("ceph osd reweight 3 0.4; ceph osd primary-affinity 1 0.3; ceph osd out 4");
        shell.sh(
            "for n in 1 2 3 4; do ceph osd crush reweight osd.$n 1; done; ceph osd crush reweight osd.0 2.5",
        );
        shell.sh("ceph osd set-require-min-compat-client luminous; ceph osd pg-upmap-items 1.1 $(
            ceph pg map 1.1 -f json | jq -r '[.up[0], ([0,1,2,3] - .up)[0]] | map(tostring) | join(\" \")')");
    }
    cluster.await_clean();
    let shell = cluster.shell();
    // It would change the map between this look and the next one.
    shell.sh("ceph balancer off");
    shell.sh("ceph osd getmap -o map; osdmaptool --test-map-pgs-dump-all map > dump");
    let by_tool = placement_of_osdmaptool(&shell.sh("cat dump"));
    let dump = shell.json("ceph pg dump pgs_brief -f json 2>/dev/null");
    let stats = dump["pg_stats"].as_array().or_else(|| dump.as_array()).expect("PGs");
    let by_daemon: Placement =
        stats.iter().map(|pg| (pg["pgid"].as_str().expect("a name").to_owned(), placement_of(pg))).collect();
    assert!(by_tool.len() >= 85, "{by_tool:?}");
    assert_eq!(by_tool, by_daemon);
    for (shell, object) in shells.iter().zip(["one", "two", "three"]) {
        let mapped = shell.json(&format!("ceph osd map $POOL {object} -f json"));
        let of_tool = &by_tool[mapped["pgid"].as_str().expect("a name")];
        assert_eq!(placement_of(&mapped), *of_tool, "{mapped}");
    }
    shell.sh(
        "ceph osd getcrushmap -o crush 2>/dev/null; crushtool -d crush -o text; crushtool -c text -o again",
    );
}

#[test]
fn a_restart_keeps_everything() {
    let mut cluster = Cluster::start(3);
    if !cluster.is_ours() {
        return;
    }
    let shell = cluster.pool("kept", 8).with("WHO", format!("client.{}", cluster.name("kept")));
    shell.sh("ceph auth get-or-create $WHO mon 'allow r' > before; ceph config set osd osd_max_backfills 2");
    // How full the machine's disk is must not decide, and not how busy it is.
    shell.sh(
        "ceph config set mon mon_data_avail_warn 0; ceph config set global mon_warn_on_slow_ping_time 100000",
    );
    shell.sh("head -c 3000000 /dev/urandom > in; rados -p $POOL put object in; rados -p $POOL mksnap s1 2>/dev/null >&2");
    shell.sh("rados -p $POOL setomapval object key value; echo new > new; rados -p $POOL put object new");
    let fsid = shell.sh("ceph fsid");
    let epoch = shell.json("ceph osd dump -f json")["epoch"].as_u64();
    cluster.restart();
    assert_eq!(shell.sh("ceph fsid"), fsid);
    assert!(shell.json("ceph osd dump -f json")["epoch"].as_u64() >= epoch);
    shell.sh("ceph auth get-or-create $WHO > after; grep key before > a; grep key after > b; cmp a b");
    assert_eq!(shell.sh("ceph config get osd.0 osd_max_backfills"), "2");
    cluster.await_clean();
    shell.sh("rados -p $POOL get object out; cmp new out; rados -p $POOL -s s1 get object out; cmp in out");
    shell.sh("[ $(rados -p $POOL listomapkeys object) = key ]; rados -p $POOL put object in");
    shell.sh("until_true 60 'ceph health | grep HEALTH_OK'");
}

/// In each round of [`a_crash_takes_nothing_back`].
const WRITES_BEFORE_A_CRASH: usize = 50;

/// Everything that a client was told is there after a crash of the whole cluster, several times over.
#[test]
fn a_crash_takes_nothing_back() {
    let mut cluster = Cluster::start(3);
    if !cluster.is_ours() {
        return;
    }
    let shell = cluster.pool("crash", 8);
    for round in 0..3 {
        // The writer notes what was acknowledged; it is killed before it can tell of an error.
        shell.sh("
            rados -p $POOL ls >/dev/null
            /usr/bin/python3 -c \"
import os, rados
cluster = rados.Rados(conffile=''); cluster.connect()
io, said = cluster.open_ioctx(os.environ['POOL']), open('said', 'a')
n = os.path.getsize('said')
while True:
    n += 1
    name, content = 'object-%d' % (n % 97), b'%d;' % n
    io.append(name, content)
    said.write('%s %d\\n' % (name, n)); said.flush()
\" >/dev/null 2>&1 & echo $! > writer
            sleep 1");
        // However slow the machine is: the crash comes while the writer writes.
        let at_least = WRITES_BEFORE_A_CRASH * (round + 1);
        shell.sh(&format!(
            "for n in $(seq 600); do [ $(wc -l < said) -gt {at_least} ] && break; sleep 0.1; done"
        ));
        cluster.crash();
        shell.sh("kill -KILL $(cat writer) 2>/dev/null || true");
        cluster.await_clean();
        let checked = shell.python(
            "
import os, rados
cluster = rados.Rados(conffile=''); cluster.connect()
io = cluster.open_ioctx(os.environ['POOL'])
found, lines = {}, [line.split() for line in open('said')]
for name, n in lines:
    if name not in found: found[name] = io.read(name, 1 << 22).split(b';')
    assert found[name].count(n.encode()) == 1, (name, n)
print(len(lines))
",
        );
        let checked: usize = checked.trim().parse().expect("a number");
        assert!(checked > at_least, "only {checked} writes were acknowledged");
    }
}

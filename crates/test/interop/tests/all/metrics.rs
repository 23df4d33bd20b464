//! Metrics as Ceph's manager has them: promtool and a real Prometheus read them, Debian's boards and alert rules for Ceph work on them unchanged.
//! docs/metrics.md says what they mean.

use crate::file_systems::{Servers, TOOLS as MDS};
use crate::gateways::Gateway;
use nacre_interop::{Cluster, Shell};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// `metrics_at PORT`: has metrics shown there; `metric NAME`: the value of a sample, as in the page.
const TOOLS: &str = r#"
metrics_at() {
  ceph config set mgr mgr/prometheus/server_port $1
  until_true 20 "ceph mgr services | jq -e '.prometheus == \"http://127.0.0.1:$1/\"'"
}
scrape() { curl -sS --max-time 10 $(ceph mgr services | jq -r .prometheus)metrics; }
metric() { scrape | awk -v name="$1" '$1 == name { print $2 }'; }
"#;

/// What starts Prometheus, which looks back 15 s for a sample and not five minutes, on `$PORT` with the metrics at `$TARGET` and those of this machine, by the rules `$RULES`; ends with the test.
const PROMETHEUS: &str = r#"
node=$(free_port); host=$(hostname -s)
$TOOLS/usr/bin/prometheus-node-exporter --web.listen-address=127.0.0.1:$node > node.log 2>&1 & echo $! >> started
cat > prometheus.yml <<END
global: { scrape_interval: 1s, evaluation_interval: 1s }
rule_files: [ $RULES ]
scrape_configs:
- { job_name: ceph, honor_labels: true, static_configs: [ { targets: [ '$TARGET' ] } ] }
- job_name: node
  static_configs: [ { targets: [ '127.0.0.1:$node' ], labels: { instance: '$host' } } ]
END
$TOOLS/usr/bin/promtool check config prometheus.yml > config.checked || { cat config.checked; exit 1; }
$TOOLS/usr/bin/prometheus --config.file=prometheus.yml --storage.tsdb.path=tsdb --web.listen-address=127.0.0.1:$PORT \
  --query.lookback-delta=15s \
  --web.console.templates=. --web.console.libraries=. > prometheus.log 2>&1 & echo $! | tee -a started > prometheus.pid
until_true 30 "curl -sf http://127.0.0.1:$PORT/-/ready" || { tail -20 prometheus.log; exit 1; }
"#;

pub(crate) fn sh(shell: &Shell, script: &str) -> String {
    shell.sh(&format!("{TOOLS}{script}"))
}

/// Ends what a test has started, however it ends.
pub(crate) struct Started(pub(crate) Shell);

impl Drop for Started {
    fn drop(&mut self) {
        self.0.run("for pid in $(cat started); do kill -9 $pid || true; done; rm -rf tsdb");
    }
}

/// A shell that knows Debian's Prometheus as `$TOOLS`, unpacked beside what is installed.
pub(crate) fn with_tools(shell: &Shell) -> Shell {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../test/metrics-tools");
    let tools = shell.within(300).sh(&format!("{}", script.display()));
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testdata/metrics");
    shell.with("TOOLS", tools).with("TESTDATA", testdata.display())
}

/// Starts Prometheus with these rules; yields its port.
pub(crate) fn start_prometheus(shell: &Shell, rules: &str) -> u16 {
    let script = format!(
        "PORT=$(free_port); TARGET=$(ceph mgr services | jq -r .prometheus | sed 's,http://,,; s,/$,,'); RULES={rules}; {PROMETHEUS} echo $PORT"
    );
    sh(shell, &script).lines().last().and_then(|port| port.parse().ok()).expect("a port")
}

/// What Prometheus says at a path of its interface.
pub(crate) fn ask(shell: &Shell, port: u16, path: &str) -> Value {
    shell.json(&format!("curl -sS --max-time 10 'http://127.0.0.1:{port}/api/v1/{path}'"))["data"].clone()
}

#[test]
fn metrics_are_shown_where_the_options_say() {
    let cluster = Cluster::start(3);
    if !cluster.is_ours() {
        return;
    }
    let shell = with_tools(&cluster.pool("p", 8)).within(120);
    let _started = Started(shell.clone());
    sh(
        &shell,
        r#"
        # Where nobody has said, at an address of the monitor; it says where.
        until_true 20 "ceph mgr services | jq -e '.prometheus | startswith(\"http://127.0.0.1:\")'"
        ceph mgr module ls | jq -e '.enabled_modules | index("prometheus") != null' > /dev/null
        scrape > first; grep -q '^ceph_health_status ' first
        # What names promtool does not like are Ceph's. It ends with 1 for a page that is none, and 3 for names.
        $TOOLS/usr/bin/promtool check metrics < first > checked 2>&1 || [ $? = 3 ]
        nok grep -q 'error while linting' checked
        # Options have their effect while it runs, and no other than a possible value is taken.
        port=$(free_port); metrics_at $port; scrape | grep '^ceph_osd_up{ceph_daemon="osd.2"} 1$' > /dev/null
        for wrong in 'server_port many' 'server_port 70000' 'server_port 0' 'server_addr nowhere'; do
          nok ceph config set mgr mgr/prometheus/${wrong% *} ${wrong#* }
        done
        nok ceph config set mgr mgr/prometheus/nonsense 1
        ceph config set mgr mgr/prometheus/server_addr 0.0.0.0
        until_true 20 "curl -sf http://127.0.0.2:$port/metrics"
        ceph config rm mgr mgr/prometheus/server_addr
        until_true 20 "! curl -sf http://127.0.0.2:$port/metrics"
        # A port that somebody else has is said, and ends nothing.
        /usr/bin/python3 -m http.server --bind 127.0.0.1 0 > /dev/null 2> other & echo $! >> started
        other=$(free_port); /usr/bin/python3 -m http.server --bind 127.0.0.1 $other > /dev/null 2>&1 & echo $! >> started
        until_true 20 "curl -sf http://127.0.0.1:$other/"
        ceph config set mgr mgr/prometheus/server_port $other
        until_true 20 "ceph health detail | grep -q 'MGR_MODULE_ERROR.*cannot listen on 127.0.0.1:$other'"
        ceph mgr services | jq -e '.prometheus == null' > /dev/null
        metrics_at $port; until_true 20 "ceph health detail | { ! grep -q MGR_MODULE_ERROR; }"
        # It stays at 0 from then on.
        until_true 20 "scrape | grep -qx 'ceph_health_detail{name=\"MGR_MODULE_ERROR\",severity=\"HEALTH_WARN\"} 0'"
        # Switched off and on.
        ceph mgr module disable prometheus; until_true 20 "! curl -sf http://127.0.0.1:$port/metrics"
        ceph mgr services | jq -e '.prometheus == null' > /dev/null
        ceph mgr module ls | jq -e '.disabled_modules | map(.name) == ["prometheus"]' > /dev/null
        ceph mgr module enable prometheus; metrics_at $port"#,
    );
}

#[test]
fn counters_follow_what_clients_and_osds_do() {
    let cluster = Cluster::start(3);
    if !cluster.is_ours() {
        return;
    }
    let shell = with_tools(&cluster.pool("p", 8)).within(120);
    sh(
        &shell,
        r#"
        metrics_at $(free_port)
        # What the monitor writes to see whether pools answer is counted, too.
        ceph config set mon nacre_probe_interval 0
        # Ten writes of 4 MiB, a read of each, each on three OSDs; what OSDs count comes every 5 s.
        head -c 4194304 /dev/urandom > data; for n in 0 1 2 3 4 5 6 7 8 9; do rados -p p put o$n data; rados -p p get o$n - > /dev/null; done
        sum_of() { awk -v name="$1" 'index($1, name "{") == 1 { sum += $2 } END { printf "%d\n", sum }' page; }
        sum() { scrape > page; sum_of $1; }
        is() { [ $(sum $1) = $2 ]; }
        until_true 30 'is ceph_osd_op_r_out_bytes 41943040'; until_true 30 'is ceph_osd_op_w_in_bytes 41943040'
        until_true 30 'is ceph_pool_objects 10'; until_true 30 'is ceph_pool_stored 41943040'; is ceph_pool_wr_bytes 41943040
        # Stages of reads and of writes add up to their whole time, within 5 %, and each of them counts every message.
        adds_up() { scrape | awk -v kind="$1" '
          index($1, "ceph_osd_op_" kind "_latency_sum{") == 1 { whole += $2 }
          index($1, "ceph_osd_stages_op_" kind "_") == 1 && index($1, "_sum{") { parts += $2 }
          END { exit !(whole > 0 && parts > whole * 0.95 && parts < whole * 1.05) }'; }
        until_true 30 'adds_up r'; until_true 30 'adds_up w'
        # Of one page: an OSD may report between two.
        scrape > page; [ $(sum_of ceph_osd_stages_op_w_logged_count) = $(sum_of ceph_osd_op_w_latency_count) ]
        [ $(scrape | grep -c '^ceph_osd_stages_op_._[a-z]*_sum{ceph_daemon="osd.1"}') = 8 ]
        [ $(sum ceph_osd_op_w_latency_count) -ge 10 ]; [ $(sum ceph_bluestore_kv_commit_lat_count) -ge 10 ]
        [ $(sum ceph_bluestore_onode_hits) -gt 0 ]; [ $(sum ceph_bluefs_wal_total_bytes) -gt 0 ]
        [ $(sum ceph_osd_numpg) = 24 ]; [ $(sum ceph_pg_clean) = 8 ]
        [ "$(metric ceph_cluster_total_bytes)" = $(ceph df -f json | jq .stats.total_bytes) ]
        # As many sessions as are there: of three OSDs, each with the monitor and with the manager, and of this client.
        [ $(sum ceph_mon_num_sessions) -ge 6 ]"#,
    );
    let memory = || cluster.daemon().expect("ours").resident_bytes();
    let scrapes = |count: u32| {
        shell.python(&format!(
            r#"
import json, subprocess, urllib.request
url = json.loads(subprocess.check_output(["ceph", "mgr", "services"]))["prometheus"] + "metrics"
for n in range({count}):
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert len(answer.read()) > 10000, n"#
        ))
    };
    scrapes(1000);
    let before = memory();
    scrapes(10_000);
    let grown = memory().saturating_sub(before);
    assert!(grown < 8 << 20, "10,000 scrapes took {grown} bytes");
}

/// Who leads shows them, and a leader that takes over shows the same.
#[test]
fn another_leader_shows_them_at_the_same_place() {
    let Some(cluster) = Cluster::start_quorum(3) else { return };
    let shell = with_tools(&cluster.shell()).within(120);
    sh(
        &shell,
        r#"
        port=$(free_port); metrics_at $port
        until_true 20 "scrape | grep -c '^ceph_mon_quorum_status{.*} 1' | grep -qx 3"
        leader=$(ceph mgr stat | jq -r .active_name); pid=$(cat $DIR/run/mon$([ $leader = a ] || echo .$leader).pid)
        kill -9 $pid
        # The port is the new leader's, and it knows who is missing.
        until_true 30 "curl -sf http://127.0.0.1:$port/metrics | grep -qx 'ceph_mon_quorum_status{ceph_daemon=\"mon.$leader\"} 0'"
        until_true 30 "curl -sf http://127.0.0.1:$port/metrics | grep -qx 'ceph_health_detail{name=\"MON_DOWN\",severity=\"HEALTH_WARN\"} 1'"
        curl -sf http://127.0.0.1:$port/metrics > page; grep -q "^ceph_mgr_status{ceph_daemon=\"mgr.$(ceph mgr stat | jq -r .active_name)\"} 1" page"#,
    );
}

#[test]
fn debians_boards_and_rules_work_unchanged() {
    let cluster = Cluster::start(3);
    if !cluster.is_ours() {
        return;
    }
    let shell = with_tools(&cluster.pool("rbd", 8)).within(180);
    let _started = Started(shell.clone());
    sh(
        &shell,
        r#"
        metrics_at $(free_port); rbd pool init rbd; rbd create rbd/image --size 64M
        ceph osd pool set rbd compression_mode force; head -c 4194304 <(yes 'a line that comes again and again') > text
        for nth in $(seq 30); do rados -p rbd put text.$nth text; done; rm text
        until_true 60 "ceph df detail -f json | jq -e '.pools[] | select(.name == \"rbd\").stats.compress_under_bytes > 0'"
        # Clients that read and write until the test ends.
        (while [ -e $CEPH_CONF ]; do
          # Who is at it as the cluster ends would wait for it for ever.
          timeout 60 rbd bench rbd/image --io-type readwrite --rw-mix-read 50 --io-size 4K --io-threads 4 --io-total 2M
          for load in 'bench 2 write -t 2 -b 65536 --no-cleanup' 'bench 2 rand -t 2' cleanup; do timeout 60 rados -p rbd $load --run-name x; done
        done) > load.log 2>&1 & echo $! >> started"#,
    );
    let rules = "$TOOLS/etc/prometheus/ceph/ceph_default_alerts.yml";
    sh(&shell, &format!("$TOOLS/usr/bin/promtool check rules {rules}"));
    let port = start_prometheus(&shell, rules);
    // What boards look back over.
    std::thread::sleep(Duration::from_secs(35));
    let rules = shell.json(&format!(
        "curl -sS --max-time 10 http://127.0.0.1:{port}/api/v1/rules | jq '[.. | objects | select(has(\"query\"))]'"
    ));
    let rules = rules.as_array().expect("a list");
    let unhealthy: Vec<_> = rules.iter().filter(|rule| rule["health"] != "ok").collect();
    assert!(rules.len() > 40 && unhealthy.is_empty(), "{} rules, wrong are {unhealthy:?}", rules.len());
    let host = sh(&shell, "hostname -s");
    boards_have_data(
        &shell.with("PREFER", format!("ceph_hosts={host},pool_name=rbd,pool=rbd")),
        port,
        "*",
        "exceptions",
    );
}

/// What Debian's boards say of gateways and file systems, beside a stock radosgw and a stock ceph-mds.
#[test]
#[ignore = "takes two minutes; run by hand: cargo test -p nacre-interop --test all metrics:: -- --ignored --nocapture"]
fn debians_boards_of_gateways_and_file_systems_work_unchanged() {
    let cluster = Cluster::start(3);
    if !cluster.is_ours() {
        return;
    }
    let shell = with_tools(&cluster.pool("p", 8)).within(240);
    let _started = (Started(shell.clone()), Servers(shell.clone()));
    let gateway = Gateway::start(&cluster);
    sh(
        &shell,
        &format!(
            "{MDS}metrics_at $(free_port)
            mds_start a; ceph osd pool create meta 8; ceph osd pool create data 8; ceph fs new f meta data; mds_wait 'f:1 {{0=a=up:active}}'"
        ),
    );
    let port = start_prometheus(&shell, "$TOOLS/etc/prometheus/ceph/ceph_default_alerts.yml");
    gateway.s3(
        r#"
import cephfs
fs = cephfs.LibCephFS(conffile=os.environ["CEPH_CONF"], auth_id="admin")
fs.mount(filesystem_name=b"f")
s3('PUT', '/bucket')
# What boards look back over, twice: daemons report each five seconds.
end, count = time.monotonic() + 45, 0
while time.monotonic() < end:
    fs.mkdir("/d%d" % count, 0o755)
    s3('PUT', '/bucket/%d' % count, b'x' * 65536); s3('GET', '/bucket/%d' % count); s3('GET', '/bucket/none', want=404)
    count += 1; time.sleep(0.1)
fs.unmount(); fs.shutdown()"#,
    );
    boards_have_data(&shell, port, "{radosgw,cephfs}-*", "exceptions-of-gateways");
}

/// Every expression of the boards whose names are so has data, but for the exceptions of a file of `testdata/metrics`.
#[allow(clippy::print_stdout, reason = "the score is to be read")]
fn boards_have_data(shell: &Shell, port: u16, names: &str, exceptions: &str) {
    let script = format!(
        "export PROMETHEUS=http://127.0.0.1:{port} EXCEPTIONS=$TESTDATA/{exceptions} BOARDS=$PWD/boards
        mkdir -p boards; cp $TOOLS/etc/grafana/dashboards/ceph-dashboard/{names}.json boards
/usr/bin/python3 - <<'END'\n{}\nEND",
        include_str!("boards.py")
    );
    // Each looks back over seconds, in which a busy machine may have missed a look at the exporter.
    let mut ran = shell.run(&script);
    for _ in 0..4 {
        if ran.code == 0 {
            break;
        }
        std::thread::sleep(Duration::from_secs(10));
        ran = shell.run(&script);
    }
    println!("{}", ran.out);
    assert_eq!(ran.code, 0, "{}\n{}", ran.out, ran.err);
}

/// What OSDs say of their processor time is what the kernel says of their processes, within 2 % and two of its ticks, at some moment between
/// the end of the load and the look at the page: what they use meanwhile may or may not be in it.
#[test]
fn processor_time_is_that_of_the_processes() {
    let Some(cluster) = Cluster::start_processes(3) else { return };
    let shell = with_tools(&cluster.pool("p", 8)).within(120);
    let seen = sh(
        &shell,
        r#"
        metrics_at $(free_port)
        rados -p p bench 8 write -b 4096 -t 16 > bench.log
        # Threads that have ended count, too.
        kernel() { awk -v ticks=$(getconf CLK_TCK) '{ printf "%d\n", ($14 + $15) * 1000000 / ticks }' /proc/$(cat $DIR/run/osd.$1.pid)/stat; }
        for osd in 0 1 2; do kernel $osd > kernel.$osd; done
        sleep 6
        fresh() {
          scrape > page; for osd in 0 1 2; do awk -v name="ceph_osd_cpu_process_us{ceph_daemon=\"osd.$osd\"}" -v before=$(cat kernel.$osd) \
            'index($0, name) == 1 && $NF > before * 0.98 - 20000 { found = 1 } END { exit !found }' page || return 1; done
        }
        until_true 30 fresh
        for osd in 0 1 2; do
          of() { awk -v name="ceph_osd_cpu_$1_us{ceph_daemon=\"osd.$osd\"}" 'index($0, name) == 1 { print $NF }' page; }
          echo "$(of threads) $(of process) $(cat kernel.$osd) $(kernel $osd)"
        done"#,
    );
    for line in seen.lines() {
        let numbers: Vec<f64> =
            line.split(' ').map(|word| word.parse().unwrap_or_else(|_| panic!("{seen}"))).collect();
        let [threads, process, before, after] = numbers[..] else { panic!("{seen}") };
        let (least, most) = (before * 0.98 - 20_000.0, after * 1.02 + 20_000.0);
        assert!(before > 200_000.0 && process > least && process < most, "{seen}");
        assert!(threads < process * 1.001 && threads > process * 0.5, "{seen}");
    }
    println!("threads, process, kernel before and after, in us:\n{seen}");
}

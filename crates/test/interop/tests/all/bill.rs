//! The bill: which client and image the OSDs' processors work for. It adds up to what the processes have used.

#![allow(clippy::print_stderr, reason = "what was measured is to be read")]

use nacre_interop::Cluster;

/// `load CLIENT RATE SECONDS`: 4 KiB writes of an image's data and of other objects, in turn.
const TOOLS: &str = r#"
cat > load.py <<'END'
import random, rados, sys, time
who, rate, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
cluster = rados.Rados(conffile='', rados_id=who, conf={'keyring': who + '.keyring'}); cluster.connect()
import os
io = cluster.open_ioctx(os.environ['POOL']); began = time.monotonic(); count = 0
while time.monotonic() < began + seconds or count < rate * seconds / 2:
    name = 'rbd_data.%s.%d' % ({'one': '1a', 'four': '4a'}[who], count % 16) if count % 2 else '%s.%d' % (who, count % 16)
    io.write(name, b'x' * 4096, 0); count += 1
    time.sleep(random.expovariate(rate))
print(who, count)
END
user() { ceph auth get-or-create client.$1 mon 'allow r' osd "allow rw pool=$POOL" -o $1.keyring; }
bill() { ceph bill 120 1000 -f json; }
used_us() { for id in 0 1 2; do awk '{ print $14 + $15 }' /proc/$(cat $DIR/run/osd.$id.pid)/stat; done | awk -v hz=$(getconf CLK_TCK) '{ sum += $1 } END { print int(sum * 1e6 / hz) }'; }
"#;

#[test]
fn clients_are_billed_for_what_they_do_and_the_bill_adds_up_to_what_was_used() {
    are_billed(Cluster::start_processes(3));
}

#[test]
#[ignore = "the same by two threads of each OSD: cargo test -p nacre-interop --test all bill:: -- --ignored"]
fn clients_are_billed_for_what_they_do_by_several_shards() {
    are_billed(Cluster::start_sharded(3, 2));
}

fn are_billed(cluster: Option<Cluster>) {
    let Some(cluster) = cluster else { return };
    let shell = cluster.pool("bill", 8).within(120);
    shell.sh(&format!(
        "{TOOLS} user one; user four
        /usr/bin/python3 load.py one 15 10 & ONE=$!
        /usr/bin/python3 load.py four 60 10; wait $ONE
        until_true 20 'bill | jq -e \"([.lines[] | select(.entity == \\\"client.four\\\").ops] | add) > 100 and ([.lines[] | select(.entity == \\\"client.one\\\").ops] | add) > 30\"'
        used_us > least; sleep 6"
    ));
    let bill = shell.json(&format!("{TOOLS} bill"));
    let microseconds = |text: &str| -> f64 { text.trim().parse().expect("microseconds") };
    // OSDs report each five seconds, and go on working.
    let (least_us, most_us) =
        (microseconds(&shell.sh("cat least")), microseconds(&shell.sh(&format!("{TOOLS} used_us"))));
    let of = |entity: &str, what: &str, image: Option<&str>| -> f64 {
        let lines = bill["lines"].as_array().expect("lines").iter();
        let lines = lines.filter(|line| line["entity"] == entity);
        let lines = lines.filter(|line| image.is_none_or(|image| line["image"] == image));
        lines.filter_map(|line| line[what].as_f64()).sum()
    };
    let [cpu, ops] =
        ["cpu_us", "ops"].map(|what| of("client.four", what, None) / of("client.one", what, None));
    eprintln!("of four to one: {ops:.2} times the writes, {cpu:.2} times the processor time");
    assert!((0.7..1.4).contains(&(cpu / ops)), "{bill:#}");
    // Half of what a client did was for its image, on replicas as well.
    for (entity, image) in [("client.one", "1a"), ("client.four", "4a")] {
        let share = of(entity, "cpu_us", Some(image)) / of(entity, "cpu_us", None);
        assert!((0.4..0.6).contains(&share), "{entity}: {share} {bill:#}");
    }
    let total = bill["total_cpu_us"].as_f64().expect("a sum");
    eprintln!("billed {total} us of {least_us} to {most_us} us that the processes used");
    assert!(
        total > 0.95 * least_us && total < 1.05 * most_us,
        "{total} of {least_us} to {most_us} us: {bill:#}"
    );
    // The same in metrics, and as `nacre bill` shows it.
    let page = shell.sh("curl -sS $(ceph mgr services | jq -r .prometheus)metrics");
    for series in [
        r#"ceph_bill_client_cpu_us{client="client.four",host="127.0.0.1"}"#,
        r#"namespace="",image="4a"}"#,
        r#"ceph_bill_class_cpu_us{class="housekeeping"}"#,
    ] {
        assert!(page.contains(series), "{series} is missing:\n{page}");
    }
    let shown = shell.sh("$NACRE bill --dir $DIR --seconds 120");
    assert!(shown.contains("client.one") && shown.contains("/4a"), "{shown}");
    shell.fails("ceph bill 3").expect_text("ask for 5 to 120");
    // Off means off.
    shell.sh(&format!(
        "{TOOLS} ceph config set osd nacre_bill false
        for id in 0 1 2; do until_true 20 \"ceph tell osd.$id config get nacre_bill | grep false\"; done; sleep 6; /usr/bin/python3 load.py one 30 1; sleep 6
        [ $(ceph bill 5 -f json | jq '.lines | length') = 0 ]"
    ));
}

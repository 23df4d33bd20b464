//! `nacre bench` with stock fio and with our own client, against a cluster that runs.

use nacre_interop::Cluster;
use serde_json::Value;

const FIGURES: [&str; 10] =
    ["ios", "iops", "bytes_per_s", "mean_us", "p50_us", "p95_us", "p99_us", "p999_us", "max_us", "seconds"];

/// Left out of a repetition when fio was slow to connect, as on a busy machine.
const USED: [&str; 5] = [
    "server_cpu_us_per_io",
    "server_context_switches_per_io",
    "client_cpu_us_per_io",
    "client_context_switches_per_io",
    "machine_cpu_us_per_io",
];

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON in each line")).collect()
}

/// Whether the OSDs say that they are a release build.
fn is_optimised(cluster: &Cluster) -> bool {
    cluster.shell().json("ceph osd metadata 0 -f json")["nacre_build"] == "opt-level 3"
}

#[test]
fn a_run_has_all_figures_and_is_the_same_as_itself() {
    let Some(cluster) = Cluster::start_processes(3) else { return };
    // What `cargo test` builds by itself is no release build.
    let any_build = if is_optimised(&cluster) { "" } else { "--allow-unoptimised" };
    let shell = cluster.shell().within(240).with("ANY_BUILD", any_build);
    shell.sh("ceph config set mon mon_allow_pool_delete true"); // the bench removes its pool where that is allowed
    let bench = "$NACRE bench run --conf $DIR/ceph.conf --keyring $DIR/keyring --dir . --size-mib 16 --warmup 8 \
                 --repetitions 2 $ANY_BUILD";
    for (client, cells) in
        [("fio", "randwrite-4k-qd4,write-4k-sync"), ("own", "mix70-128k-qd2,randread-4k-clients12")]
    {
        shell.sh(&format!(
            "{bench} --client {client} --seconds 2 --cells {cells} --stages --out {client}.jsonl --html {client}.html"
        ));
        let written = lines(&shell.sh(&format!("cat {client}.jsonl")));
        let header = written.first().expect("a header");
        assert_eq!((header["kind"].as_str(), header["sides"]["a"]["osds"].as_u64()), (Some("run"), Some(3)));
        let rows: Vec<&Value> = written.iter().filter(|line| line["kind"] == "figures").collect();
        assert_eq!(rows.len(), 2 * cells.split(',').count());
        let has = |row: &Value, figure: &&str| row[*figure].as_f64().is_some_and(|value| value > 0.0);
        assert!(rows.iter().any(|row| USED.iter().all(|figure| has(row, figure))), "{rows:?}");
        assert!(rows.iter().any(|row| has(row, &"device_write_bytes_per_io")), "{rows:?}");
        for row in rows {
            let missing: Vec<_> = FIGURES.iter().filter(|figure| !has(row, figure)).collect();
            assert!(missing.is_empty(), "{missing:?} in {row}");
            let counted: u64 = row["histogram_log2_ns"]
                .as_object()
                .into_iter()
                .flatten()
                .filter_map(|(_, n)| n.as_u64())
                .sum();
            assert_eq!(Some(counted), row["ios"].as_u64(), "{row}");
            let [servers, _, client, _, machine] = USED.map(|figure| row[figure].as_f64().unwrap_or(0.0));
            // Of which a part is counted in hundredths of a second.
            assert!(machine == 0.0 || machine > (servers + client) / 2.0, "{row}");
            assert!(row["stages"].as_object().is_some_and(|stages| !stages.is_empty()), "{row}");
        }
        let said = shell.sh(&format!("$NACRE bench compare {client}.jsonl {client}.jsonl --gate --json"));
        let verdicts = lines(&said);
        let same = verdicts.iter().filter(|verdict| verdict["verdict"] == "same" && verdict["pairs"] == 2);
        // Of one pair nothing can be told.
        let unsure =
            verdicts.iter().filter(|verdict| verdict["verdict"] == "cannot tell" && verdict["pairs"] == 1);
        let (same, unsure) = (same.count(), unsure.count());
        assert!(same >= 4 && same + unsure == verdicts.len(), "{said}");
        shell.sh(&format!("grep -q '<svg' {client}.html; nok grep -e '<script' -e http {client}.html"));
    }
    // Nothing is left in the cluster, and what cannot work says so.
    assert_eq!(shell.sh("ceph osd pool ls | grep nacre-bench || true"), "");
    shell.fails("$NACRE bench run --cells nonsense").expect_text("is no cell");
    shell.fails("$NACRE bench compare fio.jsonl nacre:nacre").expect_text("both sides");
}

/// An unoptimised build is refused before anything is made in the cluster, and anything is measured.
#[test]
fn an_unoptimised_build_is_refused() {
    let Some(cluster) = Cluster::start_processes(1) else { return };
    let shell = cluster.shell().within(120);
    if is_optimised(&cluster) {
        return; // `cargo test` without NACRE_BIN shows it
    }
    for more in ["", "--client own"] {
        let bench = format!(
            "$NACRE bench run --conf $DIR/ceph.conf --keyring $DIR/keyring --dir . --cells randwrite-4k-qd1 {more}"
        );
        shell.fails(&bench).expect_text("osd.0 run an unoptimised build (opt-level").expect_text("make bin");
    }
    shell
        .fails("$NACRE bench compare nacre:$NACRE nacre:$NACRE --dir . --cells randwrite-4k-qd1")
        .expect_text("unoptimised build");
    assert_eq!(shell.sh("ceph osd pool ls | grep nacre-bench || true"), "");
}

/// Each experiment of the catalogue is carried out, shortly: it has figures of both sides for all that it judges, and a page; and two copies,
/// or a code, write as many bytes less as they must.
#[test]
#[ignore = "takes 13 minutes; run by hand: cargo test -p nacre-interop --test all bench:: -- --ignored --nocapture"]
fn every_experiment_answers_what_it_asks() {
    let Some(cluster) = Cluster::start_processes(1) else { return };
    let shell = cluster.shell().within(600);
    let listed = shell.sh("$NACRE bench experiment");
    let names: Vec<&str> = listed.lines().filter(|line| !line.contains(' ') && !line.is_empty()).collect();
    assert_eq!((names.first(), names.len()), (Some(&"osds-per-device"), 8));
    let mut compared = 0;
    for name in names {
        let log = if name == "log-device" { "--log-dir /dev/shm" } else { "" };
        shell.sh(&format!(
            "$NACRE bench experiment {name} --rounds 1 --seconds 2 --warmup 1 --size-mib 256 --dir . {log} --json \
             --out {name}.jsonl --html {name}.html --allow-unoptimised > {name}.verdicts"
        ));
        let verdicts = lines(&shell.sh(&format!("cat {name}.verdicts")));
        let has_both = |verdict: &Value| ["a", "b"].iter().all(|side| verdict[side].as_f64() > Some(0.0));
        assert!(!verdicts.is_empty() && verdicts.iter().all(has_both), "{name}: {verdicts:?}");
        let rows = lines(&shell.sh(&format!("cat {name}.jsonl")));
        let written = |side: &str| {
            let of_side = rows
                .iter()
                .filter(|row| row["side"] == side && row["cell"] == "write-4m-qd4")
                .collect::<Vec<_>>();
            let bytes = of_side.iter().filter_map(|row| row["device_write_bytes_per_io"].as_f64());
            bytes.sum::<f64>() / of_side.len() as f64
        };
        for (fewer, all, share) in [("copies-2", "copies-3", 2.0 / 3.0), ("ec-2-1", "copies-3", 0.5)] {
            let (fewer, all) = (written(fewer), written(all));
            if fewer.is_finite() && all.is_finite() {
                println!("{name}: {fewer:.0} of {all:.0} bytes");
                compared += 1;
                assert!((fewer / all / share - 1.0).abs() < 0.1, "{name}: {fewer} of {all} bytes");
            }
        }
        shell.sh(&format!("grep -q '<svg' {name}.html"));
        println!("{name}: {} verdicts", verdicts.len());
    }
    assert_eq!(compared, 2);
}

use super::*;
use crate::results::tests::row;
use clap::Parser;
use serde_json::json;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

/// A run of three repetitions on a cluster of so many OSDs.
fn run_of(day: u64, osds: u64, program: &str, iops: f64) -> Results {
    let header = json!({
        "kind": "run", "version": 1, "host": {"name": "<here>"},
        "sides": {"a": {"osds": osds, "binary": program, "binary_crc32c": "0"}},
    });
    let noise = 1.0 + 0.002 * (day * 7 % 5) as f64;
    let rows = [0.9, 1.0, 1.2].iter().zip(0..).map(|(share, nth)| {
        let mut row = row("a", "randread-4k-qd1", nth, iops * share * noise);
        row.began_ms = (1_700_000_000 + 86_400 * day) * 1000 + nth as u64;
        row
    });
    Results { headers: vec![header], rows: rows.collect() }
}

fn options() -> Options {
    Line::parse_from(["history", "x", "--metrics", "iops"]).options
}

/// What is shown is the change that was there, of the runs that can be compared, with the program that brought it.
#[test]
fn a_change_is_shown_with_what_ran() {
    let mut runs: Vec<Results> = (0..10).map(|day| run_of(day, 3, "old", 1000.0)).collect();
    runs.extend((10..20).map(|day| run_of(day, 3, "new", 900.0)));
    // Another cluster, in whose runs nothing changes.
    runs.extend((0..20).map(|day| run_of(day, 6, "any", 5000.0)));
    runs.reverse();
    let all = series::of(&runs, &[Metric::Iops, Metric::FlushMeanUs]);
    let [three, six] = all.as_slice() else { panic!("a series for each cluster: {all:?}") };
    let changes = changes_of(three, &options());
    let [change] = changes.as_slice() else { panic!("one change: {changes:?}") };
    assert_eq!((change.at, change.verdict(Metric::Iops)), (10, "worse"));
    assert!((change.share() + 0.1).abs() < 0.01, "{change:?}");
    let text = show(three, &changes);
    assert!(text.contains("20 runs from 2023-11-14T"), "{text}");
    assert!(text.contains("worse since 2023-11-24T") && text.contains("new (0)"), "{text}");
    assert!(changes_of(six, &options()).is_empty());
    assert!(show(six, &[]).contains("no change"));
    assert_eq!(to_json(three, change)["verdict"], "worse");
    let html = plot::report(&[(three.clone(), changes)]);
    assert!(html.matches("<circle").count() == 20 && html.contains("-10"), "{html}");
    assert!(!html.contains("<here>") && !html.contains("<script"));
}

#[test]
fn a_change_within_the_margin_is_not_shown() {
    let run = |day| run_of(day, 3, "x", if day < 10 { 1000.0 } else { 1100.0 });
    let all = series::of(&(0..20).map(run).collect::<Vec<_>>(), &[Metric::Iops]);
    let series = all.first().expect("one");
    assert_eq!(changes_of(series, &Options { margin: 12.0, ..options() }).len(), 0);
    assert_eq!(changes_of(series, &options()).len(), 1);
}

#[test]
fn an_archive_is_files_and_folders() {
    let folder = std::env::temp_dir().join(format!("nacre-bench-history-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    assert!(read(std::slice::from_ref(&folder)).is_err(), "empty");
    let file = folder.join("one.jsonl");
    let mut writer = crate::results::Writer::open(Some(&file)).expect("a file");
    for day in 0..2 {
        let run = run_of(day, 3, "x", 1.0);
        writer.begin(run.headers[0].clone()).expect("written");
        run.rows.into_iter().for_each(|row| writer.add(row).expect("written"));
    }
    std::fs::write(folder.join("notes.txt"), "not ours").expect("written");
    let runs = read(std::slice::from_ref(&folder)).expect("ours");
    assert_eq!(
        runs.iter().map(|run| (run.headers.len(), run.rows.len())).collect::<Vec<_>>(),
        [(1, 3), (1, 3)]
    );
    assert_eq!(runs, read(&[file]).expect("ours"));
    assert!(read(&[folder.join("notes.txt")]).is_err());
    std::fs::remove_dir_all(&folder).expect("removed");
}

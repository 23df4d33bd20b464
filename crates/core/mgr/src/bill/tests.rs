use super::*;

fn at(s: u64) -> Stamp {
    Stamp::default() + Duration::from_secs(s)
}

fn row(client: u64, image: &str, cpu_ns: u64) -> BillRow {
    BillRow {
        client: EntityName::client(client),
        pool: 3,
        image: image.to_owned(),
        cpu_ns,
        ops: 1,
        bytes: 4096,
        ..BillRow::default()
    }
}

fn report(rows: Vec<BillRow>, (process_ns, process_delta_ns): (u64, u64)) -> BillReport {
    BillReport {
        process: "host/7".to_owned(),
        process_ns,
        process_delta_ns,
        classes_ns: vec![0, 0, 0, 0, 5, 10, 99],
        rows,
        power: None,
    }
}

fn total(window: &BillWindow) -> u64 {
    let lines = window.lines.iter().map(|line| line.account.cpu_ns);
    lines.chain(window.classes_ns.iter().map(|(_, ns)| *ns)).sum()
}

#[test]
fn the_bill_of_two_osds_in_a_process_adds_up_to_its_time() {
    let mut bill = Bill::default();
    bill.learn(EntityName::client(1), "client.a".to_owned(), "10.0.0.1".to_owned());
    // Both have worked for as long as the process since their reports before, which a former manager got.
    let without_newer = |mut report: BillReport| {
        report.classes_ns.truncate(6);
        report
    };
    bill.report(&without_newer(report(vec![row(1, "10b", 200)], (1000, 400))), 1000, at(1));
    bill.report(&without_newer(report(vec![row(1, "", 50), row(2, "", 85)], (1100, 500))), 1000, at(2));
    let window = bill.window(Duration::from_secs(30), &Images::default(), at(2));
    assert_eq!(total(&window), 500, "{window:?}");
    assert_eq!(window.classes_ns.last(), Some(&("other_threads", 135)));
    let costs: Vec<_> = window
        .lines
        .iter()
        .map(|line| (line.client.entity.as_str(), line.image.as_str(), line.account.cpu_ns))
        .collect();
    assert_eq!(costs, [("client.a", "10b", 200), ("client.?", "", 85), ("client.a", "", 50)]);
    let sums = bill.sums(&Images::default());
    let known: Vec<_> =
        sums.clients.iter().map(|(client, account)| (client.entity.as_str(), account.cpu_ns)).collect();
    assert_eq!(known, [("client.?", 85), ("client.a", 250)]);
    assert_eq!(sums.images, [(3, String::new(), "10b".to_owned(), Account::of(&row(1, "10b", 200)))]);
    bill.prune(&OsdMap::default());
    assert!(bill.sums(&Images::default()).images.is_empty());
}

#[test]
fn what_osds_report_is_bounded_and_old_reports_are_in_no_window() {
    let mut bill = Bill::default();
    for number in 0..20_u64 {
        bill.learn(EntityName::client(number), format!("client.{number}"), String::new());
        bill.report(&report(vec![row(number, &number.to_string(), 7)], (0, 0)), 10, at(number * 10));
    }
    let sums = bill.sums(&Images::default());
    assert_eq!((sums.clients.len(), sums.images.len()), (11, 10));
    let cpu_ns: u64 = sums.clients.iter().map(|(_, account)| account.cpu_ns).sum();
    assert_eq!(cpu_ns, 20 * 7, "others are summed up");
    let lines = |seconds| bill.window(Duration::from_secs(seconds), &Images::default(), at(190)).lines.len();
    assert_eq!([lines(1), lines(30), lines(1000)], [1, 4, 13]);
    let many: Vec<BillRow> =
        (0..2000).map(|number| row(number, &"x".repeat(TEXT_BYTES_MAX + 1), 7)).collect();
    for nth in 0..10 {
        bill.report(&report(many.clone(), (u64::MAX, u64::MAX)), 10, at(191 + nth));
    }
    assert!(bill.slices.iter().all(|slice| slice.rows.len() <= SLICE_ROWS_MAX));
    assert_eq!(bill.images.of.len(), 10);
}

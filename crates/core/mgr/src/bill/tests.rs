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
    let (first, second) = (vec![row(1, "10b", 200)], vec![row(1, "", 50), row(2, "", 85)]);
    bill.report((0, None), &without_newer(report(first, (1000, 400))), 1000, at(1));
    bill.report((1, None), &without_newer(report(second, (1100, 500))), 1000, at(2));
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
    let account = Account { cpu_ns: 200, ops: 1, bytes: 4096 };
    assert_eq!(sums.images, [(3, String::new(), "10b".to_owned(), account)]);
    bill.prune(&OsdMap::default());
    assert!(bill.sums(&Images::default()).images.is_empty());
}

#[test]
fn what_osds_report_is_bounded_and_old_reports_are_in_no_window() {
    let mut bill = Bill::default();
    for number in 0..20_u64 {
        bill.learn(EntityName::client(number), format!("client.{number}"), String::new());
        let told = report(vec![row(number, &number.to_string(), 7)], (0, 0));
        bill.report((0, None), &told, 10, at(number * 10));
    }
    let sums = bill.sums(&Images::default());
    assert_eq!((sums.clients.len(), sums.images.len()), (11, 10));
    let cpu_ns: u64 = sums.clients.iter().map(|(_, account)| account.cpu_ns).sum();
    assert_eq!(cpu_ns, 20 * 7, "others are summed up");
    let lines = |seconds| bill.window(Duration::from_secs(seconds), &Images::default(), at(190)).lines.len();
    assert_eq!([lines(1), lines(30), lines(1000)], [1, 4, 13]);
    let many: Vec<BillRow> =
        (0..2000).map(|number| row(number, &"x".repeat(TEXT_BYTES_MAX + 1), 7)).collect();
    for (osd, nth) in (0..).zip(0..10) {
        bill.report((osd, None), &report(many.clone(), (u64::MAX, u64::MAX)), 10, at(191 + nth));
    }
    assert!(bill.slices.iter().all(|slice| slice.rows.len() <= SLICE_ROWS_MAX));
    assert_eq!(bill.images.of.len(), 10);
}

#[test]
fn no_report_is_believed_more_than_a_machine_can_do_nor_too_often() {
    let mut bill = Bill::default();
    let told = report(vec![row(1, "", u64::MAX), row(2, "", u64::MAX)], (u64::MAX, u64::MAX));
    for nth in 0..100_u64 {
        bill.report((0, None), &BillReport { classes_ns: vec![u64::MAX; 9], ..told.clone() }, 10, at(1));
        bill.report((1, None), &told, 10, at(1 + nth % 2));
    }
    let window = bill.window(Duration::from_secs(30), &Images::default(), at(2));
    let all = window.lines.iter().map(|line| line.account.cpu_ns);
    let all = all.chain(window.classes_ns.iter().map(|(_, ns)| *ns)).fold(0, u64::saturating_add);
    assert!(all <= 2 * u64::from(REPORTS_PER_SLICE_MAX) * REPORT_NS_MAX + REPORT_NS_MAX, "{all}");
    assert_eq!(bill.reports, 2 * u64::from(REPORTS_PER_SLICE_MAX));
    let long = BillReport { process: "x".repeat(TEXT_BYTES_MAX + 1), ..told };
    bill.report((2, None), &long, 10, at(2));
    assert!(bill.processes.keys().all(|process| process.len() <= TEXT_BYTES_MAX));
}

#[test]
fn time_before_a_pause_is_nobodys() {
    let mut bill = Bill::default();
    let told = |process_ns, delta_ns| BillReport {
        classes_ns: Vec::new(),
        ..report(Vec::new(), (process_ns, delta_ns))
    };
    bill.report((0, None), &told(1000, 1000), 10, at(0));
    bill.report((0, None), &told(900_000, 0), 10, at(60));
    bill.report((0, None), &told(900_100, 100), 10, at(65));
    assert_eq!(bill.other_threads_ns, 1100);
}

#[test]
fn idle_accounts_make_room_but_are_not_looked_for_each_time() {
    let mut accounts = Accounts::default();
    let one = Account { cpu_ns: 1, ..Account::default() };
    (0..10).for_each(|key| accounts.add(key, &one, (10, 1)));
    accounts.add(10, &one, (10, 2));
    assert_eq!((accounts.sweep_at, accounts.other.cpu_ns), (2 + SWEEP_REPORTS, 1));
    accounts.add(11, &one, (10, 3));
    assert_eq!(accounts.sweep_at, 2 + SWEEP_REPORTS, "not again");
    let late = IDLE_REPORTS_MAX + 3;
    accounts.add(12, &one, (10, late));
    assert_eq!((accounts.of.len(), accounts.other.cpu_ns), (1, 12));
}

#[test]
fn who_has_no_session_is_forgotten_first() {
    let mut bill = Bill::default();
    let named = |bill: &Bill, number| bill.client(&EntityName::client(number)).entity != "client.?";
    let all = NAMES_MAX as u64;
    for number in 0..all {
        bill.learn(EntityName::client(number), "client.a".to_owned(), String::new());
    }
    bill.session_ended(&EntityName::client(7));
    bill.learn(EntityName::client(8), "client.a".to_owned(), String::new());
    bill.session_ended(&EntityName::client(8));
    bill.learn(EntityName::client(all), "client.a".to_owned(), String::new());
    assert!(named(&bill, 0) && named(&bill, 8) && named(&bill, all) && !named(&bill, 7));
    bill.learn(EntityName::client(all + 1), "client.a".to_owned(), String::new());
    assert!(!named(&bill, 0), "all have sessions");
    assert_eq!(bill.names.len(), NAMES_MAX);
}

#[test]
fn a_host_draws_once_and_as_it_says_itself() {
    let mut bill = Bill::default();
    let power = |milliwatts| Some(Power { milliwatts, source: nacre_msg::PowerSource::Model });
    for (osd, host, milliwatts) in [(0, Some("a"), 5), (1, Some("a"), 7), (2, None, 9)] {
        let told = BillReport { power: power(milliwatts), ..report(Vec::new(), (0, 0)) };
        bill.report((osd, host), &told, 10, at(1));
    }
    let shown: Vec<_> =
        bill.power.iter().map(|(host, (power, _))| (host.as_str(), power.milliwatts)).collect();
    assert_eq!(shown, [("a", 7)]);
}

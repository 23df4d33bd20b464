use super::*;
use nacre_types::PgId;

fn at_ms(ms: u64) -> Stamp {
    Stamp::default() + Duration::from_millis(ms)
}

fn bill() -> Bill {
    let mut bill = Bill::default();
    bill.enable(true, true);
    // Of a thread that has done nothing before.
    bill.share_out(0);
    bill
}

#[test]
fn what_a_thread_did_before_anybody_wanted_a_bill_is_on_none() {
    let mut bill = Bill::default();
    bill.enable(false, true);
    assert!(bill.take(1_000_000, 0).is_none());
    bill.enable(true, true);
    bill.row(payer(1, b"a"), Work::Write, 0);
    assert_eq!(sum(&bill.take(2_000_000, 0).expect("it is on")), 0);
    bill.row(payer(1, b"a"), Work::Write, 0);
    assert_eq!(cost(&bill.take(2_000_300, 0).expect("it is on"), 1), 300);
}

fn payer(client: u64, name: &'static [u8]) -> Payer<'static> {
    Payer::new(EntityName::client(client), PgId::new(3, 0).pool, b"", name)
}

fn sum(sample: &BillSample) -> u64 {
    sample.rows.iter().map(|row| row.cpu_ns).chain(sample.classes_ns).sum()
}

fn cost(sample: &BillSample, client: u64) -> u64 {
    sample.rows.iter().filter(|row| row.client == EntityName::client(client)).map(|row| row.cpu_ns).sum()
}

#[test]
fn what_the_thread_used_is_shared_out_by_weights_without_rest() {
    let mut bill = bill();
    for turn in 1..=1000_u64 {
        bill.row(payer(1, b"a"), Work::Write, 4096);
        for _ in 0..4 {
            bill.row(payer(2, b"rbd_data.10b.0000"), Work::Write, 4096);
        }
        bill.shared(Work::Durable, 0);
        bill.class(BillClass::Housekeeping, Work::Tick, 0);
        // A number that no share divides.
        bill.turn_ended(at_ms(turn), || Some(turn * 100_003));
    }
    let sample = bill.take(1000 * 100_003 + 7, 0).expect("it is on");
    assert_eq!(sum(&sample), 1000 * 100_003 + 7);
    let (one, four) = (cost(&sample, 1), cost(&sample, 2));
    assert!(four.abs_diff(4 * one) <= 4000, "{one} and {four}");
    assert_eq!(sample.rows[1].image, "10b");
    let kept = sample.classes_ns[BillClass::Housekeeping as usize];
    assert!(kept > 0 && kept < one, "{kept}");
    assert_eq!(sum(&bill.take(1000 * 100_003 + 7, 0).expect("it is on")), 0, "it is told once");
}

#[test]
fn who_comes_next_pays_for_what_nobody_is_known_for() {
    let mut bill = bill();
    bill.shared(Work::Durable, 0);
    bill.turn_ended(at_ms(1), || Some(500));
    bill.row(payer(1, b"a"), Work::Reply, 0);
    bill.turn_ended(at_ms(2), || Some(800));
    bill.shared(Work::RepOpReply, 0);
    let sample = bill.take(900, 0).expect("it is on");
    assert_eq!(cost(&sample, 1), 800);
    assert_eq!(sample.classes_ns[BillClass::Background as usize], 100, "nobody came any more");
    bill.turn_ended(at_ms(9), || Some(1000));
    let sample = bill.take(1000, 0).expect("it is on");
    assert_eq!(sample.classes_ns[BillClass::Background as usize], 100, "turns that brought nothing");
}

#[test]
fn the_clock_is_read_at_most_once_in_a_millisecond_and_not_at_all_where_it_is_off() {
    let mut bill = bill();
    let reads = std::cell::Cell::new(0);
    let read = |bill: &mut Bill, us: u64| {
        bill.turn_ended(Stamp::default() + Duration::from_micros(us), || {
            reads.set(reads.get() + 1);
            Some(us)
        });
    };
    (1..5000).for_each(|us| read(&mut bill, us));
    bill.enable(false, true);
    (5000..9000).for_each(|us| read(&mut bill, us));
    assert_eq!(reads.get(), 4);
    assert!(bill.take(9000, 0).is_none());
    bill.row(payer(1, b"a"), Work::Write, 0);
    bill.enable(true, true);
    assert_eq!(sum(&bill.take(9500, 0).expect("it is on again")), 0, "it begins anew");
    assert_eq!(sum(&bill.take(9600, 0).expect("it is on")), 100);
    bill.enable(true, false);
    assert!(!bill.is_on, "there is no clock");
}

#[test]
fn what_clients_can_make_is_bounded() {
    let mut bill = bill();
    let count = BILL_ROWS_MAX as u64 + 10;
    for client in 0..count {
        bill.row(payer(client, b"a"), Work::Read, 0);
    }
    bill.turn_ended(at_ms(1), || Some(count * 1000));
    let sample = bill.take(count * 1000, 0).expect("it is on");
    assert_eq!(sample.rows.len(), BILL_ROWS_MAX);
    let others = sample.classes_ns[BillClass::OtherClients as usize];
    assert!(others.abs_diff(10_000) < 1000, "{others}");
    assert_eq!(sum(&sample), count * 1000);
}

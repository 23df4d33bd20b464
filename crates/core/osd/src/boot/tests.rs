use super::*;
use nacre_maps::flags::osd::{EXISTS, UP};
use nacre_maps::{OsdInfo, OsdMap};

const ME: OsdId = 1;
const SETTINGS: Settings = Settings {
    beacon_interval: Duration::from_secs(300),
    markdown_count_max: 2,
    markdown_period: Duration::from_secs(600),
    leave_timeout: Duration::from_secs(5),
};

/// An OSD with all that it needs to boot.
struct Osd {
    boot: Boot,
    now: Stamp,
    map: OsdMap,
    addrs: AddrVec,
    monitor_open: bool,
    healthy: bool,
    maps_kept_until: Stamp,
    placed: bool,
}

fn addrs(nonce: u32) -> AddrVec {
    AddrVec(vec![nacre_types::EntityAddr { nonce, ..nacre_types::EntityAddr::default() }])
}

impl Osd {
    fn new() -> Self {
        let mut map = OsdMap { epoch: 10, ..OsdMap::default() };
        map.set_max_osd(2);
        map.osd_state[1] = EXISTS;
        Self {
            boot: Boot::new(ME, SETTINGS),
            now: Stamp::default() + Duration::from_secs(1000),
            map,
            addrs: addrs(1),
            monitor_open: true,
            healthy: true,
            maps_kept_until: Stamp::default(),
            placed: true,
        }
    }

    fn booted() -> Self {
        let mut osd = Self::new();
        osd.handle(Event::MonitorOpened);
        osd.handle(Event::Keyed);
        osd.mark_up();
        assert_eq!(osd.handle(Event::Map), []);
        assert!(osd.boot.is_booted());
        osd
    }

    fn mark_up(&mut self) {
        self.map.epoch += 1;
        self.map.osd_state[1] = EXISTS | UP;
        self.map.client_addrs[1] = self.addrs.clone();
        self.map.osd_info[1] = OsdInfo { up_from: self.map.epoch, ..self.map.osd_info[1] };
    }

    fn mark_down(&mut self) {
        self.map.epoch += 1;
        self.map.osd_state[1] = EXISTS;
        self.map.osd_info[1].down_at = self.map.epoch;
    }

    fn handle(&mut self, event: Event) -> Vec<Effect> {
        let present = Present {
            now: self.now,
            map: &self.map,
            addrs: &self.addrs,
            monitor_open: self.monitor_open,
            healthy: self.healthy,
            maps_kept_until: self.maps_kept_until,
            placed: self.placed,
        };
        self.boot.handle(&present, event);
        let mut effects = Vec::new();
        self.boot.drain(&mut effects);
        effects
    }

    fn pass(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }
}

/// It is marked down wrongly: it serves nobody, says so, and goes on as a new instance.
const REBIND: [Effect; 3] = [Effect::CloseLeases, Effect::MarkMeDead, Effect::Rebind];
const FIRST: [Effect; 1] = [Effect::Boot { first_up: 0 }];

#[test]
fn it_boots_once_the_monitor_the_secrets_and_a_map_are_there() {
    let mut osd = Osd::new();
    assert_eq!(osd.handle(Event::MonitorOpened), [], "without secrets");
    assert_eq!(osd.handle(Event::Keyed), FIRST);
    assert_eq!(osd.handle(Event::Tick), [], "asked already");

    let mut osd = Osd::new();
    osd.monitor_open = false;
    assert_eq!(osd.handle(Event::Keyed), [], "without a monitor");
    osd.monitor_open = true;
    assert_eq!(osd.handle(Event::MonitorOpened), FIRST);

    let mut osd = Osd::new();
    osd.map.epoch = 0;
    assert_eq!(osd.handle(Event::Keyed), [], "without a map");
    osd.map.epoch = 1;
    assert_eq!(osd.handle(Event::Tick), FIRST);
}

#[test]
fn one_that_is_cut_off_does_not_boot_until_its_heartbeats_are_answered() {
    let mut osd = Osd::new();
    osd.healthy = false;
    assert_eq!(osd.handle(Event::Keyed), []);
    osd.healthy = true;
    assert_eq!(osd.handle(Event::HeartbeatsFollow), FIRST);
}

#[test]
fn one_that_keeps_a_map_from_its_pgs_does_not_boot() {
    let mut osd = Osd::new();
    osd.maps_kept_until = osd.now + Duration::from_secs(1);
    assert_eq!(osd.handle(Event::Keyed), []);
    osd.pass(1);
    assert_eq!(osd.handle(Event::Tick), FIRST);
}

#[test]
fn one_that_has_no_place_yet_does_not_boot() {
    let mut osd = Osd::new();
    osd.placed = false;
    assert_eq!(osd.handle(Event::Keyed), []);
    osd.placed = true;
    assert_eq!(osd.handle(Event::Tick), FIRST);
}

#[test]
fn another_instance_under_its_number_is_not_called_dead() {
    let mut osd = Osd::booted();
    osd.map.client_addrs[1] = addrs(7);
    assert_eq!(osd.handle(Event::Map), [Effect::CloseLeases, Effect::Rebind]);
}

#[test]
fn a_boot_that_is_not_answered_is_repeated_and_at_another_monitor_at_once() {
    let mut osd = Osd::new();
    assert_eq!(osd.handle(Event::Keyed), FIRST);
    osd.pass(4);
    assert_eq!(osd.handle(Event::Tick), []);
    osd.pass(1);
    osd.monitor_open = false;
    assert_eq!(osd.handle(Event::Tick), [], "nobody hears it");
    osd.monitor_open = true;
    assert_eq!(osd.handle(Event::Tick), FIRST);
    assert_eq!(osd.handle(Event::MonitorOpened), FIRST);
    osd.mark_up();
    osd.handle(Event::Map);
    osd.pass(5);
    assert_eq!(osd.handle(Event::Tick), [Effect::Beacon { interval: SETTINGS.beacon_interval }], "it is up");
}

#[test]
fn up_under_other_addresses_is_not_booted() {
    let mut osd = Osd::new();
    osd.handle(Event::Keyed);
    osd.mark_up();
    osd.map.client_addrs[1] = addrs(2);
    assert_eq!(osd.handle(Event::Map), []);
    assert!(!osd.boot.is_booted(), "an earlier instance");
}

#[test]
fn beacons_are_sent_in_their_interval_while_it_is_booted() {
    let beacon = [Effect::Beacon { interval: SETTINGS.beacon_interval }];
    let mut osd = Osd::booted();
    assert_eq!(osd.handle(Event::Tick), beacon);
    osd.pass(299);
    assert_eq!(osd.handle(Event::Tick), []);
    osd.pass(1);
    assert_eq!(osd.handle(Event::Tick), beacon);
    osd.pass(10);
    let beacon_interval = Duration::from_secs(10);
    osd.boot.set(Settings { beacon_interval, ..SETTINGS });
    assert_eq!(osd.handle(Event::Tick), [Effect::Beacon { interval: beacon_interval }], "at once");
    osd.boot.set(SETTINGS);
    osd.pass(300);
    osd.mark_down();
    osd.handle(Event::Map);
    osd.monitor_open = false;
    assert_eq!(osd.handle(Event::Tick), []);
}

#[test]
fn wrongly_marked_down_it_goes_on_as_a_new_instance_and_says_when_it_first_came_up() {
    let mut osd = Osd::booted();
    let first_up = osd.map.epoch;
    osd.mark_down();
    assert_eq!(osd.handle(Event::Map), REBIND);
    osd.addrs = addrs(2);
    assert!(!osd.boot.is_booted());
    assert_eq!(
        osd.handle(Event::HeartbeatsFollow),
        [Effect::Boot { first_up }],
        "the old instance's counts no more"
    );
    assert_eq!(osd.handle(Event::MonitorOpened), [Effect::Boot { first_up }]);
    osd.mark_up();
    assert_eq!(osd.handle(Event::Map), [Effect::ReopenLeases]);
    osd.mark_down();
    osd.handle(Event::Map);
    assert_eq!(osd.handle(Event::MonitorOpened), [Effect::Boot { first_up }], "still the first time");
}

#[test]
fn marked_down_too_often_of_late_it_ends() {
    let mut osd = Osd::booted();
    let down = |osd: &mut Osd| {
        osd.mark_up();
        osd.handle(Event::Map);
        osd.mark_down();
        osd.handle(Event::Map)
    };
    assert_eq!(down(&mut osd), REBIND);
    osd.pass(400);
    assert_eq!(down(&mut osd), REBIND);
    osd.pass(201); // the first is forgotten
    assert_eq!(down(&mut osd), REBIND);
    let period = SETTINGS.markdown_period;
    assert_eq!(down(&mut osd), [Effect::End(EndReason::MarkedDownTooOften { count: 3, period })]);
    assert!(osd.boot.leaving.is_some());
    assert_eq!(osd.handle(Event::MonitorOpened), [], "it does not boot again");
}

#[test]
fn one_that_the_map_no_longer_has_ends() {
    let mut osd = Osd::booted();
    osd.mark_down();
    osd.map.osd_state[1] = 0;
    assert_eq!(osd.handle(Event::Map), [Effect::End(EndReason::Removed)]);
}

#[test]
fn who_leaves_serves_nobody_and_waits_for_the_map_or_the_monitors_goodbye() {
    let leave = [Effect::CloseLeases, Effect::MarkMeDown];
    let left = [Effect::End(EndReason::Left)];
    let mut osd = Osd::booted();
    assert_eq!(osd.handle(Event::MarkedMeDown), [], "nobody asked");
    assert_eq!(osd.handle(Event::Leave), leave);
    assert_eq!(osd.boot.next_deadline(), Some(osd.now + SETTINGS.leave_timeout));
    assert_eq!(osd.handle(Event::MarkedMeDown), left);

    let mut osd = Osd::booted();
    osd.handle(Event::Tick);
    osd.handle(Event::Leave);
    osd.pass(4);
    assert_eq!(osd.handle(Event::Tick), []);
    osd.pass(1);
    assert_eq!(osd.handle(Event::Tick), [Effect::End(EndReason::NoGoodbye)]);

    let mut osd = Osd::booted();
    osd.handle(Event::Leave);
    osd.mark_down();
    assert_eq!(osd.handle(Event::Map), left, "as it asked");
    assert_eq!(osd.handle(Event::MonitorOpened), [], "it does not boot again");
}

#[test]
fn who_is_not_up_or_has_no_monitor_leaves_at_once() {
    let left = [Effect::End(EndReason::Left)];
    assert_eq!(Osd::new().handle(Event::Leave), left);
    let mut osd = Osd::booted();
    osd.monitor_open = false;
    assert_eq!(osd.handle(Event::Leave), left);
}

#[test]
fn another_history_of_maps_ends_it() {
    let mut osd = Osd::booted();
    assert_eq!(osd.handle(Event::MapsForked), [Effect::End(EndReason::MapsForked)]);
    assert!(osd.boot.leaving.is_some());
}

#[test]
fn up_thru_is_asked_for_once_and_again_at_another_monitor_until_it_is_granted() {
    let mut osd = Osd::booted();
    let alive = |up_thru| [Effect::Alive { up_thru }];
    assert_eq!(osd.handle(Event::WantUpThru(7)), alive(7));
    assert_eq!(osd.handle(Event::WantUpThru(7)), []);
    assert_eq!(osd.handle(Event::WantUpThru(6)), []);
    assert_eq!(osd.handle(Event::WantUpThru(8)), alive(8));
    osd.map.osd_info[1].up_thru = 7;
    osd.handle(Event::Map);
    assert_eq!(osd.handle(Event::MonitorOpened), alive(8));
    osd.map.osd_info[1].up_thru = 8;
    osd.handle(Event::Map);
    assert_eq!(osd.handle(Event::MonitorOpened), []);
}

#[test]
fn acting_sets_are_asked_for_until_the_map_has_them() {
    let (mut osd, one, two) = (Osd::booted(), PgId::new(1, 1), PgId::new(1, 2));
    let both = BTreeMap::from([(one, vec![2, 3]), (two, vec![])]);
    osd.map.pg_temp = BTreeMap::from([(one, vec![3]), (two, vec![3])]);
    let only_one = [Effect::PgTemp(BTreeMap::from([(one, vec![2, 3])]))];
    assert_eq!(osd.handle(Event::WantPgTemp(one, vec![2, 3])), only_one);
    assert_eq!(osd.handle(Event::WantPgTemp(two, vec![])), [Effect::PgTemp(both.clone())]);
    osd.handle(Event::Map);
    assert_eq!(osd.handle(Event::MonitorOpened), [Effect::PgTemp(both)], "not granted");
    osd.map.pg_temp.remove(&two);
    osd.handle(Event::Map);
    assert_eq!(osd.handle(Event::MonitorOpened), only_one, "none is an empty one");
    osd.map.pg_temp = BTreeMap::from([(one, vec![2, 3])]);
    osd.handle(Event::Map);
    assert_eq!(osd.handle(Event::MonitorOpened), []);
}

#[test]
fn maps_are_needed_since_the_oldest_epoch_in_which_a_pg_was_clean() {
    let stat = |state, reported_epoch, last_epoch_clean| PgStat {
        state,
        reported_epoch,
        last_epoch_clean,
        ..PgStat::default()
    };
    let clean = stat(pg_state::CLEAN, 20, 5);
    let other = stat(0, 20, 15);
    assert_eq!(min_last_epoch_clean([].into_iter(), 30), 30);
    assert_eq!(min_last_epoch_clean([&clean].into_iter(), 30), 20);
    assert_eq!(min_last_epoch_clean([&clean, &other].into_iter(), 30), 15);
}

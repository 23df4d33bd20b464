//! What the active manager shows as metrics where it is a monitor. The page is made in `nacre_mgr::metrics`.

use crate::devices::Device;
use crate::state::State;
use nacre_maps::{FileSystem, MdsInfo};
use nacre_mgr::metrics::{
    DeviceView, FsView, Health, HealthDetail, MdsView, MgrView, ModuleView, MonView, OsdView, ServiceView,
    View,
};
use nacre_mgr::pgmap::pool_usages;
use nacre_msg::ModuleInfo;
use nacre_types::AddrVec;
use nacre_types::version::VERSION_TEXT;
use std::collections::BTreeMap;
use std::sync::Arc;

fn ip_of(addrs: &AddrVec) -> String {
    addrs.front().socket.map(|socket| socket.ip().to_string()).unwrap_or_default()
}

/// What the manager knows at this moment. `sessions` are those of each monitor, by name.
#[must_use]
pub fn view(state: &State, sessions: Vec<(String, usize)>) -> View {
    let (map, pgs) = (Arc::clone(state.osd.map()), state.shown_pgs());
    let digest = pgs.digest(&map);
    let mut class_used_bytes: BTreeMap<String, i64> = BTreeMap::new();
    for (osd, stat) in pgs.osds().filter(|(osd, _)| map.exists(*osd)) {
        if let Some(class) = map.crush.item_class_name(osd) {
            let used = class_used_bytes.entry(class.to_owned()).or_default();
            *used = used.saturating_add(stat.statfs.used_raw());
        }
    }
    let osd = |id| OsdView {
        id,
        perf: state.stats.pgs.osd(id).map(|stat| stat.perf_stat.clone()),
        facts: state.osd.shared_metadata(id).cloned().unwrap_or_default(),
    };
    View {
        pool_states: pgs.states_by_pool(&map),
        usages: pool_usages(pgs, &map, &digest.pools),
        rates: map.pools.keys().map(|id| (*id, state.stats.pgs.rate(Some(*id)))).collect(),
        class_used_bytes,
        health: health(state),
        osds: map.osds().map(osd).collect(),
        mons: monitors(state),
        mgrs: managers(state),
        modules: modules(state),
        file_systems: state.fs.map().filesystems.iter().map(file_system).collect(),
        mds: metadata_servers(state),
        services: services(state),
        sessions,
        counters: state.stats.counters.all(),
        images: state.stats.images.all(),
        probes: (&state.stats.probes).into(),
        devices: devices(state),
        bill: state.stats.bill.sums(&state.stats.images),
        digest,
        map,
    }
}

/// Devices that OSDs use, at each of their places, as far as they have said something.
fn devices(state: &State) -> Vec<DeviceView> {
    if !crate::device_asking::is_enabled(state) {
        return Vec::new();
    }
    let at_places = |(id, device): (&String, &Device)| {
        let health = crate::devices::newest(state, id, device).map(|newest| newest.health);
        let view = |(host, name): &(String, String)| {
            Some(DeviceView { id: id.clone(), host: host.clone(), name: name.clone(), health: health? })
        };
        device.places.iter().filter_map(view).collect::<Vec<_>>()
    };
    crate::devices::devices(state).iter().flat_map(at_places).collect()
}

fn health(state: &State) -> Health {
    let checks = crate::health::checks(state);
    let slow = checks.iter().find(|check| check.code == "SLOW_OPS");
    let count = slow.and_then(|check| check.summary.split(' ').next()?.parse().ok());
    let mut details: BTreeMap<&str, HealthDetail> = BTreeMap::new();
    let detail = |name: &str, severity: &'static str, is_active| HealthDetail {
        name: name.to_owned(),
        severity,
        is_active,
    };
    for (code, seen) in state.health.history() {
        details.insert(code, detail(code, seen.severity, false));
    }
    for check in &checks {
        details.insert(&check.code, detail(&check.code, check.severity.as_str(), true));
    }
    Health {
        status: crate::health::overall(&checks) as u8,
        slow_ops: count.unwrap_or(0),
        details: details.into_values().collect(),
    }
}

fn monitors(state: &State) -> Vec<MonView> {
    let map = state.mon.map();
    let view = |(rank, name): (usize, &String)| MonView {
        name: name.clone(),
        rank,
        public_addr: map.mons.get(name).map(|mon| ip_of(&mon.addrs)).unwrap_or_default(),
        is_in_quorum: state.quorum.has(name),
        facts: state.monitor_facts.get(name).cloned().unwrap_or_default(),
    };
    map.ranks.iter().enumerate().map(view).collect()
}

fn managers(state: &State) -> Vec<MgrView> {
    let map = state.mgr.map();
    let own = MgrView {
        name: map.active_name.clone(),
        is_active: true,
        hostname: state.host.clone().unwrap_or_default(),
        ceph_version: VERSION_TEXT.to_owned(),
    };
    let standbys = map.standbys.values().map(|standby| {
        let said = state.mgr.metadata().find(|(name, _)| **name == standby.name).map(|(_, said)| said);
        let fact = |key: &str| said.and_then(|said| said.get(key)).cloned().unwrap_or_default();
        MgrView {
            name: standby.name.clone(),
            is_active: false,
            hostname: fact("hostname"),
            ceph_version: fact("ceph_version"),
        }
    });
    [own].into_iter().chain(standbys).collect()
}

fn modules(state: &State) -> Vec<ModuleView> {
    let map = state.mgr.map();
    let view = |module: &ModuleInfo| ModuleView {
        name: module.name.clone(),
        status: if state.mgr.is_always_on(&module.name) {
            2
        } else {
            map.modules.contains(&module.name).into()
        },
        can_run: module.can_run,
    };
    map.available_modules.iter().map(view).collect()
}

fn file_system(fs: &FileSystem) -> FsView {
    FsView {
        id: fs.fscid,
        name: fs.mds_map.fs_name.clone(),
        metadata_pool: fs.mds_map.metadata_pool,
        data_pools: fs.mds_map.data_pools.clone(),
    }
}

fn metadata_servers(state: &State) -> Vec<MdsView> {
    let map = state.fs.map();
    let view = |(fs_id, info): (i32, &MdsInfo)| MdsView {
        name: info.name.clone(),
        fs_id,
        rank: info.rank,
        public_addr: ip_of(&info.addrs),
        facts: state.fs.metadata(info.global_id).cloned().unwrap_or_default(),
    };
    let of = |info: &'_ MdsInfo| map.mds_roles.get(&info.global_id).copied().unwrap_or(-1);
    map.servers().map(|info| view((of(info), info))).collect()
}

fn services(state: &State) -> Vec<ServiceView> {
    let all = state.services.map().services.iter();
    let of = |(service, id, facts): (&String, &String, &BTreeMap<String, String>)| ServiceView {
        service: service.clone(),
        id: id.clone(),
        facts: facts.clone(),
    };
    let daemons = all.flat_map(|(service, entry)| {
        entry.daemons.iter().map(move |(id, daemon)| (service, id, &daemon.metadata))
    });
    daemons.map(of).collect()
}

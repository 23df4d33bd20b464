//! What devices say of their health: Ceph's manager module `devicehealth` (`src/pybind/mgr/devicehealth/module.py` and
//! `src/mgr/DaemonServer.cc` at v16.2.15), as far as it has an effect here.

use super::call::{Answer, Call, Failure, done, fail, refuse};
use super::device::unknown;
use super::table::{Command, command};
use crate::command::Output;
use crate::config::Who;
use crate::device_asking;
use crate::device_module::ENABLE_MONITORING;
use crate::device_samples::{DeviceRecord, Sample};
use crate::devices::{Device, devices};
use crate::life_expectancy::{self, LifeExpectancy};
use nacre_msg::DeviceHealth;
use nacre_types::{Errno, OsdId, UTime};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

pub(super) const COMMANDS: &[Command] = &[
    command("device monitoring on", "mgr", "rw", "Ask devices how they are", monitoring_on),
    command("device monitoring off", "mgr", "rw", "Ask no devices, and say nothing of them", monitoring_off),
    command(
        "device check-health",
        "mgr",
        "rw",
        "Look at what devices said, which is done anyway",
        check_health,
    ),
    command(
        "device get-health-metrics name=devid,type=CephString name=sample,type=CephString,req=false",
        "mgr",
        "r",
        "What a device said of itself",
        get_health_metrics,
    ),
    command(
        "device scrape-health-metrics name=devid,type=CephString,req=false",
        "mgr",
        "r",
        "Ask a device, or all, how they are",
        scrape_health_metrics,
    ),
    command(
        "device scrape-daemon-health-metrics name=who,type=CephString",
        "mgr",
        "r",
        "Ask a daemon's devices how they are",
        scrape_daemon_health_metrics,
    ),
    command(
        "device query-daemon-health-metrics name=who,type=CephString",
        "mgr",
        "r",
        "Refused: 'ceph tell osd.N smart' says it",
        query_daemon_health_metrics,
    ),
    command(
        "device predict-life-expectancy name=devid,type=CephString",
        "mgr",
        "r",
        "Refused: nobody predicts it here",
        predict_life_expectancy,
    ),
    command(
        "device set-life-expectancy name=devid,type=CephString name=from,type=CephString name=to,type=CephString,req=false",
        "mgr",
        "rw",
        "When a device is expected to fail",
        set_life_expectancy,
    ),
    command(
        "device rm-life-expectancy name=devid,type=CephString",
        "mgr",
        "rw",
        "Forget when a device is expected to fail",
        rm_life_expectancy,
    ),
];

fn monitoring(call: &mut Call<'_>, value: &str) -> Answer {
    let Some(managers) = Who::parse("mgr") else { return fail(Errno::EINVAL, "no section mgr") };
    let stored = call.state.config.set_of_module(&managers, ENABLE_MONITORING, value.to_owned());
    stored.map_err(|error| refuse(Errno::from(&error), error.to_string()))?;
    done("")
}

fn monitoring_on(call: &mut Call<'_>) -> Answer {
    monitoring(call, "true")
}

fn monitoring_off(call: &mut Call<'_>) -> Answer {
    monitoring(call, "false")
}

/// Health looks at what devices said each second.
fn check_health(call: &mut Call<'_>) -> Answer {
    match device_asking::is_enabled(call.state) {
        true => done(""),
        false => fail(Errno::EINVAL, "nobody looks at devices: 'ceph device monitoring on' comes first"),
    }
}

/// The time of a sample as Ceph's module writes it: `20260131-235959`.
fn key(at: UTime) -> String {
    let digits: Vec<char> = at.to_string().chars().filter(char::is_ascii_digit).take(14).collect();
    let (date, time) = digits.split_at(digits.len().min(8));
    date.iter().chain(&['-']).chain(time).collect()
}

/// What matters of what a device said, by the names of [`DeviceHealth`]; what it did not say is not there.
fn facts(health: &DeviceHealth) -> Value {
    let facts = [
        ("smart_passed", health.smart_passed.map(Value::from)),
        ("critical_warning", health.critical_warning.map(Value::from)),
        ("available_spare", health.available_spare.map(Value::from)),
        ("available_spare_threshold", health.available_spare_threshold.map(Value::from)),
        ("percentage_used", health.percentage_used.map(Value::from)),
        ("media_errors", health.media_errors.map(Value::from)),
        ("reallocated", health.reallocated.map(Value::from)),
        ("pending", health.pending.map(Value::from)),
        ("temperature_c", health.temperature_c.map(Value::from)),
        ("power_on_hours", health.power_on_hours.map(Value::from)),
    ];
    facts
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect::<Map<_, _>>()
        .into()
}

/// Samples by time: of each the facts, and of the newest what `smartctl` said besides.
fn samples(record: &DeviceRecord, wanted: &str) -> Map<String, Value> {
    let newest = record.newest().map(|newest| newest.at);
    let said: Map<String, Value> = serde_json::from_slice(&record.json).unwrap_or_default();
    let sample = |sample: &Sample| {
        let mut told = if newest == Some(sample.at) { said.clone() } else { Map::new() };
        told.insert("health".to_owned(), facts(&sample.health));
        (key(sample.at), Value::from(told))
    };
    let all = record.samples.iter().map(sample);
    all.filter(|(at, _)| wanted.is_empty() || at == wanted).collect()
}

fn get_health_metrics(call: &mut Call<'_>) -> Answer {
    let (id, wanted) = (call.args.text("devid"), call.args.text("sample"));
    let samples = match call.state.device_samples.record(id) {
        Some(record) => samples(record, wanted),
        // One that said nothing yet.
        None if devices(call.state).contains_key(id) => Map::new(),
        None => return Err(unknown(id)),
    };
    Ok(Output::data(format!("{:#}\n", Value::from(samples))))
}

/// Why a device cannot be asked now.
fn cannot_ask(call: &Call<'_>, id: &str, device: &Device) -> Option<Failure> {
    if let Some(why) = device.ambiguity() {
        return Some(refuse(Errno::EINVAL, format!("device {id} cannot be asked: {why}")));
    }
    let is_up = device.osds.iter().any(|osd| call.state.osd.map().is_up(*osd));
    let why =
        || format!("device {id} cannot be asked: none of its OSDs ({}) is up", device.daemons().join(", "));
    (!is_up).then(|| refuse(Errno::EAGAIN, why()))
}

/// Has those of these asked that can be; fails where none can. The answer does not wait for them: a device that fails may take long.
fn ask(call: &mut Call<'_>, devices: &BTreeMap<String, Device>) -> Answer {
    let (mut asked, mut refused) = (Vec::new(), Vec::new());
    for (id, device) in devices {
        match cannot_ask(call, id, device) {
            None => asked.push(id),
            Some(why) => refused.push(why),
        }
    }
    let others = refused.len();
    let why = refused.into_iter().next();
    let more = match (asked.is_empty(), why) {
        (true, Some(why)) => return Err(why),
        (_, Some(why)) => format!("; not asked: {others}, for example: {}", why.text),
        (_, None) => String::new(),
    };
    let now = call.now;
    if !asked.iter().all(|id| call.state.device_scrapes.want(id, now)) {
        return fail(Errno::EAGAIN, "too many devices wait to be asked; try again in a minute");
    }
    let what = match asked[..] {
        [one] => format!(
            "device {one} is asked; 'ceph device get-health-metrics {one}' has the answer in some seconds"
        ),
        _ => format!(
            "{} devices are asked, eight in a second; 'ceph device get-health-metrics ID' has the answers",
            asked.len()
        ),
    };
    done(what + &more)
}

fn scrape_health_metrics(call: &mut Call<'_>) -> Answer {
    let id = call.args.text("devid").to_owned();
    let mut all = devices(call.state);
    all.retain(|known, _| id.is_empty() || *known == id);
    match all.is_empty() {
        true if id.is_empty() => {
            fail(Errno::ENOENT, "no OSD names a device with an id (docs/runbooks/device-health.md)")
        }
        true => Err(unknown(&id)),
        false => ask(call, &all),
    }
}

/// The OSD of a daemon's name.
fn osd(call: &Call<'_>) -> Result<OsdId, Failure> {
    let who = call.args.text("who");
    let osd = who.strip_prefix("osd.").and_then(|id| id.parse().ok());
    let osd = osd.ok_or_else(|| {
        refuse(Errno::EINVAL, format!("'{who}' is no OSD such as osd.0: only OSDs know devices"))
    })?;
    match call.state.osd.map().exists(osd) {
        true => Ok(osd),
        false => fail(Errno::ENOENT, format!("there is no osd.{osd}")),
    }
}

fn scrape_daemon_health_metrics(call: &mut Call<'_>) -> Answer {
    let osd = osd(call)?;
    let mut all = devices(call.state);
    all.retain(|_, device| device.osds.contains(&osd));
    if all.is_empty() {
        return fail(Errno::ENOENT, format!("osd.{osd} names no device with an id"));
    }
    ask(call, &all)
}

fn query_daemon_health_metrics(call: &mut Call<'_>) -> Answer {
    let osd = osd(call)?;
    let text = format!("'ceph tell osd.{osd} smart' says it: nobody here waits for devices");
    fail(Errno::EOPNOTSUPP, text)
}

fn predict_life_expectancy(call: &mut Call<'_>) -> Answer {
    let id = call.args.text("devid");
    let text = format!(
        "there is no model here that could predict it: health goes by what device {id} says of itself, and by \
         'ceph device set-life-expectancy'"
    );
    fail(Errno::EOPNOTSUPP, text)
}

/// A moment, or a day, which is its beginning.
fn moment(call: &Call<'_>, name: &str) -> Result<UTime, Failure> {
    let text = call.args.text(name).trim();
    let day = format!("{text}T00:00:00");
    let at = UTime::parse(text).or_else(|| UTime::parse(&day)).filter(|at| !at.is_zero());
    at.ok_or_else(|| {
        refuse(
            Errno::EINVAL,
            format!("unable to parse datetime '{text}': write 2027-01-31 or 2027-01-31T23:59:59Z"),
        )
    })
}

fn set_life_expectancy(call: &mut Call<'_>) -> Answer {
    let id = call.args.text("devid").to_owned();
    let min = moment(call, "from")?;
    let max = if call.args.text("to").is_empty() { None } else { Some(moment(call, "to")?) };
    if max.is_some_and(|max| max < min) {
        return fail(
            Errno::EINVAL,
            "the time until which it may last comes before that from which it may fail",
        );
    }
    if !devices(call.state).contains_key(&id) {
        return Err(unknown(&id));
    }
    let life = LifeExpectancy { min, max, stamp: call.wall };
    match life_expectancy::set(&mut call.state.config_keys, &id, Some(life)) {
        true => done(""),
        false => fail(Errno::ENOSPC, "the store of config keys is full"),
    }
}

fn rm_life_expectancy(call: &mut Call<'_>) -> Answer {
    let id = call.args.text("devid").to_owned();
    if call.state.life_expectancies.of(&id).is_none() && !devices(call.state).contains_key(&id) {
        return Err(unknown(&id));
    }
    life_expectancy::set(&mut call.state.config_keys, &id, None);
    done("")
}

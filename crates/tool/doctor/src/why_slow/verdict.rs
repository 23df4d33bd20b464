//! [`Verdict`]: what clients wait for, as far as the numbers of an [`Account`] say it, the one that most of their time is of first. Each is
//! named with the figures that exclude the others: an OSD by what is at it beside what is at others, a client by what is at OSDs because
//! of it, the clients themselves by OSDs that have nothing to do.

use super::account::Account;
use crate::host::clients::ClientProcess;
use nacre_types::OsdId;
use serde_json::{Value, json};

/// Of all waiting, what one OSD must have to be named, and how many times its part if all were alike.
const OSD_SHARE_MIN: f64 = 0.4;
const OSD_TIMES: f64 = 2.0;
/// Its device is it, where requests to it take so many times as long as to others' in the middle, and so much longer.
const DEVICE_TIMES: f64 = 2.0;
const DEVICE_EXCESS_MS: f64 = 1.0;
/// A thread that is on a processor for more of the time has none left.
const BUSY_SHARE: f64 = 0.9;
/// Of all that is under way, what one client or image must have to be named, and how much must be under way.
const CLIENT_SHARE_MIN: f64 = 0.6;
const IN_FLIGHT_MIN: f64 = 4.0;
const SEEN_MIN: f64 = 20.0;
/// With less at OSDs at a time, for each client, it is not OSDs that clients wait for.
const IDLE_MAX: f64 = 0.5;

/// See the module's documentation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Verdict {
    /// `slow-device`, `osd-busy`, `slow-osd`, `noisy-client`, `noisy-image`, `recovery`, `scrub`, `client-cpu`, `client-or-network`.
    pub(super) cause: &'static str,
    pub(super) subject: String,
    pub(super) measured: String,
    pub(super) advice: String,
    /// Of the time that clients wait, the part that is of this; orders verdicts.
    pub(super) share: f64,
}

impl Verdict {
    pub(super) fn to_json(&self) -> Value {
        let Self { cause, subject, measured, advice, share } = self;
        json!({ "cause": cause, "subject": subject, "measured": measured, "advice": advice, "share": share })
    }

    pub(super) fn to_text(&self) -> String {
        let Self { cause, subject, measured, advice, .. } = self;
        format!("=> {subject} ({cause})\n      measured: {measured}\n      do:       {advice}")
    }
}

/// What is known beside the account.
#[derive(Debug, Default, Clone)]
pub(super) struct Beside {
    /// PGs of which copies are being made, and compared.
    pub(super) recovering: u64,
    pub(super) scrubbing: u64,
    /// Client processes on this machine, the busiest first.
    pub(super) processes: Vec<ClientProcess>,
    /// Clients' settings that keep them from having much under way.
    pub(super) settings: Vec<String>,
}

/// The most likely first; none where nothing stands out.
pub(super) fn verdicts(account: &Account, beside: &Beside) -> Vec<Verdict> {
    let count = account.whole.iter().map(|(count, _)| count).sum::<u64>();
    if count == 0 {
        return Vec::new();
    }
    let mut found: Vec<Verdict> =
        [slow_osd(account), noisy(account), background(account, beside), clients(account, beside)]
            .into_iter()
            .flatten()
            .collect();
    found.sort_by(|a, b| b.share.total_cmp(&a.share));
    found
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Seconds that clients waited for each OSD: its own stages, and what others waited for its copies, by what was seen.
fn waited_for(account: &Account) -> Vec<(OsdId, f64)> {
    let of = |osd: OsdId| {
        let parts = account.parts.iter().map(|part| match part.stage {
            "replicated" => {
                let (waits, _) = account.samples.waits_of(part.osd);
                let share = waits.iter().find(|(other, _)| *other == osd).map_or(0.0, |(_, share)| *share);
                part.seconds * share
            }
            _ if part.osd == osd => part.seconds,
            _ => 0.0,
        });
        parts.sum::<f64>()
    };
    account.measured.keys().map(|osd| (*osd, of(*osd))).collect()
}

fn slow_osd(account: &Account) -> Option<Verdict> {
    let (osd, seconds) = waited_for(account).into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let share = seconds / account.total_s().max(f64::MIN_POSITIVE);
    let alike = 1.0 / account.osds.max(1) as f64;
    if account.osds < 3 || share < OSD_SHARE_MIN || share < alike * OSD_TIMES {
        return None;
    }
    let own = account.measured.get(&osd)?;
    let others_ms = account.median_of_others(osd, |measured| measured.device_ms);
    let others_share = account.median_of_others(osd, |measured| measured.thread_share);
    let is_device = own
        .device_ms
        .zip(others_ms)
        .is_some_and(|(ms, others_ms)| ms >= others_ms * DEVICE_TIMES && ms - others_ms >= DEVICE_EXCESS_MS);
    let is_busy = own.thread_share.is_some_and(|share| share >= BUSY_SHARE);
    let ms = |ms: Option<f64>| ms.map_or_else(|| "unknown".to_owned(), |ms| format!("{ms:.1} ms"));
    let thread = |share: Option<f64>| share.map_or_else(|| "unknown".to_owned(), percent);
    let (cause, subject) = match (is_busy, is_device) {
        (true, _) => ("osd-busy", format!("osd.{osd}'s thread has no time left")),
        (false, true) => {
            ("slow-device", format!("osd.{osd}'s device is slow, or its process does not get to run"))
        }
        (false, false) => ("slow-osd", format!("osd.{osd} is what clients wait for")),
    };
    Some(Verdict {
        cause,
        subject,
        measured: format!(
            "{} of all waiting is for it, {} would be its part; a request to its device takes {} (others {}), its thread is on a processor for {} (others {})",
            percent(share),
            percent(alike),
            ms(own.device_ms),
            ms(others_ms),
            thread(own.thread_share),
            thread(others_share),
        ),
        advice: format!(
            "`nacre doctor -c` tells device, process and network apart; ceph osd primary-affinity {osd} 0 takes reads off it"
        ),
        share,
    })
}

/// One client or image that has most of what is under way, beside others, while there is much.
fn noisy(account: &Account) -> Option<Verdict> {
    let samples = &account.samples;
    if samples.messages < SEEN_MIN || samples.in_flight() < IN_FLIGHT_MIN {
        return None;
    }
    let clients = samples.clients();
    let (client, share) = clients.first().filter(|(_, share)| *share >= CLIENT_SHARE_MIN)?;
    let second = clients.get(1)?;
    let images = samples.images();
    let image = images.first().filter(|(_, share)| *share >= CLIENT_SHARE_MIN);
    let busiest = account.measured.values().filter_map(|of| of.thread_share).fold(0.0, f64::max);
    let deepest = account.measured.values().filter_map(|of| of.depth).fold(0.0, f64::max);
    let on_image =
        image.map(|(image, of)| format!(", {} of them of image {image}", percent(*of))).unwrap_or_default();
    Some(Verdict {
        cause: if image.is_some() { "noisy-image" } else { "noisy-client" },
        subject: format!("{client} takes most of what OSDs can do{}", image.map(|(image, _)| format!(", with image {image}")).unwrap_or_default()),
        measured: format!(
            "{} of {:.0} messages seen under way ({:.1} at a time) are {client}'s{on_image}; the next, {}, has {}; the busiest OSD's thread is on a \
             processor for {}, at the deepest device are {deepest:.1} requests at a time",
            percent(*share),
            samples.messages,
            samples.in_flight(),
            second.0,
            percent(second.1),
            percent(busiest),
        ),
        advice: "bound it where it runs (QEMU's throttling, rbd_qos_iops_limit, fewer at a time), or give OSDs more to work with".to_owned(),
        share: *share,
    })
}

/// What is done in the background, where clients' messages are seen waiting for it or nothing else explains more.
fn background(account: &Account, beside: &Beside) -> Option<Verdict> {
    let (cause, subject, pgs) = match (beside.recovering, beside.scrubbing) {
        (0, 0) => return None,
        (0, scrubbing) => ("scrub", "copies are being compared (scrub)", scrubbing),
        (recovering, _) => ("recovery", "copies of objects are being made", recovering),
    };
    let executed: f64 =
        account.parts.iter().filter(|part| part.stage == "executed").map(|part| part.seconds).sum();
    let share = executed / account.total_s().max(f64::MIN_POSITIVE);
    Some(Verdict {
        cause,
        subject: subject.to_owned(),
        measured: format!(
            "{pgs} PGs; {} of all waiting is for objects that are recovered or compared, or for messages before them",
            percent(share)
        ),
        advice: if cause == "scrub" {
            "wait; osd_scrub_begin_hour and osd_scrub_end_hour keep it to the night".to_owned()
        } else {
            "wait, or nacre recovery target p99=...: recovery then goes as fast as clients' latency allows"
                .to_owned()
        },
        share,
    })
}

/// OSDs have nothing to do for most of the time: clients are what is slow, or the way to OSDs.
fn clients(account: &Account, beside: &Beside) -> Option<Verdict> {
    let count = account.samples.clients().len().max(beside.processes.len()).max(1);
    let at_a_time = account.total_s() / account.window_s;
    let idle = 1.0 - at_a_time / count as f64;
    if at_a_time >= IDLE_MAX * count as f64 {
        return None;
    }
    let messages = account.whole.iter().map(|(count, _)| count).sum::<u64>();
    let busiest = account.measured.values().filter_map(|of| of.thread_share).fold(0.0, f64::max);
    let measured = format!(
        "OSDs had {at_a_time:.2} messages at a time of {count} clients, {:.2} ms each, and their busiest thread was on a processor for {}: for {} of \
         the time clients waited for none",
        account.total_s() * 1e3 / messages.max(1) as f64,
        percent(busiest),
        percent(idle),
    );
    let settings = if beside.settings.is_empty() {
        String::new()
    } else {
        format!("; set: {}", beside.settings.join(", "))
    };
    let more = "more at a time (threads, iodepth, aio), a larger block size, or more clients";
    let busy = beside.processes.first().filter(|process| process.wanted >= BUSY_SHARE);
    Some(match busy {
        Some(process) => Verdict {
            cause: "client-cpu",
            subject: format!("the client itself is what is slow: {} (process {})", process.comm, process.pid),
            measured: format!(
                "its thread {} was on a processor for {} of the time and wanted to be for {}: it has none left; {measured}{settings}",
                process.thread,
                percent(process.on),
                percent(process.wanted)
            ),
            advice: format!("spread its work over threads; with librbd: rbd_op_threads, librados_thread_count, several images; {more}"),
            share: idle,
        },
        None => Verdict {
            cause: "client-or-network",
            subject: "clients keep OSDs idle".to_owned(),
            measured: format!(
                "{measured}; {}{settings}",
                match beside.processes.first() {
                    Some(process) => format!("the busiest of them on this machine, {} (process {}), wants a processor for {} of the time: it asks too little at a time", process.comm, process.pid, percent(process.wanted)),
                    None => "none of them runs on this machine: run this where they do to tell them from the network".to_owned(),
                }
            ),
            advice: more.to_owned(),
            share: idle,
        },
    })
}

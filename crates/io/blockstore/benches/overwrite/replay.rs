//! The raw device under the same requests: what a store asked of its files is asked of them again, at the same moments, with no store
//! above them. What the log's requests then take is the device's own, with its other requests beside them.

#![allow(
    clippy::disallowed_methods,
    reason = "a tool: requests wait for their moments on threads of their own"
)]

use crate::recorded::{CACHED, DURABLE, DataRequest, FLUSH, FileCall, FileRequest, Kept, LOG, READ};
use nacre_buf::{AlignedBuf, Bytes};
use nacre_env::disk::{DiskTag, Durability};
use nacre_env::real::{DriverChoice, RealDisk};
use nacre_env::{Clock, Disk, File, RealClock};
use nacre_types::Stamp;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How far ahead of its moment a request may be waited for without sleeping.
const SPIN: Duration = Duration::from_micros(150);

/// Asks for all of it again, and says how long the log's requests took, as the store saw them and now: each, and for each of the clients'
/// writes that waited for it. What the files held is overwritten.
///
/// # Errors
/// When a file cannot be opened, or fails.
pub(crate) fn replay(folder: &Path, kept: Kept) -> anyhow::Result<()> {
    let clock = RealClock::start();
    let Some(first) = kept.data.iter().map(|request| request.at).min() else { return Ok(()) };
    let seen: Vec<(Duration, usize)> = logs(&kept.data);
    let mut opened: Vec<(&str, Arc<dyn File>)> = Vec::new();
    for (name, ..) in &kept.files {
        if opened.iter().all(|(known, _)| known != name) {
            opened.push((name, nacre_kv::open_file(&folder.join(name))?));
        }
    }
    let begin = clock.now() + Duration::from_millis(100);
    let mut threads = Vec::new();
    let (mut writes, mut syncs, mut bytes) = (0, 0, 0);
    for (name, _, calls) in kept.files {
        for call in &calls {
            match call.call {
                FileCall::Write => (writes, bytes) = (writes + 1, bytes + call.bytes),
                FileCall::Sync => syncs += 1,
                FileCall::Read | FileCall::WriteBack => (),
            }
        }
        let file = opened.iter().find(|(known, _)| *known == name).map(|(_, file)| Arc::clone(file));
        let file = file.expect("opened above");
        threads.push(std::thread::spawn(move || ask_file(file.as_ref(), &calls, clock, first, begin)));
    }
    let again = ask_disk(&folder.join("block"), kept.data, clock, first, begin)?;
    for thread in threads {
        thread.join().expect("no panic")?;
    }
    let mut out = std::io::stdout();
    let megabytes = bytes as f64 / 1e6;
    writeln!(out, "asked again beside it: {writes} writes of metadata, {megabytes:.0} MB, {syncs} syncs")?;
    for (what, took) in [("as the store saw them", seen), ("the raw device", logs(&again))] {
        let each: Vec<(Duration, usize)> = took.iter().map(|(took, _)| (*took, 1)).collect();
        writeln!(
            out,
            "the log's requests, {what}: {}; by the writes that waited for each: {}",
            spread(each),
            spread(took)
        )?;
    }
    Ok(())
}

/// How long each request of the log took, and how many writes waited for it.
fn logs(requests: &[DataRequest]) -> Vec<(Duration, usize)> {
    let logs = requests.iter().filter(|request| request.kind == LOG);
    logs.filter_map(|request| Some((request.done?.since(request.at), request.writes))).collect()
}

/// Median, the last thousandth, and how many times the median that is.
fn spread(mut took: Vec<(Duration, usize)>) -> String {
    took.sort_unstable();
    let all: usize = took.iter().map(|(_, count)| count).sum();
    let at = |per_mille: usize| {
        let mut left = all * per_mille / 1000;
        let found = took.iter().find(|(_, count)| {
            let is_it = left < *count;
            left = left.saturating_sub(*count);
            is_it
        });
        found.map(|(took, _)| *took).unwrap_or_default()
    };
    let (median, tail) = (at(500), at(999));
    let times = tail.as_secs_f64() / median.as_secs_f64().max(1e-9);
    format!("{all}, p50 {median:?}, p99 {:?}, p99.9 {tail:?}, {times:.1} times", at(990))
}

fn sleep_until(clock: RealClock, moment: Stamp) {
    let left = moment.since(clock.now());
    if !left.is_zero() {
        std::thread::sleep(left);
    }
}

fn ask_file(
    file: &dyn File,
    calls: &[FileRequest],
    clock: RealClock,
    first: Stamp,
    begin: Stamp,
) -> std::io::Result<()> {
    let mut buffer = vec![5; calls.iter().map(|call| call.bytes).max().unwrap_or(0)];
    for call in calls {
        sleep_until(clock, begin + call.at.since(first));
        let part = buffer.get_mut(..call.bytes).unwrap_or_default();
        match call.call {
            // Past what is there now: the file was longer for a while.
            FileCall::Read | FileCall::Write if call.offset + call.bytes as u64 > file.length()? => (),
            FileCall::Read => file.read(call.offset, part)?,
            FileCall::Write => file.write(call.offset, part)?,
            FileCall::Sync => file.sync()?,
            FileCall::WriteBack => file.write_back()?,
        }
    }
    Ok(())
}

/// Gives the requests with the times of now.
fn ask_disk(
    path: &Path,
    mut requests: Vec<DataRequest>,
    clock: RealClock,
    first: Stamp,
    begin: Stamp,
) -> anyhow::Result<Vec<DataRequest>> {
    let mut disk = RealDisk::open(path, DriverChoice::Auto)?;
    let longest = requests.iter().map(|request| request.bytes).max().unwrap_or(0);
    let mut data = AlignedBuf::with_len(longest);
    data.fill(5);
    let data: Bytes = data.freeze();
    let (mut done, mut next, mut under_way) = (Vec::new(), 0, 0_usize);
    while next < requests.len() || under_way > 0 {
        let now = clock.now();
        while let Some(request) =
            requests.get_mut(next).filter(|request| begin + request.at.since(first) <= now)
        {
            let (tag, bytes) = (DiskTag(next as u64), request.bytes);
            let durability = if request.kind == CACHED { Durability::Cached } else { Durability::Durable };
            match request.kind {
                LOG | DURABLE | CACHED => {
                    disk.write(request.offset, data.slice(..bytes).into(), durability, tag)
                }
                READ => disk.read(request.offset, AlignedBuf::with_len(bytes), tag),
                FLUSH => disk.flush(tag),
                kind => anyhow::bail!("kind {kind} of a request"),
            }
            (request.at, request.done) = (now, None);
            (next, under_way) = (next + 1, under_way + 1);
        }
        disk.submit();
        disk.drain(&mut done);
        let now = clock.now();
        for completion in done.drain(..) {
            completion.result?;
            under_way -= 1;
            let at = usize::try_from(completion.tag.0)?;
            requests.get_mut(at).into_iter().for_each(|request| request.done = Some(now));
        }
        // It sleeps only where nothing is on its way: what is done is to be seen at once.
        if under_way == 0
            && let Some(request) = requests.get(next)
        {
            sleep_until(clock, begin + request.at.since(first).saturating_sub(SPIN));
        } else {
            std::thread::yield_now();
        }
    }
    Ok(requests)
}

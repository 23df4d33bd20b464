//! Reports of crashes of our daemons: written by the thread that panics, posted to the monitors by whichever process of the folder runs.
//!
//! They lie as `ceph-crash` expects them (Ceph v16.2.15: `src/global/signal_handler.cc`, `src/ceph-crash.in`), which can post them as well:
//! `FOLDER/crash/ID/meta` is complete once `done` is beside it, and moves to `FOLDER/crash/posted/ID` when the monitors have it. Posting
//! takes the administrator's key; where the folder has none, they wait for somebody who has.

use crate::ask::Admin;
use crate::files::Folder;
use crate::machine::host_name;
use anyhow::{Context, Result};
use nacre_env::{Clock, RealClock, SystemEntropy};
use nacre_types::version::VERSION_SHORT;
use nacre_types::{Entropy, Errno, Uuid};
use serde_json::{Value, json};
use std::backtrace::Backtrace;
use std::fs;
use std::panic::PanicHookInfo;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

/// Reports that wait, and reports that were posted, in a folder: a daemon that crashes in a loop fills no disk.
const REPORTS_MAX: usize = 100;
/// Frames of the stack that a report has.
const FRAMES_MAX: usize = 100;
/// Bytes of one frame's name, and of the message.
const TEXT_BYTES_MAX: usize = 400;
/// Bytes of a report that is posted; the monitors take no more.
const REPORT_BYTES_MAX: u64 = 64 << 10;
/// How often a process looks for reports. The first time it waits as long: its monitors may be about to start.
const INTERVAL: Duration = Duration::from_secs(5);
/// How long it waits at most once the monitors have said that they do not take one now.
const INTERVAL_MAX: Duration = Duration::from_secs(300);

/// From now on a panic of any thread of this process leaves a report in the folder, and reports there are posted.
pub(crate) fn begin(folder: &Folder, daemon: &str) {
    static BEGUN: Once = Once::new();
    let (path, daemon) = (folder.path().join("crash"), daemon.to_owned());
    BEGUN.call_once(|| {
        let post_of = folder.path().to_owned();
        let usual = std::panic::take_hook();
        let reports = path.clone();
        std::panic::set_hook(Box::new(move |info| {
            usual(info);
            match write(&reports, &report(info, &daemon)) {
                Ok(path) => {
                    tracing::error!(path = %path.display(), "this is a bug of ours; a report of it is kept")
                }
                Err(error) => {
                    tracing::error!(error = format!("{error:#}"), "no report of this crash could be kept")
                }
            }
        }));
        let post = move || post_for_ever(&post_of, &path);
        if let Err(error) = std::thread::Builder::new().name("crash".to_owned()).spawn(post) {
            tracing::warn!(%error, "nobody posts reports of crashes: no thread for it");
        }
    });
}

fn cut(text: &str) -> String {
    text.chars().take(TEXT_BYTES_MAX).collect()
}

fn report(info: &PanicHookInfo<'_>, daemon: &str) -> Value {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    // Threads of daemons bear their names: `osd.0/1`, `mon.a`.
    let entity = thread.split('/').next().filter(|name| name.starts_with("osd.") || name.starts_with("mon."));
    let timestamp = RealClock::start().wall().to_string().replace("+0000", "Z");
    let mut random = [0; 16];
    SystemEntropy::default().fill(&mut random);
    let uuid = Uuid::from_random(random);
    let (file, line) = info.location().map_or(("unknown", 0), |at| (at.file(), at.line()));
    let message = cut(info.payload_as_str().unwrap_or("without a message"));
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    json!({
        "crash_id": format!("{timestamp}_{uuid}"),
        "timestamp": timestamp,
        "entity_name": entity.unwrap_or(daemon),
        "process_name": "nacre",
        "ceph_version": VERSION_SHORT,
        "nacre_version": env!("CARGO_PKG_VERSION"),
        "utsname_hostname": host_name(),
        "utsname_sysname": "Linux",
        "utsname_release": release.trim(),
        "utsname_machine": std::env::consts::ARCH,
        "assert_thread_name": thread,
        "assert_file": file,
        "assert_line": line,
        // In the layout of Ceph's own, which its manager takes apart.
        "assert_msg": format!("{file}: In function 'panic' thread {thread} time {timestamp}\n{file}: {line}: {message}\n"),
        "backtrace": frames(&Backtrace::force_capture().to_string()),
    })
}

/// Names of the functions on the stack, in the layout of Ceph's own: `(NAME+OFFSET) [ADDRESS]`.
fn frames(text: &str) -> Vec<String> {
    let name = |line: &str| {
        let (number, name) = line.trim().split_once(": ")?;
        number.parse::<u32>().ok()?;
        Some(format!("({}+0x0) [{number}]", cut(name)))
    };
    text.lines().filter_map(name).take(FRAMES_MAX).collect()
}

fn count(path: &Path) -> usize {
    fs::read_dir(path).map_or(0, Iterator::count)
}

fn write(reports: &Path, report: &Value) -> Result<PathBuf> {
    if count(reports) > REPORTS_MAX {
        anyhow::bail!("{REPORTS_MAX} others wait in {} to be posted", reports.display());
    }
    let path = reports.join(report["crash_id"].as_str().unwrap_or_default());
    let why = || path.display().to_string();
    fs::create_dir_all(&path).with_context(why)?;
    fs::write(path.join("meta"), format!("{report:#}\n")).with_context(why)?;
    fs::write(path.join("done"), "").with_context(why)?;
    Ok(path)
}

/// Reports that are complete and wait.
fn waiting(reports: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(reports).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = entries.filter(|path| path.join("done").exists()).collect();
    found.sort();
    found
}

fn post_for_ever(folder: &Path, reports: &Path) {
    let mut interval = INTERVAL;
    loop {
        std::thread::sleep(interval);
        match post_all(folder, reports) {
            Ok(None) => interval = INTERVAL,
            Ok(Some(why)) => {
                if interval == INTERVAL {
                    tracing::warn!(why, "the monitors do not take reports of crashes now; they wait");
                }
                interval = (interval * 2).min(INTERVAL_MAX);
            }
            Err(error) => tracing::debug!(error = format!("{error:#}"), "reports of crashes wait"),
        }
    }
}

/// Posts what waits; why some of it still does, where the monitors have said so.
fn post_all(folder: &Path, reports: &Path) -> Result<Option<String>> {
    let found = waiting(reports);
    if found.is_empty() {
        return Ok(None);
    }
    let mut admin = Admin::new(&Folder::open(folder)?)?;
    for path in found {
        let meta = path.join("meta");
        // Another process of the folder may have been faster.
        let Ok(about) = fs::metadata(&meta) else { continue };
        let mut aside = Some("refused");
        let mut why = format!("it is longer than {REPORT_BYTES_MAX} bytes");
        if about.len() <= REPORT_BYTES_MAX {
            let Ok(report) = fs::read(&meta) else { continue };
            let answer = admin.try_ask_with(r#"{"prefix":"crash post"}"#, &report)?;
            (aside, why) = (aside_by(answer.result), answer.status);
        }
        let Some(aside) = aside else { return Ok(Some(why)) };
        if aside == "refused" {
            tracing::warn!(path = %meta.display(), why, "a report of a crash is refused");
        }
        // As above.
        let _is_there = put_aside(reports, &path, aside);
    }
    Ok(None)
}

/// The folder of reports that were answered so. What cannot be taken now may be later: too many others, a key that is not allowed to.
fn aside_by(result: i32) -> Option<&'static str> {
    match result {
        0 => Some("posted"),
        wrong if wrong == Errno::EINVAL.negated() => Some("refused"),
        _ => None,
    }
}

/// Moves a report to others that were dealt with, of which the oldest go.
fn put_aside(reports: &Path, path: &Path, folder: &str) -> std::io::Result<()> {
    let folder = reports.join(folder);
    fs::create_dir_all(&folder)?;
    let name = path.file_name().unwrap_or_default();
    fs::rename(path, folder.join(name))?;
    let mut all: Vec<PathBuf> = fs::read_dir(&folder)?.flatten().map(|entry| entry.path()).collect();
    all.sort();
    let surplus = all.len().saturating_sub(REPORTS_MAX);
    all.iter().take(surplus).try_for_each(fs::remove_dir_all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_named_as_ceph_names_them() {
        let text = "   0: std::panicking::begin\n             at /a/b.rs:1:2\n   1: <T as U>::run\n";
        assert_eq!(frames(text), ["(std::panicking::begin+0x0) [0]", "(<T as U>::run+0x0) [1]"]);
        assert!(frames("disabled backtrace").is_empty());
    }

    #[test]
    fn only_what_is_no_report_is_refused_for_good() {
        let results = [0, Errno::EINVAL.negated(), Errno::ENOSPC.negated(), Errno::EACCES.negated()];
        assert_eq!(results.map(aside_by), [Some("posted"), Some("refused"), None, None]);
    }

    #[test]
    fn reports_wait_until_they_are_complete_and_old_ones_go() {
        let folder = std::env::temp_dir().join(format!("nacre-crash-{}", std::process::id()));
        let _none_is_left = fs::remove_dir_all(&folder);
        let path = write(&folder, &json!({ "crash_id": "b" })).expect("a folder");
        fs::create_dir_all(folder.join("a")).expect("a folder");
        assert_eq!(waiting(&folder), std::slice::from_ref(&path), "a is not complete");
        put_aside(&folder, &path, "posted").expect("a folder");
        assert!(waiting(&folder).is_empty());
        for number in 0..REPORTS_MAX {
            let path = write(&folder, &json!({ "crash_id": format!("c{number:03}") })).expect("a folder");
            put_aside(&folder, &path, "posted").expect("a folder");
        }
        assert_eq!(count(&folder.join("posted")), REPORTS_MAX);
        assert!(!folder.join("posted/b").exists(), "the oldest");
        fs::remove_dir_all(&folder).expect("a folder");
    }
}

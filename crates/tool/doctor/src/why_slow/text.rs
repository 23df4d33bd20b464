//! The account for people: the largest parts first, until little is left.

use super::account::{Account, Part};

/// Parts are shown until they explain this share.
const EXPLAINED: f64 = 0.95;
const SHOWN_MAX: usize = 12;
/// Fewer samples say little.
const SEEN_MIN: f64 = 20.0;
/// Times the median of others from which on one OSD is called slower.
const SLOWER_TIMES: f64 = 2.0;
/// With fewer messages at OSDs at a time these are idle for much of it.
const BUSY_MIN: f64 = 1.0;
/// A thread that is on a processor for more of the time has no time left.
const BUSY_SHARE: f64 = 0.9;
/// A client that has less of the waiting is none to name.
const SHARE_MIN: f64 = 0.05;

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

pub(crate) fn text(account: &Account) -> String {
    let (total_s, window_s) = (account.total_s(), account.window_s);
    let [reads, writes] = account.whole;
    let mean = |(count, seconds): (u64, f64)| seconds * 1e3 / count.max(1) as f64;
    let mut lines = vec![format!(
        "{window_s:.1} s, {} OSDs: {} reads (mean {:.2} ms) and {} writes (mean {:.2} ms) were answered; clients waited {total_s:.2} s for \
         OSDs in all, {:.2} messages at a time",
        account.osds,
        reads.0,
        mean(reads),
        writes.0,
        mean(writes),
        total_s / window_s,
    )];
    if reads.0 + writes.0 == 0 {
        lines.push("No message of a client was answered: there is nothing to explain, or nothing gets through (see `nacre doctor`).".to_owned());
    } else {
        parts(account, &mut lines);
        processors(account, &mut lines);
        whose(account, &mut lines);
    }
    if account.samples.stuck > 0 {
        lines.push(format!(
            "{} messages have been under way for longer than that and are not in these numbers: `nacre doctor` says what they wait for",
            account.samples.stuck
        ));
    }
    lines.extend(account.unknown.iter().map(|(osd, why)| format!("unknown: osd.{osd}: {why}")));
    lines.join("\n")
}

fn parts(account: &Account, lines: &mut Vec<String>) {
    let total_s = account.total_s();
    let (mut explained_s, mut shown) = (0.0, 0);
    for part in &account.parts {
        if explained_s >= total_s * EXPLAINED || shown == SHOWN_MAX {
            break;
        }
        (explained_s, shown) = (explained_s + part.seconds, shown + 1);
        lines.push(format!(
            "{shown}. {} {:.2} s: {} ({} of them, {:.2} ms each{})",
            percent(part.seconds / total_s),
            part.seconds,
            part.words(),
            part.count,
            part.mean_ms(),
            beside(account, part),
        ));
        lines.extend(seen(account, part).map(|line| format!("      {line}")));
    }
    let smaller_s: f64 = account.parts.iter().skip(shown).map(|part| part.seconds).sum();
    // Rounding of the sums is no time.
    let unexplained_s = Some(account.unexplained_s()).filter(|seconds| seconds.abs() > 1e-6).unwrap_or(0.0);
    lines.push(format!(
        "   {} {smaller_s:.2} s: {} smaller parts; {} {unexplained_s:.2} s: unexplained",
        percent(smaller_s / total_s),
        account.parts.len() - shown,
        percent(unexplained_s / total_s),
    ));
}

/// What a thread that is always busy holds up stands among the parts as waiting to be taken up, executed and answered.
fn processors(account: &Account, lines: &mut Vec<String>) {
    let Some((osd, share)) = account.busy.iter().max_by(|a, b| a.1.total_cmp(&b.1)) else {
        return lines.push("how busy the OSDs' threads were is unknown: none tells".to_owned());
    };
    let each =
        account.cpu_us_per_message().map(|us| format!("; {us:.1} us of all OSDs' threads for each message"));
    let held_up = if *share >= BUSY_SHARE { ": it is what holds messages up there" } else { "" };
    lines.push(format!(
        "the busiest OSD's thread, osd.{osd}'s, was on a processor for {} of the time{held_up}{}",
        percent(*share),
        each.unwrap_or_default()
    ));
}

/// How it is on other OSDs.
fn beside(account: &Account, part: &Part) -> String {
    let Some(elsewhere_ms) = account.elsewhere_ms(part) else { return String::new() };
    let times = part.mean_ms() / elsewhere_ms.max(0.001);
    let slower = if times >= SLOWER_TIMES { format!(", {times:.1} times as long") } else { String::new() };
    format!("; {elsewhere_ms:.2} ms elsewhere{slower}")
}

/// What was seen at the sampled moments of such messages.
fn seen(account: &Account, part: &Part) -> Option<String> {
    if part.stage == "replicated" {
        let (waits, all) = account.samples.waits_of(part.osd);
        let shown: Vec<String> =
            waits.iter().take(3).map(|(osd, share)| format!("osd.{osd} {}", percent(*share))).collect();
        return (all >= SEEN_MIN)
            .then(|| format!("waited for: {} (of {all:.0} seen waiting)", shown.join(", ")));
    }
    if part.stage == "executed" {
        let (reasons, all) = account.samples.reasons_of(part.osd);
        let shown: Vec<String> =
            reasons.iter().take(3).map(|(why, share)| format!("{why} {}", percent(*share))).collect();
        return (all >= SEEN_MIN)
            .then(|| format!("reads and writes there were {} (of {all:.0} seen waiting)", shown.join(", ")));
    }
    None
}

fn whose(account: &Account, lines: &mut Vec<String>) {
    let samples = &account.samples;
    if samples.messages >= SEEN_MIN {
        for (what, ranked) in [("clients", samples.clients()), ("images", samples.images())] {
            let shown = ranked.iter().filter(|(_, share)| *share >= SHARE_MIN);
            let shown: Vec<String> =
                shown.map(|(name, share)| format!("{name} {}", percent(*share))).collect();
            if !shown.is_empty() {
                lines.push(format!(
                    "{what} by their part of {:.0} messages seen under way: {}",
                    samples.messages,
                    shown.join(", ")
                ));
            }
        }
    } else {
        lines.push(format!(
            "which clients and images wait is unknown: at {} moments only {:.0} messages were seen under way",
            samples.taken, samples.messages
        ));
    }
    let busy = account.total_s() / account.window_s;
    lines.push(if busy < BUSY_MIN {
        format!(
            "OSDs had {busy:.2} messages at a time on average: most of the time there was nothing to do for them. What clients wait for beyond \
             the numbers above is the network or the clients themselves"
        )
    } else {
        "The way between clients and OSDs, and the clients themselves, are in none of these numbers: a client's latency less the mean above is \
         theirs"
            .to_owned()
    });
}

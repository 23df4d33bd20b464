//! Network cards: speed, MTU, errors and drops; and how much TCP sends again.

use super::Host;
use crate::report::{Finding, Rank, Report};
use std::collections::BTreeSet;

/// Megabits per second.
const SPEED_MIN: u64 = 10_000;
const MTU_USUAL: u64 = 1500;
/// Of a million packets.
const ERRORS_PER_MILLION_MAX: f64 = 1.0;
const DROPS_PER_MILLION_MAX: f64 = 100.0;
const RESENT_PER_MILLION_MAX: f64 = 1000.0;
/// Rates of fewer packets say little.
const PACKETS_MIN: u64 = 100_000;

struct Card {
    name: String,
    mtu: Option<u64>,
    /// In megabits per second; virtual cards have none, or -1.
    speed: Option<u64>,
    duplex: Option<String>,
    packets: u64,
    errors: u64,
    drops: u64,
}

pub(crate) fn check(host: &Host, report: &mut Report) {
    let cards: Vec<Card> =
        host.names("sys/class/net").into_iter().filter_map(|name| look(host, name)).collect();
    if cards.is_empty() {
        report.unknown("network", "no network card is up");
    }
    for card in &cards {
        report.fact(card.name.clone(), describe(card));
        speed(card, report);
        losses(card, report);
    }
    mtu(&cards, report);
    resent(host, report);
}

/// A card that has a device below it, and a link.
fn look(host: &Host, name: String) -> Option<Card> {
    let folder = format!("sys/class/net/{name}");
    let is_up = host.text(format!("{folder}/operstate")).is_some_and(|state| state == "up");
    let is_card = host.exists(format!("{folder}/device")) || host.exists(format!("{folder}/bonding"));
    if !is_up || !is_card {
        return None;
    }
    let number = |path: &str| host.number(format!("{folder}/{path}"));
    let sum = |names: [&str; 2]| names.iter().filter_map(|name| number(&format!("statistics/{name}"))).sum();
    Some(Card {
        mtu: number("mtu"),
        speed: number("speed").filter(|mbit| *mbit > 0),
        duplex: host.text(format!("{folder}/duplex")),
        packets: sum(["rx_packets", "tx_packets"]),
        errors: sum(["rx_errors", "tx_errors"]),
        drops: sum(["rx_dropped", "tx_dropped"]),
        name,
    })
}

fn describe(card: &Card) -> String {
    let shown =
        |number: Option<u64>| number.map_or_else(|| "unknown".to_owned(), |number| number.to_string());
    format!(
        "MTU {}, {} Mbit/s, {} packets, {} errors, {} drops",
        shown(card.mtu),
        shown(card.speed),
        card.packets,
        card.errors,
        card.drops
    )
}

fn speed(card: &Card, report: &mut Report) {
    let name = &card.name;
    if card.duplex.as_deref() == Some("half") {
        report.findings.push(Finding {
            check: "network-speed",
            rank: Rank::Serious,
            weight: 10.0,
            subject: format!("{name} cannot send and receive at the same time"),
            measured: "its link is half duplex".to_owned(),
            cost: "collisions: most of the link's speed, and pauses".to_owned(),
            advice:
                "let both ends agree by themselves (ethtool -s NAME autoneg on), and look at cable and switch"
                    .to_owned(),
            ..Finding::default()
        });
    }
    let Some(mbit) = card.speed else {
        return report.unknown("network-speed", format!("{name}: the card does not say"));
    };
    report.judged("network-speed");
    if mbit >= SPEED_MIN {
        return;
    }
    report.findings.push(Finding {
        check: "network-speed",
        rank: Rank::Costly,
        weight: SPEED_MIN as f64 / mbit as f64,
        subject: format!("{name} is slow for storage"),
        measured: format!("its link has {mbit} Mbit/s"),
        cost: format!(
            "at most {:.0} MB/s in each direction; 4 MiB take {:.0} ms, and a write crosses it once more for each further copy",
            mbit as f64 / 8.0,
            4.194304 * 8000.0 / mbit as f64
        ),
        advice: "10 Gbit/s or more; if the card could do more, look at cable and switch".to_owned(),
        ..Finding::default()
    });
}

fn losses(card: &Card, report: &mut Report) {
    let name = &card.name;
    if card.packets < PACKETS_MIN {
        return report
            .unknown("network-losses", format!("{name}: only {} packets since the start", card.packets));
    }
    report.judged("network-losses");
    let per_million = |count: u64| count as f64 * 1e6 / card.packets as f64;
    let mut add = |count: u64, max: f64, what: &str, advice: &str| {
        if per_million(count) > max {
            report.findings.push(Finding {
                check: "network-losses",
                rank: Rank::Costly,
                weight: per_million(count) / max,
                subject: format!("{name} loses packets: {what}"),
                measured: format!(
                    "{count} {what} of {} packets, {:.0} in a million",
                    card.packets,
                    per_million(count)
                ),
                cost:
                    "each loss holds a connection up until TCP sends again: some 200 ms where nothing follows"
                        .to_owned(),
                advice: advice.to_owned(),
                ..Finding::default()
            });
        }
    };
    add(card.errors, ERRORS_PER_MILLION_MAX, "errors", "look at cable, transceiver and the switch's port");
    let advice = "ethtool -S NAME says where; larger rings (ethtool -G NAME rx MAX) or more queues";
    add(card.drops, DROPS_PER_MILLION_MAX, "drops", advice);
}

fn mtu(cards: &[Card], report: &mut Report) {
    let known: Vec<(&str, u64)> =
        cards.iter().filter_map(|card| Some((card.name.as_str(), card.mtu?))).collect();
    if known.is_empty() {
        return;
    }
    report.judged("mtu");
    let sizes: BTreeSet<u64> = known.iter().map(|(_, mtu)| *mtu).collect();
    if sizes.len() > 1 {
        let shown: Vec<String> = known.iter().map(|(name, mtu)| format!("{mtu} on {name}")).collect();
        report.findings.push(Finding {
            check: "mtu",
            rank: Rank::Hint,
            weight: 2.0,
            subject: "network cards have different MTUs".to_owned(),
            measured: shown.join(", "),
            cost: "nothing by itself; on one network they must be equal, or large packets vanish".to_owned(),
            advice: "ping -M do -s 8972 between all hosts shows whether large packets pass".to_owned(),
            ..Finding::default()
        });
    }
    let fast_and_small =
        cards.iter().filter(|card| card.speed >= Some(SPEED_MIN) && card.mtu <= Some(MTU_USUAL));
    let names: Vec<&str> = fast_and_small.map(|card| card.name.as_str()).collect();
    if !names.is_empty() {
        report.findings.push(Finding {
            check: "mtu",
            rank: Rank::Hint,
            weight: 1.0,
            subject: format!("small packets on fast links: {}", names.join(" ")),
            measured: format!("an MTU of at most {MTU_USUAL} at {SPEED_MIN} Mbit/s or more"),
            cost: "six times as many packets for large operations as with 9000; small ones cost the same"
                .to_owned(),
            advice:
                "MTU 9000 on all hosts and switches of that network together, where large operations matter"
                    .to_owned(),
            ..Finding::default()
        });
    }
}

/// A line of names and a line of numbers in `/proc/net/snmp`.
fn tcp(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let at = names.split_whitespace().position(|word| word == name)?;
    numbers.split_whitespace().nth(at)?.parse().ok()
}

fn resent(host: &Host, report: &mut Report) {
    let text = host.text("proc/net/snmp").unwrap_or_default();
    let Some((sent, again)) = tcp(&text, "OutSegs").zip(tcp(&text, "RetransSegs")) else {
        return report.unknown("tcp-resends", "/proc/net/snmp cannot be read");
    };
    if sent < PACKETS_MIN {
        return report.unknown("tcp-resends", format!("only {sent} segments were sent since the start"));
    }
    report.judged("tcp-resends");
    let per_million = again as f64 * 1e6 / sent as f64;
    if per_million <= RESENT_PER_MILLION_MAX {
        return;
    }
    report.findings.push(Finding {
        check: "tcp-resends",
        rank: Rank::Costly,
        weight: per_million / RESENT_PER_MILLION_MAX,
        subject: "TCP sends much again".to_owned(),
        measured: format!("{again} of {sent} segments, {per_million:.0} in a million"),
        cost: "each loss holds a connection up until TCP sends again: some 200 ms where nothing follows".to_owned(),
        advice: "`ss -ti` shows which connections; where this machine's cards lose nothing, it is a switch or the other end".to_owned(),
        ..Finding::default()
    });
}

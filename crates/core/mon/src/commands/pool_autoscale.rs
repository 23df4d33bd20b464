//! What the autoscaler would make of the pools, and `noautoscale`, which ends it for all of them.

use super::call::{Answer, Call, Failure, done, refuse};
use super::pool_get_set::check_pg_num;
use super::table::{Command, command};
use crate::autoscaler::NOAUTOSCALE;
use crate::config::Who;
use crate::outlook::{is_off, outlook};
use crate::state::State;
use nacre_format::{Align, Node, Section, Table, fixed};
use nacre_maps::{AutoscaleMode, OsdMap};
use nacre_mgr::autoscaler::{Advice, Cluster, Outlook, PoolFacts, binary_bytes};
use nacre_types::{Errno, PoolId};
use std::collections::BTreeMap;

pub(super) const COMMANDS: &[Command] = &[
    command(
        "osd pool autoscale-status name=format,type=CephString,req=false",
        "mgr",
        "r",
        "How many PGs pools have, and should have",
        status,
    ),
    command("osd pool get noautoscale", "mgr", "rw", "Whether the autoscaler leaves all pools alone", get),
    command("osd pool set noautoscale", "mgr", "rw", "Let the autoscaler leave all pools alone", set),
    command("osd pool unset noautoscale", "mgr", "rw", "Let the autoscaler look after all pools", unset),
];

const COLUMNS: [(&str, Align); 13] = [
    ("POOL", Align::Left),
    ("SIZE", Align::Right),
    ("TARGET SIZE", Align::Right),
    ("RATE", Align::Right),
    ("RAW CAPACITY", Align::Right),
    ("RATIO", Align::Right),
    ("TARGET RATIO", Align::Right),
    ("EFFECTIVE RATIO", Align::Right),
    ("BIAS", Align::Right),
    ("PG_NUM", Align::Right),
    ("NEW PG_NUM", Align::Right),
    ("AUTOSCALE", Align::Left),
    ("BULK", Align::Left),
];

/// A row of the table: the pool's name, what counts of it, what is to be said.
struct Row<'a> {
    name: &'a str,
    facts: &'a PoolFacts,
    advice: &'a Advice,
}

fn rows<'a>(map: &'a OsdMap, cluster: &'a Cluster, advice: &'a [Advice]) -> Vec<Row<'a>> {
    let row = |advice: &'a Advice| {
        Some(Row { name: map.pool_name(advice.pool)?, facts: cluster.pools.get(&advice.pool)?, advice })
    };
    advice.iter().filter_map(row).collect()
}

impl Row<'_> {
    fn cells(&self) -> [String; 13] {
        let (facts, advice) = (self.facts, self.advice);
        let ratio = |value: f64| if value > 0.0 { fixed(value, 4) } else { String::new() };
        let target = advice.target_bytes;
        [
            self.name.to_owned(),
            binary_bytes(facts.stored_bytes, 6),
            if target > 0 { binary_bytes(target, 6) } else { String::new() },
            format!("{:?}", facts.raw_rate),
            binary_bytes(advice.capacity, 6),
            fixed(advice.ratio, 4),
            ratio(facts.target_ratio),
            ratio(advice.effective_target_ratio),
            format!("{:?}", facts.bias),
            facts.pg_num_target.to_string(),
            if advice.would_adjust { advice.pg_num.to_string() } else { String::new() },
            facts.mode.as_str().to_owned(),
            if facts.is_bulk { "True" } else { "False" }.to_owned(),
        ]
    }

    /// Keys in Ceph's order, which is that of letters.
    fn section(&self) -> Section {
        let (facts, advice) = (self.facts, self.advice);
        let real = |value: f64| Node::Raw(format!("{value:?}"));
        Section::new()
            .with("actual_capacity_ratio", real(advice.actual_ratio))
            .with("actual_raw_used", real(advice.actual_raw_used))
            .with("bias", real(facts.bias))
            .with("bulk", facts.is_bulk)
            .with("capacity_ratio", real(advice.ratio))
            .with("crush_root_id", advice.root)
            .with("effective_target_ratio", real(advice.effective_target_ratio))
            .with("logical_used", facts.stored_bytes)
            .with("pg_autoscale_mode", facts.mode.as_str())
            .with("pg_num_final", advice.pg_num)
            .with("pg_num_ideal", advice.pg_num_ideal)
            .with("pg_num_target", facts.pg_num_target)
            .with("pool_id", advice.pool)
            .with("pool_name", self.name)
            .with("raw_used", real(advice.raw_used))
            .with("raw_used_rate", real(facts.raw_rate))
            .with("subtree_capacity", advice.capacity)
            .with("target_bytes", advice.target_bytes)
            .with("target_ratio", real(facts.target_ratio))
            .with("would_adjust", advice.would_adjust)
    }
}

/// What keeps pools as they are that would have another number, a sentence each: that nothing is said of them, or that it is refused.
fn remarks(state: &mut State, outlook: &Outlook) -> Vec<String> {
    let mut kept: BTreeMap<PoolId, String> =
        outlook.left_alone.iter().map(|(id, why)| (*id, why.to_string())).collect();
    for advice in outlook.advice.iter().filter(|advice| advice.would_adjust) {
        let checked = check_pg_num(state, advice.pool, advice.pg_num.into());
        kept.extend(checked.err().map(|failure| (advice.pool, failure.text)));
    }
    let map = state.osd.map();
    let sentence = |(id, why): (PoolId, String)| {
        format!("pool '{}' keeps its PGs: {why}", map.pool_name(id).unwrap_or_default())
    };
    kept.into_iter().map(sentence).collect()
}

fn status(call: &mut Call<'_>) -> Answer {
    let digest = call.state.shown_pgs().digest(call.state.osd.map());
    let (cluster, outlook) = outlook(call.state, &digest);
    let remarks = remarks(call.state, &outlook);
    let rows = rows(call.state.osd.map(), &cluster, &outlook.advice);
    let mut table = Table::aligned(&COLUMNS);
    rows.iter().for_each(|row| table.row(row.cells()));
    let tree = Node::array("pool", rows.iter().map(Row::section));
    let mut answer = call.either("autoscale_status", table.render().replace('\n', "  \n"), tree)?;
    // Beside the table, which scripts read.
    answer.text = remarks.join("\n");
    Ok(answer)
}

fn get(call: &mut Call<'_>) -> Answer {
    done(if is_off(call.state) { "noautoscale is on" } else { "noautoscale is off" })
}

fn set(call: &mut Call<'_>) -> Answer {
    if is_off(call.state) {
        return done("noautoscale is set already");
    }
    change(call, "true", AutoscaleMode::Off)?;
    done("noautoscale is set: all pools, and new ones, have the autoscale mode off")
}

fn unset(call: &mut Call<'_>) -> Answer {
    if !is_off(call.state) {
        return done("noautoscale is not set");
    }
    change(call, "false", AutoscaleMode::On)?;
    done("noautoscale is not set any more: all pools, and new ones, have the autoscale mode on")
}

/// The flag, what new pools have, and what all pools have: as in Ceph.
fn change(call: &mut Call<'_>, flag: &str, mode: AutoscaleMode) -> Result<(), Failure> {
    let Some(managers) = Who::parse("mgr") else { return Err(refuse(Errno::EINVAL, "no section mgr")) };
    let config = &mut call.state.config;
    let stored = config
        .set_of_module(&managers, NOAUTOSCALE, flag.to_owned())
        .and_then(|_| config.set(&Who::global(), "osd_pool_default_pg_autoscale_mode", mode.as_str(), false));
    stored.map_err(|error| refuse(Errno::from(&error), error.to_string()))?;
    let pools: Vec<PoolId> = call.state.osd.upcoming().pools.keys().copied().collect();
    for id in pools {
        if let Some(pool) = call.state.osd.change_pool(id) {
            pool.pg_autoscale_mode = mode;
        }
    }
    Ok(())
}

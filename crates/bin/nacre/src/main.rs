//! `nacre`: the one binary. Picks the real implementations and starts daemons; decides nothing else.
//!
//! The crates below it, layer by layer; each uses those above it in this table only. `ARCHITECTURE.md` walks a write through them.
//!
//! | layer | crates | what it is |
//! |---|---|---|
//! | base | [types](../nacre_types/index.html), [buf](../nacre_buf/index.html), [denc](../nacre_denc/index.html), [msg](../nacre_msg/index.html), [maps](../nacre_maps/index.html), [crush](../nacre_crush/index.html), [ec](../nacre_ec/index.html), [txn](../nacre_txn/index.html), [options](../nacre_options/index.html), [format](../nacre_format/index.html) | plain data and codecs: no I/O, no clock, no threads |
//! | core | [pg](../nacre_pg/index.html), [osd](../nacre_osd_core/index.html), [mon](../nacre_mon/index.html), [mgr](../nacre_mgr/index.html), [quorum](../nacre_quorum/index.html), [msgr](../nacre_msgr/index.html), [auth](../nacre_auth/index.html), [monc](../nacre_monc/index.html), [objecter](../nacre_objecter/index.html), [heartbeat](../nacre_heartbeat/index.html), [cls](../nacre_cls/index.html) | state machines: events in, effects out |
//! | io | [env](../nacre_env/index.html), [store](../nacre_store/index.html), [blockstore](../nacre_blockstore/index.html), [kv](../nacre_kv/index.html), [crypt](../nacre_crypt/index.html), [simdisk](../nacre_simdisk/index.html) | the machine behind traits: clock, sockets, disks, stores |
//! | daemon | [osd](../nacre_osd/index.html), [monitor](../nacre_monitor/index.html), [client](../nacre_client/index.html), [service](../nacre_service/index.html) | threads and loops that drive the cores |
//! | tool | [store](../nacre_store_tool/index.html), [bench](../nacre_bench/index.html), [doctor](../nacre_doctor/index.html), [top](../nacre_top/index.html) | `nacre store`, `nacre bench`, `nacre doctor` and `nacre why-slow`, `nacre top` |
//! | test | [sim](../nacre_sim/index.html), [interop](../nacre_interop/index.html) | a whole cluster from one seed; stock programs against `nacre up` |
//!
//! Begin with [`nacre_pg::Pg`](../nacre_pg/struct.Pg.html), one PG as a machine, and [`nacre_osd::Shard`](../nacre_osd/struct.Shard.html), the
//! loop that drives it.

mod allocator;
mod args;
mod ask;
mod bill;
mod ceph_osd;
mod crash_reports;
mod device_args;
mod dmcrypt;
mod dmcrypt_args;
mod files;
mod locks;
mod machine;
mod mon;
mod mon_admin;
mod mon_places;
mod mon_recovery;
mod networks;
mod osd;
mod osd_folder;
mod probe;
mod recovery;
mod sd_notify;
mod secret;
mod signals;
mod stock_daemons;
mod supervisor;
mod up;
mod user;

use args::{Cli, Command, MonArgs};
use clap::Parser;
use nacre_env::errln;
use std::process::ExitCode;

fn main() -> ExitCode {
    allocator::keep_free_pages();
    nacre_service::log::start();
    let command = Cli::parse().command;
    let user = command.user();
    if let Err(error) = user.map_or(Ok(()), |(user, dir)| user::become_user(user, dir)) {
        errln!("nacre: {error:#}");
        return ExitCode::FAILURE;
    }
    // The bench starts fio, which is to have its memory as it always has.
    if !matches!(command, Command::Bench(_)) {
        allocator::use_small_pages();
    }
    let done = |()| ExitCode::SUCCESS;
    let outcome = match command {
        Command::Up(options) => up::run(&options).map(done),
        Command::Mon(MonArgs { command: Some(command), .. }) => mon_admin::run(&command).map(done),
        Command::Mon(options) => mon::run(&options).map(done),
        Command::Osd(options) => match &options.ceph {
            Some(ceph) => ceph_osd::start(&options, ceph).map(done),
            None => osd::run(&options).map(done),
        },
        Command::Bill(args) => bill::run(&args).map(done),
        Command::Probe(args) => probe::run(args).map(done),
        Command::Recovery(command) => recovery::run(&command).map(done),
        Command::Store(command) => nacre_store_tool::run(&command),
        Command::Bench(command) => nacre_bench::run(&command),
        Command::Doctor(options) => nacre_doctor::run(&options),
        Command::WhySlow(options) => nacre_doctor::why_slow(&options),
        Command::Top(options) => nacre_top::run(&options),
    };
    let status = outcome.unwrap_or_else(|error| {
        errln!("nacre: {error:#}");
        ExitCode::FAILURE
    });
    if nacre_env::has_lost_text() {
        errln!("nacre: not all of the output could be written: look whether there is room for it");
        return ExitCode::FAILURE;
    }
    status
}

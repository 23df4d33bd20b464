//! `nacre mon join`, `rm`, `move`, `set-addrs` and `recover`: who the monitors of a cluster are, and where. What begins anew from OSDs is in
//! `mon_recovery`.

use crate::args::MonCommand;
use crate::ask::{Admin, Answer};
use crate::files::{Folder, check_mon_name};
use crate::locks::lock_other;
use crate::mon_places::{print_monitors, write_files};
use crate::mon_recovery;
use anyhow::{Context, Result, bail};
use nacre_auth::CryptoKey;
use nacre_denc::Decode;
use nacre_env::outln;
use nacre_env::{Clock, RealClock};
use nacre_monitor::{Monitor, Seed};
use nacre_types::{AddrVec, EntityAddr, Errno, Stamp};
use std::path::Path;
use std::time::Duration;

/// The port of monitors where none is given.
const PORT: u16 = 3300;
/// A monitor whose process has just ended counts as running for some two seconds.
const SILENCE_WAIT: Duration = Duration::from_secs(5);
const SILENCE_POLL: Duration = Duration::from_millis(250);

/// Carries one out.
pub(crate) fn run(command: &MonCommand) -> Result<()> {
    match command {
        MonCommand::Join { name, addr, witness, place } => {
            let addr = addr.as_deref().map(parse_addr).transpose()?;
            join(&Folder::open(&place.dir)?, &Newcomer { name, addr, is_witness: *witness })
        }
        MonCommand::Rm { name, place } => {
            check_mon_name(name)?;
            let answer = Admin::new(&Folder::open(&place.dir)?)?
                .ask(&format!(r#"{{"prefix":"mon rm","name":"{name}"}}"#))?;
            outln!("{}", answer.status);
            Ok(())
        }
        MonCommand::Move { name, addr, place } => {
            check_mon_name(name)?;
            let addr = parse_addr(addr)?;
            let answer = Admin::new(&Folder::open(&place.dir)?)?
                .ask(&format!(r#"{{"prefix":"mon set-addrs","name":"{name}","addrs":"{addr}"}}"#))?;
            outln!("{}", answer.status);
            Ok(())
        }
        MonCommand::SetAddrs { name, addrs, place } => set_addrs(&Folder::open(&place.dir)?, name, addrs),
        MonCommand::Recover { from: Some(from), name, addr, place, .. } => {
            recover(&Folder::open(&place.dir)?, from, name, parse_addr(addr)?)
        }
        MonCommand::Recover { from_osd, recovery_key, key_files, name, addr, place, .. } => {
            let key = recovery_key.as_deref().unwrap_or_default();
            mon_recovery::recover((from_osd, key_files), key, &place.dir, (name, parse_addr(addr)?))
        }
        MonCommand::RecoveryKey { rotate, place } => mon_recovery::key(&Folder::open(&place.dir)?, *rotate),
    }
}

/// An address of a monitor as people type it.
fn parse_addr(text: &str) -> Result<EntityAddr> {
    let bare = text.strip_prefix("v2:").unwrap_or(text);
    let addr = EntityAddr::parse(&format!("v2:{bare}"));
    let socket = addr.and_then(|addr| addr.socket).filter(|socket| !socket.ip().is_unspecified());
    let mut socket =
        socket.with_context(|| format!("'{text}' is no address that others can connect to; give IP:PORT"))?;
    if socket.port() == 0 {
        socket.set_port(PORT);
    }
    Ok(EntityAddr::msgr2(socket, 0))
}

/// A monitor that joins.
struct Newcomer<'a> {
    name: &'a str,
    /// Not given for one that the cluster knows.
    addr: Option<EntityAddr>,
    is_witness: bool,
}

fn join(folder: &Folder, newcomer: &Newcomer<'_>) -> Result<()> {
    check_mon_name(newcomer.name)?;
    let lock = folder.make_mon(newcomer.name)?;
    let outcome = join_locked(folder, newcomer);
    drop(lock);
    if outcome.is_err() {
        // An empty folder would be taken for a monitor's.
        folder.remove_empty_mon(newcomer.name);
    }
    outcome
}

fn join_locked(folder: &Folder, newcomer: &Newcomer<'_>) -> Result<()> {
    let (mut admin, name) = (Admin::new(folder)?, newcomer.name);
    let seed = ask_to_join(&mut admin, newcomer)?;
    let expected = folder.address()?.fsid;
    if seed.map.fsid != expected {
        bail!("ceph.conf is of cluster {expected}, but its monitors are of {}", seed.map.fsid);
    }
    let key = admin.ask(r#"{"prefix":"auth get-key","entity":"mon."}"#)?.data;
    let key = CryptoKey::parse(String::from_utf8_lossy(&key).trim()).context("the key of mon.")?;
    Monitor::join(&folder.mon(name), &seed, key, name)?;
    let dir = folder.path().display();
    outln!("mon.{name} is a monitor of cluster {}; it gets its data when it runs:", seed.map.fsid);
    outln!("  nacre mon --dir {dir} --name {name}");
    Ok(())
}

fn ask_to_join(admin: &mut Admin, newcomer: &Newcomer<'_>) -> Result<Seed> {
    let Newcomer { name, addr, is_witness } = newcomer;
    let addr = addr.map_or_else(String::new, |addr| format!(r#","addr":"{addr}""#));
    let witness = if *is_witness { r#","witness":true"# } else { "" };
    let order = format!(r#"{{"prefix":"mon join","name":"{name}"{addr}{witness}}}"#);
    let clock = RealClock::start();
    loop {
        let Answer { result, status, data } = admin.try_ask(&order)?;
        let waited = clock.now().since(Stamp::default());
        match result {
            0 => {
                return Seed::from_bytes(data)
                    .context("the cluster's answer is of a newer program than this one");
            }
            busy if busy == Errno::EBUSY.negated() && waited < SILENCE_WAIT => {
                std::thread::sleep(SILENCE_POLL)
            }
            invalid if invalid == Errno::EINVAL.negated() && status.contains("command") => {
                bail!("the cluster's monitors are of an older program, which no monitor can join: {status}")
            }
            _ => bail!("the cluster refuses: {status}"),
        }
    }
}

fn set_addrs(folder: &Folder, name: &str, pairs: &[String]) -> Result<()> {
    let pair = |text: &String| {
        let (name, addr) = text.split_once('=').with_context(|| format!("'{text}': give NAME=IP:PORT"))?;
        Ok((name.to_owned(), AddrVec::of(parse_addr(addr)?)))
    };
    let addrs: Vec<(String, AddrVec)> = pairs.iter().map(pair).collect::<Result<_>>()?;
    if !folder.mons()?.iter().any(|known| known == name) {
        bail!("{} has no mon.{name}", folder.path().display());
    }
    let _lock = folder.lock_mon(name)?;
    let map = Monitor::set_addrs(&folder.mon(name), &addrs)?;
    if let Some(identity) = folder.identity()? {
        write_files(folder, &identity, &map, None)?;
    }
    outln!("mon.{name} knows the monitors so, as of monmap epoch {}:", map.epoch);
    print_monitors(&map);
    outln!("do the same to the store of each of the others before any of them starts");
    Ok(())
}

fn recover(folder: &Folder, from: &Path, name: &str, addr: EntityAddr) -> Result<()> {
    check_mon_name(name)?;
    if !from.join(nacre_monitor::STORE_FILE).exists() {
        bail!(
            "{} holds no monitor's store; give the folder of one, such as nacre-data/mon.b",
            from.display()
        );
    }
    // The folder may be the one with the monitor's own store.
    let _source = lock_other(from).context("a monitor that runs is not lost")?;
    let _lock = folder.make_mon(name)?;
    let wall = RealClock::start().wall();
    let made = Monitor::recover(from, &folder.mon(name), name, AddrVec::of(addr), wall);
    let map = made.inspect_err(|_| folder.remove_empty_mon(name))?;
    if let Some(identity) = folder.identity()? {
        write_files(folder, &identity, &map, None)?;
    }
    outln!("mon.{name} is the only monitor of cluster {} from now on:", map.fsid);
    print_monitors(&map);
    outln!(
        "what the others had acknowledged and {} does not have is lost; their stores are of no use any more",
        from.display()
    );
    outln!("  nacre mon --dir {} --name {name}", folder.path().display());
    outln!("set `mon host` in each ceph.conf to its address; more monitors join with `nacre mon join`");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_typed_with_and_without_a_port() {
        let text = |text: &str| parse_addr(text).map(|addr| addr.to_string()).ok();
        assert_eq!(text("10.0.0.2"), Some("v2:10.0.0.2:3300/0".to_owned()));
        assert_eq!(text("v2:10.0.0.2:7000"), Some("v2:10.0.0.2:7000/0".to_owned()));
        assert_eq!(text("[::1]:7000"), Some("v2:[::1]:7000/0".to_owned()));
        for wrong in ["", "0.0.0.0:3300", "v1:10.0.0.2:6789", "north:3300"] {
            assert!(parse_addr(wrong).is_err(), "{wrong}");
        }
    }
}

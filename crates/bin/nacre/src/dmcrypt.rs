//! Keys of encrypted OSDs. The monitors keep them, under Ceph's names: here they are fetched before a store is made or opened, with the
//! identity `client.osd-lockbox.UUID`, which may do nothing else; and changed.

use crate::ask::Admin;
use crate::files::Folder;
use crate::osd_folder::OsdFolder;
use anyhow::{Context, Result, bail};
use nacre_auth::{CryptoKey, Keyring, Offer};
use nacre_buf::Bytes;
use nacre_client::{Access, Client, Failure, Finished};
use nacre_env::outln;
use nacre_env::{Clock, RealClock, SystemEntropy};
use nacre_osd::WrappingKey;
use nacre_types::{EntityAddr, Entropy, Errno, OsdId, Uuid, dmcrypt};
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;
use zeroize::{Zeroize, Zeroizing};

/// How long the making of an OSD waits for a monitor.
const MKFS_PATIENCE: Duration = Duration::from_secs(60);
/// How often an OSD that waits for its key says so.
const SAY_EVERY: Duration = Duration::from_secs(10);
const TURN_MAX: Duration = Duration::from_millis(100);
/// Random bytes of a new key.
const KEY_BYTES: usize = 64;

/// The lockbox's keyring, as the OSD's folder has it.
pub(crate) fn lockbox_text(uuid: Uuid, key: &CryptoKey) -> String {
    format!("[{}]\n\tkey = {}\n", dmcrypt::lockbox(uuid), key.to_text())
}

/// Where an OSD's key is asked for.
struct Question<'a> {
    monitors: &'a [EntityAddr],
    uuid: Uuid,
    lockbox: CryptoKey,
}

/// The key of an OSD that is to be made.
pub(crate) fn key_for_new(monitors: &[EntityAddr], uuid: Uuid, lockbox: &CryptoKey) -> Result<WrappingKey> {
    let clock = RealClock::start();
    let deadline = clock.now() + MKFS_PATIENCE;
    let question = Question { monitors, uuid, lockbox: lockbox.clone() };
    fetch(&question, clock, &|| clock.now() > deadline)?
        .with_context(|| format!("no monitor has given the OSD's key within {MKFS_PATIENCE:?}"))
}

/// The key of an OSD that is to be opened; `None` of one that is not encrypted. Waits until a monitor answers, or `is_over` says that this
/// process is to end.
pub(crate) fn key_of(
    folder: &OsdFolder,
    uuid: Uuid,
    monitors: &[EntityAddr],
    is_over: &dyn Fn() -> bool,
) -> Result<Option<WrappingKey>> {
    let Some(keys) = nacre_osd::store_keys(folder.path())? else { return Ok(None) };
    // Of the device, until the store opens.
    drop(keys);
    let path = folder.lockbox_keyring();
    let shown = path.display();
    let text = Zeroizing::new(
        fs::read_to_string(&path)
            .with_context(|| format!("{shown}: the OSD is encrypted, and this fetches its key"))?,
    );
    let keyring = Keyring::parse(&text).with_context(|| shown.to_string())?;
    let name = dmcrypt::lockbox(uuid);
    let entry = keyring.get(&name).with_context(|| format!("{shown} has no key of {name}"))?;
    let question = Question { monitors, uuid, lockbox: entry.key.clone() };
    let key = fetch(&question, RealClock::start(), is_over)?;
    key.context("stopped before a monitor had given the OSD's key").map(Some)
}

/// Asks the monitors until one answers; `None` when `is_over` comes first.
fn fetch(
    question: &Question<'_>,
    clock: RealClock,
    is_over: &dyn Fn() -> bool,
) -> Result<Option<WrappingKey>> {
    let (name, key_name) = (dmcrypt::lockbox(question.uuid), dmcrypt::key_name(question.uuid));
    let modes = (Offer::secure_first(), Offer::crc_first());
    let (monitors, key) = (question.monitors.to_vec(), question.lockbox.clone());
    let access = Access { monitors, name: name.clone(), key, modes };
    let mut client =
        Client::of_this_machine(access, clock).context("no sockets for a client; see ulimit -n")?;
    let wanted = client.command(&format!(r#"{{"prefix":"config-key get","key":"{key_name}"}}"#))?;
    client.flush();
    let gone = "was the OSD destroyed or purged? Then nothing opens its store any more";
    let mut say_at = clock.now() + SAY_EVERY;
    while !is_over() {
        match client.turn(TURN_MAX) {
            Ok(()) => (),
            Err(Failure::Refused(errno)) => {
                bail!("the monitors refuse {name}, which fetches the OSD's key ({errno}): {gone}")
            }
            Err(error) => return Err(error.into()),
        }
        for finished in client.take_finished() {
            let Finished::Command { tid, result, status, data } = finished else { continue };
            if tid != wanted {
                continue;
            }
            if result == Errno::ENOENT.negated() {
                bail!("the monitors have no key {key_name}: {gone}");
            }
            if result != 0 {
                bail!("the monitors do not give the key {key_name}: {status} ({result})");
            }
            return Ok(Some(parse(&data.to_bytes(), &key_name)?));
        }
        if clock.now() > say_at {
            say_at = clock.now() + SAY_EVERY;
            tracing::warn!(
                key = key_name,
                "no monitor has given the key of this encrypted OSD yet; it waits"
            );
        }
    }
    Ok(None)
}

fn parse(value: &[u8], key_name: &str) -> Result<WrappingKey> {
    let text = std::str::from_utf8(value).ok().with_context(|| format!("{key_name} is no text"))?;
    WrappingKey::from_text(text).with_context(|| format!("the monitors' {key_name}"))
}

/// Changes the key that opens an OSD's store, which does not run. Wherever this is ended, the key that the monitors have by then opens it,
/// and doing it again completes it: the new key opens the store before the monitors get it, and the old one until they have given the
/// new one back. One that was on its way when this was ended may come to them at any time: it names the key that it replaces, and they
/// refuse it when another one has replaced that.
pub(crate) fn rotate(folder: &Folder, id: OsdId) -> Result<()> {
    let place = OsdFolder::new(&folder.osd(id));
    let uuid = place.uuid()?;
    let _lock = folder.lock_osd(id)?;
    let shown = place.path().display();
    let keys = nacre_osd::store_keys(place.path()).with_context(|| shown.to_string())?;
    let mut keys = keys.with_context(|| format!("{shown}: this OSD is not encrypted"))?;
    let mut admin = Admin::new(folder)?;
    let key_name = dmcrypt::key_name(uuid);
    let held = |admin: &mut Admin| -> Result<Bytes> {
        Ok(admin.ask(&format!(r#"{{"prefix":"config-key get","key":"{key_name}"}}"#))?.data)
    };
    let was = held(&mut admin).with_context(|| key_name.clone())?;
    let current = parse(&was, &key_name)?;
    let text = new_text();
    let new = WrappingKey::from_text(&text)?;
    keys.add(&current, &new)?;
    let replace = format!(r#"{{"prefix":"config-key replace","key":"{key_name}"}}"#);
    let was = String::from_utf8_lossy(&was);
    let input = serde_json::to_vec(&BTreeMap::from([("was", was.as_ref()), ("now", text.as_str())]))?;
    let answer = admin.try_ask_with(&replace, &Zeroizing::new(input))?;
    if answer.result == Errno::ECANCELED.negated() {
        bail!(
            "{key_name} has changed meanwhile, perhaps by an earlier change of it that came late: do it again"
        );
    }
    if answer.result != 0 {
        bail!("the cluster does not keep the new key: {}; the one before still opens the OSD", answer.status);
    }
    if parse(&held(&mut admin)?, &key_name)? != new {
        bail!("somebody else has changed {key_name} meanwhile: both keys open the OSD; do it again");
    }
    keys.keep_only(&new)?;
    outln!("osd.{id}: the monitors have a new key, and nothing else opens it any more");
    outln!(
        "copies of keys that are kept for the loss of all monitors are to be made anew: ceph config-key dump dm-crypt/"
    );
    Ok(())
}

/// A new key, as text.
fn new_text() -> Zeroizing<String> {
    let mut bytes = [0; KEY_BYTES];
    SystemEntropy::default().fill(&mut bytes);
    let text =
        bytes.iter().fold(String::with_capacity(2 * KEY_BYTES), |text, byte| text + &format!("{byte:02x}"));
    bytes.zeroize();
    Zeroizing::new(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_keys_are_long_and_differ() {
        let (one, two) = (new_text(), new_text());
        assert_eq!(one.len(), 128);
        assert_ne!(one, two);
        assert!(WrappingKey::from_text(&one).is_ok());
    }

    #[test]
    fn a_value_that_is_no_key_is_named() {
        let error = format!("{:#}", parse(b"short", "dm-crypt/osd/x/luks").expect_err("too short"));
        assert!(error.contains("dm-crypt/osd/x/luks") && error.contains("5 characters"), "{error}");
        assert!(parse(&[0xff; 64], "k").is_err());
    }
}

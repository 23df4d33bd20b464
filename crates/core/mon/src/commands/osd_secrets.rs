//! The secrets of a new OSD, as `osd new` gets them: its key, and what opens its store where that is encrypted. Names and caps are those that
//! Ceph's monitors give (`src/mon/AuthMonitor.cc`, `src/mon/ConfigKeyService.cc` at v16.2.15), which ceph-volume relies on. Ours refuse a key
//! that no OSD of ours takes; ceph-volume's have 172 characters.

use super::call::{Call, Failure, fail, refuse};
use crate::config_key::VALUE_BYTES_MAX;
use nacre_auth::{AuthChange, CryptoKey, EntityAuth};
use nacre_buf::Bytes;
use nacre_types::{AuthName, EntityKind, Errno, OsdId, Uuid, dmcrypt};
use serde_json::Value;

const _: () = assert!(dmcrypt::KEY_CHARS_MAX <= VALUE_BYTES_MAX, "each key that opens a store can be kept");

pub(super) fn osd_auth(osd: OsdId) -> AuthName {
    AuthName::new(EntityKind::OSD, osd.to_string())
}

/// Removes all keys of an encrypted store.
pub(super) fn forget_dmcrypt_keys(call: &mut Call<'_>, uuid: Uuid) {
    let prefix = dmcrypt::key_prefix(uuid);
    let keys: Vec<String> = call.state.config_keys.iter_prefix(&prefix).map(|(key, _)| key.clone()).collect();
    for key in keys {
        call.state.config_keys.remove(&key);
    }
}

/// What opens an encrypted store.
struct Encryption {
    lockbox: CryptoKey,
    dmcrypt_key: String,
}

/// What the input of `osd new` says.
#[derive(Default)]
pub(super) struct Secrets {
    key: Option<CryptoKey>,
    encryption: Option<Encryption>,
}

/// What follows from it for the tables.
#[derive(Default)]
pub(super) struct Changes {
    auth: Vec<(AuthName, EntityAuth)>,
    config_key: Option<(String, Bytes)>,
}

impl Secrets {
    pub(super) fn read(call: &Call<'_>) -> Result<Self, Failure> {
        if call.data.is_empty() {
            return Ok(Self::default());
        }
        let wrong = |what: String| refuse(Errno::EINVAL, format!("invalid input: {what}"));
        let input: Value = serde_json::from_slice(call.data).map_err(|_| wrong("not JSON".to_owned()))?;
        // One that is there and says nothing comes of a script that failed.
        let text = |name: &str| match input.get(name) {
            None => Ok(None),
            Some(Value::String(text)) if !text.trim().is_empty() => Ok(Some(text.as_str())),
            Some(_) => Err(wrong(format!("{name} is no text, or an empty one"))),
        };
        let key = |name: &str| {
            let parsed = text(name)?.map(CryptoKey::parse).transpose();
            parsed.map_err(|_| wrong(format!("{name} is not a key")))
        };
        let encryption = match (key("cephx_lockbox_secret")?, text("dmcrypt_key")?) {
            (None, None) => None,
            (Some(lockbox), Some(text)) => {
                // Kept as it is, and yet it would open nothing.
                dmcrypt::key_in(text).map_err(|error| wrong(format!("dmcrypt_key: {error}")))?;
                Some(Encryption { lockbox, dmcrypt_key: text.to_owned() })
            }
            _ => return Err(wrong("cephx_lockbox_secret and dmcrypt_key come together".to_owned())),
        };
        let key = key("cephx_secret")?;
        if encryption.is_some() && key.is_none() {
            return Err(wrong(
                "cephx_lockbox_secret and dmcrypt_key need cephx_secret beside them".to_owned(),
            ));
        }
        Ok(Self { key, encryption })
    }

    /// What is to change; nothing of what is there with the same content already.
    ///
    /// # Errors
    /// When something else is there: another OSD would be shut out, or its store lost.
    pub(super) fn changes(self, call: &Call<'_>, osd: OsdId, uuid: Option<Uuid>) -> Result<Changes, Failure> {
        let mut changes = Changes::default();
        if let Some(key) = self.key {
            let caps = [("mgr", "allow profile osd"), ("mon", "allow profile osd"), ("osd", "allow *")];
            changes.entity(call, osd_auth(osd), key, &caps)?;
        }
        let Some(encryption) = self.encryption else { return Ok(changes) };
        let uuid =
            uuid.ok_or_else(|| refuse(Errno::EINVAL, "dmcrypt_key belongs to a store: give its UUID"))?;
        let name = dmcrypt::key_name(uuid);
        let caps = format!(r#"allow command "config-key get" with key="{name}""#);
        changes.entity(call, dmcrypt::lockbox(uuid), encryption.lockbox, &[("mon", &caps)])?;
        let value = Bytes::from(encryption.dmcrypt_key);
        match call.state.config_keys.value(&name) {
            Some(held) if *held == value => (),
            Some(_) => {
                return fail(
                    Errno::EEXIST,
                    format!("{name} has another value already: it may be all that opens a store"),
                );
            }
            None if call.state.config_keys.has_room(&name, value.len()) => {
                changes.config_key = Some((name, value));
            }
            None => return fail(Errno::ENOSPC, "there is no room for dmcrypt_key among the config keys"),
        }
        Ok(changes)
    }
}

impl Changes {
    fn entity(
        &mut self,
        call: &Call<'_>,
        name: AuthName,
        key: CryptoKey,
        caps: &[(&str, &str)],
    ) -> Result<(), Failure> {
        let caps = caps.iter().map(|(service, text)| ((*service).to_owned(), (*text).to_owned())).collect();
        let auth = EntityAuth { key, caps };
        match call.state.auth.keys().entity(&name) {
            None => self.auth.push((name, auth)),
            // The same request again. Another one would shut the OSD out that has the key, and take its place.
            Some(held) if held.key.secret() == auth.key.secret() && held.caps == auth.caps => (),
            Some(_) => {
                return fail(
                    Errno::EEXIST,
                    format!(
                        "{name} has a key already, with another secret or other caps: remove it first with 'ceph auth rm {name}'"
                    ),
                );
            }
        }
        Ok(())
    }

    pub(super) fn apply(self, call: &mut Call<'_>) {
        for (name, auth) in self.auth {
            call.state.auth.apply(AuthChange::Put(name, auth));
        }
        if let Some((key, value)) = self.config_key {
            call.state.config_keys.set(&key, value);
        }
    }
}

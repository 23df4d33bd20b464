//! Keys and values that managers subscribe to: `kv:PREFIX` (Ceph `src/mon/KVMonitor.cc` at v16.2.15).
//!
//! Of the config-key store a subscriber gets all that begins with the prefix at once, and what changes from then on. Below `config/` stand
//! the values of the configuration database, as Ceph's monitors keep them: `config/SECTION[/MASK]/OPTION`.

use crate::event::SessionId;
use crate::mon::Mon;
use crate::session::{Identity, Session};
use crate::state::State;
use nacre_auth::Rwx;
use nacre_buf::Bytes;
use nacre_msg::KvData;
use std::collections::BTreeMap;

const CONFIG: &str = "config/";

/// Values by key; none for what is gone.
type Values = BTreeMap<String, Option<Bytes>>;

fn config_values(state: &State, prefix: &str) -> Values {
    let all = state.config.iter().map(|(who, name, value)| (format!("{CONFIG}{who}/{name}"), value));
    let wanted = all.filter(|(key, _)| key.starts_with(prefix));
    wanted.map(|(key, value)| (key, Some(Bytes::from(value.to_owned())))).collect()
}

/// Whether it could ask for this key.
fn may_read(identity: &Identity, key: &str) -> bool {
    if key.starts_with(CONFIG) {
        return identity.caps.allows_service("config", Rwx::R);
    }
    let args = BTreeMap::from([("key".to_owned(), key.to_owned())]);
    identity.caps.allows_command("config-key", "config-key get", &args, Rwx::R)
}

impl Mon {
    /// Leaves of `data` what the session could ask for key by key. That a prefix is allowed as a key says nothing of the keys below it.
    fn readable(&self, session: SessionId, mut data: Values) -> Values {
        let Some(identity) = self.identity_of(session) else { return Values::new() };
        data.retain(|key, _| may_read(identity, key));
        data
    }

    /// Sends all that there is below the prefix.
    pub(crate) fn serve_keys(&mut self, session: SessionId, what: &str) {
        let Some(prefix) = what.strip_prefix(KvData::TOPIC) else { return };
        let data = if prefix.starts_with(CONFIG) {
            config_values(&self.state, prefix)
        } else {
            let held = self.state.config_keys.iter_prefix(prefix);
            held.map(|(key, value)| (key.clone(), Some(value.clone()))).collect()
        };
        let data = self.readable(session, data);
        let hears_of_nothing = self.identity_of(session).is_some_and(|identity| may_read(identity, prefix));
        if !data.is_empty() || hears_of_nothing {
            self.send_keys(session, prefix, false, data);
        }
    }

    /// Sends subscribers what has changed.
    pub(crate) fn publish_keys(&mut self) {
        let keys = self.state.config_keys.take_changed().into_iter();
        let keys = keys.map(|key| (key.clone(), self.state.config_keys.value(&key).cloned()));
        let keys: Values = keys.filter(|(key, _)| !key.starts_with(CONFIG)).collect();
        let options = self.state.config.take_changed().into_iter();
        let options = options.map(|(key, value)| (format!("{CONFIG}{key}"), value.map(Bytes::from)));
        let changed: Values = options.chain(keys).collect();
        if changed.is_empty() {
            return;
        }
        let topics = |entry: &Session| -> Vec<String> {
            let prefixes = entry.subscriptions.topics().filter_map(|what| what.strip_prefix(KvData::TOPIC));
            prefixes.map(str::to_owned).collect()
        };
        let due: Vec<(SessionId, Vec<String>)> =
            self.sessions.iter().map(|(id, entry)| (*id, topics(entry))).collect();
        for (session, prefixes) in due {
            for prefix in prefixes {
                let is_option = prefix.starts_with(CONFIG);
                let below = changed.iter().filter(|(key, _)| {
                    key.starts_with(prefix.as_str()) && key.starts_with(CONFIG) == is_option
                });
                let below: Values = below.map(|(key, value)| (key.clone(), value.clone())).collect();
                let data = self.readable(session, below);
                if !data.is_empty() {
                    self.send_keys(session, &prefix, true, data);
                }
            }
        }
    }

    fn send_keys(&mut self, session: SessionId, prefix: &str, incremental: bool, data: Values) {
        let version = self.state.config_keys.version() + self.state.config.version();
        self.send(session, 0, KvData { version, prefix: prefix.to_owned(), incremental, data });
    }
}

//! [`MonCaps`]: what an entity may ask of a monitor.

use super::rights::{self, Args, Constraints, Dialect, Grant, What};
use super::text_match::TextMatch;
use super::{CapsError, Rwx};
use nacre_types::AuthName;
use std::net::IpAddr;

/// Parsed monitor caps, profiles expanded.
#[derive(Debug, Clone, Default)]
pub struct MonCaps {
    grants: Vec<Grant>,
}

impl MonCaps {
    /// `allow *`.
    #[must_use]
    pub fn allow_all() -> Self {
        Self { grants: vec![Grant { what: What::Everything, fs_name: None, network: None }] }
    }

    /// Reads caps text for the entity `name`: daemons' profiles open a corner of the config-key store that
    /// carries their name. Grants limited to a network are void until [`MonCaps::at`].
    ///
    /// # Errors
    /// [`CapsError`] for text outside of the grammar.
    pub fn parse(text: &str, name: &AuthName) -> Result<Self, CapsError> {
        let expand = |profile: &str, _: Constraints| Ok(expand_profile(profile, name));
        rights::parse(text, Dialect::Mon, expand).map(|grants| Self { grants })
    }

    /// The caps of a peer at `addr`: grants for other networks fall away.
    #[must_use]
    pub fn at(self, addr: Option<IpAddr>) -> Self {
        Self { grants: rights::at(self.grants, addr) }
    }

    /// True when nothing needs to be checked.
    #[must_use]
    pub fn allows_everything(&self) -> bool {
        self.grants.iter().any(|grant| matches!(grant.what, What::Everything) && grant.network.is_none())
    }

    /// May a message that `needed` rights at `service` (`mon`, `osd`, `pg`, `log`, `mds`, ...) pass?
    #[must_use]
    pub fn allows_service(&self, service: &str, needed: Rwx) -> bool {
        self.allows_command(service, "", &Args::new(), needed)
    }

    /// True when the file system of this name is to be seen: the caps are not limited to others.
    #[must_use]
    pub fn shows_file_system(&self, name: &str) -> bool {
        let mut held = self.grants.iter().filter(|grant| grant.network.is_none());
        held.any(|grant| grant.fs_name.as_deref().is_none_or(|only| only == name))
    }

    /// May the command `prefix` with `args` pass, which belongs to `service` and needs `needed`? For
    /// commands that take caps (`auth get-or-create`) `args` holds each pair also as `caps_<service>`.
    #[must_use]
    pub fn allows_command(&self, service: &str, prefix: &str, args: &Args, needed: Rwx) -> bool {
        rights::covers(&self.grants, needed, |what| match what {
            // Secrets live there: only `allow *` and grants that name it open it.
            What::Any(_) if service == "config-key" => Rwx::NONE,
            What::Any(rights) => *rights,
            What::Service(name, rights) if name == service => *rights,
            What::Command(name, wanted) if name == prefix && rights::accepts(wanted, args) => Rwx::ALL,
            _ => Rwx::NONE,
        })
    }
}

fn service(name: &str, rights: &str) -> What {
    What::Service(name.to_owned(), Rwx::of_letters(rights))
}

fn command(name: &str, wanted: Vec<(&str, TextMatch)>) -> What {
    What::Command(name.to_owned(), wanted.into_iter().map(|(key, wanted)| (key.to_owned(), wanted)).collect())
}

/// `daemon-private/<entity>/` in the config-key store.
fn private_keys(name: &AuthName) -> impl Iterator<Item = What> {
    let prefix = format!("daemon-private/{name}/");
    ["get", "put", "set", "exists", "delete"]
        .into_iter()
        .map(move |verb| command(&format!("config-key {verb}"), vec![("key", TextMatch::prefix(&prefix))]))
}

fn daemon(services: Vec<What>, name: &AuthName) -> Vec<What> {
    services.into_iter().chain(private_keys(name)).collect()
}

/// What `ceph-volume` and friends need to create a daemon's key: read the maps, and one form of one command.
fn bootstrap(entity_prefix: &str, caps: Vec<(&str, TextMatch)>) -> Vec<What> {
    let mut wanted = vec![("entity", TextMatch::prefix(entity_prefix))];
    wanted.extend(caps);
    vec![
        service("mon", "r"),
        service("osd", "r"),
        command("mon getmap", vec![]),
        command("auth get-or-create", wanted),
    ]
}

/// Every OSD caps text that consists of rbd profiles only.
const RBD_PROFILES: &str =
    "^([ ,]*profile(=|[ ]+)['\"]?rbd[^ ,'\"]*['\"]?([ ]+pool(=|[ ]+)['\"]?[^,'\"]+['\"]?)?)+$";

fn bootstrap_rbd(mon_caps: &str) -> Vec<What> {
    let wanted = vec![
        ("entity", TextMatch::prefix("client.")),
        ("caps_mon", TextMatch::equal(mon_caps)),
        ("caps_osd", TextMatch::regex(RBD_PROFILES)),
    ];
    vec![service("mon", "r"), command("auth get-or-create", wanted)]
}

fn reader() -> Vec<What> {
    vec![service("mon", "r"), service("osd", "r"), service("pg", "r")]
}

/// A lock's next owner fences the dead one, by exact address only (Ceph lets it fence whole ranges, too); `blacklist` is the command's old spelling.
fn fencing(spelling: &str) -> What {
    let wanted = vec![
        (format!("{spelling}op"), TextMatch::equal("add")),
        ("addr".to_owned(), TextMatch::regex("^[^/]+/[0-9]+$")),
        ("range".to_owned(), TextMatch::Absent),
    ];
    What::Command(format!("osd {spelling}"), wanted)
}

fn rbd(key: Option<TextMatch>) -> Vec<What> {
    let key = key.map(|wanted| command("config-key get", vec![("key", wanted)]));
    reader().into_iter().chain([fencing("blocklist"), fencing("blacklist")]).chain(key).collect()
}

/// The grants behind a profile's name; an unknown name grants nothing, as in Ceph. Those of daemons and clients
/// were compared with what a running v16.2.15 monitor lets pass.
fn expand_profile(profile: &str, name: &AuthName) -> Vec<What> {
    let equal = TextMatch::equal;
    match profile {
        "read-only" => vec![What::Any(Rwx::R)],
        "read-write" => vec![What::Any(Rwx::R | Rwx::W)],
        "mon" => daemon(vec![service("mon", "rwx"), service("log", "rwx")], name),
        "osd" => {
            let services = [("osd", "rwx"), ("mon", "r"), ("pg", "rw"), ("log", "w")];
            daemon(services.map(|(name, rights)| service(name, rights)).to_vec(), name)
        }
        "mds" => {
            let services = [("mds", "rwx"), ("mon", "r"), ("osd", "r"), ("log", "w")];
            let commands = ["osd pool rmsnap", "osd blocklist", "osd blacklist"];
            let services = services.into_iter().map(|(name, rights)| service(name, rights));
            daemon(services.chain(commands.map(|name| command(name, vec![]))).collect(), name)
        }
        "mgr" => {
            let writable = ["log", "mon", "mds", "fs", "osd", "config-key", "config"];
            let services = writable.into_iter().map(|name| service(name, "rw"));
            let all = ["mgr", "auth"].into_iter().map(|name| service(name, "rwx"));
            daemon(services.chain(all).collect(), name)
        }
        "bootstrap-osd" => {
            let commands = ["mon getmap", "osd new", "osd purge-new"];
            let readable = ["mon", "osd"].map(|name| service(name, "r"));
            readable.into_iter().chain(commands.map(|name| command(name, vec![]))).collect()
        }
        "bootstrap-mds" => bootstrap(
            "mds.",
            vec![
                ("caps_mon", equal("allow profile mds")),
                ("caps_osd", equal("allow rwx")),
                ("caps_mds", equal("allow")),
            ],
        ),
        "bootstrap-mgr" => bootstrap("mgr.", vec![("caps_mon", equal("allow profile mgr"))]),
        "bootstrap-rgw" => {
            bootstrap("client.rgw.", vec![("caps_mon", equal("allow rw")), ("caps_osd", equal("allow rwx"))])
        }
        "bootstrap-rbd" => bootstrap_rbd("profile rbd"),
        "bootstrap-rbd-mirror" => bootstrap_rbd("profile rbd-mirror"),
        "fs-client" => reader().into_iter().chain([service("mds", "r")]).collect(),
        "simple-rados-client" => reader(),
        "simple-rados-client-with-blocklist" => reader().into_iter().chain([fencing("blocklist")]).collect(),
        "rbd" | "rbd-read-only" => rbd(None),
        "rbd-mirror" => rbd(Some(TextMatch::prefix("rbd/mirror/"))),
        "rbd-mirror-peer" => {
            let own = command("config-key set", vec![("key", TextMatch::prefix("rbd/mirror/peer/"))]);
            rbd(Some(TextMatch::regex("rbd/mirror/[^/]+"))).into_iter().chain([own]).collect()
        }
        "cephfs-mirror" => {
            let keys = command("config-key get", vec![("key", TextMatch::prefix("cephfs/mirror/peer"))]);
            reader().into_iter().chain([service("mds", "r"), keys]).collect()
        }
        "crash" => vec![service("mon", "r")],
        "role-definer" => vec![service("mon", "r"), service("auth", "rwx")],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;

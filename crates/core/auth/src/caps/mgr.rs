//! [`MgrCaps`]: what an entity may ask of the manager.

use super::rights::{self, Args, Constraints, Dialect, Grant, What};
use super::{CapsError, Rwx};
use nacre_types::AuthName;
use std::net::IpAddr;

/// Parsed manager caps, profiles expanded.
#[derive(Debug, Clone, Default)]
pub struct MgrCaps {
    grants: Vec<Grant>,
}

impl MgrCaps {
    /// `allow *`.
    #[must_use]
    pub fn allow_all() -> Self {
        Self { grants: vec![Grant { what: What::Everything, fs_name: None, network: None }] }
    }

    /// Reads caps text. The entity's name plays no part today; it is here because the monitor's caps need it.
    ///
    /// # Errors
    /// [`CapsError`] for text outside of the grammar and for profiles that do not exist.
    pub fn parse(text: &str, _name: &AuthName) -> Result<Self, CapsError> {
        rights::parse(text, Dialect::Mgr, expand_profile).map(|grants| Self { grants })
    }

    /// The caps of a peer at `addr`. A grant with a network lets no client pass, wherever it is: so it is at Ceph's manager (v16.2.15),
    /// and an operator who relies on that must not find more clients let in here.
    #[must_use]
    pub fn at(mut self, _addr: Option<IpAddr>) -> Self {
        self.grants.retain(|grant| grant.network.is_none());
        self
    }

    /// May a message that `needed` rights at `service` pass?
    #[must_use]
    pub fn allows_service(&self, service: &str, needed: Rwx) -> bool {
        self.allows_command(service, "", "", &Args::new(), needed)
    }

    /// May the command `prefix` with `args` pass, which belongs to `service` or to a `module`?
    #[must_use]
    pub fn allows_command(
        &self,
        service: &str,
        module: &str,
        prefix: &str,
        args: &Args,
        needed: Rwx,
    ) -> bool {
        rights::covers(&self.grants, needed, |what| match what {
            What::Any(rights) => *rights,
            What::Service(name, rights) if name == service => *rights,
            // A command has its arguments checked by the module itself.
            What::Module(name, wanted, rights)
                if name == module && (!prefix.is_empty() || rights::accepts(wanted, args)) =>
            {
                *rights
            }
            What::Command(name, wanted) if name == prefix && rights::accepts(wanted, args) => Rwx::ALL,
            _ => Rwx::NONE,
        })
    }
}

/// The grants behind a profile's name; here an unknown name is an error.
fn expand_profile(profile: &str, args: Constraints) -> Result<Vec<What>, CapsError> {
    match profile {
        "read-only" => Ok(vec![What::Any(Rwx::R)]),
        "read-write" => Ok(vec![What::Any(Rwx::R | Rwx::W)]),
        "crash" => Ok(vec![What::Command("crash post".to_owned(), Constraints::new())]),
        "osd" | "mds" => Ok(Vec::new()),
        "rbd" => rbd(profile, args, Rwx::R | Rwx::W),
        "rbd-read-only" => rbd(profile, args, Rwx::R),
        _ => Err(CapsError::Profile { service: "mgr", profile: profile.to_owned() }),
    }
}

/// All commands of the module behind `rbd task` and its like, within a pool and namespace if given.
fn rbd(profile: &str, args: Constraints, rights: Rwx) -> Result<Vec<What>, CapsError> {
    match args.iter().find(|(key, _)| key != "pool" && key != "namespace") {
        None => Ok(vec![What::Module("rbd_support".to_owned(), args, rights)]),
        Some((key, _)) => {
            Err(CapsError::ProfileKey { service: "mgr", profile: profile.to_owned(), key: key.clone() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(pairs: &[(&str, &str)]) -> Args {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn parse(text: &str) -> MgrCaps {
        MgrCaps::parse(text, &AuthName::default()).expect("valid caps")
    }

    #[test]
    fn profiles_open_their_module() {
        let caps = parse("profile rbd pool=p");
        let ask = |args: &Args| caps.allows_command("", "rbd_support", "", args, Rwx::R | Rwx::W);
        assert!(ask(&args(&[("pool", "p")])));
        assert!(!ask(&args(&[("pool", "q")])));
        assert!(!ask(&args(&[])));
        assert!(caps.allows_command("", "rbd_support", "rbd task list", &args(&[]), Rwx::R));
        assert!(!parse("profile rbd-read-only").allows_command("", "rbd_support", "x", &args(&[]), Rwx::W));
        assert!(parse("profile crash").allows_command("", "crash", "crash post", &args(&[]), Rwx::W));
        assert!(!parse("profile osd").allows_service("mgr", Rwx::R));
    }

    #[test]
    fn services_and_commands_are_kept_apart() {
        let caps = parse("allow service osd r, allow module dashboard rw; allow command 'pg dump'");
        assert!(caps.allows_service("osd", Rwx::R));
        assert!(!caps.allows_service("pg", Rwx::R));
        assert!(caps.allows_command("pg", "", "pg dump", &args(&[]), Rwx::ALL));
        assert!(caps.allows_command("", "dashboard", "dashboard x", &args(&[]), Rwx::W));
        assert!(parse("allow r").allows_service("config-key", Rwx::R));
    }

    #[test]
    fn unknown_profiles_and_keys_are_refused() {
        for text in ["profile nonsense", "profile rbd image=i", "allow", "", "allow qq"] {
            assert!(MgrCaps::parse(text, &AuthName::default()).is_err(), "{text}");
        }
    }
}

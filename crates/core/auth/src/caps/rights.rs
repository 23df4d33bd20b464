//! The grants that monitor and manager caps share, and their grammar.
//!
//! Source: Ceph `src/mon/MonCap.cc` and `src/mgr/MgrCap.cc` at v16.2.15.
//! ```text
//! caps    := grant { (";" | ",") grant }
//! grant   := ( "allow" rwx [fsname] | ["allow"] "profile" name [args]* | "allow" "service" name rwx
//!            | "allow" "module" name ["with" args] rwx * | "allow" "command" name ["with" args] ) [network]
//! fsname  := "fsname" ("=" | spaces) name                                  monitor only
//! args    := arg { arg }      arg := key ("=" value | "prefix" value | "regex" value)
//! rwx     := "*" | "all" | [r][w][x]                                  * manager only
//! ```

use super::lexer::Cursor;
use super::network::Network;
use super::text_match::TextMatch;
use super::{CAPS_BYTES_MAX, CapsError, Rwx};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Arguments of a command: what a constraint is checked against.
pub(super) type Args = BTreeMap<String, String>;
/// Constraints by argument name.
pub(super) type Constraints = Vec<(String, TextMatch)>;

/// What a grant gives.
#[derive(Debug, Clone)]
pub(super) enum What {
    /// `allow *`
    Everything,
    /// `allow rw`
    Any(Rwx),
    /// `allow service osd rw`
    Service(String, Rwx),
    /// `allow module rbd_support with pool=p rw`
    Module(String, Constraints, Rwx),
    /// `allow command "osd pool ls" with k=v`
    Command(String, Constraints),
    /// `profile osd`, until it is expanded.
    Profile(String, Constraints),
}

#[derive(Debug, Clone)]
pub(super) struct Grant {
    pub(super) what: What,
    /// Of file systems only this one.
    pub(super) fs_name: Option<String>,
    pub(super) network: Option<Network>,
}

/// Which of the two grammars is meant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Mon,
    Mgr,
}

impl Dialect {
    fn service(self) -> &'static str {
        match self {
            Self::Mon => "mon",
            Self::Mgr => "mgr",
        }
    }
}

/// Reads caps text; `expand` turns a profile into grants or refuses it.
pub(super) fn parse(
    text: &str,
    dialect: Dialect,
    expand: impl Fn(&str, Constraints) -> Result<Vec<What>, CapsError>,
) -> Result<Vec<Grant>, CapsError> {
    let service = dialect.service();
    if text.len() > CAPS_BYTES_MAX {
        return Err(CapsError::TooLong { service, bytes: text.len() });
    }
    let mut cursor = Cursor::new(text);
    let parsed = grants(&mut cursor, dialect);
    let syntax = |rest: &str| {
        if rest.is_empty() {
            CapsError::Truncated { service, text: text.to_owned() }
        } else {
            CapsError::Syntax { service, rest: rest.to_owned(), text: text.to_owned() }
        }
    };
    let parsed = parsed.filter(|_| cursor.rest().is_empty()).ok_or_else(|| syntax(cursor.rest()))?;
    let mut all = Vec::new();
    for Grant { what, fs_name, network } in parsed {
        match what {
            What::Profile(name, args) => {
                let expanded = expand(&name, args)?;
                let of_profile = |what| Grant { what, fs_name: None, network: network.clone() };
                all.extend(expanded.into_iter().map(of_profile));
            }
            what => all.push(Grant { what, fs_name, network }),
        }
    }
    Ok(all)
}

/// The grants that hold for a peer at `addr`.
pub(super) fn at(mut grants: Vec<Grant>, addr: Option<IpAddr>) -> Vec<Grant> {
    grants.retain_mut(|grant| match grant.network.take() {
        None => true,
        Some(network) => addr.is_some_and(|addr| network.contains(addr)),
    });
    grants
}

/// True when every constraint has its argument and accepts it.
pub(super) fn accepts(constraints: &Constraints, args: &Args) -> bool {
    constraints.iter().all(|(key, wanted)| match args.get(key) {
        Some(value) => wanted.accepts(value),
        None => matches!(wanted, TextMatch::Absent),
    })
}

/// Adds up what `grants` give by `rights_of` until it covers `needed`.
pub(super) fn covers(grants: &[Grant], needed: Rwx, rights_of: impl Fn(&What) -> Rwx) -> bool {
    let mut have = Rwx::NONE;
    grants.iter().filter(|grant| grant.network.is_none()).any(|grant| {
        have = have | rights_of(&grant.what);
        matches!(grant.what, What::Everything) || have.covers(needed)
    })
}

fn grants(c: &mut Cursor<'_>, dialect: Dialect) -> Option<Vec<Grant>> {
    let mut all = vec![c.attempt(|c| grant(c, dialect))?];
    while let Some(more) = c.attempt(|c| {
        c.skip_spaces();
        c.literal(";").or_else(|| c.literal(","))?;
        grant(c, dialect)
    }) {
        all.push(more);
    }
    Some(all)
}

fn grant(c: &mut Cursor<'_>, dialect: Dialect) -> Option<Grant> {
    c.skip_spaces();
    let blanket = c.attempt(blanket);
    let is_limited = blanket.is_some() && dialect == Dialect::Mon;
    let fs_name = is_limited.then(|| c.attempt(fs_name)).flatten();
    let what = blanket
        .or_else(|| c.attempt(|c| profile(c, dialect)))
        .or_else(|| c.attempt(service))
        .or_else(|| c.attempt(|c| module(c, dialect)))
        .or_else(|| c.attempt(|c| command(c, dialect)))?;
    let network = c.network().map(Network::parse);
    c.skip_spaces();
    Some(Grant { what, fs_name, network })
}

fn fs_name(c: &mut Cursor<'_>) -> Option<String> {
    c.keyword("fsname")?;
    c.equals_or_spaces()?;
    c.word().map(str::to_owned)
}

/// `*` is everything for a blanket grant, read, write and execute elsewhere.
fn rwx(c: &mut Cursor<'_>) -> Option<Option<Rwx>> {
    if c.literal("*").or_else(|| c.literal("all")).is_some() {
        return Some(None);
    }
    let letters = [("r", Rwx::R), ("w", Rwx::W), ("x", Rwx::X)];
    let found = letters.into_iter().map(|(letter, right)| c.literal(letter).map_or(Rwx::NONE, |()| right));
    Some(found.fold(Rwx::NONE, |all, right| all | right)).filter(|rights| !rights.is_none()).map(Some)
}

fn blanket(c: &mut Cursor<'_>) -> Option<What> {
    c.literal("allow")?;
    c.spaces()?;
    Some(rwx(c)?.map_or(What::Everything, What::Any))
}

fn profile(c: &mut Cursor<'_>, dialect: Dialect) -> Option<What> {
    c.attempt(|c| {
        c.literal("allow")?;
        c.spaces()
    });
    c.literal("profile")?;
    c.equals_or_spaces()?;
    let name = c.word()?.to_owned();
    let mut args = Constraints::new();
    if dialect == Dialect::Mgr {
        args = c
            .attempt(|c| {
                c.spaces()?;
                constraints(c, dialect)
            })
            .unwrap_or_default();
    }
    Some(What::Profile(name, args))
}

/// `allow <keyword> name`.
fn named(c: &mut Cursor<'_>, keyword: &str) -> Option<String> {
    c.literal("allow")?;
    c.keyword(keyword)?;
    c.equals_or_spaces()?;
    c.word().map(str::to_owned)
}

fn service(c: &mut Cursor<'_>) -> Option<What> {
    let name = named(c, "service")?;
    c.spaces()?;
    Some(What::Service(name, rwx(c)?.unwrap_or(Rwx::ALL)))
}

fn module(c: &mut Cursor<'_>, dialect: Dialect) -> Option<What> {
    if dialect == Dialect::Mon {
        return None;
    }
    let name = named(c, "module")?;
    let args = with(c, dialect);
    c.spaces()?;
    Some(What::Module(name, args, rwx(c)?.unwrap_or(Rwx::ALL)))
}

fn command(c: &mut Cursor<'_>, dialect: Dialect) -> Option<What> {
    let name = named(c, "command")?;
    Some(What::Command(name, with(c, dialect)))
}

fn with(c: &mut Cursor<'_>, dialect: Dialect) -> Constraints {
    c.attempt(|c| {
        c.keyword("with")?;
        c.spaces()?;
        constraints(c, dialect)
    })
    .unwrap_or_default()
}

fn constraints(c: &mut Cursor<'_>, dialect: Dialect) -> Option<Constraints> {
    let mut all = vec![c.attempt(|c| constraint(c, dialect))?];
    while let Some(more) = c.attempt(|c| {
        c.spaces()?;
        constraint(c, dialect)
    }) {
        all.push(more);
    }
    Some(all)
}

fn constraint(c: &mut Cursor<'_>, dialect: Dialect) -> Option<(String, TextMatch)> {
    let key = c.word()?.to_owned();
    let equal = |c: &mut Cursor<'_>| {
        if dialect == Dialect::Mgr {
            c.skip_spaces();
        }
        c.literal("=")?;
        if dialect == Dialect::Mgr {
            c.skip_spaces();
        }
        c.word().map(TextMatch::equal)
    };
    let wanted = c
        .attempt(equal)
        .or_else(|| c.option("prefix").map(TextMatch::prefix))
        .or_else(|| c.option("regex").map(TextMatch::regex))?;
    Some((key, wanted))
}

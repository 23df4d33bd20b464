//! [`OsdCaps`]: what a client may do with the objects of a pool.
//!
//! Grammar and meaning: Ceph `src/osd/OSDCap.cc` at v16.2.15.
//! ```text
//! caps    := grant { (";" | ",") grant }
//! grant   := "allow" (rights [match] | match rights) [network] | profile [network]
//! rights  := "*" | "all" | [r][w][x] ["class-read"] ["class-write"] | "class" name [method]
//! match   := "tag" app key "=" value | namespace "tag" .. | [pool] [namespace] ["object_prefix" prefix]
//! profile := "profile" name [pool] [namespace]
//! ```

use super::lexer::Cursor;
use super::network::Network;
use super::{CAPS_BYTES_MAX, CapsError};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Most class calls in one request that caps can decide on; a longer one needs `allow *`.
pub const CLASS_CALLS_MAX: usize = 128;

/// One call of an object class in a request.
#[derive(Debug, Clone, Copy)]
pub struct ClassCall<'a> {
    /// Name of the class.
    pub class: &'a str,
    /// Name of the method.
    pub method: &'a str,
    /// The method reads.
    pub read: bool,
    /// The method writes.
    pub write: bool,
    /// The class is one that `x` and `class-read`, `class-write` open (`osd_class_default_list`).
    pub listed: bool,
}

/// What one message wants to do.
#[derive(Debug, Clone, Copy)]
pub struct OsdRequest<'a> {
    /// Name of the pool.
    pub pool: &'a str,
    /// The object's namespace.
    pub namespace: &'a [u8],
    /// The pool's application metadata: application, key, value.
    pub applications: &'a BTreeMap<String, BTreeMap<String, String>>,
    /// The locator key when there is one, else the object's name.
    pub object: &'a [u8],
    /// Some op reads.
    pub read: bool,
    /// Some op writes.
    pub write: bool,
    /// Class calls in the message.
    pub classes: &'a [ClassCall<'a>],
}

const R: u8 = 1;
const W: u8 = 2;
const CLASS_READ: u8 = 4;
const CLASS_WRITE: u8 = 8;
const ANY: u8 = 255;

/// What a grant gives: rights, or one class.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Spec {
    Rights(u8),
    Class { class: String, method: Option<String> },
}

/// Where a namespace must lie.
#[derive(Debug, Clone, PartialEq, Eq)]
enum NamespaceMatch {
    Exactly(String),
    Prefix(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Tag {
    application: String,
    key: String,
    value: String,
}

/// Which objects a grant is about; an empty one is about all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Match {
    pool: Option<String>,
    namespace: Option<NamespaceMatch>,
    tag: Option<Tag>,
    object_prefix: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Grant {
    matches: Match,
    spec: Spec,
    network: Option<Network>,
}

/// Parsed OSD caps. Checking allocates nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OsdCaps {
    grants: Vec<Grant>,
}

impl OsdCaps {
    /// `allow *`.
    #[must_use]
    pub fn allow_all() -> Self {
        Self { grants: vec![Grant { matches: Match::default(), spec: Spec::Rights(ANY), network: None }] }
    }

    /// No rights at all.
    #[must_use]
    pub const fn none() -> Self {
        Self { grants: Vec::new() }
    }

    /// Reads caps text. Grants limited to a network are void until [`OsdCaps::at`] says where the client is.
    ///
    /// # Errors
    /// [`CapsError`] for text outside of the grammar.
    pub fn parse(text: &str) -> Result<Self, CapsError> {
        if text.len() > CAPS_BYTES_MAX {
            return Err(CapsError::TooLong { service: "osd", bytes: text.len() });
        }
        let mut cursor = Cursor::new(text);
        let grants = grants(&mut cursor);
        cursor.skip_spaces();
        match grants {
            Some(grants) if cursor.rest().is_empty() => Ok(Self { grants }),
            _ => {
                let rest = cursor.rest().to_owned();
                Err(CapsError::Syntax { service: "osd", rest, text: text.to_owned() })
            }
        }
    }

    /// The caps of a client at `addr`: grants for other networks fall away.
    #[must_use]
    pub fn at(mut self, addr: Option<IpAddr>) -> Self {
        self.grants.retain_mut(|grant| match grant.network.take() {
            None => true,
            Some(network) => addr.is_some_and(|addr| network.contains(addr)),
        });
        self
    }

    /// True when nothing needs to be checked.
    #[must_use]
    pub fn allows_everything(&self) -> bool {
        self.grants.iter().any(|grant| {
            grant.spec == Spec::Rights(ANY) && grant.matches == Match::default() && grant.network.is_none()
        })
    }

    /// True when some grant lets write in all of `pool`, or in a part of it that a namespace or a prefix sets apart: a client with such a grant may make
    /// self-managed snapshots, which are the whole pool's. A grant by tag does not count, as in Ceph (`is_osd_writable` in
    /// `src/mon/OSDMonitor.cc`).
    #[must_use]
    pub fn may_write_pool(&self, pool: &str) -> bool {
        self.grants.iter().any(|grant| {
            let place = &grant.matches;
            let everywhere = *place == Match::default();
            let here = place.pool.as_deref() == Some(pool);
            grant.network.is_none() && grant.spec.rights() & W != 0 && (everywhere || here)
        })
    }

    /// True when some grant allows all of `request`. Class calls may be allowed by different grants, reads
    /// and writes must be allowed by one.
    #[must_use]
    pub fn allows(&self, request: &OsdRequest<'_>) -> bool {
        let mut allowed_calls = 0_u128;
        self.grants
            .iter()
            .filter(|grant| grant.network.is_none() && grant.matches.accepts(request))
            .any(|grant| grant.spec.allows(request, &mut allowed_calls))
    }
}

impl Spec {
    fn rights(&self) -> u8 {
        match self {
            Self::Rights(rights) => *rights,
            Self::Class { .. } => 0,
        }
    }

    fn allows(&self, request: &OsdRequest<'_>, allowed_calls: &mut u128) -> bool {
        let rights = self.rights();
        if (request.read && rights & R == 0) || (request.write && rights & W == 0) {
            return false;
        }
        if rights == ANY {
            return true;
        }
        if request.classes.len() > CLASS_CALLS_MAX {
            return false;
        }
        for (index, call) in request.classes.iter().enumerate() {
            if self.allows_call(call) {
                *allowed_calls |= 1 << index;
            }
        }
        allowed_calls.count_ones() as usize == request.classes.len()
    }

    fn allows_call(&self, call: &ClassCall<'_>) -> bool {
        match self {
            Self::Class { class, method }
                if class == call.class && method.as_ref().is_none_or(|method| method == call.method) =>
            {
                true
            }
            _ => {
                let rights = self.rights();
                call.listed
                    && (!call.read || rights & CLASS_READ != 0)
                    && (!call.write || rights & CLASS_WRITE != 0)
            }
        }
    }
}

impl NamespaceMatch {
    fn parse(text: &str, starred: bool) -> Self {
        match text.strip_suffix('*') {
            _ if starred => Self::Prefix(text.to_owned()),
            Some(prefix) => Self::Prefix(prefix.to_owned()),
            None => Self::Exactly(text.to_owned()),
        }
    }

    fn accepts(&self, namespace: &[u8]) -> bool {
        match self {
            Self::Exactly(want) => want.as_bytes() == namespace,
            Self::Prefix(want) => namespace.starts_with(want.as_bytes()),
        }
    }
}

impl Tag {
    fn accepts(&self, applications: &BTreeMap<String, BTreeMap<String, String>>) -> bool {
        let Some(metadata) = applications.get(&self.application) else { return false };
        match (self.key.as_str(), self.value.as_str()) {
            ("*", "*") => true,
            ("*", value) => metadata.values().any(|found| found == value),
            (key, "*") => metadata.contains_key(key),
            (key, value) => metadata.get(key).is_some_and(|found| found == value),
        }
    }
}

impl Match {
    fn accepts(&self, request: &OsdRequest<'_>) -> bool {
        self.pool.as_ref().is_none_or(|pool| pool == request.pool)
            && self.namespace.as_ref().is_none_or(|namespace| namespace.accepts(request.namespace))
            && self.tag.as_ref().is_none_or(|tag| tag.accepts(request.applications))
            && self.object_prefix.as_ref().is_none_or(|prefix| request.object.starts_with(prefix.as_bytes()))
    }
}

fn grants(c: &mut Cursor<'_>) -> Option<Vec<Grant>> {
    let mut all = c.attempt(grant)?;
    let another = |c: &mut Cursor<'_>| {
        c.literal(";").or_else(|| c.literal(","))?;
        grant(c)
    };
    while let Some(more) = c.attempt(another) {
        all.extend(more);
    }
    Some(all)
}

/// One grant, which a profile turns into several.
fn grant(c: &mut Cursor<'_>) -> Option<Vec<Grant>> {
    c.skip_spaces();
    let mut grants =
        c.attempt(rights_first).or_else(|| c.attempt(match_first)).or_else(|| c.attempt(profile))?;
    if let Some(text) = c.network() {
        grants.iter_mut().for_each(|grant| grant.network = Some(Network::parse(text)));
    }
    c.skip_spaces();
    Some(grants)
}

fn rights_first(c: &mut Cursor<'_>) -> Option<Vec<Grant>> {
    c.literal("allow")?;
    let spec = spec(c)?;
    Some(vec![Grant { matches: matches(c), spec, network: None }])
}

fn match_first(c: &mut Cursor<'_>) -> Option<Vec<Grant>> {
    c.literal("allow")?;
    let matches = matches(c);
    Some(vec![Grant { matches, spec: spec(c)?, network: None }])
}

fn spec(c: &mut Cursor<'_>) -> Option<Spec> {
    c.attempt(rights).map(Spec::Rights).or_else(|| c.attempt(class))
}

fn rights(c: &mut Cursor<'_>) -> Option<u8> {
    if c.attempt(|c| {
        c.spaces()?;
        wildcard(c)
    })
    .is_some()
    {
        return Some(ANY);
    }
    let letters = c.attempt(letters).unwrap_or(0);
    let read = c.keyword("class-read").map_or(0, |()| CLASS_READ);
    let write = c.keyword("class-write").map_or(0, |()| CLASS_WRITE);
    Some(letters | read | write).filter(|rights| *rights != 0)
}

fn letters(c: &mut Cursor<'_>) -> Option<u8> {
    c.spaces()?;
    let rights = [("r", R), ("w", W), ("x", CLASS_READ | CLASS_WRITE)];
    let found = rights.into_iter().map(|(letter, right)| c.literal(letter).map_or(0, |()| right));
    Some(found.fold(0, |all, right| all | right)).filter(|rights| *rights != 0)
}

fn class(c: &mut Cursor<'_>) -> Option<Spec> {
    let class = c.option("class")?.to_owned();
    let method = c.attempt(|c| {
        c.spaces()?;
        c.word()
    });
    Some(Spec::Class { class, method: method.map(str::to_owned) })
}

fn wildcard<'a>(c: &mut Cursor<'a>) -> Option<&'a str> {
    c.literal("*").or_else(|| c.literal("all")).map(|()| "*")
}

fn matches(c: &mut Cursor<'_>) -> Match {
    let tagged = |c: &mut Cursor<'_>| Some(Match { tag: Some(tag(c)?), ..Match::default() });
    let namespace_and_tag = |c: &mut Cursor<'_>| {
        let namespace = Some(namespace(c)?);
        Some(Match { namespace, tag: Some(tag(c)?), ..Match::default() })
    };
    let with_auid = |c: &mut Cursor<'_>| {
        auid(c)?;
        Some(Match { object_prefix: c.option("object_prefix").map(str::to_owned), ..Match::default() })
    };
    c.attempt(tagged)
        .or_else(|| c.attempt(namespace_and_tag))
        .or_else(|| c.attempt(with_auid))
        .unwrap_or_else(|| {
            let pool = pool(c);
            let namespace = c.attempt(namespace);
            Match { pool, namespace, tag: None, object_prefix: c.option("object_prefix").map(str::to_owned) }
        })
}

fn tag(c: &mut Cursor<'_>) -> Option<Tag> {
    let application = c.option("tag")?.to_owned();
    c.spaces()?;
    let key = wildcard(c).or_else(|| c.word())?.to_owned();
    c.skip_spaces();
    c.literal("=")?;
    c.skip_spaces();
    let value = wildcard(c).or_else(|| c.word())?.to_owned();
    Some(Tag { application, key, value })
}

/// Old caps name the owner of a pool; pools have no owners any more, so the number is read and dropped.
fn auid(c: &mut Cursor<'_>) -> Option<()> {
    c.option("auid")?.parse::<i64>().ok().map(drop)
}

fn pool(c: &mut Cursor<'_>) -> Option<String> {
    c.attempt(|c| {
        c.keyword("pool")?;
        c.equals_or_spaces()?;
        c.word().map(str::to_owned)
    })
}

fn namespace(c: &mut Cursor<'_>) -> Option<NamespaceMatch> {
    c.keyword("namespace")?;
    c.equals_or_spaces()?;
    let text = c.word_or_empty()?;
    let starred = c.literal("*").is_some();
    Some(NamespaceMatch::parse(text, starred))
}

fn profile(c: &mut Cursor<'_>) -> Option<Vec<Grant>> {
    c.literal("profile")?;
    c.equals_or_spaces()?;
    let name = c.word()?;
    let pool = pool(c);
    let namespace = c.attempt(namespace);
    Some(expand_profile(name, Match { pool, namespace, ..Match::default() }))
}

/// The grants behind a profile's name; an unknown name grants nothing, as in Ceph.
fn expand_profile(name: &str, place: Match) -> Vec<Grant> {
    let grant = |matches: Match, spec| Grant { matches, spec, network: None };
    let rights = |rights: u8| grant(place.clone(), Spec::Rights(rights));
    let everywhere = |prefix: &str, rights: u8| {
        grant(Match { object_prefix: Some(prefix.to_owned()), ..Match::default() }, Spec::Rights(rights))
    };
    let method = |matches: Match, method: &str| {
        grant(matches, Spec::Class { class: "rbd".to_owned(), method: Some(method.to_owned()) })
    };
    let prefixed = |prefix: &str| Match { object_prefix: Some(prefix.to_owned()), ..place.clone() };
    let pool_info = Match {
        pool: place.pool.clone(),
        namespace: Some(NamespaceMatch::Exactly(String::new())),
        tag: None,
        object_prefix: Some("rbd_info".to_owned()),
    };
    match name {
        "read-only" => vec![rights(R)],
        "read-write" => vec![rights(R | W)],
        "rbd" => vec![
            everywhere("rbd_info", R),
            everywhere("rbd_children", CLASS_READ),
            everywhere("rbd_mirroring", CLASS_READ),
            method(pool_info, "metadata_list"),
            rights(R | W | CLASS_READ | CLASS_WRITE),
        ],
        "rbd-read-only" => vec![
            method(pool_info, "metadata_list"),
            rights(R | CLASS_READ),
            method(prefixed("rbd_header."), "child_attach"),
            method(prefixed("rbd_header."), "child_detach"),
        ],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
